"""TFRecord files: what was written is read, and whatever is damaged is named by file, record and byte."""

import gzip
import hashlib
import importlib.util
import json
import struct
import sys
import tracemalloc
from functools import cache

import numpy as np
import pytest
from hypothesis import given, strategies as st

pytest.importorskip("google_crc32c", reason="google-crc32c is not installed: pip install 'tcnaps[records]'")

from tcnaps.datasets import DatasetError, records  # noqa: E402
from tcnaps.datasets.records import RecordError, masked_crc, parse_example, read_index, read_records, record_at  # noqa: E402

IMAGES = [(b"first image", 3), (b"", 3), (b"\x00\xffthird" * 40, 3)]


# A naive writer: CRC-32C a bit at a time, protobuf by hand


def slow_masked_crc(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)  # Castagnoli's polynomial, reversed
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17 & 0xFFFFFFFF)) + 0xA282EAD8) % 2**32


def varint(value):
    value %= 2**64
    encoded = []
    while value > 127:
        encoded.append(value % 128 + 128)
        value //= 128
    return bytes([*encoded, value])


def field(number, content):
    return varint(number * 8 + 2) + varint(len(content)) + content


def number_field(number, value):
    return varint(number * 8) + varint(value)


def bytes_list(*values):
    return field(1, b"".join(field(1, value) for value in values))


def float_list(*values):
    return field(2, field(1, struct.pack(f"<{len(values)}f", *values)))


def int64_list(*values, packed=True):
    if packed:
        return field(3, field(1, b"".join(map(varint, values))))
    return field(3, b"".join(number_field(1, value) for value in values))


def example(*features):
    """A tf.train.Example of (name, feature) pairs, in this order."""
    return field(1, b"".join(field(1, field(1, name.encode()) + field(2, feature)) for name, feature in features))


def image_example(image, label):
    return example(("image", bytes_list(image)), ("label", int64_list(label)))


def record(data, crc=slow_masked_crc):
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", crc(length)) + data + struct.pack("<I", crc(data))


@pytest.fixture
def file(tmp_path):
    """A file of three records of class 3."""
    file = tmp_path / "3.tfrecords"
    file.write_bytes(b"".join(record(image_example(*image)) for image in IMAGES))
    return file


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
    assert list(read_records(file)) == list(read_records(str(file), expected_label=3)) == IMAGES


def test_the_index_leads_to_every_record(file):
    offsets, lengths = read_index(file)
    assert offsets.tolist() == starts()[:-1] and offsets.dtype == lengths.dtype == np.int64
    assert lengths.tolist() == [len(image_example(*image)) for image in IMAGES]
    for number in (2, 0, 1):
        assert record_at(file, offsets[number], lengths[number], expected_label=3) == IMAGES[number]


@given(st.binary(max_size=300), st.integers(-(2**63), 2**63 - 1), st.booleans(), st.booleans())
def test_any_image_and_label_in_any_order_and_encoding(image, label, label_first, packed):
    features = [("image", bytes_list(image)), ("label", int64_list(label, packed=packed))]
    assert parse_example(example(*features[:: -1 if label_first else 1])) == (image, label)


def test_other_features_and_unknown_fields_are_skipped():
    known = field(1, field(1, b"image") + field(2, bytes_list(b"x") + field(9, b"?")) + number_field(7, 300))
    others = example(("height", int64_list(8, 9)), ("score", float_list(0.5)), ("empty", b""), ("label", int64_list(5)))
    fixed = varint(5 * 8 + 1) + bytes(8) + varint(6 * 8 + 5) + bytes(4) + number_field(1, 2)
    assert parse_example(fixed + others + field(1, known) + field(3, b"later version")) == (b"x", 5)


def test_of_several_values_for_one_feature_the_last_counts():
    twice = example(("label", int64_list(1)), ("image", bytes_list(b"old")), ("label", int64_list(2)))
    assert parse_example(twice + example(("image", bytes_list(b"new")))) == (b"new", 2)
    of_two_kinds = example(("image", float_list(1) + bytes_list(b"x")), ("label", bytes_list(b"y") + int64_list(4)))
    assert parse_example(of_two_kinds) == (b"x", 4)


def test_memory_does_not_grow_with_the_file(tmp_path):
    file, size, count = tmp_path / "0.tfrecords", 300_000, 30
    file.write_bytes(record(image_example(bytes(size), 0), masked_crc) * count)
    tracemalloc.start()
    try:
        assert sum(len(image) for image, _ in read_records(file)) == size * count
        read_index(file)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert size < peak < 6 * size


def test_the_official_writer_s_files(reference):
    listed = json.loads((reference / "toy_records" / "manifest.json").read_text())
    found = []
    for label in range(12):
        file = reference / "toy_records" / f"{label}.tfrecords"
        images = list(read_records(file, expected_label=label))
        assert images == [record_at(file, *place) for place in zip(*read_index(file))]
        found += [(label, i, len(image), hashlib.sha256(image).hexdigest()) for i, (image, _) in enumerate(images)]
    assert found == [(x["class"], x["index"], x["jpeg_bytes"], x["jpeg_sha256"]) for x in listed]


# What is refused


def test_every_damaged_byte_is_noticed(file):
    intact = file.read_bytes()
    for position in range(len(intact)):
        file.write_bytes(intact[:position] + bytes([intact[position] ^ 0x10]) + intact[position + 1 :])
        with pytest.raises(RecordError, match="3.tfrecords.*(checksum|cut short)"):
            list(read_records(file))


def test_wrong_checksums_name_file_record_and_byte(file):
    intact, second = file.read_bytes(), starts()[1]
    for position, part in ((0, "length"), (9, "length"), (12, "data"), (starts()[2] - 1 - second, "data")):
        position += second
        file.write_bytes(intact[:position] + bytes([intact[position] ^ 1]) + intact[position + 1 :])
        message = f"3.tfrecords: record 1 at byte {second}: the checksum of its {part} is wrong"
        reader = read_records(file)
        assert next(reader) == IMAGES[0]
        with pytest.raises(RecordError, match=message):
            next(reader)
        if part == "length":
            with pytest.raises(RecordError, match=message):
                read_index(file)
        else:
            assert len(read_index(file)[0]) == 3  # which doesn't read data
            with pytest.raises(RecordError, match=f"the record at byte {second}: the checksum of its data"):
                record_at(file, second, len(image_example(*IMAGES[1])))


def test_every_cut_is_noticed_but_one_between_records(file):
    intact = file.read_bytes()
    for end in range(1, len(intact)):
        file.write_bytes(intact[:end])
        if end in starts():
            assert list(read_records(file)) == IMAGES[: starts().index(end)]
            continue
        cut = sum(start <= end for start in starts()) - 1
        message = f"3.tfrecords: record {cut} at byte {starts()[cut]} is cut short: the file ends after {end} bytes"
        with pytest.raises(RecordError, match=message):
            list(read_records(file))
        with pytest.raises(RecordError, match=message):
            read_index(file)


def test_an_empty_file_is_refused(tmp_path):
    file = tmp_path / "empty.tfrecords"
    file.touch()
    for read in (read_index, lambda file: next(read_records(file)), lambda file: record_at(file, 0, 5)):
        with pytest.raises(RecordError, match=r"empty.tfrecords is empty \(0 bytes\)"):
            read(file)


def test_other_files_are_refused(tmp_path, file):
    packed = tmp_path / "3.tfrecords.gz"
    packed.write_bytes(gzip.compress(file.read_bytes()))
    text = tmp_path / "readme.txt"
    text.write_text("No records here, only words.")
    for read in (read_index, lambda file: next(read_records(file))):
        with pytest.raises(RecordError, match="3.tfrecords.gz is not a TFRecord file.*gunzip"):
            read(packed)
        with pytest.raises(RecordError, match=r"readme.txt is not a TFRecord file.*wrong\)\.$"):
            read(text)
        with pytest.raises(FileNotFoundError, match="absent"):
            read(tmp_path / "absent.tfrecords")


def test_mislabelled_records_are_refused(file):
    assert next(read_records(file, expected_label=None))[1] == 3
    message = "3.tfrecords: record 0 at byte 0 is mislabelled: its label is 3, but the file is of class 4"
    with pytest.raises(DatasetError, match=message):
        list(read_records(file, expected_label=4))
    with pytest.raises(RecordError, match="the record at byte 0 is mislabelled"):
        record_at(file, 0, len(image_example(*IMAGES[0])), expected_label=0)


def test_an_index_of_another_file_is_refused(file):
    offsets, lengths = read_index(file)
    with pytest.raises(RecordError, match=f"byte 0 has {lengths[0]} bytes, not {lengths[2]}: the index is of another"):
        record_at(file, offsets[0], lengths[2])
    for offset in (offsets[1] + 1, starts()[-1] + 100):
        with pytest.raises(RecordError, match=f"byte {offset}.*the index is of another file: read it anew"):
            record_at(file, offset, lengths[1])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "there is no feature 'image'; there are: none"),
        (example(("image", bytes_list(b"x"))), "no feature 'label'; there are: 'image'"),
        (example(("label", int64_list(1)), ("image/encoded", bytes_list(b"x"))), "'image'.*'image/encoded', 'label'"),
        (example(("image", float_list(1, 2)), ("label", int64_list(1))), "'image' holds.* float_list, not bytes_list"),
        (example(("image", bytes_list(b"x")), ("label", bytes_list(b"1"))), "'label' holds.* not int64_list"),
        (example(("image", b""), ("label", int64_list(1))), "'image' holds nothing, not bytes_list"),
        (example(("image", bytes_list(b"x", b"y")), ("label", int64_list(1))), "'image' has 2 values"),
        (example(("image", bytes_list(b"x")), ("label", int64_list())), "'label' has 0 values"),
        (example(("image", bytes_list(b"x")), ("label", int64_list(1, 2, packed=False))), "'label' has 2 values"),
        (varint(1 * 8 + 3), "field 1 is of the unknown type 3"),
        (varint(2) + b"x", "a field has the number 0"),
        (varint(1 * 8 + 2) + varint(5) + b"four", "field 1 is longer than its message"),
        (varint(7 * 8 + 1) + b"seven__", "field 7 is longer"),
        (b"\x80" * 3, "a number in it does not end"),
        (varint(8) + b"\xff" * 10 + b"\x01", "a number in it does not end"),
    ],
)
def test_what_is_no_example_of_an_image_and_a_label_is_refused(tmp_path, data, message):
    with pytest.raises(RecordError, match=message):
        parse_example(data)
    file = tmp_path / "7.tfrecords"
    file.write_bytes(record(image_example(b"x", 7)) + record(data))
    reader = read_records(file, 7)
    next(reader)
    with pytest.raises(RecordError, match=f"7.tfrecords: record 1 at byte [0-9]+: .*{message}"):
        next(reader)


@given(st.binary(max_size=60))
def test_bytes_of_any_kind_raise_nothing_else(data):
    for bytes_ in (data, field(1, data), field(1, field(1, field(1, b"image") + field(2, data)))):
        with pytest.raises(RecordError):
            parse_example(bytes_)


def test_a_missing_checksum_library_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "google_crc32c", None)
    specification = importlib.util.spec_from_file_location("records_anew", records.__file__)
    with pytest.raises(ImportError, match=r"google-crc32c: pip install 'tcnaps\[records\]'"):
        specification.loader.exec_module(importlib.util.module_from_spec(specification))
