"""Lists that say which class, or which image, belongs to which split.

A list has one of these forms:

    class,split                    a CSV with one line per class; other columns are ignored
    file,class,split               a CSV with one line per image; only the listed images are taken
    {"train": [...], "test": []}   JSON, as published with Meta-Dataset
    train.csv val.csv test.csv     a folder with one CSV per split: filename,label with one line per image, as for
                                   mini-ImageNet; or wnid,category with one line per class, as for tiered-ImageNet
"""

import csv
import io
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tcnaps.data.image_source import SPLITS, DatasetError
from tcnaps.data.listing import located, normal, open_regular

WNID = "n[0-9]{8}"  # the name of an ImageNet class
REMEDY = 'Write a CSV whose first line is class,split, or JSON like {"train": ["cat"], "valid": ["dog"], "test": []}'
_ALIASES = {"train": "train", "valid": "valid", "val": "valid", "validation": "valid", "test": "test"}
_COLUMNS = {"class": "class", "label": "class", "wnid": "class", "split": "split", "file": "file", "filename": "file"}


class SplitList(NamedTuple):
    """The content of a list: the split of each class and, of a list of images, each file with its class."""

    classes: dict[str, str]
    files: list[tuple[str, str]]


def split_of(name: str) -> str | None:
    """Translates any usual name of a split to "train", "valid" or "test"; None for other names."""
    return _ALIASES.get(name.strip().casefold())


def list_files(place: str | None) -> tuple[Path, ...]:
    """The path of the list that a study names, if any; for a folder also the CSVs in it."""
    return () if place is None else (located(place), *sorted(located(place).glob("*.csv")))


def read_list(path: Path) -> SplitList:
    """Reads a list: a file, or a folder with train.csv, val.csv and test.csv.

    The name of a CSV without the column "split" says which split it lists.
    """
    files = [file for file in sorted(path.glob("*.csv")) if split_of(file.stem)] if path.is_dir() else [path]
    lines = [line for file in files for line in _read(file)]
    if not lines:
        missing = "lists no class" if files else "has no train.csv, val.csv or test.csv"
        raise DatasetError(f"{path} {missing}. {REMEDY}.")
    classes = split_by_class(((label, split) for label, split, _ in lines), path)
    return SplitList(classes, list(dict.fromkeys((file, label) for label, _, file in lines if file)))


def _read(path: Path) -> list[tuple[str, str, str]]:
    """The lines of one list: class, split and file, which is empty in a list of classes."""
    try:
        with open_regular(path) as stream:
            text = stream.read().decode("utf-8-sig")
        if path.suffix == ".json":
            header = ["class", "split"]
            rows = [[str(name), split] for split, names in _once(text).items() for name in names]
        else:
            lines = csv.reader(io.StringIO(text, newline=None), skipinitialspace=True, strict=True)
            rows = [line for line in lines if any(line)]
            if re.match(WNID, text):  # tiered-ImageNet's lists have no header
                rows = [["class"], *(row[:1] for row in rows)]
            header = rows.pop(0)
    except (OSError, ValueError, AttributeError, TypeError, IndexError, RecursionError, csv.Error) as error:
        raise DatasetError(f"{path} is no list that can be read ({error}). {REMEDY}.") from error
    columns = [_COLUMNS.get(name.strip().casefold(), "") for name in header]
    if "class" not in columns:
        raise DatasetError(f"{path} has no column called class. {REMEDY}.")
    places = {name: columns.index(name) for name in ("class", "split", "file") if name in columns}
    entries = []
    for row in rows:
        fields = {name: row[k].strip() if k < len(row) else "" for name, k in places.items()}
        if len(row) > len(columns) or not all(fields.values()):
            problem = f"has more than {len(columns)} fields, or lacks one of {', '.join(places)}"
            raise DatasetError(f"{path}: the line '{','.join(row)}' {problem}. {REMEDY}.")
        name = fields.get("split", path.stem)
        split = split_of(name)
        if split is None:
            raise DatasetError(f"{path}: there is no split '{name}'; splits are {', '.join(SPLITS)}. {REMEDY}.")
        entries.append((normal(fields["class"]), split, fields.get("file", "")))
    return entries


def _once(text: str) -> dict[str, list[str]]:
    """A split file's lists by the names of their splits; JSON itself would keep the last of two by one name."""
    pairs = json.loads(text, object_pairs_hook=list)
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a split is there twice")
    return dict(pairs)


def split_by_class(pairs: Iterable[tuple[str, str]], place: object) -> dict[str, str]:
    """The split of each class, from pairs of the two. A class in two splits is an error."""
    splits: dict[str, str] = {}
    for label, split in pairs:
        if splits.setdefault(label, split) != split:
            raise DatasetError(
                f"{place}: the class '{label}' is in two splits, {splits[label]} and {split}; take it out of one, or "
                "split the classes by fractions or a split file: what a model is tested on must be new to it."
            )
    return splits
