"""The images of a dataset before they are made: what every reader of files returns, and helpers of the readers."""

import errno
import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from tcnaps.config import project_root
from tcnaps.data.image_source import DatasetError

LEFTOVERS = frozenset(["thumbs.db", "ehthumbs.db", "desktop.ini", "__macosx", "@eadir"])  # of file managers


class ImageFile(NamedTuple):
    """Where one image is: a file and, for a record in that file, its offset, length and label."""

    path: str
    position: tuple[int, ...] = ()


class Listing(NamedTuple):
    """All images of a dataset, in the same order on every machine."""

    splits: Mapping[str, Mapping[str, Sequence[Any]]]  # split -> class -> images: what the preparation's `work` takes
    superclasses: Mapping[str, str] = {}  # class -> superclass, if there are any
    # Per split, for every inner node of a hierarchy the numbers of the classes below it, if there is one.
    spans: Mapping[str, tuple[tuple[int, ...], ...]] = {}
    notes: tuple[str, ...] = ()  # what is left out, for the user


def open_regular(path: str | Path) -> BinaryIO:
    """Opens a file for reading. Refuses pipes and devices, which could block for ever, with an OSError."""
    if os.path.exists(path) and not os.path.isfile(path):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return open(path, "rb")


def read_file(image: ImageFile) -> bytes:
    with open_regular(image.path) as file:
        return file.read()


class Source(NamedTuple):
    """The files that a dataset is made from: what a reader returns."""

    listing: Callable[[], Listing]  # looks through the files; called only when the dataset has to be made
    needs: tuple[Path, ...]  # files and folders that must exist; changes of them make the prepared dataset stale
    help: str  # how to get the data; shown where something is missing
    read: Callable[[ImageFile], bytes] = read_file  # other processes must be able to import it
    orient: bool = True  # whether EXIF's orientation is applied


def located(path: str) -> Path:
    """A path from a study; relative ones are taken from the project's root."""
    return project_root() / Path(path).expanduser()


def normal(name: str) -> str:
    """A name in one spelling: macOS splits accented letters in two, and some of Meta-Dataset's fungi end in a space."""
    return unicodedata.normalize("NFC", name).strip()


def natural_key(name: str) -> tuple:
    """Sorts as people count: image2 before image10. Any two different names have a fixed order."""
    parts: list = re.split("([0-9]+)", normal(name))  # text and digits alternate
    parts[1::2] = map(int, parts[1::2])
    return parts, name


def some(names: Iterable[str]) -> str:
    """The first names of many, for a message: 'a', 'b', 'c' and 7 more."""
    names = list(names)
    shown = ", ".join(f"'{name}'" for name in names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"


def walk(folder: Path, outside: Iterable[Path] = ()) -> Iterator[tuple[str, list[str], list[str]]]:
    """Like `os.walk`, but follows links, enters no folder twice, leaves out hidden files, and has a natural order."""

    def fail(error: OSError) -> None:
        raise DatasetError(f"{error.filename} can't be read ({error.strerror}). Name a readable folder, or make it so.")

    def in_order(names: Iterable[str]) -> list[str]:
        visible = (name for name in names if not name.startswith(".") and name.casefold() not in LEFTOVERS)
        return sorted(visible, key=natural_key)

    entered = {*map(os.path.realpath, [folder, *outside])}  # a folder `outside` is not entered at all
    for place, folders, files in os.walk(folder, followlinks=True, onerror=fail):
        for name in folders + files:
            if name.encode(errors="replace") != os.fsencode(name):
                raise DatasetError(f"{place}: the name {os.fsencode(name)!r} is not UTF-8. Rename it.")
        real = {os.path.realpath(os.path.join(place, name)): name for name in reversed(in_order(folders))}
        folders[:] = in_order(name for path, name in real.items() if path not in entered)
        entered.update(real)
        yield place, list(folders), in_order(files)
