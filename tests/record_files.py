"""Datasets of Meta-Dataset's records for tests, written by hand."""

import json

from test_records import image_example, record

from tcnaps.datasets.records import masked_crc

UNIFORM = {
    "name": "tiny",
    "classes_per_split": {"TRAIN": 2, "VALID": 0, "TEST": 3},
    "images_per_class": {str(k): 3 + k for k in range(5)},
    "class_names": {str(k): f"kind {k}" for k in range(5)},
    "path": "/somewhere/else",
    "file_pattern": "{}.tfrecords",
    "__class__": "DatasetSpecification",
}


def content(label, number):
    """What stands for the image of a record."""
    return f"image {number} of class {label}".encode() * (number + 1)


def write_class(folder, label, n_images, mislabelled=()):
    """Writes the records of a class; `mislabelled` are numbers of records that say they are of the next class."""
    examples = (image_example(content(label, k), label + (k in mislabelled)) for k in range(n_images))
    file = folder / f"{label}.tfrecords"
    file.write_bytes(b"".join(record(example, masked_crc) for example in examples))
    return file


def write_specification(folder, specification):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "dataset_spec.json").write_text(json.dumps(specification))


def write_uniform(folder, **changes):
    """Writes the dataset of `UNIFORM`, after changes to its specification."""
    write_specification(folder, UNIFORM | changes)
    for label in range(5):
        write_class(folder, label, 3 + label)
    return folder
