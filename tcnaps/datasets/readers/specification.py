"""Meta-Dataset's `dataset_spec.json`: the classes of each split, how many images each has, and their hierarchy.

Three kinds of file (google-research/meta-dataset, meta_dataset/data/dataset_spec.py), told apart by `__class__`:

    DatasetSpecification               classes and nothing above them
    BiLevelDatasetSpecification        classes in superclasses: Omniglot's alphabets
    HierarchicalDatasetSpecification   classes are the leaves of one graph per split: ImageNet's WordNet

Class ids name the files of the records. They run on from split to split: train, then valid, then test.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from itertools import accumulate, pairwise
from pathlib import Path

from tcnaps.datasets.image_source import SPLITS, DatasetError
from tcnaps.datasets.readers.shared import read_json


@dataclass(frozen=True)
class Specification:
    """A dataset.

    Attributes:
        classes: by split and name, in the order of their ids: id and number of images. A split may have none.
        superclasses, spans: see `Listing`; inner nodes are in the order of their names.
    """

    file_pattern: str
    classes: dict[str, dict[str, tuple[int, int]]]
    superclasses: dict[str, str]
    spans: dict[str, tuple[tuple[int, ...], ...]]


def read_specification(file: str | Path) -> Specification:
    """Reads and checks a dataset_spec.json.

    Raises:
        DatasetError: the file is missing, no JSON or of no known class, lacks a key, or its counts don't agree.
    """
    content = read_json(Path(file))
    try:
        return _READERS[content["__class__"]](content)
    except KeyError as error:
        problem = f"the key or value {error} is missing or unknown"
    except (TypeError, ValueError, AttributeError) as error:
        problem = f"it contradicts itself, or a value is of the wrong kind ({error})"
    raise DatasetError(f"{file}: {problem}. Replace it by the one that Meta-Dataset's conversion writes.")


def _uniform(content: dict) -> Specification:
    counts = _per_split(content, "classes_per_split")
    return _specification(content, _by_id(content["images_per_class"], sum(counts), "images_per_class"), counts)


def _bilevel(content: dict) -> Specification:
    per_split = _per_split(content, "superclasses_per_split")
    names = _by_id(content["superclass_names"], sum(per_split), "superclass_names")
    sizes = _by_id(content["classes_per_superclass"], len(names), "classes_per_superclass")
    starts = [0, *accumulate(sizes)]  # of superclasses, in class ids
    counts = [starts[end] - starts[start] for start, end in pairwise([0, *accumulate(per_split)])]
    of_class = _by_id(content["images_per_class"], sum(counts), "images_per_class")  # before a list that long is made
    above = [str(name) for name, size in zip(names, sizes) for _ in range(size)]
    return _specification(content, of_class, counts, above)


def _hierarchical(content: dict) -> Specification:
    ids = {name: int(k) for k, name in content["class_names"].items()}
    counts, sizes, spans = [], {}, []
    for nodes, images in zip(_per_split(content, "split_subgraphs"), _per_split(content, "images_per_class")):
        below = _leaves_below(nodes)
        leaves = {node for node, found in below.items() if found == {node}}
        positions = {leaf: ids[leaf] - len(sizes) for leaf in leaves}
        if sorted(positions.values()) != list(range(len(leaves))):
            raise ValueError("class_names: ids must run on from train to valid to test")
        sizes |= {ids[leaf]: images[leaf] for leaf in leaves}
        counts.append(len(leaves))
        inner = sorted(below.keys() - leaves)
        spans.append(tuple(tuple(sorted(positions[leaf] for leaf in below[node])) for node in inner))
    return _specification(content, [sizes[k] for k in range(len(sizes))], counts, spans=spans)


_READERS = {
    "DatasetSpecification": _uniform,
    "BiLevelDatasetSpecification": _bilevel,
    "HierarchicalDatasetSpecification": _hierarchical,
}


def _specification(
    content: dict, sizes: Sequence[int], counts: Sequence[int], superclasses: Sequence[str] = (), spans: Sequence = ()
) -> Specification:
    names = list(map(str, _by_id(content["class_names"], sum(counts), "class_names")))
    if len(set(names)) < len(names):
        raise ValueError("class_names: two classes have the same name")
    bounds = zip(SPLITS, pairwise([0, *accumulate(counts)]))
    classes = {split: {names[k]: (k, sizes[k]) for k in range(*part)} for split, part in bounds}
    return Specification(
        str(content["file_pattern"]), classes, dict(zip(names, superclasses)), dict(zip(SPLITS, spans))
    )


def _per_split(content: dict, key: str) -> list:
    return [content[key][split.upper()] for split in SPLITS]


def _by_id(values: dict, count: int, key: str) -> list:
    """The values of the ids 0 to count - 1; takes no longer for a count of billions."""
    by_id = {int(k): value for k, value in values.items()}
    if len(by_id) != count or set(by_id) != set(range(len(by_id))):
        raise ValueError(f"{key} must have the ids 0 to {count - 1}, as many as the counts per split add up to")
    return [by_id[k] for k in range(count)]


def _leaves_below(nodes: list[dict]) -> dict[str, set[str]]:
    """For every node of a split's graph, the leaves that lie below it; a leaf lies below itself."""
    children = {node["wn_id"]: node["children_ids"] for node in nodes}
    below: dict[str, set[str]] = {}
    for node in TopologicalSorter(children).static_order():  # children come before their parents
        below[node] = set().union(*(below[child] for child in children[node])) if children[node] else {node}
    return below
