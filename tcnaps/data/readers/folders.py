"""Folders of images: split/class/*, or class/* with a split file or with fractions of the classes.

    path/train/cat/1.jpg           one folder per split ("val", "valid" or "validation"; any of them may be missing)
    path/cat/1.jpg                 with `splits`, a split file, or with `fractions`

With `superclasses` the class folders lie one level deeper: path/train/Greek/alpha/1.png belongs to the class
"Greek/alpha" and the superclass "Greek". With `splits` or `fractions`, folders named after splits are pooled:
train/cat and test/cat are one class.
"""

import hashlib
import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from PIL import Image

from tcnaps.config.settings import Folder
from tcnaps.data.decoding import FORMATS
from tcnaps.data.image_source import SPLITS, DatasetError
from tcnaps.data.listing import ImageFile, Listing, Row, Source
from tcnaps.data.readers import csv_lists
from tcnaps.data.readers.shared import located, natural_key, normal, some, walk

EXTENSIONS = frozenset(extension for extension, name in Image.EXTENSION.items() if name in FORMATS)
HELP = """Images must lie in one of these ways:
    train/cat/1.jpg   one folder per split: train, val (or valid), test; any of them may be missing
    cat/1.jpg         with splits: a split file, or fractions: [0.6, 0.2, 0.2] of the classes
With superclasses: true, train/Greek/alpha/1.jpg or Greek/alpha/1.jpg."""


def open_folder(name: str, dataset: Folder) -> Source:
    """Points at folders of images; see `Source`.

    Raises:
        DatasetError: `splits` and `fractions` are both given, or the fractions don't add up to 1.
    """
    if dataset.splits is not None and dataset.fractions is not None:
        raise DatasetError(f"Dataset '{name}' has both splits and fractions; remove one of the two keys.")
    if dataset.fractions is not None and abs(sum(dataset.fractions) - 1) > 1e-6:
        total = f"{list(dataset.fractions)} add up to {sum(dataset.fractions):g}"
        raise DatasetError(f"Dataset '{name}': its fractions {total}; they must add up to 1.")
    path, lists = located(dataset.path), csv_lists.list_files(dataset.splits)
    listing = partial(list_folder, path, lists[0] if lists else None, dataset.fractions, dataset.superclasses)
    return Source(listing, (path, *lists), HELP)


def list_folder(
    path: Path, splits: Path | None = None, fractions: tuple | None = None, grouped: bool = False
) -> Listing:
    """Lists the images in class folders, or those named by `splits`. `grouped`: in folders of superclasses."""
    listed = None if splits is None else csv_lists.read_list(splits)
    if listed and listed.files:
        return csv_lists.listing_of(csv_lists.with_images(listed, path, splits), splits)
    rows, notes = scan(path, grouped)
    if listed:
        rows, left_out = csv_lists.choose(rows, listed.classes, splits)
        notes += left_out
    elif fractions is not None:  # superclasses stay whole: an alphabet to test on must be new
        parts = cut({row.superclass for row in rows}, fractions)
        rows = [row._replace(split=parts[row.superclass]) for row in rows]
    elif not rows[0].split:
        names = some(folder.name for folder in subfolders(path))
        raise DatasetError(f"{path} holds the folders {names}, and no folder train, val or test.\n{HELP}")
    return csv_lists.listing_of(rows, path, grouped, notes=notes)


def scan(path: Path, grouped: bool = False) -> tuple[list[Row], tuple[str, ...]]:
    """Finds the images at any depth below class folders. `grouped`: in folders of superclasses.

    Returns:
        all images, their split "" if there are no folders of splits; and a note on other files.
    """
    rows, others = [], []
    for split, folder in (split_folders(path) or {"": path}).items():
        for group in subfolders(folder) if grouped else [folder]:
            if not subfolders(group):
                remedy = "Put one folder per class into it, or delete it" + ", or remove the key superclasses" * grouped
                raise DatasetError(f"{group} has no folders of classes. {remedy}.")
            for place in subfolders(group):
                files = {os.path.join(at, file) for at, _, files in walk(place) for file in files}
                images = {file for file in files if os.path.splitext(file)[1].lower() in EXTENSIONS}
                if not images:
                    raise DatasetError(f"{place} has no images ({', '.join(FORMATS)}). Add some, or delete it.")
                label = normal(place.relative_to(folder).as_posix())
                rows += [Row(label, split, ImageFile(file)) for file in sorted(images, key=natural_key)]
                others += sorted(files - images)
    if not rows:
        raise DatasetError(f"{path} has no folders of superclasses. Add some, or remove the key superclasses.")
    note = f"files left out, because their names are not those of images: {some(others)}"
    return rows, (note,) if others else ()


def subfolders(folder: Path) -> list[Path]:
    """The folders in a folder, in natural order."""
    return [folder / name for name in next(walk(folder))[1]]


def split_folders(path: Path) -> dict[str, Path]:
    """The folders that are named after splits, if there are any."""
    folders = subfolders(path)
    by_split = {split: folder for folder in folders if (split := csv_lists.split_of(folder.name))}
    if by_split and len(by_split) < len(folders):
        named = some(folder.name for folder in folders)
        raise DatasetError(f"{path} has folders of splits and others beside them, or two of one split: {named}.")
    return {split: by_split[split] for split in SPLITS if split in by_split}


def cut(names: Iterable[str], fractions: tuple[float, float, float]) -> dict[str, str]:
    """Divides names among the splits by the SHA-256 of each: the same on every machine and in every order.

    Sizes are exact up to rounding. When a name is added, at most one other name crosses each border between splits.
    """
    names = sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest())
    ends = [int(len(names) * sum(fractions[:k]) + 0.5) for k in range(len(SPLITS) + 1)]
    return {name: split for split, start, end in zip(SPLITS, ends, ends[1:]) for name in names[start:end]}
