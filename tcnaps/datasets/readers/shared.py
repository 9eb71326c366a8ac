"""What the readers share: names in one order on every machine, looking through folders, reading text."""

import json
import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tcnaps.config.storage import digest_of
from tcnaps.datasets.image_source import DatasetError
from tcnaps.datasets.listing import ImageFile, Images

AGAIN = "Download or unpack the dataset again."
LEFTOVERS = frozenset(["thumbs.db", "ehthumbs.db", "desktop.ini", "__macosx", "@eadir"])  # of file managers
_DIGITS = re.compile("([0-9]+)")


def normal(name: str) -> str:
    """One spelling (Unicode NFC): macOS writes an accented letter in a file's name as two characters."""
    return unicodedata.normalize("NFC", name)


def natural_key(name: str) -> tuple:
    """Sorts as people count: image2 before image10. Names that differ at all have a fixed order."""
    parts = _DIGITS.split(normal(name))  # text and digits by turns
    parts[1::2] = [(len(digits), digits) for digits in (part.lstrip("0") for part in parts[1::2])]
    return tuple(parts), name


def some(names: Iterable[str]) -> str:
    """The first names of many, for a message: 'a', 'b', 'c' and 7 more."""
    names = list(names)
    shown = ", ".join(f"'{name}'" for name in names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"


def walk(folder: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """Like `os.walk`, following links, but no folder is entered twice and the order is the same on every machine.

    Hidden files and what file managers leave behind are left out.
    """

    def fail(error: OSError) -> None:
        raise DatasetError(f"{error.filename} can't be looked through ({error.strerror}). Check its permissions.")

    entered = {os.path.realpath(folder)}
    for place, folders, files in os.walk(folder, followlinks=True, onerror=fail):
        for name in folders + files:
            if name.encode(errors="replace") != os.fsencode(name):
                raise DatasetError(f"{place}: the name {os.fsencode(name)!r} is not UTF-8. Rename it.")
        inner = {}
        for name in _in_order(folders):
            real = os.path.realpath(os.path.join(place, name))
            if real not in entered:
                entered.add(real)
                inner[name] = real
        folders[:] = inner
        yield place, list(inner), _in_order(files)


def _in_order(names: list[str]) -> list[str]:
    seen = (name for name in names if not name.startswith(".") and name.casefold() not in LEFTOVERS)
    return sorted(seen, key=natural_key)


def stamp(paths: Iterable[Path], base: Path) -> str:
    """A digest that changes when files or folders below are added, taken away or renamed.

    Of files the sizes and times of change count, of folders the times of all folders below. Names are taken relative to
    `base`, so that a dataset may be moved.
    """
    places = (place for path in paths for place in ((p for p, _, _ in walk(path)) if path.is_dir() else [path]))
    found = ((place, os.stat(place)) for place in places)
    return digest_of([[os.path.relpath(p, base), not os.path.isdir(p) and s.st_size, s.st_mtime_ns] for p, s in found])


def by_class(folder: Path, pairs: Iterable[tuple[str, str]], listed_in: str = "") -> Images:
    """The images of each class, both in natural order, from pairs of class and file.

    Where they are from a list of the dataset's own, called `listed_in`, all files must be there.
    """
    pairs = sorted(pairs, key=lambda pair: (natural_key(pair[0]), natural_key(pair[1])))
    if listed_in:
        check_present(folder, [file for _, file in pairs], listed_in)
    images: Images = {}
    for name, file in pairs:
        images.setdefault(name, []).append(ImageFile(os.path.join(folder, file)))
    return images


def check_present(folder: Path, names: Iterable[str], listed_in: str) -> None:
    """Raises `DatasetError` unless every image that a dataset's own list names is in its folder."""
    if missing := sorted((n for n in names if not os.path.isfile(os.path.join(folder, n))), key=natural_key):
        raise DatasetError(f"Images that {listed_in} lists are missing from {folder}: {some(missing)}. {AGAIN}")


def read_text(path: Path) -> str:
    """The content of a text file."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise DatasetError(f"{path} can't be read ({error.strerror}). Check the path and its permissions.") from error
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path} is not UTF-8 ({error}). Save it with that encoding.") from error


def read_json(path: Path, object_hook: Callable[[dict], object] | None = None) -> dict:
    """A JSON file whose outermost value is an object."""
    text = read_text(path)
    try:
        content = json.loads(text, object_hook=object_hook)
        if not isinstance(content, dict):
            raise ValueError("it holds no object")
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{path} is not JSON that can be read ({error}). Get the published file.") from error
    return content
