"""Folders of images: split/class/*, or class/* with a split file or with fractions of the classes.

    path/train/cat/1.jpg           a folder per split ("val", "valid" or "validation"; any of the three may be missing)
    path/cat/1.jpg                 with `splits`, a split file, or with `fractions`

With `superclasses` the class folders lie one level deeper: path/train/Greek/alpha/1.png is of the class "Greek/alpha"
and of the superclass "Greek". Below the folder of its class an image may lie at any depth.

With `splits` or `fractions`, folders named after splits are pooled: train/cat and test/cat are one class. A dataset for
ordinary classification, which has every class in every split, is thus split by class.
"""

import hashlib
import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tcnaps.config.settings import Folder
from tcnaps.datasets.image_source import SPLITS, DatasetError
from tcnaps.datasets.listing import FileSource, Images, Listing, SplitListing
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

# Of the formats that are decoded; a test holds the two together.
EXTENSIONS = frozenset(
    ".jpg .jpeg .jpe .jfif .png .gif .bmp .tif .tiff .webp .ppm .pgm .pbm .pnm .jp2 .j2k .avif".split()
)
HELP = """Images must lie in one of these ways:
    {path}/train/{class_}/1.jpg   a folder per split: train, val (or valid) and test, those that there are
    {path}/{class_}/1.jpg         with splits: a split file, or fractions: [0.6, 0.2, 0.2] of the classes"""
Classes = dict[str, tuple[Path, ...]]  # "class" or "superclass/class" -> its folders, several where splits are pooled


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
        classes: Classes = {}
        for folder in (split_folders(path) or {"": path}).values():
            for found, folders in class_folders(folder, dataset.superclasses).items():
                classes[found] = classes.get(found, ()) + folders
        if table is None:
            return list_folders(name, path, _by_fractions(name, classes, dataset.fractions))
        matched, notes = match_classes(splits_of(table), classes, dataset.splits, superclasses(classes))
        chosen = {split: {found: classes[found] for found in names} for split, names in matched.items()}
        return list_folders(name, path, chosen, notes)

    return FileSource(listing, (path, *lists), help)


def subfolders(folder: Path) -> list[Path]:
    """The folders in a folder, in natural order."""
    return [folder / name for name in next(walk(folder))[1]]


def split_folders(path: Path) -> dict[str, Path] | None:
    """The folders named after splits, or None if there are none.

    Raises:
        DatasetError: there are two of one split, or other folders beside them.
    """
    folders = subfolders(path)
    by_split = {split: folder for folder in folders if (split := split_of(folder.name))}
    if by_split and len(by_split) < len(folders):
        named = some(folder.name for folder in folders)
        raise DatasetError(f"{path} has folders of splits and others beside them, or two of one split: {named}.")
    return {split: by_split[split] for split in SPLITS if split in by_split} or None


def class_folders(folder: Path, grouped: bool = False) -> Classes:
    """The classes in a folder.

    Args:
        grouped: whether they lie in folders of their superclasses.

    Raises:
        DatasetError: there is no class in the folder, or in one of a superclass.
    """
    classes: Classes = {}
    for group in subfolders(folder) if grouped else [folder]:
        inner = subfolders(group)
        if grouped and not inner:
            remedy = "remove the key superclasses, or delete the folder"
            raise DatasetError(f"{group} is to be a superclass, but has no folders of classes in it: {remedy}.")
        for place in inner:
            name = normal(place.relative_to(folder).as_posix())
            classes[name] = classes.get(name, ()) + (place,)
    if not classes:
        raise DatasetError(f"{folder} has no classes: put one folder per class into it, or delete the folder.")
    return classes


def superclasses(classes: Iterable[str]) -> dict[str, str]:
    """The superclass of each class that has one."""
    return {name: name.partition("/")[0] for name in classes if "/" in name}


def own_splits(path: Path, help: str, grouped: bool = False) -> dict[str, Classes]:
    """The classes in the folders of splits.

    Raises:
        DatasetError: there are no such folders, or a class is in two splits.
    """
    by_split = split_folders(path)
    if by_split is None:
        found = some(folder.name for folder in subfolders(path)) or "none"
        raise DatasetError(f"{path} holds the folders {found}, and no folder train, val or test.\n{help}")
    splits = {split: class_folders(folder, grouped) for split, folder in by_split.items()}
    remedy = "Or have the images of all folders pooled and their classes split anew, by fractions or a split file."
    check_disjoint(splits, path, remedy)
    return splits


def cut(names: Iterable[str], fractions: tuple[float, float, float]) -> dict[str, tuple[str, ...]]:
    """Deals names out to the splits by the SHA-256 of each: the same on every machine and in every order.

    The numbers are exact but for rounding. When a name is added, at most one other moves from each split to the next or
    back; all others stay where they were.

    Args:
        fractions: for train, valid and test; they add up to 1.
    """
    names = sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest())
    ends = [int(len(names) * sum(fractions[: k + 1]) + 0.5) for k in range(len(SPLITS))]
    return {
        split: tuple(sorted(names[start:end], key=natural_key)) for split, start, end in zip(SPLITS, [0, *ends], ends)
    }


def _by_fractions(name: str, classes: Classes, fractions: tuple[float, float, float]) -> dict[str, Classes]:
    """Superclasses stay whole: alphabets that are tested on must be new, not just letters of them."""
    groups: dict[str, Classes] = {}
    for found, folders in classes.items():
        groups.setdefault(superclasses([found]).get(found, found), {})[found] = folders
    parts = cut(groups, fractions)
    for split, fraction in zip(SPLITS, fractions):
        if fraction and not parts[split]:
            raise DatasetError(
                f"Dataset '{name}': the fraction {fraction:g} leaves the split '{split}' without a class, since there "
                f"are only {len(groups)} to share out; make it larger, or 0."
            )
    return {split: {k: v for group in part for k, v in groups[group].items()} for split, part in parts.items() if part}


def list_folders(name: str, path: Path, splits: dict[str, Classes], notes: Iterable[str] = ()) -> Listing:
    """The images of the classes of each split, told by their extensions.

    Raises:
        DatasetError: a class has no images.
    """
    listed, others = {}, Counter()
    for split, classes in splits.items():
        names, images = sorted(classes, key=natural_key), []
        for of_class in names:
            found = [file for folder in classes[of_class] for file in _images_below(folder, path, others)]
            if not found:
                raise DatasetError(
                    f"Dataset '{name}', split '{split}': {classes[of_class][0]} has no images; add some or take the "
                    f"class out. Other files by extension: {dict(others)}."
                )
            images.append(Images(str(path), tuple(found)))
        above = tuple(superclasses(names).values()) or None
        listed[split] = SplitListing(tuple(names), tuple(images), above)
    if others:
        counts = ", ".join(f"{count} {extension}" for extension, count in others.most_common(5))
        notes = [*notes, f"files left out, because their names are not those of images: {counts}"]
    return Listing(listed, notes=tuple(notes))


def _images_below(folder: Path, path: Path, others: Counter) -> list[str]:
    """The images at any depth, relative to `path`; other files are counted by their extension."""
    found = []
    for place, _, files in walk(folder):
        for file in files:
            extension = os.path.splitext(file)[1].lower()
            if extension in EXTENSIONS:
                found.append(os.path.join(place, file)[len(str(path)) + 1 :])
            else:
                others[extension or "without extension"] += 1
    return sorted(found, key=natural_key)
