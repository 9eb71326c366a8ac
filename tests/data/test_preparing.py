"""Prepared files survive whatever happens to them."""

import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from tcnaps.data import DatasetError, ImageSource
from tcnaps.data.listing import Listing
from tcnaps.data.preparing import Preparation, ensure_prepared

MADE = []


def grey(images: list[int]) -> tuple[np.ndarray, dict]:
    """Images of class k are grey of level k."""
    MADE.append(images[0])
    return np.full((len(images), 8, 8, 3), images[0], np.uint8), {}


def listing() -> Listing:
    splits = {"train": {"a": [0] * 3, "b": [1] * 2}, "test": {"c": [0], "d": [1] * 2, "e": [2] * 3}}
    return Listing(splits, {"a": "x", "b": "y", "c": "x", "d": "x", "e": "y"}, {"test": ((0, 1), (1, 2))})


OF_TRAIN, OF_TEST = [0, 0, 1], [0, 1, 2, 2]  # what is made for each split: pieces of at most two images of a class


@pytest.fixture
def toy() -> Preparation:
    """Two splits; MADE notes what is made."""
    MADE.clear()
    return Preparation("toy", 8, {"version": 1}, listing, grey, at_once=2)


def check(splits):
    for split, names in (("train", "ab"), ("test", "cde")):
        source = splits[split]
        assert source.class_names == tuple(names)
        assert all((source.images_of(k) == k).all() for k in range(len(names)))


def test_sources_index_images_by_class(toy, tmp_path):
    splits = ensure_prepared(toy, tmp_path).splits
    check(splits)
    assert list(splits) == ["train", "test"] and splits["train"].superclasses == ("x", "y")
    names = {split: {f"new {label}": k for label, k in own.items()} for split, own in listing().splits.items()}
    renamed = ensure_prepared(replace(toy, listing=lambda: Listing(names)), tmp_path / "renamed").splits["test"]
    assert (renamed.images == splits["test"].images).all() and renamed.digest != splits["test"].digest
    source = splits["test"]
    assert (source.dataset, source.split, source.n_classes, splits["train"].spans) == ("toy", "test", 3, None)
    np.testing.assert_array_equal(source.class_sizes, [1, 2, 3])
    np.testing.assert_array_equal(source.spans, [[0, 1], [1, 2]])
    with pytest.raises(ValueError):
        source.images[0] = 1
    with pytest.raises(DatasetError, match="toy"):
        ensure_prepared(replace(toy, listing=lambda: Listing({"train": {}})), tmp_path / "empty")


@pytest.mark.parametrize("content", [None, b"{", b"[]", b"{}"])
def test_a_damaged_or_lost_index_is_made_anew(toy, tmp_path, content):
    ensure_prepared(toy, tmp_path)
    file, leftover = toy.place(tmp_path) / "index.json", toy.place(tmp_path) / "old.partial"
    file.unlink() if content is None else file.write_bytes(content)
    leftover.write_text("")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        check(ensure_prepared(toy, tmp_path).splits)
    assert all("damaged" in str(warning.message) for warning in said) and bool(said) == (content is not None)
    assert MADE == 2 * (OF_TRAIN + OF_TEST) and not leftover.exists()


@pytest.mark.parametrize("change", [lambda old: None, lambda old: b"cut", lambda old: old[:-1] + b"x"])
def test_a_damaged_array_is_named_and_it_alone_is_made_anew(toy, tmp_path, change):
    digest = ensure_prepared(toy, tmp_path).splits["test"].digest
    file = toy.place(tmp_path) / "test.npy"
    content = change(file.read_bytes())
    file.unlink() if content is None else file.write_bytes(content)
    with pytest.warns(UserWarning, match="test.npy"):
        splits = ensure_prepared(toy, tmp_path).splits
    check(splits)
    assert splits["test"].digest == digest and MADE == OF_TRAIN + OF_TEST + OF_TEST


def test_only_the_arrays_that_are_asked_for_are_checked(toy, tmp_path):
    ensure_prepared(toy, tmp_path)
    file = toy.place(tmp_path) / "train.npy"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    assert len(ensure_prepared(toy, tmp_path, ["test"]).splits) == 2 and MADE == OF_TRAIN + OF_TEST
    with pytest.warns(UserWarning, match="train.npy"):
        ensure_prepared(toy, tmp_path, ["train"])
    assert MADE == OF_TRAIN + OF_TEST + OF_TRAIN


@pytest.mark.parametrize("error", [OSError("no space left"), KeyboardInterrupt()])
def test_an_interrupted_preparation_keeps_whole_splits_and_nothing_else(toy, tmp_path, error):
    def fail(images):
        if len(MADE) == 5:
            raise error
        return grey(images)

    with pytest.raises((DatasetError, KeyboardInterrupt)) as raised:
        ensure_prepared(replace(toy, work=fail), tmp_path)
    if isinstance(error, OSError):
        assert "toy-8-" in str(raised.value) and "no space left" in str(raised.value)
    assert {file.name for file in toy.place(tmp_path).iterdir()} - {".lock"} == {"train.npy", "index.json"}
    check(ensure_prepared(toy, tmp_path).splits)
    assert MADE == OF_TRAIN + OF_TEST[:2] + OF_TEST


def test_jobs_that_ask_at_once_prepare_once(toy, tmp_path):
    def slow(images):
        time.sleep(0.02)
        return grey(images)

    preparation = replace(toy, work=slow)
    with ThreadPoolExecutor(4) as pool:
        sources = list(pool.map(lambda _: ensure_prepared(preparation, tmp_path).splits["test"], range(4)))
    assert all(isinstance(source, ImageSource) for source in sources) and MADE == OF_TRAIN + OF_TEST
