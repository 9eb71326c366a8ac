"""Prepared files survive whatever happens to them."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from tcnaps.datasets import DatasetError
from tcnaps.datasets.arrays import Chunk
from tcnaps.datasets.preparing import Plan, Preparation, SplitLayout, open_prepared

LAYOUTS = {"train": SplitLayout(("a", "b"), (3, 2), ("x", "y")), "test": SplitLayout(("c", "d", "e"), (1, 2, 3))}
MADE = []


def grey(task: tuple[int, int]) -> tuple[np.ndarray, dict]:
    """Images of class k are grey of level k."""
    return np.full((task[1], 8, 8, 3), task[0], np.uint8), {}


def plan(work=grey) -> Plan:
    MADE.append(None)
    sizes = {split: layout.class_sizes for split, layout in LAYOUTS.items()}
    return Plan(LAYOUTS, [Chunk(split, k, n, (k, n)) for split in sizes for k, n in enumerate(sizes[split])], work)


@pytest.fixture
def toy() -> Preparation:
    """Two splits; MADE counts its preparations."""
    MADE.clear()
    return Preparation("toy", 8, {"version": 1}, plan)


def test_source_indexes_images_by_class(toy, tmp_path):
    opened = open_prepared(toy, tmp_path, "test")
    assert (opened.dataset, opened.split, opened.n_classes, opened.superclasses) == ("toy", "test", 3, None)
    np.testing.assert_array_equal(opened.class_sizes, [1, 2, 3])
    for k in range(3):
        assert (opened.images_of(k) == k).all() and len(opened.images_of(k)) == k + 1
    assert open_prepared(toy, tmp_path, "train").superclasses == ("x", "y")
    with pytest.raises(ValueError, match="read-only"):
        opened.images[0] = 1
    with pytest.raises(DatasetError, match="'toy' has no split 'valid'; it has: train, test"):
        open_prepared(toy, tmp_path, "valid")


@pytest.mark.parametrize(
    "damage", ["truncate array", "delete array", "truncate index", "delete index", "foreign index", "left over"]
)
def test_damaged_files_are_made_anew(toy, tmp_path, damage):
    open_prepared(toy, tmp_path, "test")
    array, index = toy.place(tmp_path) / "test.npy", toy.place(tmp_path) / "index.json"
    match damage:
        case "truncate array":
            array.write_bytes(array.read_bytes()[:-1])
        case "delete array":
            array.unlink()
        case "truncate index":
            index.write_text(index.read_text()[:50])
        case "delete index":
            index.unlink()
        case "foreign index":
            index.write_text("[]")
        case "left over":
            index.unlink()
            (toy.place(tmp_path) / "old.npy.partial").write_text("")
    opened = open_prepared(toy, tmp_path, "test")
    assert len(MADE) == 2
    assert (opened.images_of(2) == 2).all()
    assert not list((toy.place(tmp_path)).glob("*.partial"))


def test_a_failed_preparation_leaves_nothing_that_looks_complete(toy, tmp_path):
    def fail(task):
        raise OSError("no space left")

    with pytest.raises(DatasetError, match="'toy' can't be prepared: no space left.*make room"):
        open_prepared(replace(toy, plan=lambda: plan(fail)), tmp_path, "test")
    assert not (toy.place(tmp_path) / "index.json").exists()
    assert (open_prepared(toy, tmp_path, "test").images_of(2) == 2).all()


def test_jobs_that_ask_at_once_prepare_once(toy, tmp_path):
    def slow(task):
        time.sleep(0.1)
        return grey(task)

    preparation = replace(toy, plan=lambda: plan(slow))
    with ThreadPoolExecutor(4) as pool:
        opened = list(pool.map(lambda _: open_prepared(preparation, tmp_path, "test"), range(4)))
    assert len(opened) == 4 and len(MADE) == 1
