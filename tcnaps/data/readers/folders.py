"""Folders of images: split/class/*, or class/* with a split file or with fractions of the classes; see `HELP`.

With `superclasses`, train/Greek/alpha/1.png belongs to the class "Greek/alpha" and the superclass "Greek". With
`splits` or `fractions`, folders named after splits are pooled: train/cat and test/cat are one class.
"""

import csv
import hashlib
import io
import json
import os
import re
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

from PIL import Image

from tcnaps.config.settings import Folder
from tcnaps.data.decoding import FORMATS
from tcnaps.data.image_source import SPLITS, DatasetError
from tcnaps.data.listing import ImageFile, Listing, Source, located, natural_key, normal, read_file, some, walk

EXTENSIONS = frozenset(extension for extension, name in Image.EXTENSION.items() if name in FORMATS)
HELP = """Images must lie in one of these ways:
    train/cat/1.jpg   one folder per split: train, val (or valid), test; any of them may be missing
    cat/1.jpg         with splits: a split file, or fractions: [0.6, 0.2, 0.2] of the classes
With superclasses: true, train/Greek/alpha/1.jpg or Greek/alpha/1.jpg. docs/data.md says more."""
REMEDY = 'Write a CSV whose first line is class,split, or JSON like {"train": ["cat"], "valid": ["dog"], "test": []}'
_ALIASES = {"train": "train", "valid": "valid", "val": "valid", "validation": "valid", "test": "test"}
_COLUMNS = {"class": "class", "label": "class", "wnid": "class", "split": "split", "file": "file", "filename": "file"}

Found = list[tuple[str, str, ImageFile]]  # class, split and file of every image; "" if there are no folders of splits


def open_folder(name: str, dataset: Folder) -> Source:
    if dataset.splits is not None and dataset.fractions is not None:
        raise DatasetError(f"Dataset '{name}' has both splits and fractions; remove one of the two keys.")
    if dataset.fractions is not None and abs(sum(dataset.fractions) - 1) > 1e-6:
        total = f"{list(dataset.fractions)} add up to {sum(dataset.fractions):g}"
        raise DatasetError(f"Dataset '{name}': its fractions {total}; they must add up to 1.")
    path, splits = located(dataset.path), located(dataset.splits or "")
    lists = (splits, *sorted(splits.glob("*.csv"))) if dataset.splits else ()
    return Source(partial(list_folder, path, splits, dataset), (path, *lists), HELP)


def list_folder(path: Path, splits: Path, dataset: Folder) -> Listing:
    """Lists the images in class folders, or those named by the list `splits`, if the dataset has one."""
    lines = read_list(splits) if dataset.splits else []
    if files := [line for line in lines if line[2]]:
        above = {label: label.partition("/")[0] for label, *_ in files if dataset.superclasses}
        return listing_of(_listed_images(files, path, splits), splits, above)
    listed = {label: split for label, split, _ in lines}
    found, notes = scan(path, dataset.superclasses, divided=bool(listed or dataset.fractions))
    groups = {label: label.partition("/")[0] for label, _, _ in found}
    if listed:
        if missing := listed.keys() - groups.keys() - set(groups.values()):
            absent = f"classes {some(sorted(missing))} are not in the dataset; it has {some(groups)}"
            raise DatasetError(f"{splits}: its {absent}. Correct the split file, or add what is missing.")
        # A listed superclass stands for all its classes that are not listed individually.
        chosen = {label: listed.get(label, listed.get(group)) for label, group in groups.items()}
        found = [(label, chosen[label], image) for label, _, image in found if chosen[label]]
        if others := sorted((label for label in chosen if chosen[label] is None), key=natural_key):
            notes += (f"classes left out, because {splits} does not list them: {some(others)}",)
    elif dataset.fractions:  # superclasses stay whole: an alphabet to test on must be new
        parts = cut(set(groups.values()), dataset.fractions)
        found = [(label, parts[groups[label]], image) for label, _, image in found]
    elif not found[0][1]:
        names = some(folder.name for folder in subfolders(path))
        raise DatasetError(f"{path} holds the folders {names}, and no folder train, val or test.\n{HELP}")
    return listing_of(found, path, groups if dataset.superclasses else {}, notes)


def scan(path: Path, grouped: bool, divided: bool) -> tuple[Found, tuple[str, ...]]:
    """Finds the images at any depth below class folders (`grouped`: in superclasses' folders); notes other files."""
    found, others = [], []
    for split, folder in _split_folders(path, divided).items():
        for group in subfolders(folder) if grouped else [folder]:
            if not subfolders(group):
                remedy = "Put one folder per class into it, or delete it" + ", or remove the key superclasses" * grouped
                raise DatasetError(f"{group} has no folders of classes. {remedy}.")
            for place in subfolders(group):
                inner = walk(place, [path, folder, group])  # a link upwards would add the images of other classes
                files = {os.path.join(at, file) for at, _, files in inner for file in files}
                if not (images := {file for file in files if os.path.splitext(file)[1].lower() in EXTENSIONS}):
                    raise DatasetError(f"{place} has no images ({', '.join(FORMATS)}). Add some, or delete it.")
                label = normal(place.relative_to(folder).as_posix())
                found += [(label, split, ImageFile(image)) for image in sorted(images, key=natural_key)]
                others += sorted(files - images)
    if not found:
        raise DatasetError(f"{path} has no folders of superclasses. Add some, or remove the key superclasses.")
    return found, (f"files left out, because their names are not those of images: {some(others)}",) if others else ()


def listing_of(found: Found, place: object, superclasses: Mapping[str, str], notes: tuple[str, ...] = ()) -> Listing:
    """Lists images; classes in natural order. A class in two splits is an error."""
    check_splits(found, place)
    splits: dict[str, dict[str, list[ImageFile]]] = {}
    for label, split, image in sorted(found, key=lambda entry: natural_key(entry[0])):
        splits.setdefault(split, {}).setdefault(label, []).append(image)
    return Listing(splits, superclasses, notes=notes)


def _listed_images(lines: list[tuple[str, str, str]], folder: Path, place: object) -> Found:
    """The listed files, each once, found in a folder or in the folder of its class below it."""
    found, missing = {}, []
    spelt = {normal(inner.name): inner.name for inner in subfolders(folder)}  # macOS' spelling may be another
    for label, split, file in sorted(lines, key=lambda line: natural_key(line[2])):
        places = os.path.join(folder, file), os.path.join(folder, spelt.get(label, label), file)
        if (path := next(filter(os.path.isfile, places), None)) is None:
            missing.append(file)
        elif (other := found.setdefault(os.path.normpath(path), (label, split, ImageFile(path)))[0]) != label:
            raise DatasetError(f"{place}: {file} is in two classes, {other} and {label}. Take it out of one.")
    if missing:
        problem = f"{some(missing)} are neither in {folder} nor in the folder of their class in it"
        raise DatasetError(f"{place}: of {len(lines)} images, {problem}. Add them or unlist them.")
    return list(found.values())


def subfolders(folder: Path) -> list[Path]:
    """The folders in a folder, in natural order."""
    return [folder / name for name in next(walk(folder))[1]]


def _split_folders(path: Path, divided: bool) -> dict[str, Path]:
    """The folders that are named after splits; if there are none, the folder itself with the split "".

    Where classes are divided later, "train" beside other folders is a class (QuickDraw and CIFAR-100 have one).
    """
    folders = subfolders(path)
    by_split = {split: folder for folder in folders if (split := split_of(folder.name))}
    if divided and not all(split_of(folder.name) for folder in folders):
        return {"": path}
    if by_split and len(by_split) < len(folders):
        named = some(folder.name for folder in folders)
        raise DatasetError(f"{path} has folders beside those of splits, or two of one split: {named}. Move some away.")
    return {split: by_split[split] for split in SPLITS if split in by_split} or {"": path}


def cut(names: Iterable[str], fractions: tuple[float, float, float]) -> dict[str, str]:
    """Divides names among the splits by the SHA-256 of each: the same on every machine and in every order.

    When a name is added, at most one other name crosses each border between splits.
    """
    names = sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest())
    ends = [int(len(names) * sum(fractions[:k]) + 0.5) for k in range(len(SPLITS) + 1)]
    return {name: split for split, start, end in zip(SPLITS, ends, ends[1:]) for name in names[start:end]}


def split_of(name: str) -> str | None:
    """Translates any usual name of a split to "train", "valid" or "test"; None for other names."""
    return _ALIASES.get(name.strip().casefold())


def read_list(path: Path) -> list[tuple[str, str, str]]:
    """The lines of a list: class, split, and file or "". Without the column "split" a CSV's name is the split.

    class,split                    a CSV with one line per class; other columns are ignored
    file,class,split               a CSV with one line per image; only the listed images are taken
    {"train": [...], "test": []}   JSON, as published with Meta-Dataset
    train.csv val.csv test.csv     a folder with one CSV per split: filename,label with one line per image, as for
                                   mini-ImageNet; or wnid,category with one line per class, as for tiered-ImageNet
    """
    files = [file for file in sorted(path.glob("*.csv")) if split_of(file.stem)] if path.is_dir() else [path]
    if not (lines := [line for file in files for line in _read(file)]):
        missing = "lists no class" if files else "has no train.csv, val.csv or test.csv"
        raise DatasetError(f"{path} {missing}. {REMEDY}.")
    check_splits(lines, path)
    return list(dict.fromkeys(lines))


def _read(path: Path) -> list[tuple[str, str, str]]:
    try:
        text = read_file(ImageFile(path)).decode("utf-8-sig")
        if path.suffix == ".json":
            splits = json.loads(text, object_pairs_hook=list)
            rows = [["class", "split"], *([str(name), split] for split, names in splits for name in names)]
        else:
            lines = csv.reader(io.StringIO(text, newline=None), skipinitialspace=True, strict=True)
            rows = [line for line in lines if any(line)]
            if re.match("n[0-9]{8}", text):  # tiered-ImageNet's lists have no header
                rows = [["class"], *(row[:1] for row in rows)]
        columns = [_COLUMNS.get(name.strip().casefold(), "") for name in rows.pop(0)]
    except (OSError, ValueError, AttributeError, TypeError, IndexError, RecursionError, csv.Error) as error:
        raise DatasetError(f"{path} can't be read as a list ({error}). {REMEDY}.") from error
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
        if (split := split_of(name)) is None:
            raise DatasetError(f"{path}: there is no split '{name}'; splits are {', '.join(SPLITS)}. {REMEDY}.")
        entries.append((normal(fields["class"]), split, fields.get("file", "")))
    return entries


def check_splits(lines: Iterable[tuple[str, str, object]], place: object) -> None:
    """A class in two splits is an error."""
    splits: dict[str, str] = {}
    for label, split, _ in lines:
        if splits.setdefault(label, split) != split:
            problem = f"the class '{label}' is in two splits, {splits[label]} and {split}"
            remedy = "take it out of one, or split the classes by fractions or a split file"
            raise DatasetError(f"{place}: {problem}; {remedy}: what a model is tested on must be new to it.")
