"""Records of Meta-Dataset: what was written is read in its class, and damage is named by file, record and byte."""

import hashlib
import json
import pickle
import sys

import numpy as np
import pytest
from hypothesis import given, strategies as st
from PIL import Image

pytest.importorskip("google_crc32c", reason="google-crc32c is not installed: pip install 'tcnaps[records]'")

import record_files as files  # noqa: E402
from file_readers import encoded  # noqa: E402
from record_files import bytes_list, example, image_example, int64_list, record  # noqa: E402

from tcnaps.config import settings  # noqa: E402
from tcnaps.data import DatasetError, preparation  # noqa: E402
from tcnaps.data.preparing import ensure_prepared  # noqa: E402
from tcnaps.data.readers import meta_dataset  # noqa: E402
from tcnaps.data.readers.meta_dataset import masked_crc, parse_example, read_index, record_at  # noqa: E402

IMAGES = [(b"first image", 3), (b"", 3), (b"\x00\xffthird" * 40, 3)]
RECORDS = [record(image_example(*image)) for image in IMAGES]
STARTS = np.cumsum([0, *map(len, RECORDS)]).tolist()  # of the records, and where the file ends


@pytest.fixture
def file(tmp_path):
    """A file of three records of class 3."""
    file = tmp_path / "3.tfrecords"
    file.write_bytes(b"".join(RECORDS))
    return file


def read_records(file, expected_label=None):
    return [record_at(file, *place, expected_label) for place in read_index(file)]


def test_the_checksum_is_crc32c():
    unmasked = (masked_crc(b"123456789") - 0xA282EAD8) % 2**32
    assert (unmasked << 15 | unmasked >> 17) % 2**32 == 0xE3069283  # the check value of CRC-32C's definition


def test_records_come_back_in_order(file):
    assert read_records(file) == read_records(str(file), expected_label=3) == IMAGES
    assert read_index(file) == list(zip(STARTS, (len(image_example(*image)) for image in IMAGES)))


@given(st.binary(max_size=300), st.integers(-(2**63), 2**63 - 1), st.booleans())
def test_any_image_and_label_in_any_order(image, label, label_first):
    written = example(*[("image", bytes_list(image)), ("label", int64_list(label))][:: -1 if label_first else 1])
    assert parse_example(written) == (image, label)
    assert parse_example(example(("image", bytes_list(b"old")), ("label", int64_list(1))) + written) == (image, label)


def test_other_features_and_unknown_fields_are_skipped():
    known = files.field(1, files.field(1, b"image") + files.field(2, bytes_list(b"x") + files.field(9, b"?")))
    others = [("height", int64_list(8, 9)), ("score", files.float_list(0.5)), ("empty", b""), ("label", int64_list(5))]
    assert parse_example(example(*others) + files.field(1, known) + files.field(3, b"later version")) == (b"x", 5)


def test_every_cut_is_noticed_but_one_between_records(file):
    intact = file.read_bytes()
    for end in range(1, len(intact)):
        file.write_bytes(intact[:end])
        if end in STARTS:
            assert read_records(file) == IMAGES[: STARTS.index(end)]
            continue
        cut = sum(start <= end for start in STARTS) - 1
        with pytest.raises(DatasetError, match=f"3.tfrecords: record {cut} at byte {STARTS[cut]} "):
            read_index(file)


def test_mislabelled_records_and_an_index_of_another_file_are_refused(file):
    with pytest.raises(DatasetError, match="byte 0 .*label is 3, .* class 4"):
        read_records(file, expected_label=4)
    (offset, _), _, (_, length) = read_index(file)
    with pytest.raises(DatasetError, match=f"byte {offset} "):
        record_at(file, offset, length)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        example(("image", files.float_list(1, 2)), ("label", int64_list(1))),
        example(("image", bytes_list(b"x", b"y")), ("label", int64_list(1))),
        example(("image", bytes_list(b"x")), ("label", int64_list(1, 2))),
        files.varint(1 * 8 + 3) + files.varint(0),  # a field of another type
        files.varint(1 * 8 + 2) + files.varint(5) + b"four",  # longer than its message
        files.varint(8) + b"\xff" * 10 + b"\x01",  # a number that does not end
    ],
)
def test_what_is_no_example_of_an_image_and_a_label_is_refused(tmp_path, data):
    file = tmp_path / "7.tfrecords"
    file.write_bytes(record(image_example(b"x", 7)) + record(data))
    with pytest.raises(DatasetError, match="7.tfrecords: .* at byte [1-9]"):
        read_records(file, 7)


def section(path, **keys):
    return settings.Records(source="records", domain="in", path=str(path), **keys)


def listing_of(folder, **keys):
    return meta_dataset.open_records("tiny", section(folder, **keys)).listing()


def read(image):
    """As another process reads it."""
    return pickle.loads(pickle.dumps(meta_dataset.read_record))(image)


@pytest.fixture
def folder(tmp_path):
    return files.write_uniform(tmp_path / "tiny")


def test_every_image_is_listed_in_its_class(folder):
    listing = listing_of(folder)
    found = {split: list(classes) for split, classes in listing.splits.items() if classes}
    assert found == {"train": ["kind 0", "kind 1"], "test": ["kind 2", "kind 3", "kind 4"]}
    for classes, labels in ((listing.splits["train"], [0, 1]), (listing.splits["test"], [2, 3, 4])):
        for label, images in zip(labels, classes.values()):
            assert [read(image) for image in images] == [files.content(label, k) for k in range(3 + label)]
            assert {image.path for image in images} == {str(folder / f"{label}.tfrecords")}
    assert (listing.superclasses, listing.spans) == ({}, {})


def test_at_most_so_many_images_a_class_are_spread_over_its_file(folder):
    listing = listing_of(folder, images_per_class=4)
    found = [[read(image) for image in images] for images in listing.splits["test"].values()]
    chosen = {2: [0, 1, 2, 3], 3: [0, 1, 3, 4], 4: [0, 1, 3, 5]}  # of 5, 6 and 7
    assert found == [[files.content(label, k) for k in numbers] for label, numbers in chosen.items()]


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
    files.write_uniform(tmp_path)
    for label in range(5):
        labels = [2 if (label, k) == (3, 4) else label for k in range(3 + label)]
        records = (record(image_example(encoded(Image.new("L", (8, 8), 30)), said)) for said in labels)
        (tmp_path / f"{label}.tfrecords").write_bytes(b"".join(records))
    splits, _ = ensure_prepared(preparation("tiny", section(tmp_path), 8), tmp_path / "prepared")
    assert splits["test"].class_sizes.tolist() == [5, 5, 7] and (splits["test"].images == 30).all()
    report = next((tmp_path / "prepared").rglob("unreadable.csv")).read_text()
    assert "3.tfrecords" in report and "mislabelled: its label is 2, but the file is of class 3" in report


def test_pools_are_refused(tmp_path):
    with pytest.raises(DatasetError, match="dataset_spec.json: file_pattern"):
        listing_of(files.write_uniform(tmp_path, file_pattern="{}_{}.tfrecords"))


@pytest.mark.parametrize("left", [-1, 0, None])
def test_damaged_and_missing_files_are_named(folder, left):
    file = folder / "1.tfrecords"
    content = file.read_bytes()
    file.unlink() if left is None else file.write_bytes(content[:left])
    with pytest.raises(DatasetError, match="1.tfrecords"):
        listing_of(folder)


def test_a_missing_checksum_library_is_named(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "google_crc32c", None)
    with pytest.raises(DatasetError, match="google-crc32c"):
        listing_of(folder)
