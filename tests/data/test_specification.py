"""Meta-Dataset's specifications: what is read of the three kinds, and that what contradicts itself is refused."""

import copy
import json

import pytest
from hypothesis import given, strategies as st

from tcnaps.data.image_source import DatasetError
from tcnaps.data.readers.meta_dataset import read_specification

UNIFORM = {
    "name": "toy",
    "classes_per_split": {"TRAIN": 2, "VALID": 0, "TEST": 1},
    "images_per_class": {"2": 7, "0": 5, "1": 6},  # in any order
    "class_names": {"0": "a", "1": "b", "2": "c"},
    "path": "somewhere",
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


def written(folder, content):
    file = folder / "dataset_spec.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return file


def test_classes_of_every_split_in_the_order_of_their_ids(tmp_path):
    read = read_specification(written(tmp_path, UNIFORM))
    assert read.classes == {"train": {"a": (0, 5), "b": (1, 6)}, "valid": {}, "test": {"c": (2, 7)}}
    assert (read.file_pattern, read.superclasses, read.spans) == ("{}.tfrecords", {}, {})


def test_superclasses_run_on_from_split_to_split(tmp_path):
    read = read_specification(written(tmp_path, BILEVEL))
    assert list(read.superclasses.values()) == ["Greek", "Latin", "Latin", "Runic", "Runic"]
    assert {split: [k for k, _ in classes.values()] for split, classes in read.classes.items()} == {
        "train": [0, 1, 2],
        "valid": [3, 4],
        "test": [],
    }


def test_spans_of_every_inner_node_by_name(tmp_path):
    read = read_specification(written(tmp_path, HIERARCHICAL))
    assert read.spans["train"] == ((0, 1),) * 4  # root, x, y and z: each counts
    assert read.spans["valid"] == () and read.classes["valid"] == {}
    assert read.spans["test"] == ((0, 1), (0, 1, 2))  # part, top: positions in the split, not ids
    assert read.classes["test"] == {"m3": (2, 1), "m4": (3, 2), "m5": (4, 6)}


# What is refused


def changed(content: dict, path: str, value: object = None) -> dict:
    """A copy with the key at `path` set to a value, or taken out where there is none."""
    result = copy.deepcopy(content)
    *way, last = path.split("/")
    place = result
    for key in way:
        place = place[int(key) if isinstance(place, list) else key]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return result


GRAPH = "split_subgraphs/TRAIN"


@pytest.mark.parametrize(
    "content, message",
    [
        ("{", "is not JSON"),
        ([1], "it holds no object"),
        ('{"name": ' + "[" * 100_000, "is not JSON"),  # deeper than Python's stack
        ({}, "'class_names' is missing"),
        (changed(UNIFORM, "__class__", "Other"), "value 'Other' is missing or unknown"),
        (changed(UNIFORM, "classes_per_split/VALID"), "'VALID' is missing"),
        (changed(UNIFORM, "classes_per_split/TEST", 10**9), "counts of classes don't agree"),
        (changed(UNIFORM, "images_per_class/2"), "'2' is missing|don't agree"),
        (changed(UNIFORM, "images_per_class/1", 6.5), "images_per_class must be whole numbers"),
        (changed(BILEVEL, "images_per_class/1", -1), "images_per_class must be whole numbers"),
        (changed(UNIFORM, "class_names/2", "a"), "two classes have the same name"),
        (changed(BILEVEL, "classes_per_superclass/2", 10**9), "superclasses have 1000000003 classes, but there are 5"),
        (changed(BILEVEL, "classes_per_superclass/3", 1), "superclasses have 6 classes, but there are 5"),
        (changed(HIERARCHICAL, "split_subgraphs/TRAIN", 3), "of the wrong kind"),
        (changed(HIERARCHICAL, "images_per_class/TRAIN/m2"), "'m2' is missing"),
        (changed(HIERARCHICAL, "class_names/4", "m1"), "ids must run on"),
        (changed(HIERARCHICAL, f"{GRAPH}/0/children_ids", ["x", "w"]), "'w' is missing"),
        (changed(HIERARCHICAL, f"{GRAPH}/3/children_ids", ["y", "m1"]), "cycle"),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(tmp_path, content, message):
    with pytest.raises(DatasetError, match=f"(?s)dataset_spec.json.*{message}"):
        read_specification(written(tmp_path, content))


@given(
    st.recursive(st.none() | st.integers() | st.text(max_size=3), lambda x: st.lists(x) | st.dictionaries(st.text(), x))
)
def test_values_of_any_kind_are_refused(tmp_path_factory, value):
    for content in (UNIFORM, BILEVEL, HIERARCHICAL):
        for key in content.keys() - {"name", "path", "file_pattern"}:
            with pytest.raises(DatasetError, match="dataset_spec.json"):
                read_specification(written(tmp_path_factory.getbasetemp(), content | {key: value}))


# The files of Meta-Dataset


CLASSES = {
    "aircraft": (70, 15, 15),
    "cu_birds": (140, 30, 30),
    "dtd": (33, 7, 7),
    "fungi": (994, 200, 200),
    "ilsvrc_2012": (712, 158, 130),
    "mscoco": (0, 40, 40),
    "omniglot": (883, 81, 659),
    "quickdraw": (241, 52, 52),
    "traffic_sign": (0, 0, 43),
    "vgg_flower": (71, 15, 16),
}


@pytest.mark.parametrize("name", CLASSES)
def test_the_published_specifications(reference, name):
    read = read_specification(reference / "dataset_specs" / f"{name}_dataset_spec.json")
    assert tuple(map(len, read.classes.values())) == CLASSES[name]
    ids = [k for classes in read.classes.values() for k, _ in classes.values()]
    assert ids == list(range(sum(CLASSES[name])))
    assert bool(read.spans) == (name == "ilsvrc_2012") and bool(read.superclasses) == (name == "omniglot")
