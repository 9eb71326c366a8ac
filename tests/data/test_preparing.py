"""Prepared files survive whatever happens to them."""

import os
import random
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest

from tcnaps.data import DatasetError, ImageSource
from tcnaps.data.listing import Listing, Source
from tcnaps.data.preparing import Preparation, ensure_prepared

MADE = []


def grey(images: list[int]) -> tuple[np.ndarray, dict]:
    """Images of class k are grey of level k."""
    return np.full((len(images), 8, 8, 3), images[0], np.uint8), {}


def listing(work=grey) -> Listing:
    MADE.append(None)
    splits = {"train": {"a": [0] * 3, "b": [1] * 2}, "test": {"c": [0], "d": [1] * 2, "e": [2] * 3}}
    above = {"a": "x", "b": "y", "c": "x", "d": "x", "e": "y"}
    return Listing(splits, above, {"test": ((0, 1), (1, 2))}, work=work, images_at_once=2)


@pytest.fixture
def toy() -> Preparation:
    """Two splits; MADE counts its preparations."""
    MADE.clear()
    return Preparation("toy", 8, {"version": 1}, Source(listing))


def test_sources_index_images_by_class(toy, tmp_path):
    splits = ensure_prepared(toy, tmp_path).splits
    assert list(splits) == ["train", "test"] and splits["train"].superclasses == ("x", "y")
    source = splits["test"]
    assert (source.dataset, source.split, source.n_classes, splits["train"].spans) == ("toy", "test", 3, None)
    np.testing.assert_array_equal(source.class_sizes, [1, 2, 3])
    np.testing.assert_array_equal(source.spans, [[0, 1], [1, 2]])
    for k in range(3):
        assert (source.images_of(k) == k).all() and len(source.images_of(k)) == k + 1
    with pytest.raises(ValueError, match="read-only"):
        source.images[0] = 1


@pytest.mark.parametrize(
    ("name", "content"),
    [("test.npy", None), ("test.npy", b"cut short"), ("index.json", None), ("index.json", b"{"), ("index.json", b"[]")],
)
def test_damaged_files_are_made_anew(toy, tmp_path, name, content):
    ensure_prepared(toy, tmp_path)
    file, leftover = toy.place(tmp_path) / name, toy.place(tmp_path) / "old.partial"
    file.unlink() if content is None else file.write_bytes(content)
    leftover.write_text("")
    said = pytest.warns(UserWarning, match="test.npy is damaged") if content == b"cut short" else nullcontext()
    with said:
        assert (ensure_prepared(toy, tmp_path).splits["test"].images_of(2) == 2).all()
    assert len(MADE) == 2 and not leftover.exists()


def test_a_flipped_bit_is_found_and_the_dataset_made_anew(toy, tmp_path):
    """In the index or an array; the same process opens them again and again, as a training does."""
    splits, generator = ensure_prepared(toy, tmp_path).splits, random.Random(0)
    place, found = toy.place(tmp_path), 0
    for round_, name in enumerate(["index.json", "train.npy", "test.npy"] * 20):
        file = place / name
        content = bytearray(file.read_bytes())
        bit = generator.randrange(8 * len(content))
        content[bit // 8] ^= 1 << bit % 8
        file.write_bytes(content)
        os.utime(file, ns=(round_, round_))  # the clock of the file system may be coarse
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            again = ensure_prepared(toy, tmp_path).splits
        assert all(f"{file} is damaged" in str(warning.message) for warning in said)
        found += bool(said)
        for split, source in splits.items():
            assert str(again[split]) == str(source) and again[split].class_names == source.class_names
            assert np.array_equal(again[split].images, source.images) and again[split].digest == source.digest
    assert found > 40  # an index that is no JSON any more is made anew without a word


def test_only_the_arrays_that_are_asked_for_are_read(toy, tmp_path):
    ensure_prepared(toy, tmp_path)
    file = toy.place(tmp_path) / "train.npy"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    assert len(ensure_prepared(toy, tmp_path, ["test"]).splits) == 2 and len(MADE) == 1
    with pytest.warns(UserWarning, match="train.npy is damaged"):
        ensure_prepared(toy, tmp_path, ["train"])
    assert len(MADE) == 2


def test_a_failed_preparation_leaves_nothing_that_looks_complete(toy, tmp_path):
    def fail(images):
        raise OSError("no space left")

    with pytest.raises(DatasetError, match="'toy' can't be prepared in .*toy-8-.*: no space left.*make room"):
        ensure_prepared(replace(toy, source=Source(lambda: listing(fail))), tmp_path)
    assert not (toy.place(tmp_path) / "index.json").exists()
    assert (ensure_prepared(toy, tmp_path).splits["test"].images_of(2) == 2).all()


def test_a_dataset_without_images_is_refused(toy, tmp_path):
    with pytest.raises(DatasetError, match="'toy' has no images in a split train, valid, test"):
        ensure_prepared(replace(toy, source=Source(lambda: Listing({"train": {}}))), tmp_path)


def test_jobs_that_ask_at_once_prepare_once(toy, tmp_path):
    def slow(images):
        time.sleep(0.1)
        return grey(images)

    preparation = replace(toy, source=Source(lambda: listing(slow)))
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: ensure_prepared(preparation, tmp_path).splits["test"], range(4)))
    assert all(isinstance(source, ImageSource) for source in found) and len(MADE) == 1
