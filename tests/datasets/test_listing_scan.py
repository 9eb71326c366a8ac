"""Listings: what contradicts itself is an error, what is merely odd is remarked on, every image has its row."""

from functools import partial
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tcnaps.datasets import DatasetError, SplitLayout, listing_scan
from tcnaps.datasets.listing import ImageFile, Listing, SplitListing


def listing_of(**splits: dict[str, list[str]]) -> Listing:
    def part(classes: dict[str, list[str]]) -> SplitListing:
        return SplitListing(tuple(classes), tuple([ImageFile(file) for file in files] for files in classes.values()))

    return Listing({split: part(classes) for split, classes in splits.items()})


@pytest.mark.parametrize(
    ("listing", "message"),
    [
        (listing_of(), "no images were found"),
        (listing_of(val={"a": ["1"]}), "a split 'val'; there may be train, valid, test"),
        (listing_of(test={}), "split 'test': there are no classes"),
        (listing_of(test={"a": ["1"], "b": [], "c": []}), "classes without images: 'b', 'c'"),
        (listing_of(test={"a": ["1", "2"], "b": ["3", "1"]}), "1 is listed twice, in class 'a' of test and in class"),
        (listing_of(train={"a": ["1"]}, test={"a": ["1"]}), "in class 'a' of train and in class 'a' of test"),
        (
            Listing({"test": SplitListing(("a", "b", "a"), tuple([ImageFile(file)] for file in "123"))}),
            "names must differ, but some are there twice: 'a'",
        ),
        (Listing({"test": SplitListing(("a",), ([ImageFile("1", (5,))] * 2,))}), r"1 \(5,\) is listed twice"),
    ],
)
def test_listings_that_contradict_themselves(listing, message):
    with pytest.raises(DatasetError, match=f"Dataset 'birds'.*{message}"):
        listing_scan.scan("birds", listing, Path("/"))


def test_several_images_of_one_file_are_no_repetition():
    part = SplitListing(("a",), ([ImageFile("1", (5,)), ImageFile("1", (6,)), ImageFile("1")],))
    assert listing_scan.scan("birds", Listing({"test": part}), Path("/")).n_images == 3


def test_a_split_listing_needs_as_many_of_each():
    with pytest.raises(ValueError, match="2 class_names, but 1 images"):
        SplitListing(("a", "b"), ([],))
    with pytest.raises(ValueError, match="1 class_names, but 2 superclasses"):
        SplitListing(("a",), ([],), ("x", "y"))


def test_remarks_on_single_images_and_shared_names():
    layouts = {"train": SplitLayout(tuple("abc"), (1, 2, 1)), "test": SplitLayout(tuple("ad"), (2, 2))}
    single, shared = listing_scan.remarks(layouts)
    assert single.startswith("train: 2 classes have a single image ('a', 'c')")
    assert shared.startswith("1 class name is in more than one split ('a')")
    in_scripts = {split: SplitLayout(tuple("abcde"), (2,) * 5, (split,) * 5) for split in ("train", "test")}
    assert listing_scan.remarks(in_scripts) == []


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12))
def test_chunks_hold_every_image_in_its_row(sizes):
    parts = tuple([ImageFile(f"{k}-{i}") for i in range(size)] for k, size in enumerate(sizes))
    names = tuple(f"class {k}" for k in range(len(sizes)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listing_scan, "IMAGES_PER_CHUNK", 4)
        found = listing_scan.scan("birds", Listing({"test": SplitListing(names, parts)}), Path("/"))
        chunks = list(found.chunks())
    rows = [image for part in parts for image in part]
    assert [image for chunk in chunks for image in chunk.task] == rows
    assert [chunk.start for chunk in chunks] == list(range(0, len(rows), 4))
    for row, image in enumerate(rows):
        assert found.image("test", row) == (image, names[int(image.path.split("-")[0])])


@pytest.mark.parametrize(
    "change", [{"resampling": "lanczos"}, {"orient": False}, {"box": True}, {"read": partial(repr)}]
)
def test_another_way_of_reading_is_another_scan(change):
    part = SplitListing(("a",), ([ImageFile("1")],))
    scans = [listing_scan.scan("birds", Listing({"test": part}, **keys), Path("/")) for keys in ({}, {}, change)]
    assert scans[0].digest == scans[1].digest != scans[2].digest
    assert scans[0].digests == scans[1].digests != scans[2].digests
