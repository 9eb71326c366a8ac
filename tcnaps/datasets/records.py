"""Meta-Dataset's TFRecord files without TensorFlow: one file a class, one `tf.train.Example` an image.

A file is a row of records and nothing else:

    length          8 bytes, little-endian
    its checksum    4 bytes, little-endian: masked CRC-32C of those 8 bytes
    data            `length` bytes: a serialised `tf.train.Example`
    its checksum    4 bytes

Every checksum is compared, so a damaged copy is noticed where it is damaged; only a file that was cut between
two records can't be told from a shorter one. Files are read a record at a time: memory doesn't grow with them.

Sources: the format and the mask, TensorFlow's tensorflow/core/lib/io/record_writer.h and
tensorflow/core/lib/hash/crc32c.h; the fields, tensorflow/core/example/{example,feature}.proto; the encoding,
protobuf.dev/programming-guides/encoding; the features `image` and `label`, Meta-Dataset's
data/decoder.py.
"""

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
from jaxtyping import Int64

from tcnaps.datasets.image_source import DatasetError

try:
    import google_crc32c
except ImportError as error:
    raise ImportError(
        "Reading TFRecord files needs the package google-crc32c: pip install 'tcnaps[records]'"
    ) from error

HEADER = struct.Struct("<QI")  # length, masked CRC-32C of the length
FOOTER = struct.Struct("<I")  # masked CRC-32C of the data
OVERHEAD = HEADER.size + FOOTER.size
VARINT, FIXED64, DELIMITED, FIXED32 = 0, 1, 2, 5  # protobuf's wire types; groups (3, 4) are long deprecated


class RecordError(DatasetError):
    """A TFRecord file isn't one, is damaged, or holds something else than images of its class."""


def read_index(path: str | Path) -> tuple[Int64[np.ndarray, " n_records"], Int64[np.ndarray, " n_records"]]:
    """Where the records of a file lie. Reads and checks their lengths, not their data.

    Returns:
        offsets: bytes from the file's start to each record's start, its length field.
        lengths: bytes of each record's data; a record takes 16 more.

    Raises:
        RecordError: the file is empty, cut short or no TFRecord file, or the checksum of a length is wrong.
        OSError: the file can't be opened.
    """
    offsets, lengths = [], []
    with open(path, "rb", buffering=0) as stream:  # a buffer would read the data that is skipped
        size = _size(stream, path)
        offset = 0
        while offset < size:
            header = os.pread(stream.fileno(), HEADER.size, offset)
            length = _length(header, size, path, len(offsets), offset)
            offsets.append(offset)
            lengths.append(length)
            offset += length + OVERHEAD
    return np.array(offsets, dtype=np.int64), np.array(lengths, dtype=np.int64)


def read_records(path: str | Path, expected_label: int | None = None) -> Iterator[tuple[bytes, int]]:
    """Iterates over the encoded image and the label of every record of a file, in order.

    Args:
        path: the file.
        expected_label: the class that every record must be of; None takes any.

    Raises:
        RecordError: the file is empty, cut short or no TFRecord file; a checksum is wrong; a record isn't a
            `tf.train.Example` with one `image` and one `label`, or is of another class.
        OSError: the file can't be opened.
    """
    with open(path, "rb") as stream:
        size = _size(stream, path)
        offset = number = 0
        while offset < size:
            length = _length(stream.read(HEADER.size), size, path, number, offset)
            yield _example(stream.read(length + FOOTER.size), path, number, offset, expected_label)
            offset += length + OVERHEAD
            number += 1


def record_at(
    path: str | Path, offset: int | np.integer, length: int | np.integer, expected_label: int | None = None
) -> tuple[bytes, int]:
    """The encoded image and the label of one record, by its place in `read_index`.

    Raises:
        RecordError: as `read_records`, or no record of this length starts there: the index is of another
            file.
        OSError: the file can't be opened.
    """
    offset, length = int(offset), int(length)
    with open(path, "rb", buffering=0) as stream:
        size = _size(stream, path)
        record = os.pread(stream.fileno(), length + OVERHEAD, offset)
    try:
        found = _length(record[: HEADER.size], size, path, None, offset)
    except RecordError as error:
        raise RecordError(f"{error} Or the index is of another file: read it anew.") from error
    if found != length:
        raise RecordError(
            f"{path}: the record at byte {offset} has {found} bytes, not {length}: the index is of another "
            "file; read it anew."
        )
    return _example(record[HEADER.size :], path, None, offset, expected_label)


def parse_example(data: bytes) -> tuple[bytes, int]:
    """The features `image` (one bytes value) and `label` (one int64 value) of a serialised `tf.train.Example`.

    Other features and unknown fields are skipped. Of a feature that is there twice the last one counts, as in
    every protobuf reader.

    Raises:
        RecordError: it isn't a `tf.train.Example`, or a feature is missing, of another type or not one value.
    """
    features = {}
    for number, wire, content in _fields(memoryview(data)):
        if (number, wire) == (1, DELIMITED):  # Example.features
            for number, wire, entry in _fields(content):
                if (number, wire) == (1, DELIMITED):  # Features.feature, a map
                    parts = {number: part for number, wire, part in _fields(entry) if wire == DELIMITED}
                    features[bytes(parts.get(1, b""))] = parts.get(2, b"")
    image = _one(_values(features, "image", "bytes_list"), "image")
    label = _one(_values(features, "label", "int64_list"), "label")
    return bytes(image), label


def masked_crc(data: bytes) -> int:
    """CRC-32C rotated and shifted as TFRecord stores it."""
    crc = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _size(stream: BinaryIO, path: str | Path) -> int:
    size = os.fstat(stream.fileno()).st_size
    if size == 0:
        raise RecordError(f"{path} is empty (0 bytes): copy or convert it again.")
    return size


def _where(path: str | Path, number: int | None, offset: int) -> str:
    record = "the record" if number is None else f"record {number}"
    return f"{path}: {record} at byte {offset}"


def _length(header: bytes, size: int, path: str | Path, number: int | None, offset: int) -> int:
    """Length of a record's data, checked against its checksum and the file's size."""
    if len(header) < HEADER.size:
        raise _cut_short(path, number, offset, size)
    length, checksum = HEADER.unpack(header)
    if masked_crc(header[:8]) != checksum:
        if offset == 0:
            remedy = "; unpack it with gunzip" if header.startswith(b"\x1f\x8b") else ""
            raise RecordError(
                f"{path} is not a TFRecord file, or is damaged from its start (the checksum of the first "
                f"record's length is wrong){remedy}."
            )
        raise RecordError(
            f"{_where(path, number, offset)}: the checksum of its length is wrong: the file is damaged; copy "
            "or convert it again."
        )
    if offset + length + OVERHEAD > size:
        raise _cut_short(path, number, offset, size)
    return length


def _cut_short(path: str | Path, number: int | None, offset: int, size: int) -> RecordError:
    return RecordError(
        f"{_where(path, number, offset)} is cut short: the file ends after {size} bytes; copy or convert it again."
    )


def _example(
    data_and_checksum: bytes, path: str | Path, number: int | None, offset: int, expected_label: int | None
) -> tuple[bytes, int]:
    """Image and label from a record's data, checked against its checksum and the class it should be of."""
    data, footer = data_and_checksum[: -FOOTER.size], data_and_checksum[-FOOTER.size :]
    if masked_crc(data) != FOOTER.unpack(footer)[0]:
        raise RecordError(
            f"{_where(path, number, offset)}: the checksum of its data is wrong: the file is damaged; copy or "
            "convert it again."
        )
    try:
        image, label = parse_example(data)
    except RecordError as error:
        raise RecordError(f"{_where(path, number, offset)}: {error}") from error
    if expected_label is not None and label != expected_label:
        raise RecordError(
            f"{_where(path, number, offset)} is mislabelled: its label is {label}, but the file is of class "
            f"{expected_label}. Compare the file's name with the dataset's specification."
        )
    return image, label


def _fields(message: memoryview | bytes) -> Iterator[tuple[int, int, memoryview | int]]:
    """Field number, wire type and content of each field of a protobuf message."""
    message = memoryview(message)
    position, end = 0, len(message)
    while position < end:
        key, position = _varint(message, position)
        number, wire = key >> 3, key & 7
        if number == 0:
            raise RecordError("not a tf.train.Example: a field has the number 0.")
        if wire == VARINT:
            content, position = _varint(message, position)
            yield number, wire, content
            continue
        if wire == DELIMITED:
            length, position = _varint(message, position)
        elif wire == FIXED64:
            length = 8
        elif wire == FIXED32:
            length = 4
        else:
            raise RecordError(f"not a tf.train.Example: field {number} is of the unknown type {wire}.")
        if position + length > end:
            raise RecordError(f"not a tf.train.Example: field {number} is longer than its message.")
        yield number, wire, message[position : position + length]
        position += length


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    """An unsigned integer of seven bits a byte, lowest first, and the position after it."""
    value = shift = 0
    while position < len(message) and shift < 70:  # 64 bits need ten bytes at most
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, position
        shift += 7
    raise RecordError("not a tf.train.Example: a number in it does not end.")


_LISTS = {"bytes_list": 1, "float_list": 2, "int64_list": 3}  # one of them makes a feature


def _values(features: dict[bytes, memoryview | bytes], name: str, kind: str) -> list:
    """The values of a feature, of the list that it must be."""
    if name.encode() not in features:
        there = ", ".join(sorted(repr(key.decode(errors="replace")) for key in features)) or "none"
        raise RecordError(f"there is no feature '{name}'; there are: {there}.")
    found, values = None, []
    for number, wire, content in _fields(features[name.encode()]):
        if wire == DELIMITED and number in _LISTS.values():
            if number != found:  # of several kinds the last one counts
                found, values = number, []
            values += _int64s(content) if number == _LISTS["int64_list"] else _byte_strings(content)
    if found != _LISTS[kind]:
        holds = "nothing" if found is None else f"a list of the kind {list(_LISTS)[found - 1]}"
        raise RecordError(f"the feature '{name}' holds {holds}, not {kind}.")
    return values


def _byte_strings(message: memoryview) -> list[memoryview]:
    return [content for number, wire, content in _fields(message) if (number, wire) == (1, DELIMITED)]


def _int64s(message: memoryview) -> list[int]:
    """Integers one field each, or packed into one field, or both."""
    values = []
    for number, wire, content in _fields(message):
        if (number, wire) == (1, VARINT):
            values.append(content)
        elif (number, wire) == (1, DELIMITED):
            position = 0
            while position < len(content):
                value, position = _varint(content, position)
                values.append(value)
    return [value - (1 << 64) if value >> 63 else value for value in values]  # two's complement


def _one(values: list, name: str) -> memoryview | int:
    if len(values) != 1:
        raise RecordError(f"the feature '{name}' has {len(values)} values; there must be one.")
    return values[0]
