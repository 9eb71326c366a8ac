"""Meta-Dataset's `dataset_spec.json`: the classes of each split, how many images each has, and their hierarchy.

Three kinds of file (google-research/meta-dataset, meta_dataset/data/dataset_spec.py), told apart by `__class__`:

    DatasetSpecification               classes and nothing above them
    BiLevelDatasetSpecification        classes in superclasses: Omniglot's alphabets
    HierarchicalDatasetSpecification   classes are the leaves of one graph per split: ImageNet's WordNet

Class ids name the files of the records. They run on from split to split: train, then valid, then test.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import accumulate
from pathlib import Path

from tcnaps.datasets.image_source import DatasetError
from tcnaps.datasets.readers.shared import SPLITS, read_json


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
    file = Path(file)
    content = read_json(file)
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
    counts = _per_split(content, "classes_per_split")
    sizes = _by_id(content, "images_per_class", _number)
    return _split(content, sizes, list(map(_number, counts)), "classes_per_split adds up to")


def _bilevel(content: dict) -> list[SplitSpecification]:
    per_split = list(map(_number, _per_split(content, "superclasses_per_split")))
    names = _by_id(content, "superclass_names", str)
    sizes = _by_id(content, "classes_per_superclass", _number)
    for key, given in (("superclass_names", names), ("classes_per_superclass", sizes)):
        _check_ids(key, given, sum(per_split), "superclasses_per_split adds up to")
    _check_distinct("superclass_names", names.values())
    starts = [0, *accumulate(sizes[k] for k in range(len(sizes)))]  # of superclasses, in class ids
    ends = [starts[end] for end in accumulate(per_split)]
    counts = [end - start for start, end in zip([0, *ends], ends)]
    reason = "classes_per_superclass adds up to"
    _check_ids("class_names", content["class_names"], sum(counts), reason)  # before anything of that length is made
    superclasses = [names[k] for k in range(len(sizes)) for _ in range(sizes[k])]
    return _split(content, _by_id(content, "images_per_class", _number), counts, reason, superclasses)


def _hierarchical(content: dict) -> list[SplitSpecification]:
    names = _by_id(content, "class_names", str)
    _check_distinct("class_names", names.values())
    ids = {name: k for k, name in names.items()}
    graphs = zip(SPLITS, _per_split(content, "split_subgraphs"), _per_split(content, "images_per_class"))
    counts, sizes, spans = [], {}, []
    for split, nodes, images in graphs:
        below = _leaves_below(f"split_subgraphs.{split.upper()}", nodes)
        leaves = {node for node, found in below.items() if found == {node}}
        for node, found in below.items():
            if missing := {node, *found} - images.keys():
                raise _Contradiction(f"images_per_class.{split.upper()} lacks {min(missing)}, a node of the graph")
            if images[node] != sum(images[leaf] for leaf in found):
                raise _Contradiction(
                    f"images_per_class.{split.upper()}: {node} has {images[node]} images, the classes below it don't"
                )
        if unnamed := leaves - ids.keys():
            raise _Contradiction(f"class_names lacks {min(unnamed)}, a leaf of split_subgraphs.{split.upper()}")
        first = sum(counts)
        positions = {leaf: ids[leaf] - first for leaf in leaves}
        if stray := sorted(leaf for leaf, position in positions.items() if not 0 <= position < len(leaves)):
            raise _Contradiction(
                f"class_names: ids must run on from train to valid to test, but {stray[0]} of {split} is out of line"
            )
        sizes |= {ids[leaf]: _number(images[leaf]) for leaf in leaves}
        counts.append(len(leaves))
        inner = sorted(below.keys() - leaves)
        spans.append(tuple(tuple(sorted(positions[leaf] for leaf in below[node])) for node in inner))
    return _split(content, sizes, counts, "the leaves of split_subgraphs add up to", spans=spans)


_READERS = {
    "DatasetSpecification": _uniform,
    "BiLevelDatasetSpecification": _bilevel,
    "HierarchicalDatasetSpecification": _hierarchical,
}


def _split(
    content: dict,
    sizes: dict[int, int],
    counts: list[int],
    reason: str,
    superclasses: list[str] | None = None,
    spans: list | None = None,
) -> list[SplitSpecification]:
    """All splits, after checking that ids have no gap, names differ and every class has images."""
    names = _by_id(content, "class_names", str)
    for key, given in (("class_names", names), ("images_per_class", sizes)):
        _check_ids(key, given, sum(counts), reason)
    _check_distinct("class_names", names.values())
    for k, size in sizes.items():
        if size < 1:
            raise _Contradiction(f"images_per_class: class {k} ('{names[k]}') has no images")
    ends = list(accumulate(counts))
    ranges = [range(end - count, end) for end, count in zip(ends, counts)]
    return [
        SplitSpecification(
            ids,
            tuple(names[k] for k in ids),
            tuple(sizes[k] for k in ids),
            tuple(superclasses[k] for k in ids) if superclasses and ids else None,
            spans[number] if spans else None,
        )
        for number, ids in enumerate(ranges)
    ]


def _per_split(content: dict, key: str) -> list:
    return [content[key][split.upper()] for split in SPLITS]


def _by_id(content: dict, key: str, convert) -> dict:
    return {int(k): convert(value) for k, value in content[key].items()}


def _number(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r:.50} is not a number of classes or images")
    return value


def _leaves_below(place: str, nodes: list[dict]) -> dict[str, set[str]]:
    """For every node of a split's graph, the leaves that lie below it; a leaf lies below itself."""
    children = {node["wn_id"]: node["children_ids"] for node in nodes}
    _check_distinct(place, [node["wn_id"] for node in nodes])
    if unknown := {child for found in children.values() for child in found} - children.keys():
        raise _Contradiction(f"{place}: {min(unknown)}, a child of another node, is not among its nodes")
    try:
        order = list(TopologicalSorter(children).static_order())
    except CycleError as error:
        raise _Contradiction(f"{place}: {' -> '.join(error.args[1])} is a circle") from error
    below: dict[str, set[str]] = {}
    for node in order:  # children come before their parents
        below[node] = set().union(*(below[child] for child in children[node])) if children[node] else {node}
    return below


def _check_ids(key: str, ids: Collection, count: int, reason: str) -> None:
    """Ids must be 0 to count - 1; takes no longer for a count of billions."""
    ids = {int(k) for k in ids}
    if len(ids) != count or ids and not 0 <= min(ids) <= max(ids) < count:
        beyond = min((k for k in ids if not 0 <= k < count), default=None)
        odd = next(k for k in range(count) if k not in ids) if beyond is None else beyond
        raise _Contradiction(
            f"{key} must have the ids 0 to {count - 1}, because {reason} {count}; {odd} is "
            f"{'missing' if beyond is None else 'too much'}"
        )


def _check_distinct(key: str, names: Iterable[str]) -> None:
    seen = set()
    for name in names:
        if name in seen:
            raise _Contradiction(f"{key}: '{name}' is there twice")
        seen.add(name)
