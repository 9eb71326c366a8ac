"""Lists that say which class, or which image, belongs to which split.

A list has one of these forms:

    class,split                    a CSV with one line per class; other columns are ignored
    file,class,split               a CSV with one line per image; only the listed images are taken
    {"train": [...], "test": []}   JSON, as published with Meta-Dataset
    train.csv val.csv test.csv     a folder with one CSV per split: filename,label with one line per image, as for
                                   mini-ImageNet; or wnid,category with one line per class, as for tiered-ImageNet
"""

import io
import json
import os
import re
import warnings
from pathlib import Path

import pandas

from tcnaps.data.image_source import SPLITS, DatasetError
from tcnaps.data.listing import ImageFile, Listing, open_regular
from tcnaps.data.readers.shared import located, natural_key, normal, some

WNID = "n[0-9]{8}"  # the name of an ImageNet class
REMEDY = 'Write a CSV whose first line is class,split, or JSON like {"train": ["cat"], "valid": ["dog"], "test": []}'
_ALIASES = {"train": "train", "valid": "valid", "val": "valid", "validation": "valid", "test": "test"}
_COLUMNS = {"class": "class", "label": "class", "wnid": "class", "split": "split", "file": "file", "filename": "file"}


def split_of(name: str) -> str | None:
    """Translates any usual name of a split to "train", "valid" or "test"; None for other names."""
    return _ALIASES.get(name.strip().casefold())


def list_files(place: str | None) -> tuple[Path, ...]:
    """The path of the list that a study names, if any; for a folder also the CSVs in it."""
    return () if place is None else (located(place), *sorted(located(place).glob("*.csv")))


def read_list(path: Path) -> pandas.DataFrame:
    """Reads a list into a table with the columns "class", "split" and, if the list has it, "file".

    Args:
        path: a file, or a folder with train.csv, val.csv and test.csv. The name of a CSV without the column "split"
            says which split it lists.

    Raises:
        DatasetError: the list is missing or unreadable, lacks a field or a column, or names no splits.
    """
    files = [file for file in sorted(path.glob("*.csv")) if split_of(file.stem)] if path.is_dir() else [path]
    if not files:
        raise DatasetError(f"{path} has no train.csv, val.csv or test.csv. Put them there, or name another file.")
    table = pandas.concat(map(_read, files), ignore_index=True).drop_duplicates()
    if table.empty or (table == "").any(axis=None):
        problem = "lists no class" if table.empty else f"has a line without one of {', '.join(table)}"
        raise DatasetError(f"{path} {problem}. {REMEDY}.")
    if unknown := [name for name in table["split"].unique() if not split_of(name)]:
        raise DatasetError(f"{path}: there is no split {some(unknown)}; splits are {', '.join(SPLITS)}. {REMEDY}.")
    table["split"] = table["split"].map(split_of)
    check_disjoint(table, path)
    return table


def _read(path: Path) -> pandas.DataFrame:
    """Reads one file; keeps the known columns."""
    try:
        with open_regular(path) as file:
            text = file.read().decode("utf-8-sig")
        if path.suffix == ".json":
            rows = [(name, split) for split, names in json.loads(text).items() for name in names]
            table = pandas.DataFrame(rows, columns=["class", "split"]).astype(str)  # Traffic Sign's classes are numbers
        else:
            options = (
                {"names": ["class"], "usecols": [0]} if re.match(WNID, text) else {}
            )  # tiered-ImageNet's lists have no header
            options |= {"dtype": str, "na_filter": False, "skipinitialspace": True, "index_col": False}
            with warnings.catch_warnings(
                action="error", category=pandas.errors.ParserWarning
            ):  # more fields than names
                table = pandas.read_csv(io.StringIO(text), **options)
    except (OSError, ValueError, AttributeError, TypeError, RecursionError, pandas.errors.ParserWarning) as error:
        raise DatasetError(f"{path} is no list that can be read ({str(error).strip()}). {REMEDY}.") from error
    table.columns = [_COLUMNS.get(name.strip().casefold(), "") for name in table]
    if "class" not in table:
        raise DatasetError(f"{path} has no column called class. {REMEDY}.")
    if "split" not in table:
        table["split"] = path.stem
    known = (table.columns != "") & ~table.columns.duplicated()
    table = table.loc[:, known].fillna("").map(str.strip)
    return table.assign(**{"class": table["class"].map(normal)})


def check_disjoint(table: pandas.DataFrame, place: object) -> None:
    """Raises `DatasetError` if a class is in two splits."""
    splits = table.groupby("class")["split"].unique()
    for label, of_class in splits[splits.map(len) > 1].items():
        raise DatasetError(
            f"{place}: the class '{label}' is in two splits, {' and '.join(of_class)}; take it out of one, or split "
            "the classes by fractions or a split file: what a model is tested on must be new to it."
        )


def with_images(table: pandas.DataFrame, folder: Path, place: object) -> pandas.DataFrame:
    """Adds the column "image": the listed files, found in a folder or in the folders of their classes below it."""
    table = table.sort_values("file", key=lambda files: files.map(natural_key))
    paths = [
        next(filter(os.path.isfile, (os.path.join(folder, file), os.path.join(folder, label, file))), None)
        for file, label in zip(table["file"], table["class"])
    ]
    if missing := [file for file, path in zip(table["file"], paths) if path is None]:
        raise DatasetError(
            f"{place}: of {len(table)} listed images, {some(missing)} are neither in {folder} nor in the folder of "
            "their class in it. Put them there or take them out of the list."
        )
    return table.assign(image=list(map(ImageFile, paths)))


def choose(
    table: pandas.DataFrame, listed: pandas.DataFrame, place: object
) -> tuple[pandas.DataFrame, tuple[str, ...]]:
    """Keeps the images whose classes a list names, in the list's splits. Also returns a note on other classes.

    A listed superclass stands for all its classes that are not listed individually.

    Raises:
        DatasetError: a listed class is not in the table.
    """
    wanted, groups = dict(zip(listed["class"], listed["split"])), table["class"].str.partition("/")[0]
    if missing := wanted.keys() - {*table["class"], *groups}:
        known = some(table["class"].unique())
        raise DatasetError(
            f"{place}: {len(missing)} of its classes are not in the dataset: {some(sorted(missing))}; it has {known}. "
            "Correct the split file, or add what is missing."
        )
    table = table.assign(split=table["class"].map(wanted).fillna(groups.map(wanted)))
    if others := sorted(table["class"][table["split"].isna()].unique(), key=natural_key):
        return table.dropna(subset="split"), (f"classes left out, because {place} does not list them: {some(others)}",)
    return table, ()


def listing_of(table: pandas.DataFrame, place: object, grouped: bool = False, **options) -> Listing:
    """Lists the images of a table with the columns "class", "split" and "image"; classes in natural order.

    Raises:
        DatasetError: a class is in two splits.
    """
    check_disjoint(table, place)
    splits: dict = {}
    classes = table.groupby(["class", "split"], sort=False)["image"]
    for (label, split), images in sorted(classes, key=lambda group: natural_key(group[0][0])):
        splits.setdefault(split, {})[label] = images.to_list()
    groups = {label: label.partition("/")[0] for label in table["class"].unique() if grouped}
    return Listing(splits, groups, **options)
