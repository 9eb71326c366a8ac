"""Meta-Dataset's `dataset_spec.json`: the classes of each split, how many images each has, and their hierarchy.

Three kinds of file (google-research/meta-dataset, meta_dataset/data/dataset_spec.py), told apart by `__class__`:

    DatasetSpecification               classes and nothing above them
    BiLevelDatasetSpecification        classes in superclasses: Omniglot's alphabets
    HierarchicalDatasetSpecification   classes are the leaves of a graph a split: ImageNet's WordNet

Class ids name the files of the records. They run on from split to split: train, then valid, then test.
"""

import reprlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, TypeAdapter, ValidationError

from tcnaps.datasets.image_source import DatasetError
from tcnaps.datasets.preparing import SplitLayout

SPLITS = ("train", "valid", "test")  # in the order of class ids


class SpecificationError(DatasetError):
    """A dataset_spec.json is missing or contradicts itself; the message names file, key and remedy."""


@dataclass(frozen=True)
class ClassSpecification:
    """One class. `id` stands in the name of its records' file; `superclass` is a name, where there are superclasses."""

    id: int
    name: str
    n_images: int
    superclass: str | None = None


@dataclass(frozen=True)
class SplitSpecification:
    """The classes of a split, in the order of their ids.

    `spans` holds for every inner node of the split's graph, in the order of the nodes' names, which of `classes` lie
    below it, as positions; None for a dataset without a graph.
    """

    classes: tuple[ClassSpecification, ...]
    spans: tuple[tuple[int, ...], ...] | None = None

    def layout(self) -> SplitLayout:
        """What the split will hold once prepared."""
        superclasses = tuple(c.superclass for c in self.classes if c.superclass is not None)
        return SplitLayout(
            tuple(c.name for c in self.classes),
            tuple(c.n_images for c in self.classes),
            superclasses or None,
            self.spans,
        )


@dataclass(frozen=True)
class Specification:
    """A dataset. `splits` has "train", "valid" and "test", some of them perhaps without classes."""

    name: str
    file_pattern: str
    splits: dict[str, SplitSpecification]


def read_specification(file: str | Path) -> Specification:
    """Reads and checks a dataset_spec.json.

    Raises:
        SpecificationError: the file is missing, is no JSON or of no known class, lacks a key, has counts that don't
            agree, or has a class without images.
    """
    file = Path(file)
    try:
        text = file.read_bytes()
    except OSError as error:
        raise SpecificationError(
            f"{file} can't be read ({error.strerror}); Meta-Dataset's conversion writes it beside a dataset's records."
        ) from error
    try:
        content = _CONTENT.validate_json(text)
        splits = content.splits()
    except ValidationError as error:
        raise _refusal(file, "; ".join(map(_explain, error.errors()[:3]))) from error
    except _Contradiction as error:
        raise _refusal(file, str(error)) from error
    return Specification(content.name, content.file_pattern, dict(zip(SPLITS, splits)))


def _refusal(file: Path, problem: str) -> SpecificationError:
    return SpecificationError(f"{file}: {problem}. Replace it by the one that Meta-Dataset's conversion writes.")


def _explain(error: dict) -> str:
    place = ".".join(str(part) for part in error["loc"][1:])  # the first part is the file's class
    match error["type"]:
        case "missing":
            return f"{place}: this key is missing"
        case "union_tag_not_found":
            return "the key __class__ is missing: this is no dataset specification"
        case "union_tag_invalid":
            return f"__class__: there is no {error['ctx']['tag']}; known are {error['ctx']['expected_tags']}"
        case "json_invalid":
            return f"not JSON: {error['ctx']['error']}"
    return f"{place or 'the file'}: {error['msg']} (got {reprlib.repr(error['input'])})"


class _Contradiction(Exception):
    """Two parts of a file don't agree."""


T = TypeVar("T")


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)


class _PerSplit(_Part, Generic[T]):
    train: T = Field(alias="TRAIN")
    valid: T = Field(alias="VALID")
    test: T = Field(alias="TEST")

    def values(self) -> tuple[T, T, T]:
        return self.train, self.valid, self.test


class _Common(_Part):
    name: str
    file_pattern: Literal["{}.tfrecords", "{}_{}.tfrecords"]
    class_names: dict[int, str]


class _Uniform(_Common):
    kind: Literal["DatasetSpecification"] = Field(alias="__class__")
    classes_per_split: _PerSplit[NonNegativeInt]
    images_per_class: dict[int, int]

    def splits(self) -> list[SplitSpecification]:
        counts = self.classes_per_split.values()
        classes = _classes(self.class_names, self.images_per_class, sum(counts), "classes_per_split adds up to")
        return _cut(classes, counts)


class _BiLevel(_Common):
    kind: Literal["BiLevelDatasetSpecification"] = Field(alias="__class__")
    superclasses_per_split: _PerSplit[NonNegativeInt]
    superclass_names: dict[int, str]
    classes_per_superclass: dict[int, NonNegativeInt]
    images_per_class: dict[int, int]

    def splits(self) -> list[SplitSpecification]:
        per_split = self.superclasses_per_split.values()
        for key in ("superclass_names", "classes_per_superclass"):
            _check_ids(key, getattr(self, key), sum(per_split), "superclasses_per_split adds up to")
        _check_distinct("superclass_names", self.superclass_names.values())
        sizes = [self.classes_per_superclass[k] for k in range(sum(per_split))]
        superclasses = [self.superclass_names[k] for k, size in enumerate(sizes) for _ in range(size)]
        classes = _classes(
            self.class_names,
            self.images_per_class,
            len(superclasses),
            "classes_per_superclass adds up to",
            superclasses,
        )
        starts = [0, *accumulate(sizes)]  # of superclasses, in class ids
        ends = [starts[end] for end in accumulate(per_split)]
        return _cut(classes, [end - start for start, end in zip([0, *ends], ends)])


class _Node(_Part):
    wn_id: str
    children_ids: list[str]


class _Hierarchical(_Common):
    kind: Literal["HierarchicalDatasetSpecification"] = Field(alias="__class__")
    split_subgraphs: _PerSplit[list[_Node]]
    images_per_class: _PerSplit[dict[str, int]]  # of every node: all images below it

    def splits(self) -> list[SplitSpecification]:
        _check_distinct("class_names", self.class_names.values())
        ids = {name: k for k, name in self.class_names.items()}
        below = [_leaves_below(split, nodes) for split, nodes in zip(SPLITS, self.split_subgraphs.values())]
        leaves = [[node for node, found in spans.items() if found == {node}] for spans in below]
        images: dict[int, int] = {}
        for split, spans, counts in zip(SPLITS, below, self.images_per_class.values()):
            place = f"images_per_class.{split.upper()}"
            for node, found in spans.items():
                missing = {node, *found} - counts.keys()
                if missing:
                    raise _Contradiction(f"{place} lacks {min(missing)}, a node of split_subgraphs")
                if counts[node] != sum(counts[leaf] for leaf in found):
                    raise _Contradiction(f"{place}: {node} has {counts[node]} images, but the classes below it don't")
                if found == {node}:
                    if node not in ids:
                        raise _Contradiction(f"class_names lacks {node}, a leaf of split_subgraphs.{split.upper()}")
                    images[ids[node]] = counts[node]
        n_classes = sum(map(len, leaves))
        classes = _classes(self.class_names, images, n_classes, "the leaves of split_subgraphs add up to")
        parts = _cut(classes, list(map(len, leaves)))
        return [
            SplitSpecification(part.classes, _positions(split, part.classes, spans))
            for split, part, spans in zip(SPLITS, parts, below)
        ]


_CONTENT = TypeAdapter(Annotated[_Uniform | _BiLevel | _Hierarchical, Field(discriminator="kind")])


def _classes(
    names: dict[int, str], images: dict[int, int], n_classes: int, reason: str, superclasses: list[str] | None = None
) -> list[ClassSpecification]:
    """All classes by id, after checking that ids have no gap, names differ and every class has images."""
    _check_ids("class_names", names, n_classes, reason)
    _check_ids("images_per_class", images, n_classes, reason)
    _check_distinct("class_names", names.values())
    for k in range(n_classes):
        if images[k] < 1:
            raise _Contradiction(f"images_per_class: class {k} ('{names[k]}') has no images ({images[k]})")
    return [
        ClassSpecification(k, names[k], images[k], superclasses[k] if superclasses else None) for k in range(n_classes)
    ]


def _cut(classes: list[ClassSpecification], counts: Iterable[int]) -> list[SplitSpecification]:
    """The splits, from the number of classes of each."""
    ends = list(accumulate(counts))
    return [SplitSpecification(tuple(classes[start:end])) for start, end in zip([0, *ends], ends)]


def _leaves_below(split: str, nodes: list[_Node]) -> dict[str, set[str]]:
    """For every node of a split's graph, the leaves that lie below it; a leaf lies below itself."""
    place = f"split_subgraphs.{split.upper()}"
    children = {node.wn_id: node.children_ids for node in nodes}
    _check_distinct(place, [node.wn_id for node in nodes])
    for node in nodes:
        for child in node.children_ids:
            if child not in children:
                raise _Contradiction(f"{place}: {child}, a child of {node.wn_id}, is not among its nodes")
    try:
        order = list(TopologicalSorter(children).static_order())
    except CycleError as error:
        raise _Contradiction(f"{place}: {' -> '.join(error.args[1])} is a circle") from error
    below: dict[str, set[str]] = {}
    for node in order:  # children come before their parents
        below[node] = set().union(*(below[child] for child in children[node])) if children[node] else {node}
    return below


def _positions(
    split: str, classes: tuple[ClassSpecification, ...], below: dict[str, set[str]]
) -> tuple[tuple[int, ...], ...]:
    """The spans of a split: positions of the classes below every inner node, in the order of the nodes' names."""
    position = {c.name: k for k, c in enumerate(classes)}
    stray = sorted({leaf for found in below.values() for leaf in found} - position.keys())
    if stray:
        raise _Contradiction(
            f"class_names: ids must run on from train to valid to test, but {stray[0]} of {split} is out of line"
        )
    inner = sorted(node for node, leaves in below.items() if leaves != {node})
    return tuple(tuple(sorted(position[leaf] for leaf in below[node])) for node in inner)


def _check_ids(key: str, ids: Collection[int], count: int, reason: str) -> None:
    if set(ids) != set(range(count)):
        odd = min(set(ids) ^ set(range(count)))
        raise _Contradiction(
            f"{key} must have the ids 0 to {count - 1}, because {reason} {count}; "
            f"{odd} is {'missing' if odd in range(count) else 'too much'}"
        )


def _check_distinct(key: str, names: Iterable[str]) -> None:
    seen = set()
    for name in names:
        if name in seen:
            raise _Contradiction(f"{key}: '{name}' is there twice")
        seen.add(name)
