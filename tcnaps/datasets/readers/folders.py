"""Folders of images: split/class/*, or class/* with a split file or with fractions of the classes.

    path/train/cat/1.jpg           a folder per split ("val", "valid" or "validation"; any of the three may be missing)
    path/cat/1.jpg                 with `splits`, a split file, or with `fractions`

With `superclasses` the class folders lie one level deeper: path/train/Greek/alpha/1.png is of the class "Greek/alpha"
and of the superclass "Greek". With `splits` or `fractions`, folders named after splits are pooled: train/cat and
test/cat are one class.
"""

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from PIL import Image

from tcnaps.config.settings import Folder
from tcnaps.datasets.decoding import FORMATS
from tcnaps.datasets.image_source import SPLITS, DatasetError
from tcnaps.datasets.listing import FileSource, ImageFile, Images, Listing
from tcnaps.datasets.readers.csv_lists import (
    check_disjoint,
    list_files,
    listed_images,
    match_classes,
    read_list,
    split_of,
    splits_of,
)
from tcnaps.datasets.readers.shared import natural_key, normal, some, walk

EXTENSIONS = frozenset(extension for extension, name in Image.EXTENSION.items() if name in FORMATS)
HELP = """Images must lie in one of these ways:
    {path}/train/{class_}/1.jpg   a folder per split: train, val (or valid) and test, those that there are
    {path}/{class_}/1.jpg         with splits: a split file, or fractions: [0.6, 0.2, 0.2] of the classes"""
Classes = dict[str, list[Path]]  # "class" or "superclass/class" -> its folders, several where splits are pooled


def open_folder(name: str, dataset: Folder, root: Path) -> FileSource:
    """Points at folders of images; see `FileSource`.

    Raises:
        DatasetError: `splits` and `fractions` are both given, or the fractions don't add up to 1.
    """
    if dataset.splits is not None and dataset.fractions is not None:
        raise DatasetError(f"Dataset '{name}' has both splits and fractions; remove one of the two keys.")
    if dataset.fractions is not None and abs(sum(dataset.fractions) - 1) > 1e-6:
        total = f"{list(dataset.fractions)} add up to {sum(dataset.fractions):g}"
        raise DatasetError(f"Dataset '{name}': its fractions {total}; they must add up to 1.")
    path, lists = root / Path(dataset.path).expanduser(), list_files(dataset.splits, root)
    help = HELP.format(path=path.name, class_="Greek/alpha" if dataset.superclasses else "cat")

    def listing() -> Listing:
        if dataset.splits is None and dataset.fractions is None:
            return list_folders(name, path, own_splits(path, help, dataset.superclasses))
        table = read_list(lists[0]) if lists else None
        if table is not None and "file" in table:
            return Listing(listed_images(path, table, dataset.splits))
        pooled: Classes = {}
        for folder in (split_folders(path) or {"": path}).values():
            for found, folders in class_folders(folder, dataset.superclasses).items():
                pooled.setdefault(found, []).extend(folders)
        if table is None:
            return list_folders(name, path, _by_fractions(name, pooled, dataset.fractions))
        splits, notes = match_classes(splits_of(table), pooled, dataset.splits, superclasses(pooled))
        return list_folders(name, path, {s: {k: pooled[k] for k in names} for s, names in splits.items()}, notes)

    return FileSource(listing, (path, *lists), help)


def subfolders(folder: Path) -> list[Path]:
    """The folders in a folder, in natural order."""
    return [folder / name for name in next(walk(folder))[1]]


def split_folders(path: Path) -> dict[str, Path]:
    """The folders named after splits, if there are any."""
    folders = subfolders(path)
    by_split = {split: folder for folder in folders if (split := split_of(folder.name))}
    if by_split and len(by_split) < len(folders):
        named = some(folder.name for folder in folders)
        raise DatasetError(f"{path} has folders of splits and others beside them, or two of one split: {named}.")
    return {split: by_split[split] for split in SPLITS if split in by_split}


def class_folders(folder: Path, grouped: bool = False) -> Classes:
    """The classes in a folder, `grouped` in folders of their superclasses."""
    classes: Classes = {}
    for group in subfolders(folder) if grouped else [folder]:
        inner = subfolders(group)
        if grouped and not inner:
            remedy = "remove the key superclasses, or delete the folder"
            raise DatasetError(f"{group} is to be a superclass, but has no folders of classes in it: {remedy}.")
        for place in inner:
            classes.setdefault(normal(place.relative_to(folder).as_posix()), []).append(place)
    if not classes:
        raise DatasetError(f"{folder} has no classes: put one folder per class into it, or delete the folder.")
    return classes


def superclasses(classes: Iterable[str]) -> dict[str, str]:
    """The superclass of each class that has one."""
    return {name: name.partition("/")[0] for name in classes if "/" in name}


def own_splits(path: Path, help: str, grouped: bool = False) -> dict[str, Classes]:
    """The classes in the folders of splits."""
    splits = {split: class_folders(folder, grouped) for split, folder in split_folders(path).items()}
    if not splits:
        found = some(folder.name for folder in subfolders(path)) or "none"
        raise DatasetError(f"{path} holds the folders {found}, and no folder train, val or test.\n{help}")
    check_disjoint(splits, path)
    return splits


def cut(names: Iterable[str], fractions: tuple[float, float, float]) -> dict[str, list[str]]:
    """Deals names out to the splits by the SHA-256 of each: the same on every machine and in every order.

    The numbers are exact but for rounding. When a name is added, at most one other moves from each split to the next or
    back; all others stay where they were.
    """
    names = sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest())
    ends = [int(len(names) * sum(fractions[:k]) + 0.5) for k in range(len(SPLITS) + 1)]
    return {split: names[start:end] for split, start, end in zip(SPLITS, ends, ends[1:])}


def _by_fractions(name: str, classes: Classes, fractions: tuple[float, float, float]) -> dict[str, Classes]:
    """Superclasses stay whole: alphabets that are tested on must be new, not just letters of them."""
    groups: dict[str, Classes] = {}
    for found, folders in classes.items():
        groups.setdefault(found.partition("/")[0], {})[found] = folders
    parts = cut(groups, fractions)
    for split, fraction in zip(SPLITS, fractions):
        if fraction and not parts[split]:
            raise DatasetError(
                f"Dataset '{name}': the fraction {fraction:g} leaves the split '{split}' without a class, since there "
                f"are only {len(groups)} to share out; make it larger, or 0."
            )
    return {split: {k: v for group in part for k, v in groups[group].items()} for split, part in parts.items()}


def list_folders(name: str, path: Path, splits: Mapping[str, Classes], notes: tuple[str, ...] = ()) -> Listing:
    """The images of the classes of each split, told by their extensions."""
    listed: dict[str, Images] = {}
    others: Counter[str] = Counter()
    for split, classes in splits.items():
        listed[split] = {}
        for found in sorted(classes, key=natural_key):
            images = [image for folder in classes[found] for image in _images_below(folder, others)]
            if not images:
                remedy = f"add some or take the class out. Other files by extension: {dict(others)}"
                raise DatasetError(f"Dataset '{name}', split '{split}': {classes[found][0]} has no images; {remedy}.")
            listed[split][found] = images
    if others:
        counts = ", ".join(f"{count} {extension}" for extension, count in others.most_common(5))
        notes = (*notes, f"files left out, because their names are not those of images: {counts}")
    return Listing(listed, superclasses(found for classes in listed.values() for found in classes), notes=notes)


def _images_below(folder: Path, others: Counter[str]) -> list[ImageFile]:
    """The images at any depth; other files are counted by their extension."""
    found = [os.path.join(place, file) for place, _, files in walk(folder) for file in files]
    extensions = {file: os.path.splitext(file)[1].lower() for file in found}
    others.update(ext or "without extension" for ext in extensions.values() if ext not in EXTENSIONS)
    return [ImageFile(file) for file in sorted(found, key=natural_key) if extensions[file] in EXTENSIONS]
