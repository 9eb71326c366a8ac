"""Meta-Dataset's specifications: what is read of the three kinds, and that what contradicts itself is refused."""

import json

import pytest
from nested import changed
from record_files import BILEVEL, HIERARCHICAL, UNIFORM

from tcnaps.data.image_source import DatasetError
from tcnaps.data.readers.meta_dataset import read_specification


def written(folder, content):
    file = folder / "dataset_spec.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return file


def test_classes_of_every_split_in_the_order_of_their_ids(tmp_path):
    read = read_specification(written(tmp_path, UNIFORM))
    test = {"kind 2": (2, 5), "kind 3": (3, 6), "kind 4": (4, 7)}
    assert read.classes == {"train": {"kind 0": (0, 3), "kind 1": (1, 4)}, "valid": {}, "test": test}
    assert (read.file_pattern, read.superclasses, read.spans) == ("{}.tfrecords", {}, {})


def test_superclasses_run_on_from_split_to_split(tmp_path):
    read = read_specification(written(tmp_path, BILEVEL))
    assert list(read.superclasses.values()) == ["Greek", "Latin", "Latin", "Runic", "Runic"]
    ids = {split: [k for k, _ in classes.values()] for split, classes in read.classes.items()}
    assert ids == {"train": [0, 1, 2], "valid": [3, 4], "test": []}


def test_spans_of_every_inner_node_by_name(tmp_path):
    read = read_specification(written(tmp_path, HIERARCHICAL))
    assert read.spans["train"] == ((0, 1),) * 4  # root, x, y and z: each counts
    assert read.spans["valid"] == () and read.classes["valid"] == {}
    assert read.spans["test"] == ((0, 1), (0, 1, 2))  # part, top: positions in the split, not ids
    assert read.classes["test"] == {"m3": (2, 1), "m4": (3, 2), "m5": (4, 6)}


@pytest.mark.parametrize(
    "content",
    [
        "{",
        [1],
        '{"name": ' + "[" * 100_000,  # deeper than Python's stack
        {},
        changed(UNIFORM, ("__class__",), "Other"),
        changed(UNIFORM, ("classes_per_split", "VALID")),
        changed(UNIFORM, ("classes_per_split", "TEST"), 10**9),
        changed(UNIFORM, ("images_per_class", "2")),
        changed(UNIFORM, ("images_per_class", "1"), 6.5),
        changed(BILEVEL, ("images_per_class", "1"), -1),
        changed(UNIFORM, ("class_names", "2"), "kind 0"),
        changed(BILEVEL, ("classes_per_superclass", "2"), 10**9),
        changed(HIERARCHICAL, ("split_subgraphs", "TRAIN"), 3),
        changed(HIERARCHICAL, ("class_names", "4"), "m1"),
        changed(HIERARCHICAL, ("split_subgraphs", "TRAIN", 0, "children_ids"), ["x", "w"]),
        changed(HIERARCHICAL, ("split_subgraphs", "TRAIN", 3, "children_ids"), ["y", "m1"]),  # a cycle
    ],
    ids=range(16),
)
def test_a_file_that_contradicts_itself_is_refused(tmp_path, content):
    with pytest.raises(DatasetError, match="dataset_spec.json"):
        read_specification(written(tmp_path, content))
