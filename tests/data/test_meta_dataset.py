"""Datasets of records: every image is found once, in its class, and whatever is wrong with the files is named."""

import hashlib
import json
import pickle
import sys

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("google_crc32c", reason="google-crc32c is not installed: pip install 'tcnaps[records]'")

from file_readers import encoded  # noqa: E402
from record_files import content, image_example, record, write_uniform  # noqa: E402

from tcnaps.config import settings  # noqa: E402
from tcnaps.data import DatasetError, preparation  # noqa: E402
from tcnaps.data.preparing import ensure_prepared  # noqa: E402
from tcnaps.data.readers.meta_dataset import open_records, read_record  # noqa: E402


def section(path, **keys):
    return settings.Records(source="records", domain="in", path=str(path), **keys)


def listing_of(folder, **keys):
    return open_records("tiny", section(folder, **keys)).listing()


def read(image):
    """As another process reads it."""
    return pickle.loads(pickle.dumps(read_record))(image)


@pytest.fixture
def folder(tmp_path):
    return write_uniform(tmp_path / "tiny")


# What is listed


def test_every_image_is_listed_in_its_class(folder):
    listing = listing_of(folder)
    assert {split: list(classes) for split, classes in listing.splits.items() if classes} == {
        "train": ["kind 0", "kind 1"],
        "test": ["kind 2", "kind 3", "kind 4"],
    }
    for classes, labels in ((listing.splits["train"], [0, 1]), (listing.splits["test"], [2, 3, 4])):
        for label, images in zip(labels, classes.values()):
            assert [read(image) for image in images] == [content(label, k) for k in range(3 + label)]
            assert {image.path for image in images} == {str(folder / f"{label}.tfrecords")}
    assert (listing.superclasses, listing.spans) == ({}, {})


def test_at_most_so_many_images_a_class_are_spread_over_its_file(folder):
    listing = listing_of(folder, images_per_class=4)
    found = [[read(image) for image in images] for images in listing.splits["test"].values()]
    chosen = {2: [0, 1, 2, 3], 3: [0, 1, 3, 4], 4: [0, 1, 3, 5]}  # of 5, 6 and 7
    assert found == [[content(label, k) for k in numbers] for label, numbers in chosen.items()]


def test_the_official_writer_s_images_through_the_whole_chain(reference, tmp_path):
    pytest.importorskip("simplejpeg", reason="simplejpeg is not installed: pip install 'tcnaps[records]'")
    folder = reference / "toy_records"
    manifest = json.loads((folder / "manifest.json").read_text())
    listing = listing_of(folder)
    assert [len(listing.splits[split]) for split in ("train", "test")] == [7, 5]
    found = {
        (image.position[2], number): hashlib.sha256(read(image)).hexdigest()
        for classes in listing.splits.values()
        for images in classes.values()
        for number, image in enumerate(images)
    }
    assert found == {(entry["class"], entry["index"]): entry["jpeg_sha256"] for entry in manifest}
    official, compared = np.load(reference / "toy_decoded.npz"), 0
    decoding = settings.Decoding(jpeg_dct="fast", resampling="aligned corners")
    for size in (42, 84):
        splits, _ = ensure_prepared(preparation("toy", section(folder), size, decoding), tmp_path)
        for label, number in found:
            key = f"c{label:02d}_i{number:02d}_{size}"
            if key in official:
                grey_levels = (official[key].astype(np.float64) + 1) * 127.5
                of_class = splits["train"].images_of(label) if label < 7 else splits["test"].images_of(label - 7)
                assert np.abs(of_class[number] - grey_levels).max() < 0.5001  # their rounding to bytes, and float32's
                compared += 1
    assert compared == sum(key.endswith(("_84", "_42")) for key in official.files) > 0


def test_a_mislabelled_record_is_left_out_and_reported(tmp_path):
    write_uniform(tmp_path)
    for label in range(5):
        labels = [2 if (label, k) == (3, 4) else label for k in range(3 + label)]
        records = (record(image_example(encoded(Image.new("L", (8, 8), 30)), said)) for said in labels)
        (tmp_path / f"{label}.tfrecords").write_bytes(b"".join(records))
    splits, _ = ensure_prepared(preparation("tiny", section(tmp_path), 8), tmp_path / "prepared")
    assert splits["test"].class_sizes.tolist() == [5, 5, 7] and (splits["test"].images == 30).all()
    report = next((tmp_path / "prepared").rglob("unreadable.csv")).read_text()
    assert "3.tfrecords" in report and "mislabelled: its label is 2, but the file is of class 3" in report


# What is refused


def test_pools_are_refused(tmp_path):
    folder = write_uniform(tmp_path, file_pattern="{}_{}.tfrecords")
    with pytest.raises(DatasetError, match="dataset_spec.json: file_pattern"):
        listing_of(folder)


@pytest.mark.parametrize("content", [lambda content: content[:-1], lambda content: b""])
def test_damaged_and_missing_files_are_named(folder, content):
    file = folder / "1.tfrecords"
    file.write_bytes(content(file.read_bytes()))
    with pytest.raises(DatasetError, match="1.tfrecords"):
        listing_of(folder)
    file.unlink()
    with pytest.raises(DatasetError, match="1.tfrecords"):
        listing_of(folder)


def test_a_missing_checksum_library_is_named(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "google_crc32c", None)
    with pytest.raises(DatasetError, match="google-crc32c"):
        listing_of(folder)
