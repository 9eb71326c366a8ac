"""Looks through folders of images: what is in them, without opening a file.

Files are told by their extensions. Hidden files and what file managers leave behind don't count as anything. Symbolic
links are followed, but no folder is entered twice, so a link to a folder above makes no circle. An image's link that
leads nowhere counts as an image: one that can't be read.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import overload

from tcnaps.datasets.image_source import DatasetError
from tcnaps.datasets.listing import ImageFile
from tcnaps.datasets.names import natural_key

# Of the formats in `decoding.FORMATS`; tests hold the two together.
EXTENSIONS = frozenset(
    ".jpg .jpeg .jpe .jfif .png .gif .bmp .tif .tiff .webp .ppm .pgm .pbm .pnm .jp2 .j2k .avif".split()
)
LEFTOVERS = frozenset(["thumbs.db", "ehthumbs.db", "desktop.ini", "__macosx", "@eadir"])


@dataclass(frozen=True, slots=True)
class Images(Sequence[ImageFile]):
    """The images of a class: what they share is kept once, for there may be a million of them.

    Attributes:
        folder: the folder that holds them all.
        names: their paths within it.
    """

    folder: str
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.names)

    @overload
    def __getitem__(self, index: int) -> ImageFile: ...
    @overload
    def __getitem__(self, index: slice) -> "Images": ...
    def __getitem__(self, index: int | slice) -> "ImageFile | Images":
        if isinstance(index, slice):
            return Images(self.folder, self.names[index])
        return ImageFile(os.path.join(self.folder, self.names[index]))


@dataclass(frozen=True)
class FolderScan:
    """What lies in a folder and below.

    Attributes:
        images: paths of images within the folder, in natural order.
        others: paths of all other files within it, in natural order.
    """

    images: tuple[str, ...]
    others: tuple[str, ...]


def scan_folder(folder: Path, deep: bool = True) -> FolderScan:
    """Looks through a folder, and all folders below it if `deep`.

    Raises:
        DatasetError: a folder can't be read, or a name is not UTF-8.
    """
    images, others = [], []
    for place, entries in _walk(folder) if deep else [("", _entries(folder))]:
        for entry in entries:
            if not _is_folder(entry):
                kind = images if _is_image(entry) else others
                kind.append(f"{place}{entry.name}")
    return FolderScan(tuple(sorted(images, key=natural_key)), tuple(sorted(others, key=natural_key)))


def subfolders(folder: Path) -> tuple[Path, ...]:
    """The folders in a folder, in natural order.

    Raises:
        DatasetError: the folder can't be read, or a name is not UTF-8.
    """
    names = sorted((entry.name for entry in _entries(folder) if _is_folder(entry)), key=natural_key)
    return tuple(folder / name for name in names)


def existing_folder(folder: Path, name: str, help: str) -> Path:
    """Checks that a dataset's folder is one.

    Args:
        folder: where the dataset should lie.
        name: of the dataset.
        help: how to get the data.

    Raises:
        DatasetError: there is nothing, or a file.
    """
    if folder.is_dir():
        return folder
    if folder.exists():
        raise DatasetError(
            f"Dataset '{name}': {folder} is a file, not a folder. If it is an archive, unpack it and "
            f"name the folder that comes of it.\n{help}"
        )
    raise DatasetError(
        f"Dataset '{name}': there is no folder {folder}. Correct the dataset's path, or put the data there.\n{help}"
    )


def fingerprint(folders: Iterable[Path], base: Path) -> dict:
    """Cheap facts about folders: they change when files or folders are added, taken away or renamed below them.

    A file that is overwritten in place goes unnoticed.

    Args:
        folders: looked through with all folders below them.
        base: their names are taken relative to it, so that a dataset may move.

    Returns:
        how many folders and entries there are, and a checksum of the folders' names, times of change and numbers of
        entries.
    """
    digest, n_folders, n_entries = hashlib.sha256(), 0, 0
    for folder in folders:
        for place, entries in _walk(folder):
            path = folder / place
            digest.update(f"{os.path.relpath(path, base)}\0{path.stat().st_mtime_ns}\0{len(entries)}\n".encode())
            n_folders, n_entries = n_folders + 1, n_entries + len(entries)
    return {"folders": n_folders, "entries": n_entries, "sha256": digest.hexdigest()}


def _walk(folder: Path) -> Iterator[tuple[str, list[os.DirEntry]]]:
    """Yields each folder, as a prefix of paths within the first ("" or "name/…/"), and what is in it."""
    waiting, entered = [""], set()
    while waiting:
        place = waiting.pop()
        entries = _entries(folder / place)
        status = os.stat(folder / place)
        if (status.st_dev, status.st_ino) in entered:
            continue
        entered.add((status.st_dev, status.st_ino))
        yield place, entries
        inner = sorted((entry.name for entry in entries if _is_folder(entry)), key=natural_key, reverse=True)
        waiting += [f"{place}{name}/" for name in inner]


def _entries(folder: Path) -> list[os.DirEntry]:
    try:
        with os.scandir(folder) as entries:
            found = [e for e in entries if not e.name.startswith(".") and e.name.casefold() not in LEFTOVERS]
    except OSError as error:
        raise DatasetError(
            f"{folder} can't be looked through ({error.strerror}). Check the folder and its permissions."
        ) from error
    for entry in found:
        try:
            entry.name.encode()
        except UnicodeEncodeError as error:
            raise DatasetError(f"{folder}: the name {os.fsencode(entry.name)!r} is not UTF-8. Rename it.") from error
    return found


def _is_folder(entry: os.DirEntry) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads to itself
        return False


def _is_image(entry: os.DirEntry) -> bool:
    """Told by the name. Links that lead nowhere count; pipes and devices don't: reading one could take for ever."""
    if os.path.splitext(entry.name)[1].lower() not in EXTENSIONS:
        return False
    if entry.is_symlink():
        return os.path.isfile(entry.path) or not os.path.exists(entry.path)
    return entry.is_file()
