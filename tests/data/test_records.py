"""TFRecord files: what was written is read, and whatever is damaged is named by file, record and byte."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, strategies as st

pytest.importorskip("google_crc32c", reason="google-crc32c is not installed: pip install 'tcnaps[records]'")

from record_files import (  # noqa: E402
    bytes_list,
    example,
    field,
    float_list,
    image_example,
    int64_list,
    record,
    slow_masked_crc,
    varint,
)

from tcnaps.data import DatasetError  # noqa: E402
from tcnaps.data.readers.meta_dataset import masked_crc, parse_example, read_index, record_at  # noqa: E402

IMAGES = [(b"first image", 3), (b"", 3), (b"\x00\xffthird" * 40, 3)]


@pytest.fixture
def file(tmp_path):
    """A file of three records of class 3."""
    file = tmp_path / "3.tfrecords"
    file.write_bytes(b"".join(record(image_example(*image)) for image in IMAGES))
    return file


def read_records(file, expected_label=None):
    return [record_at(file, *place, expected_label) for place in read_index(file)]


@cache
def starts():
    """Where the records start, and where the file ends."""
    return np.cumsum([0, *(len(record(image_example(*image))) for image in IMAGES)]).tolist()


# What is read


def test_the_checksum_is_crc32c():
    assert masked_crc(b"123456789") == slow_masked_crc(b"123456789")
    unmasked = (masked_crc(b"123456789") - 0xA282EAD8) % 2**32
    assert (unmasked << 15 | unmasked >> 17) % 2**32 == 0xE3069283  # the check value of CRC-32C's definition


def test_records_come_back_in_order(file):
    assert read_records(file) == read_records(str(file), expected_label=3) == IMAGES
    assert read_index(file) == list(zip(starts(), (len(image_example(*image)) for image in IMAGES)))


@given(st.binary(max_size=300), st.integers(-(2**63), 2**63 - 1), st.booleans())
def test_any_image_and_label_in_any_order(image, label, label_first):
    features = [("image", bytes_list(image)), ("label", int64_list(label))]
    written = example(*features[:: -1 if label_first else 1])
    assert parse_example(written) == (image, label)
    assert parse_example(example(("image", bytes_list(b"old")), ("label", int64_list(1))) + written) == (image, label)


def test_other_features_and_unknown_fields_are_skipped():
    known = field(1, field(1, b"image") + field(2, bytes_list(b"x") + field(9, b"?")))
    others = example(("height", int64_list(8, 9)), ("score", float_list(0.5)), ("empty", b""), ("label", int64_list(5)))
    assert parse_example(others + field(1, known) + field(3, b"later version")) == (b"x", 5)


# What is refused


def test_every_cut_is_noticed_but_one_between_records(file):
    intact = file.read_bytes()
    for end in range(1, len(intact)):
        file.write_bytes(intact[:end])
        if end in starts():
            assert read_records(file) == IMAGES[: starts().index(end)]
            continue
        cut = sum(start <= end for start in starts()) - 1
        with pytest.raises(DatasetError, match=f"3.tfrecords: record {cut} at byte {starts()[cut]} "):
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
        example(("image", float_list(1, 2)), ("label", int64_list(1))),
        example(("image", bytes_list(b"x", b"y")), ("label", int64_list(1))),
        example(("image", bytes_list(b"x")), ("label", int64_list(1, 2))),
        varint(1 * 8 + 3) + varint(0),  # a field of another type
        varint(1 * 8 + 2) + varint(5) + b"four",  # longer than its message
        varint(8) + b"\xff" * 10 + b"\x01",  # a number that does not end
    ],
)
def test_what_is_no_example_of_an_image_and_a_label_is_refused(tmp_path, data):
    file = tmp_path / "7.tfrecords"
    file.write_bytes(record(image_example(b"x", 7)) + record(data))
    with pytest.raises(DatasetError, match="7.tfrecords: .* at byte [1-9]"):
        read_records(file, 7)
