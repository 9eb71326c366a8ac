"""Files of datasets for tests; TFRecords are written naively, protobuf by hand."""

import json
import struct

from tcnaps.data.readers.meta_dataset import masked_crc

UNIFORM = {
    "name": "tiny",
    "classes_per_split": {"TRAIN": 2, "VALID": 0, "TEST": 3},
    "images_per_class": {str(k): 3 + k for k in range(5)},
    "class_names": {str(k): f"kind {k}" for k in range(5)},
    "path": "/somewhere/else",
    "file_pattern": "{}.tfrecords",
    "__class__": "DatasetSpecification",
}

BILEVEL = {
    "name": "scripts",
    "superclasses_per_split": {"TRAIN": 2, "VALID": 1, "TEST": 0},
    "classes_per_superclass": {"0": 1, "1": 2, "2": 2},
    "images_per_class": {str(k): 20 for k in range(5)},
    "superclass_names": {"0": "Greek", "1": "Latin", "2": "Runic"},
    "class_names": {str(k): f"letter {k}" for k in range(5)},
    "path": "",
    "file_pattern": "{}_{}.tfrecords",
    "__class__": "BiLevelDatasetSpecification",
}


def nodes(**children) -> list[dict]:
    return [{"wn_id": n, "words": n, "children_ids": c.split(), "parents_ids": []} for n, c in children.items()]


HIERARCHICAL = {
    "name": "net",
    "split_subgraphs": {
        # Leaf m2 lies below two nodes; x and y have the very same leaves below them.
        "TRAIN": nodes(root="x y", x="m1 m2", y="z m1", z="m2 m1", m1="", m2=""),
        "VALID": [],
        "TEST": nodes(top="m5 part", part="m3 m4", m5="", m4="", m3=""),
    },
    "images_per_class": {
        "TRAIN": {"m1": 3, "m2": 4, "x": 7, "y": 7, "z": 7, "root": 7},
        "VALID": {},
        "TEST": {"m3": 1, "m4": 2, "m5": 6, "part": 3, "top": 9},
    },
    "class_names": {"0": "m1", "1": "m2", "2": "m3", "3": "m4", "4": "m5"},
    "path": "",
    "file_pattern": "{}.tfrecords",
    "__class__": "HierarchicalDatasetSpecification",
}


def varint(value):
    value %= 2**64
    encoded = []
    while value > 127:
        encoded.append(value % 128 + 128)
        value //= 128
    return bytes([*encoded, value])


def field(number, content):
    return varint(number * 8 + 2) + varint(len(content)) + content


def bytes_list(*values):
    return field(1, b"".join(field(1, value) for value in values))


def float_list(*values):
    return field(2, field(1, struct.pack(f"<{len(values)}f", *values)))


def int64_list(*values):
    return field(3, field(1, b"".join(map(varint, values))))


def example(*features):
    """A tf.train.Example of (name, feature) pairs, in this order."""
    return field(1, b"".join(field(1, field(1, name.encode()) + field(2, feature)) for name, feature in features))


def image_example(image, label):
    return example(("image", bytes_list(image)), ("label", int64_list(label)))


def record(data):
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked_crc(length)) + data + struct.pack("<I", masked_crc(data))


def content(label, number):
    """What stands for the image of a record."""
    return f"image {number} of class {label}".encode() * (number + 1)


def write_uniform(folder, **changes):
    """Writes the dataset of `UNIFORM`, after changes to its specification."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "dataset_spec.json").write_text(json.dumps(UNIFORM | changes))
    for label in range(5):
        examples = (image_example(content(label, k), label) for k in range(3 + label))
        (folder / f"{label}.tfrecords").write_bytes(b"".join(map(record, examples)))
    return folder


def write(folder, *paths):
    """Makes files below a folder, and returns the folder."""
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(b"x")
    return folder
