"""Meta-Dataset's `dataset_spec.json`: the classes of each split, how many images each has, and their hierarchy.

Three kinds of file (google-research/meta-dataset, meta_dataset/data/dataset_spec.py), told apart by `__class__`:

    DatasetSpecification               classes and nothing above them
    BiLevelDatasetSpecification        classes in superclasses: Omniglot's alphabets
    HierarchicalDatasetSpecification   classes are the leaves of one graph per split: ImageNet's WordNet

Class ids name the files of the records. They run on from split to split: train, then valid, then test.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import accumulate, pairwise
from pathlib import Path

from tcnaps.datasets.image_source import SPLITS, DatasetError
from tcnaps.datasets.readers.shared import read_json


@dataclass(frozen=True)
class SplitSpecification:
    """The classes of a split, in the order of their ids.

    Attributes:
        ids: of the classes.
        class_names, class_sizes: names, and numbers of images.
        superclasses: one per class, where there are superclasses.
        spans: for every inner node of the split's graph, in the order of the nodes' names, the positions of the classes
            below it; None for a dataset without a graph.
    """

    ids: range
    class_names: tuple[str, ...]
    class_sizes: tuple[int, ...]
    superclasses: tuple[str, ...] | None = None
    spans: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True)
class Specification:
    """A dataset. `splits` has "train", "valid" and "test", some of them perhaps without classes."""

    name: str
    file_pattern: str
    splits: dict[str, SplitSpecification]


class _Contradiction(Exception):
    """Two parts of a file don't agree."""


def read_specification(file: str | Path) -> Specification:
    """Reads and checks a dataset_spec.json.

    Raises:
        DatasetError: the file is missing, is not JSON or of no known class, lacks a key, has counts that don't agree,
            or has a class without images.
    """
    content = read_json(Path(file))
    try:
        kind = content["__class__"]
        if kind not in _READERS:
            raise _Contradiction(f"__class__: there is no {kind!s:.50}; known are {', '.join(_READERS)}")
        splits = _READERS[kind](content)
        return Specification(str(content["name"]), str(content["file_pattern"]), dict(zip(SPLITS, splits)))
    except KeyError as error:
        problem = f"the key {error} is missing"
    except _Contradiction as error:
        problem = str(error)
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        problem = f"a value is of the wrong kind ({error})"
    raise DatasetError(f"{file}: {problem}. Replace it by the one that Meta-Dataset's conversion writes.")


def _uniform(content: dict) -> list[SplitSpecification]:
    counts = list(map(_number, _per_split(content, "classes_per_split")))
    sizes = _by_id(content["images_per_class"], sum(counts), "images_per_class")
    return _split(content, sizes, counts)


def _bilevel(content: dict) -> list[SplitSpecification]:
    per_split = list(map(_number, _per_split(content, "superclasses_per_split")))
    names = _by_id(content["superclass_names"], sum(per_split), "superclass_names")
    _check_distinct("superclass_names", names)
    sizes = list(map(_number, _by_id(content["classes_per_superclass"], len(names), "classes_per_superclass")))
    starts = [0, *accumulate(sizes)]  # of superclasses, in class ids
    counts = [starts[end] - starts[start] for start, end in pairwise([0, *accumulate(per_split)])]
    of_class = _by_id(content["images_per_class"], sum(counts), "images_per_class")  # before a list that long is made
    superclasses = [str(name) for name, size in zip(names, sizes) for _ in range(size)]
    return _split(content, of_class, counts, superclasses)


def _hierarchical(content: dict) -> list[SplitSpecification]:
    ids = {name: int(k) for k, name in content["class_names"].items()}
    graphs = zip(SPLITS, _per_split(content, "split_subgraphs"), _per_split(content, "images_per_class"))
    counts, sizes, spans = [], {}, []
    for split, nodes, images in graphs:
        below = _leaves_below(split, nodes)
        leaves = {node for node, found in below.items() if found == {node}}
        for node, found in below.items():
            if images[node] != sum(images[leaf] for leaf in found):
                raise _Contradiction(f"images_per_class: {node} of {split} has {images[node]}, its classes don't")
        positions = {leaf: ids[leaf] - sum(counts) for leaf in leaves}
        if sorted(positions.values()) != list(range(len(leaves))):
            raise _Contradiction(f"class_names: ids must run on from train to valid to test, but not so in {split}")
        sizes |= {ids[leaf]: images[leaf] for leaf in leaves}
        counts.append(len(leaves))
        inner = sorted(below.keys() - leaves)
        spans.append(tuple(tuple(sorted(positions[leaf] for leaf in below[node])) for node in inner))
    return _split(content, [sizes[k] for k in range(len(sizes))], counts, spans=spans)


_READERS = {
    "DatasetSpecification": _uniform,
    "BiLevelDatasetSpecification": _bilevel,
    "HierarchicalDatasetSpecification": _hierarchical,
}


def _split(
    content: dict,
    sizes: Sequence[int],
    counts: Sequence[int],
    superclasses: list[str] | None = None,
    spans: list | None = None,
) -> list[SplitSpecification]:
    """All splits, after checking that names differ and every class has images."""
    names = list(map(str, _by_id(content["class_names"], sum(counts), "class_names")))
    _check_distinct("class_names", names)
    for name, size in zip(names, sizes):
        if _number(size) < 1:
            raise _Contradiction(f"images_per_class: the class '{name}' has no images")
    splits = []
    for number, (start, end) in enumerate(pairwise([0, *accumulate(counts)])):
        above = tuple(superclasses[start:end]) if superclasses and end > start else None
        found = spans[number] if spans else None
        splits.append(
            SplitSpecification(range(start, end), tuple(names[start:end]), tuple(sizes[start:end]), above, found)
        )
    return splits


def _per_split(content: dict, key: str) -> list:
    return [content[key][split.upper()] for split in SPLITS]


def _by_id(values: dict, count: int, key: str) -> list:
    """The values of the ids 0 to count - 1; takes no longer for a count of billions."""
    by_id = {int(k): value for k, value in values.items()}
    if len(by_id) != count or set(by_id) != set(range(len(by_id))):
        raise _Contradiction(f"{key} must have the ids 0 to {count - 1}, as many as the counts per split add up to")
    return [by_id[k] for k in range(count)]


def _check_distinct(key: str, names: list) -> None:
    if repeated := [name for name, number in Counter(names).items() if number > 1]:
        raise _Contradiction(f"{key}: '{repeated[0]}' is there twice")


def _number(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r:.50} is not a number of classes or images")
    return value


def _leaves_below(split: str, nodes: list[dict]) -> dict[str, set[str]]:
    """For every node of a split's graph, the leaves that lie below it; a leaf lies below itself."""
    _check_distinct(f"split_subgraphs of {split}", [node["wn_id"] for node in nodes])
    children = {node["wn_id"]: node["children_ids"] for node in nodes}
    try:
        order = list(TopologicalSorter(children).static_order())
    except CycleError as error:
        raise _Contradiction(f"split_subgraphs of {split}: {' -> '.join(error.args[1])} is a circle") from error
    below: dict[str, set[str]] = {}
    for node in order:  # children come before their parents
        below[node] = set().union(*(below[child] for child in children[node])) if children[node] else {node}
    return below
