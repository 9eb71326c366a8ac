"""Meta-Dataset's records: a folder with dataset_spec.json and one file per class, `<class id>.tfrecords`.

Its specifications describe classes alone, classes in superclasses (BiLevel: Omniglot's alphabets), or the leaves of one
graph per split (Hierarchical: ImageNet's WordNet); see dataset_spec.py of google-research/meta-dataset. Class ids are
numbered through all splits: train, then valid, then test. As in Meta-Dataset, EXIF's orientation is ignored.

A file is a sequence of records: the length of the data (8 bytes, little-endian), the masked CRC-32C of those 8 bytes (4
bytes), the data (a serialised `tf.train.Example`), and the data's masked CRC-32C. See TensorFlow's
core/lib/io/record_writer.h, core/lib/hash/crc32c.h, core/example/*.proto, and protobuf.dev/programming-guides/encoding.
"""

import json
import os
import struct
from collections.abc import Iterator
from functools import partial
from graphlib import TopologicalSorter
from itertools import accumulate, pairwise
from pathlib import Path
from typing import NamedTuple

from tcnaps.config import settings
from tcnaps.data.image_source import SPLITS, DatasetError
from tcnaps.data.listing import ImageFile, Listing, Source, located, open_regular, read_file

SPECIFICATION, FILE_PATTERN = "dataset_spec.json", "{}.tfrecords"
HEADER = struct.Struct("<QI")  # length, masked CRC-32C of the length
FOOTER = struct.Struct("<I")  # masked CRC-32C of the data
OVERHEAD = HEADER.size + FOOTER.size
DELIMITED = 2  # protobuf's wire type of messages, strings and packed numbers
AGAIN = "copy or convert it again"
HELP = """'path' must be the folder of one dataset, like records/omniglot, with dataset_spec.json and 0.tfrecords,
1.tfrecords and so on. Meta-Dataset's programs make them: doc/dataset_conversion.md of
github.com/google-research/meta-dataset."""


def open_records(name: str, dataset: settings.Records) -> Source:
    folder = located(dataset.path)
    needs = (folder, folder / SPECIFICATION, *sorted(folder.glob("*.tfrecords")))
    return Source(partial(list_records, folder, dataset.images_per_class), needs, HELP, read_record, orient=False)


def read_record(image: ImageFile) -> bytes:
    return record_at(image.path, *image.position)[0]


def list_records(folder: Path, images_per_class: int | None = None) -> Listing:
    """Lists all records of a dataset, or at most `images_per_class` of each class, spread evenly over its file."""
    specification = read_specification(folder / SPECIFICATION)
    if (pattern := specification.file_pattern) != FILE_PATTERN:
        remedy = f"Convert it with one file per class, '{FILE_PATTERN}'"
        raise DatasetError(f"{folder / SPECIFICATION}: file_pattern is '{pattern}', which is not read here. {remedy}.")
    splits: dict[str, dict[str, list[ImageFile]]] = {split: {} for split in specification.classes}
    for split, classes in specification.classes.items():
        for class_name, (label, size) in classes.items():
            file = folder / FILE_PATTERN.format(label)
            if len(places := read_index(file)) != size:
                problem = f"has {len(places)} records, but {SPECIFICATION} says {size}: one of the two was cut off or"
                raise DatasetError(f"{file} {problem} is of another conversion. Copy or convert both again.")
            kept = min(size, images_per_class or size)
            chosen = [places[k * size // kept] for k in range(kept)]
            splits[split][class_name] = [ImageFile(str(file), (*place, label)) for place in chosen]
    return Listing(splits, specification.superclasses, specification.spans)


class Specification(NamedTuple):
    file_pattern: str
    classes: dict[str, dict[str, tuple[int, int]]]  # split -> class name -> (id, number of images), ordered by ids
    superclasses: dict[str, str]
    spans: dict[str, tuple[tuple[int, ...], ...]]  # inner nodes are sorted by name


def read_specification(file: Path) -> Specification:
    try:
        content = json.loads(read_file(ImageFile(file)).decode("utf-8-sig"))
        names = list(map(str, _by_id(content["class_names"])))
        read = _READERS[content["__class__"].removesuffix("DatasetSpecification")]
        counts, sizes, superclasses, spans = read(content, names)
        if not len(set(names)) == len(names) == len(sizes) == sum(counts):
            raise ValueError("the counts of classes don't agree, or two classes have the same name")
        if not all(type(size) is int and size >= 0 for size in sizes):
            raise ValueError("images_per_class must be whole numbers")
        bounds = zip(SPLITS, pairwise([0, *accumulate(counts)]))
        classes = {split: {names[k]: (k, sizes[k]) for k in range(*part)} for split, part in bounds}
        above = dict(zip(names, superclasses))
        return Specification(str(content["file_pattern"]), classes, above, dict(zip(SPLITS, spans)))
    except KeyError as error:
        problem = f"the key or value {error} is missing or unknown"
    except (OSError, TypeError, ValueError, AttributeError, RecursionError) as error:
        problem = f"it can't be read or contradicts itself, or a value is of the wrong kind ({error})"
    raise DatasetError(f"{file}: {problem}. Replace it by the one that Meta-Dataset's conversion writes.")


def _uniform(content: dict, names: list[str]) -> tuple:
    return _per_split(content, "classes_per_split"), _by_id(content["images_per_class"]), (), ()


def _bilevel(content: dict, names: list[str]) -> tuple:
    sizes = _by_id(content["classes_per_superclass"])
    if sum(sizes) != len(names):  # checked before a list of a wrong, perhaps huge, length is made
        raise ValueError(f"superclasses have {sum(sizes)} classes, but there are {len(names)}")
    groups = zip(_by_id(content["superclass_names"]), sizes, strict=True)
    above = [str(name) for name, size in groups for _ in range(size)]
    bounds = pairwise([0, *accumulate(_per_split(content, "superclasses_per_split"))])
    return [sum(sizes[start:end]) for start, end in bounds], _by_id(content["images_per_class"]), above, ()


def _hierarchical(content: dict, names: list[str]) -> tuple:
    counts, sizes, spans = [], [], []
    for nodes, images in zip(_per_split(content, "split_subgraphs"), _per_split(content, "images_per_class")):
        children = {node["wn_id"]: node["children_ids"] for node in nodes}
        below: dict[str, set[str]] = {}  # the leaves below every node; a leaf counts as below itself
        for node in TopologicalSorter(children).static_order():  # children come before their parents
            below[node] = set().union(*(below[child] for child in children[node])) or {node}
        leaves = [name for name in names if below.get(name) == {name}]
        position = {leaf: k for k, leaf in enumerate(leaves)}
        inner = sorted(node for node, leaves_below in below.items() if leaves_below != {node})
        spans.append(tuple(tuple(sorted(position[leaf] for leaf in below[node])) for node in inner))
        sizes += [images[leaf] for leaf in leaves]
        counts.append(len(leaves))
        if names[len(sizes) - len(leaves) : len(sizes)] != leaves:
            raise ValueError("class_names: ids must run on from train to valid to test")
    return counts, sizes, (), spans


_READERS = {"": _uniform, "BiLevel": _bilevel, "Hierarchical": _hierarchical}  # by the beginning of the class's name


def _per_split(content: dict, key: str) -> list:
    return [content[key][split.upper()] for split in SPLITS]


def _by_id(values: dict) -> list:
    """The values of ids 0, 1, 2, ..."""
    return [values[str(k)] for k in range(len(values))]


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
    try:
        import google_crc32c
    except ImportError as error:
        raise DatasetError("TFRecord files need the package google-crc32c: pip install 'tcnaps[records]'.") from error
    crc = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _length(header: bytes, where: str) -> int:
    """The length of a record's data, checked against its checksum."""
    if len(header) < HEADER.size:
        raise DatasetError(f"{where} is cut short; {AGAIN}.")
    length, checksum = HEADER.unpack(header)
    if masked_crc(header[:8]) != checksum:
        reasons = "is wrong: the file is damaged or packed, or not a TFRecord file"
        raise DatasetError(f"{where}: the checksum of its length {reasons}; unpack it, or {AGAIN}.")
    return length


def parse_example(data: bytes) -> tuple[bytes, int]:
    """The features `image` (one bytes value) and `label` (one int64 value). If one is repeated, the last counts."""
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
