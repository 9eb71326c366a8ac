"""Meta-Dataset's TFRecord files without TensorFlow: one file per class, one `tf.train.Example` per image.

A file is a sequence of records: the length of the data (8 bytes, little-endian), the masked CRC-32C of those 8 bytes (4
bytes, little-endian), the data (a serialised `tf.train.Example`), and the data's masked CRC-32C. TensorFlow's
core/lib/io/record_writer.h and core/lib/hash/crc32c.h define this, its core/example/*.proto the fields, and
protobuf.dev/programming-guides/encoding their encoding.
"""

import os
import struct
from collections.abc import Iterator
from pathlib import Path

from tcnaps.data.image_source import DatasetError
from tcnaps.data.listing import open_regular

try:
    import google_crc32c
except ImportError:  # optional: needed for records alone
    google_crc32c = None

HEADER = struct.Struct("<QI")  # length, masked CRC-32C of the length
FOOTER = struct.Struct("<I")  # masked CRC-32C of the data
OVERHEAD = HEADER.size + FOOTER.size
DELIMITED = 2  # protobuf's wire type of messages, strings and packed numbers
AGAIN = "copy or convert it again"


def read_index(path: str | Path) -> list[tuple[int, int]]:
    """Where the records of a file lie: for each the offset of its start and the length of its data, in bytes."""
    places, offset = [], 0
    try:
        with open_regular(path) as stream:
            size = os.fstat(stream.fileno()).st_size
            while offset < size:
                where = f"{path}: record {len(places)} at byte {offset}"
                length = _length(os.pread(stream.fileno(), HEADER.size, offset), where)
                places.append((offset, length))
                offset += length + OVERHEAD
    except OSError as error:
        raise DatasetError(f"{path} can't be read ({error.strerror}): {AGAIN}.") from error
    if offset > size:
        raise DatasetError(f"{where} is cut short: the file ends after {size} bytes; {AGAIN}.")
    return places


def record_at(path: str | Path, offset: int, length: int, expected_label: int | None = None) -> tuple[bytes, int]:
    """The encoded image and the label of one record, located by `read_index`. Its checksums and label are checked."""
    with open_regular(path) as stream:
        record = os.pread(stream.fileno(), length + OVERHEAD, offset)
    where = f"{path}: the record at byte {offset}"
    if _length(record[: HEADER.size], where) != length or len(record) < length + OVERHEAD:
        raise DatasetError(f"{where} has changed since the file was looked through: it does not have {length} bytes.")
    data, footer = record[HEADER.size : -FOOTER.size], record[-FOOTER.size :]
    if masked_crc(data) != FOOTER.unpack(footer)[0]:
        raise DatasetError(f"{where}: the checksum of its data is wrong: it is damaged; {AGAIN}.")
    try:
        image, label = parse_example(data)
    except DatasetError as error:
        raise DatasetError(f"{where}: {error}") from error
    if expected_label not in (None, label):
        problem = f"{where} is mislabelled: its label is {label}, but the file is of class {expected_label}"
        raise DatasetError(f"{problem}. Compare the file's name with the dataset's specification.")
    return image, label


def masked_crc(data: bytes) -> int:
    """CRC-32C, rotated and shifted as in TFRecord files."""
    if google_crc32c is None:
        raise DatasetError("Reading TFRecord files needs the package google-crc32c: pip install 'tcnaps[records]'.")
    crc = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _length(header: bytes, where: str) -> int:
    """The length of a record's data, checked against its checksum."""
    if len(header) < HEADER.size:
        raise DatasetError(f"{where} is cut short; {AGAIN}.")
    length, checksum = HEADER.unpack(header)
    if masked_crc(header[:8]) != checksum:
        reasons = "the file is damaged or packed, or not a TFRecord file"
        raise DatasetError(f"{where}: the checksum of its length is wrong: {reasons}; unpack it, or {AGAIN}.")
    return length


def parse_example(data: bytes) -> tuple[bytes, int]:
    """The features `image` (one bytes value) and `label` (one int64 value). Of each, the last one counts."""
    features = {}
    for content in _fields(memoryview(data), 1):  # Example.features
        for entry in _fields(content, 1):  # Features.feature, a map
            features.update((bytes(name), value) for name in _fields(entry, 1) for value in _fields(entry, 2))
    images = [value for part in _fields(features.get(b"image", b""), 1) for value in _fields(part, 1)]
    labels = []
    for part in _fields(features.get(b"label", b""), 3):  # Int64List, whose numbers are packed
        for packed in _fields(part, 1):
            position = 0
            while position < len(packed):
                value, position = _varint(packed, position)
                labels.append(value)
    if len(images) != 1 or len(labels) != 1:
        names = ", ".join(sorted(key.decode(errors="replace") for key in features)) or "none"
        raise DatasetError(f"it has {len(images)} images and {len(labels)} labels, not one of each. Features: {names}.")
    return bytes(images[0]), labels[0]


def _fields(message: memoryview | bytes, wanted: int) -> Iterator[memoryview]:
    """The contents of all fields with number `wanted`. An Example's fields are all messages or strings."""
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        length, position = _varint(message, position)
        if key & 7 != DELIMITED or not 0 <= length <= len(message) - position:
            raise DatasetError(f"no tf.train.Example: field {key >> 3} is of another type or longer than its message.")
        if key >> 3 == wanted:
            yield message[position : position + length]
        position += length


def _varint(message: memoryview | bytes, position: int) -> tuple[int, int]:
    """Reads a signed 64-bit integer of seven bits per byte, lowest first; returns it and the next position."""
    value = 0
    for shift, byte in zip(range(0, 70, 7), message[position : position + 10]):  # 64 bits need ten bytes at most
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value &= 0xFFFFFFFFFFFFFFFF
            return (value - (1 << 64) if value >> 63 else value), position + shift // 7 + 1  # two's complement
    raise DatasetError("no tf.train.Example: a number in it does not end.")
