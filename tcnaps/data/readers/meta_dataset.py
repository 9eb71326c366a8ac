"""Meta-Dataset's records: a folder with dataset_spec.json and one file per class, `<class id>.tfrecords`.

Its specifications describe classes alone, classes in superclasses (BiLevel: Omniglot's alphabets), or the leaves of one
graph per split (Hierarchical: ImageNet's WordNet); see meta_dataset/data/dataset_spec.py of
google-research/meta-dataset. Class ids are numbered through all splits: train, then valid, then test. As in
Meta-Dataset, EXIF's orientation is ignored. To get exactly its pixels, a study must also decode and resize as
TensorFlow does: `decoding: {jpeg_dct: fast, resampling: aligned corners}`.
"""

import json
from functools import partial
from graphlib import TopologicalSorter
from itertools import accumulate, pairwise
from pathlib import Path
from typing import NamedTuple

from tcnaps.config import settings
from tcnaps.data.image_source import SPLITS, DatasetError
from tcnaps.data.listing import ImageFile, Listing, Source, located, open_regular
from tcnaps.data.readers import records

SPECIFICATION, FILE_PATTERN = "dataset_spec.json", "{}.tfrecords"
HELP = """'path' must be the folder of one dataset, like records/omniglot, with dataset_spec.json and 0.tfrecords,
1.tfrecords and so on. Meta-Dataset's programs make them: doc/dataset_conversion.md of
github.com/google-research/meta-dataset."""


def open_records(name: str, dataset: settings.Records) -> Source:
    """Points at a dataset of records."""
    folder = located(dataset.path)
    needs = (folder, folder / SPECIFICATION, *sorted(folder.glob("*.tfrecords")))
    return Source(partial(list_records, folder, dataset.images_per_class), needs, HELP, read_record, orient=False)


def read_record(image: ImageFile) -> bytes:
    offset, length, label = image.position
    return records.record_at(image.path, offset, length, expected_label=label)[0]


def list_records(folder: Path, images_per_class: int | None = None) -> Listing:
    """Lists all records of a dataset, or at most `images_per_class` of each class, spread evenly over its file."""
    specification = read_specification(folder / SPECIFICATION)
    if specification.file_pattern != FILE_PATTERN:
        problem = f"{folder / SPECIFICATION}: file_pattern is '{specification.file_pattern}', which is not read here"
        raise DatasetError(f"{problem}. Convert the dataset with one file per class, '{FILE_PATTERN}'.")
    splits: dict[str, dict[str, list[ImageFile]]] = {split: {} for split in specification.classes}
    for split, classes in specification.classes.items():
        for class_name, (label, size) in classes.items():
            file = folder / FILE_PATTERN.format(label)
            places = records.read_index(file)
            if len(places) != size:
                raise DatasetError(
                    f"{file} has {len(places)} records, but {SPECIFICATION} says {size}: the file was cut off "
                    "between two records, or one of the two is of another conversion. Copy or convert both again."
                )
            kept = min(size, images_per_class or size)
            chosen = [places[k * size // kept] for k in range(kept)]
            splits[split][class_name] = [ImageFile(str(file), (*place, label)) for place in chosen]
    return Listing(splits, specification.superclasses, specification.spans)


class Specification(NamedTuple):
    """The content of a dataset_spec.json; see also `Listing`."""

    file_pattern: str
    classes: dict[str, dict[str, tuple[int, int]]]  # split -> class name -> (id, number of images), ordered by ids
    superclasses: dict[str, str]
    spans: dict[str, tuple[tuple[int, ...], ...]]  # inner nodes are sorted by name


def read_specification(file: Path) -> Specification:
    """Reads and checks a dataset_spec.json."""
    try:
        with open_regular(file) as stream:
            content = json.loads(stream.read().decode("utf-8-sig"))
        names = list(map(str, _by_id(content["class_names"])))
        counts, sizes, superclasses, spans = _READERS[content["__class__"]](content, names)
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
    counts = [sum(sizes[start:end]) for start, end in bounds]
    return counts, _by_id(content["images_per_class"]), above, ()


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


_READERS = {
    "DatasetSpecification": _uniform,
    "BiLevelDatasetSpecification": _bilevel,
    "HierarchicalDatasetSpecification": _hierarchical,
}


def _per_split(content: dict, key: str) -> list:
    return [content[key][split.upper()] for split in SPLITS]


def _by_id(values: dict) -> list:
    """The values of ids 0, 1, 2, ..."""
    return [values[str(k)] for k in range(len(values))]
