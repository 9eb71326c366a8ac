"""Folders of images: split/class/*, or class/* with a split file or with fractions of the classes; see `HELP`.

With `superclasses`, train/Greek/alpha/1.png belongs to the class "Greek/alpha" and the superclass "Greek". With
`splits` or `fractions`, folders named after splits are pooled: train/cat and test/cat are one class.
"""

import hashlib
import os
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

from PIL import Image

from tcnaps.config.settings import Folder
from tcnaps.data.decoding import FORMATS
from tcnaps.data.image_source import SPLITS, DatasetError
from tcnaps.data.listing import ImageFile, Listing, Source, located, natural_key, normal, some, walk
from tcnaps.data.readers.csv_lists import SplitList, list_files, read_list, split_by_class, split_of

EXTENSIONS = frozenset(extension for extension, name in Image.EXTENSION.items() if name in FORMATS)
HELP = """Images must lie in one of these ways:
    train/cat/1.jpg   one folder per split: train, val (or valid), test; any of them may be missing
    cat/1.jpg         with splits: a split file, or fractions: [0.6, 0.2, 0.2] of the classes
With superclasses: true, train/Greek/alpha/1.jpg or Greek/alpha/1.jpg. docs/data.md says more."""

Found = dict[tuple[str, str], list[ImageFile]]  # (class, split) -> its images; "" if there are no folders of splits


def open_folder(name: str, dataset: Folder) -> Source:
    """Points at folders of images."""
    if dataset.splits is not None and dataset.fractions is not None:
        raise DatasetError(f"Dataset '{name}' has both splits and fractions; remove one of the two keys.")
    if dataset.fractions is not None and abs(sum(dataset.fractions) - 1) > 1e-6:
        total = f"{list(dataset.fractions)} add up to {sum(dataset.fractions):g}"
        raise DatasetError(f"Dataset '{name}': its fractions {total}; they must add up to 1.")
    path, lists = located(dataset.path), list_files(dataset.splits)
    listing = partial(list_folder, path, lists[0] if lists else None, dataset.fractions, dataset.superclasses)
    return Source(listing, (path, *lists), HELP)


def list_folder(
    path: Path, splits: Path | None = None, fractions: tuple | None = None, grouped: bool = False
) -> Listing:
    """Lists the images in class folders, or those named by `splits`. `grouped`: in folders of superclasses."""
    listed = None if splits is None else read_list(splits)
    if listed and listed.files:
        return listing_of(_listed_images(listed, path, splits), splits)
    found, notes = scan(path, grouped, divided=listed is not None or fractions is not None)
    groups = {label: label.partition("/")[0] for label, _ in found}
    if listed:
        if missing := listed.classes.keys() - groups.keys() - set(groups.values()):
            raise DatasetError(
                f"{splits}: {len(missing)} of its classes are not in the dataset: {some(sorted(missing))}; it has "
                f"{some(groups)}. Correct the split file, or add what is missing."
            )
        # A listed superclass stands for all its classes that are not listed individually.
        chosen = {label: listed.classes.get(label, listed.classes.get(group)) for label, group in groups.items()}
        found = assigned(found, chosen)
        if others := sorted((label for label in chosen if chosen[label] is None), key=natural_key):
            notes += (f"classes left out, because {splits} does not list them: {some(others)}",)
    elif fractions is not None:  # superclasses stay whole: an alphabet to test on must be new
        parts = cut(set(groups.values()), fractions)
        found = assigned(found, {label: parts[group] for label, group in groups.items()})
    elif any(split == "" for _, split in found):
        names = some(folder.name for folder in subfolders(path))
        raise DatasetError(f"{path} holds the folders {names}, and no folder train, val or test.\n{HELP}")
    return listing_of(found, path, groups if grouped else {}, notes)


def scan(path: Path, grouped: bool = False, divided: bool = False) -> tuple[Found, tuple[str, ...]]:
    """Finds the images at any depth below class folders, and a note on other files.

    `grouped`: as for `list_folder`. `divided`: classes are divided among the splits later.
    """
    found: Found = {}
    others: list[str] = []
    for split, folder in _split_folders(path, divided).items():
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
                found.setdefault((label, split), []).extend(map(ImageFile, sorted(images, key=natural_key)))
                others += sorted(files - images)
    if not found:
        raise DatasetError(f"{path} has no folders of superclasses. Add some, or remove the key superclasses.")
    note = f"files left out, because their names are not those of images: {some(others)}"
    return found, (note,) if others else ()


def assigned(found: Found, splits: Mapping[str, str | None]) -> Found:
    """The images in the splits that are given for their classes. Classes without one are left out."""
    chosen: Found = {}
    for (label, _), images in found.items():
        if split := splits.get(label):
            chosen.setdefault((label, split), []).extend(images)
    return chosen


def listing_of(
    found: Found, place: object, superclasses: Mapping[str, str] | None = None, notes: tuple[str, ...] = ()
) -> Listing:
    """Lists images; classes in natural order. A class in two splits is an error."""
    splits: dict[str, dict[str, list[ImageFile]]] = {}
    for label, split in sorted(split_by_class(found, place).items(), key=lambda pair: natural_key(pair[0])):
        splits.setdefault(split, {})[label] = found[label, split]
    return Listing(splits, superclasses or {}, notes=notes)


def _listed_images(listed: SplitList, folder: Path, place: object) -> Found:
    """The listed files, each found in a folder or in the folder of its class below it."""
    found: Found = {}
    missing, labels = [], {}
    for file, label in sorted(listed.files, key=lambda pair: natural_key(pair[0])):
        path = next(filter(os.path.isfile, (os.path.join(folder, file), os.path.join(folder, label, file))), None)
        if path is None:
            missing.append(file)
        elif labels.setdefault(path, label) != label:
            raise DatasetError(f"{place}: {file} is in two classes, {labels[path]} and {label}. Take it out of one.")
        else:
            found.setdefault((label, listed.classes[label]), []).append(ImageFile(path))
    if missing:
        raise DatasetError(
            f"{place}: of {len(listed.files)} listed images, {some(missing)} are neither in {folder} nor in the folder "
            "of their class in it. Put them there or take them out of the list."
        )
    return found


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
        raise DatasetError(f"{path} has folders of splits and others beside them, or two of one split: {named}.")
    return {split: by_split[split] for split in SPLITS if split in by_split} or {"": path}


def cut(names: Iterable[str], fractions: tuple[float, float, float]) -> dict[str, str]:
    """Divides names among the splits by the SHA-256 of each: the same on every machine and in every order.

    When a name is added, at most one other name crosses each border between splits.
    """
    names = sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest())
    ends = [int(len(names) * sum(fractions[:k]) + 0.5) for k in range(len(SPLITS) + 1)]
    return {name: split for split, start, end in zip(SPLITS, ends, ends[1:]) for name in names[start:end]}
