"""Folders of classes: which there are, of which split they are, and what images they hold."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tcnaps.datasets.image_folders import FolderScan, Images, fingerprint, scan_folder, subfolders
from tcnaps.datasets.image_source import DatasetError
from tcnaps.datasets.listing import FileSource, Listing, SplitListing
from tcnaps.datasets.names import check_distinct, natural_key, normal, some
from tcnaps.datasets.split_files import SPLITS, split_of

Splits = Mapping[str, tuple["ClassFolder", ...]]


@dataclass(frozen=True)
class ClassFolder:
    """Where the images of a class lie.

    Attributes:
        name: "class", or "superclass/class".
        folders: one, or one for each split of a dataset for ordinary classification, put together.
        superclass: the name of the folder above, where that is a superclass.
    """

    name: str
    folders: tuple[Path, ...]
    superclass: str | None = None

    def joined(self, other: "ClassFolder") -> "ClassFolder":
        """The class with the images of both."""
        return ClassFolder(self.name, self.folders + other.folders, self.superclass)


@dataclass(frozen=True)
class Plan:
    """Which classes are of which split.

    Attributes:
        splits: those that have classes, in their usual order.
        notes: what the user should know, such as what is left out.
    """

    splits: Splits
    notes: tuple[str, ...] = ()


def folder_source(
    name: str,
    path: Path,
    plan: Callable[[], Plan],
    needs: tuple[Path, ...],
    help: str,
    review: Callable[[dict[str, SplitListing]], Iterable[str]] = lambda splits: (),
) -> FileSource:
    """A source of class folders.

    Args:
        name: of the dataset.
        path: its folder.
        plan: finds the class folders and says of which split they are.
        needs, help: see `FileSource`.
        review: looks at what was found, and returns what the user should know of it.
    """

    def stamp() -> dict:
        splits = plan().splits
        names = {split: [found.name for found in classes] for split, classes in splits.items()}
        folders = [folder for classes in splits.values() for found in classes for folder in found.folders]
        facts = fingerprint(folders, path)
        return facts | {"classes": hashlib.sha256(json.dumps(names, sort_keys=True).encode()).hexdigest()}

    def listing() -> Listing:
        made = plan()
        splits, notes = list_images(made.splits, path, f"Dataset '{name}'")
        return Listing(splits, notes=(*made.notes, *notes, *review(splits)))

    return FileSource(stamp, listing, needs, help)


def split_folders(path: Path) -> dict[str, Path] | None:
    """The folders named after splits, or None if there are none.

    A folder called "train" that holds images itself, and no folders, is a class: pictures of trains.

    Raises:
        DatasetError: there are two of a split, or other folders beside them.
    """
    folders = subfolders(path)
    named = [folder for folder in folders if split_of(folder.name) and not _holds_images_alone(folder)]
    if not named:
        return None
    besides = [folder.name for folder in folders if folder not in named]
    if besides:
        raise DatasetError(
            f"{path} has folders of splits ({some(f.name for f in named)}) and others beside them: "
            f"{some(besides)}. Move the others away; or, if all of them are classes, rename "
            f"'{named[0].name}'."
        )
    by_split: dict[str, Path] = {}
    for folder in named:
        split = split_of(folder.name)
        if split in by_split:
            raise DatasetError(
                f"{path} has two folders of one split, '{by_split[split].name}' and '{folder.name}'; put them together."
            )
        by_split[split] = folder
    return {split: by_split[split] for split in SPLITS if split in by_split}


def class_folders(folder: Path, superclasses: bool = False) -> tuple[ClassFolder, ...]:
    """The classes in a folder.

    Args:
        superclasses: whether they lie in folders of their superclasses.

    Raises:
        DatasetError: there is no class in the folder, or in one of a superclass; two differ only in case.
    """
    above = subfolders(folder) if superclasses else (folder,)
    found = []
    for group in above:
        inner = subfolders(group)
        if not inner:
            kind = "is to be a superclass, but has no folders of classes in it" if superclasses else "has no classes"
            remedy = "remove the key superclasses" if superclasses else "put a folder a class into it"
            raise DatasetError(f"{group} {kind}: {remedy}, or delete the folder.")
        superclass = normal(group.name) if superclasses else None
        names = [normal(f.name) for f in inner]
        found += [ClassFolder(f"{superclass}/{n}" if superclass else n, (f,), superclass) for n, f in zip(names, inner)]
    if not found:
        raise DatasetError(f"{folder} has no classes: put a folder a class into it, or delete the folder.")
    check_distinct((found_.folders[0].relative_to(folder).as_posix() for found_ in found), folder)
    return tuple(found)


def check_classes(splits: Splits, place: str) -> None:
    """Checks that no class is in two splits, under this name or one that differs in case.

    Raises:
        DatasetError: one is.
    """
    seen: dict[str, str] = {}
    for split, classes in splits.items():
        for found in classes:
            if seen.setdefault(found.name, split) != split:
                raise DatasetError(
                    f"{place}: the class '{found.name}' is in two splits, {seen[found.name]} and {split}. What a model "
                    "is tested on must be new to it: to have these classes split anew, give the dataset fractions, "
                    "such as [0.6, 0.2, 0.2], or a split file. Images of both folders are then put together."
                )
    check_distinct((found.name for classes in splits.values() for found in classes), place)


def cut(names: Iterable[str], fractions: tuple[float, float, float]) -> dict[str, tuple[str, ...]]:
    """Deals names out to the splits by the SHA-256 of each: by chance, but on every machine and in every order alike.

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


def list_images(splits: Splits, path: Path, place: str) -> tuple[dict[str, SplitListing], list[str]]:
    """Looks through all class folders.

    Returns:
        the images of each class and split, and what the user should know of other files.

    Raises:
        DatasetError: a class has no images.
    """
    folders = (folder for classes in splits.values() for found in classes for folder in found.folders)
    scans = {folder: scan_folder(folder) for folder in folders}
    listings = {}
    for split, classes in splits.items():
        classes = sorted(classes, key=lambda found: natural_key(found.name))
        images = tuple(_images(found, scans, path) for found in classes)
        empty = [found for found, files in zip(classes, images) if not files]
        if empty:
            kinds = _kinds(file for folder in empty[0].folders for file in scans[folder].others)
            raise DatasetError(
                f"{place}, split {split}: {len(empty)} of {len(classes)} classes have no images: "
                f"{some(found.name for found in empty)}. {empty[0].folders[0]} holds "
                f"{f'other files ({kinds})' if kinds else 'nothing'}: put images into it or take the class out."
            )
        superclasses = tuple(found.superclass for found in classes) if classes[0].superclass else None
        listings[split] = SplitListing(tuple(found.name for found in classes), images, superclasses)
    return listings, _notes(scans, path)


def _images(found: ClassFolder, scans: Mapping[Path, FolderScan], path: Path) -> Images:
    if len(found.folders) == 1:
        return Images(str(found.folders[0]), scans[found.folders[0]].images)
    names = ((folder.relative_to(path).as_posix(), name) for folder in found.folders for name in scans[folder].images)
    return Images(str(path), tuple(f"{folder}/{name}" for folder, name in names))


def _notes(scans: Mapping[Path, FolderScan], path: Path) -> list[str]:
    notes = []
    others = [file for found in scans.values() for file in found.others]
    if others:
        notes.append(f"left out, because their names are not those of images: {_kinds(others)}")
    above = {path, *(folder for inner in scans for folder in inner.parents if path in folder.parents)}
    for folder in sorted(above):
        if stray := scan_folder(folder, deep=False).images:
            notes.append(f"left out, because {folder} is no folder of a class: {some(stray)}")
    nested = {folder: tops for folder, found in scans.items() if len(tops := _tops(found)) > 1}
    if len(nested) > len(scans) / 2:
        folder, tops = next(iter(nested.items()))
        notes.append(
            f"most classes have their images in several folders, such as {some(sorted(tops))} in {folder}: if "
            "those are the classes, set superclasses: true"
        )
    return notes


def _tops(found: FolderScan) -> set[str]:
    """The folders right below a class's in which all its images lie; none if some lie in the class's folder."""
    tops = {name.partition("/")[0] for name in found.images}
    return tops if all("/" in name for name in found.images) else set()


def _kinds(files: Iterable[str]) -> str:
    """How many files there are of each extension."""
    counts = Counter(Path(file).suffix.lower() or "without extension" for file in files)
    return ", ".join(f"{count} {kind}" for kind, count in counts.most_common(5))


def _holds_images_alone(folder: Path) -> bool:
    return not subfolders(folder) and bool(scan_folder(folder, deep=False).images)
