"""Meta-Dataset's TFRecord files without TensorFlow: one file per class, one `tf.train.Example` per image.

A file is a sequence of records and nothing else:

    length          8 bytes, little-endian
    its checksum    4 bytes, little-endian: masked CRC-32C of those 8 bytes
    data            `length` bytes: a serialised `tf.train.Example`
    its checksum    4 bytes

Every checksum is compared; only a file that was cut between two records can't be told from a shorter one.

Sources: the format and the mask, TensorFlow's tensorflow/core/lib/io/record_writer.h and
tensorflow/core/lib/hash/crc32c.h; the fields, tensorflow/core/example/{example,feature}.proto; the encoding,
protobuf.dev/programming-guides/encoding; the features `image` and `label`, Meta-Dataset's data/decoder.py.
"""

import os
import struct
from collections.abc import Iterator
from pathlib import Path

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
VARINT, DELIMITED, FIXED = 0, 2, {1: 8, 5: 4}  # protobuf's wire types; those of fixed length with their bytes


class RecordError(DatasetError):
    """A TFRecord file is damaged, or holds something else than images of its class."""


def read_index(path: str | Path) -> tuple[Int64[np.ndarray, " n_records"], Int64[np.ndarray, " n_records"]]:
    """Where the records of a file lie. Reads and checks their lengths, not their data.

    Returns:
        offsets: bytes from the file's start to each record's start, its length field.
        lengths: bytes of each record's data; a record takes 16 more.

    Raises:
        RecordError: the file is empty, cut short or not a TFRecord file, or the checksum of a length is wrong.
        OSError: the file can't be opened.
    """
    offsets, lengths = [], []
    with open(path, "rb", buffering=0) as stream:  # a buffer would read the data that is skipped
        size = os.fstat(stream.fileno()).st_size
        if size == 0:
            raise RecordError(f"{path} is empty (0 bytes): copy or convert it again.")
        offset = 0
        while offset < size:
            header = os.pread(stream.fileno(), HEADER.size, offset)
            where = f"{path}: record {len(offsets)} at byte {offset}"
            length = _length(header, where)
            if offset + length + OVERHEAD > size:
                raise RecordError(f"{where} is cut short: the file ends after {size} bytes; copy or convert it again.")
            offsets.append(offset)
            lengths.append(length)
            offset += length + OVERHEAD
    return np.array(offsets, dtype=np.int64), np.array(lengths, dtype=np.int64)


def record_at(
    path: str | Path, offset: int | np.integer, length: int | np.integer, expected_label: int | None = None
) -> tuple[bytes, int]:
    """The encoded image and the label of one record, by its place in `read_index`.

    Raises:
        RecordError: no record of this length starts there, a checksum is wrong, or the record isn't a
            `tf.train.Example` with one `image` and one `label`, or is of another class than `expected_label`.
        OSError: the file can't be opened.
    """
    with open(path, "rb", buffering=0) as stream:
        record = os.pread(stream.fileno(), int(length) + OVERHEAD, int(offset))
    where = f"{path}: the record at byte {offset}"
    if len(record) < length + OVERHEAD or _length(record[: HEADER.size], where) != length:
        raise RecordError(f"{where} has changed since the file was looked through: it does not have {length} bytes.")
    data, footer = record[HEADER.size : -FOOTER.size], record[-FOOTER.size :]
    if masked_crc(data) != FOOTER.unpack(footer)[0]:
        raise RecordError(f"{where}: the checksum of its data is wrong: it is damaged; copy or convert it again.")
    try:
        image, label = parse_example(data)
    except RecordError as error:
        raise RecordError(f"{where}: {error}") from error
    if expected_label is not None and label != expected_label:
        raise RecordError(
            f"{where} is mislabelled: its label is {label}, but the file is of class {expected_label}. Compare the "
            "file's name with the dataset's specification."
        )
    return image, label


def masked_crc(data: bytes) -> int:
    """CRC-32C, rotated and shifted as TFRecord stores it."""
    crc = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _length(header: bytes, where: str) -> int:
    """The length of a record's data, checked against its checksum."""
    if len(header) < HEADER.size:
        raise RecordError(f"{where} is cut short; copy or convert the file again.")
    length, checksum = HEADER.unpack(header)
    if masked_crc(header[:8]) != checksum:
        remedy = "unpack it with gunzip" if header.startswith(b"\x1f\x8b") else "copy or convert it again"
        raise RecordError(
            f"{where}: the checksum of its length is wrong: the file is damaged, or not a TFRecord file; {remedy}."
        )
    return length


def parse_example(data: bytes) -> tuple[bytes, int]:
    """The features `image` (one bytes value) and `label` (one int64 value) of a serialised `tf.train.Example`.

    Other features and unknown fields are skipped. Where a feature occurs twice the last one counts.

    Raises:
        RecordError: it isn't a `tf.train.Example`, or a feature is missing, of another type or not one value.
    """
    features = {}
    for content in _parts(memoryview(data), 1):  # Example.features
        for entry in _parts(content, 1):  # Features.feature, a map
            features.update((bytes(name), value) for name in _parts(entry, 1) for value in _parts(entry, 2))
    image = _one(features, b"image", [v for part in _parts(features.get(b"image", b""), 1) for v in _parts(part, 1)])
    labels = []
    for part in _parts(features.get(b"label", b""), 3):  # Int64List: packed, or one field per number
        labels += [value for number, value in _fields(part) if number == 1 and isinstance(value, int)]
        for packed in _parts(part, 1):
            position = 0
            while position < len(packed):
                value, position = _varint(packed, position)
                labels.append(value)
    return bytes(image), _one(features, b"label", labels)


def _one(features: dict[bytes, memoryview], name: bytes, values: list):
    if len(values) != 1:
        there = ", ".join(repr(key.decode(errors="replace")) for key in sorted(features)) or "none"
        raise RecordError(
            f"the feature '{name.decode()}' has {len(values)} values of its type; there must be one. Features: {there}."
        )
    return values[0]


def _parts(message: memoryview | bytes, wanted: int) -> Iterator[memoryview]:
    """The messages, strings or packed numbers in the fields of one number."""
    return (content for number, content in _fields(message) if number == wanted and not isinstance(content, int))


def _fields(message: memoryview | bytes) -> Iterator[tuple[int, memoryview | int]]:
    """Number and content of each field of a protobuf message: an integer or bytes; fixed-length numbers are skipped."""
    position, end = 0, len(message)
    while position < end:
        key, position = _varint(message, position)
        number, wire = key >> 3, key & 7
        if wire == VARINT:
            value, position = _varint(message, position)
            yield number, value
            continue
        if wire == DELIMITED:
            length, position = _varint(message, position)
        elif wire in FIXED:
            length = FIXED[wire]
        else:
            raise RecordError(f"not a tf.train.Example: field {number} is of the unknown type {wire}.")
        if number < 1 or not 0 <= length <= end - position:
            raise RecordError(f"not a tf.train.Example: field {number} is longer than its message.")
        if wire == DELIMITED:
            yield number, message[position : position + length]
        position += length


def _varint(message: memoryview | bytes, position: int) -> tuple[int, int]:
    """A signed 64-bit integer of seven bits per byte, lowest first, and the position after it."""
    value = shift = 0
    while position < len(message) and shift < 70:  # 64 bits need ten bytes at most
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value &= 0xFFFFFFFFFFFFFFFF
            return (value - (1 << 64) if value >> 63 else value), position  # two's complement
        shift += 7
    raise RecordError("not a tf.train.Example: a number in it does not end.")
