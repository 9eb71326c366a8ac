"""What the readers share: names in one order on every machine, looking through folders, reading text."""

import json
import os
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tcnaps.config.settings import Resampling
from tcnaps.config.storage import digest_of
from tcnaps.datasets.image_source import DatasetError
from tcnaps.datasets.listing import Images, Listing, SplitListing, read_path

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


def some(names: Iterable[str], n: int = 3) -> str:
    """The first names of many, for a message: 'a', 'b', 'c' and 7 more."""
    names = list(names)
    shown = ", ".join(f"'{name}'" for name in names[:n])
    return shown if len(names) <= n else f"{shown} and {len(names) - n} more"


def walk(folder: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """Like `os.walk`, following links, but no folder is entered twice and the order is the same on every machine.

    Yields:
        a folder; the names of the folders in it; those of its files. Hidden files and what file managers leave behind
        are left out.

    Raises:
        DatasetError: a folder can't be read, or a name is not UTF-8.
    """

    def fail(error: OSError) -> None:
        raise DatasetError(
            f"{error.filename} can't be looked through ({error.strerror}). Check it and its permissions."
        )

    entered = {os.path.realpath(folder)}
    for place, folders, files in os.walk(folder, followlinks=True, onerror=fail):
        for name in folders + files:
            if name.encode(errors="replace") != os.fsencode(name):
                raise DatasetError(f"{place}: the name {os.fsencode(name)!r} is not UTF-8. Rename it.")
        seen = [n for n in folders + files if not n.startswith(".") and n.casefold() not in LEFTOVERS]
        inner = {}
        for name in sorted(set(folders).intersection(seen), key=natural_key):
            real = os.path.realpath(os.path.join(place, name))
            if real not in entered:
                entered.add(real)
                inner[name] = real
        folders[:] = inner
        yield place, list(inner), sorted(set(files).intersection(seen), key=natural_key)


def stamp(paths: Iterable[Path], base: Path) -> str:
    """A digest that changes when files or folders below are added, taken away or renamed.

    Args:
        paths: of files, whose sizes and times of change count; and of folders, of which those of all folders below do.
        base: names are taken relative to it, so that a dataset may be moved.
    """
    facts = []
    for path in paths:
        for place in [place for place, _, _ in walk(path)] if path.is_dir() else [path]:
            status = os.stat(place)
            size = None if path.is_dir() else status.st_size
            facts.append([os.path.relpath(place, base), size, status.st_mtime_ns])
    return digest_of(facts)


@dataclass(frozen=True)
class Classes:
    """All classes of a published dataset, before they are split.

    Attributes:
        images: by class name.
        superclasses: of every class by its name, where there are any.
        splits: the dataset's own; without them all classes are for testing.
        read, resampling: see `Listing`.
    """

    images: dict[str, Images]
    superclasses: dict[str, str] | None = None
    splits: dict[str, tuple[str, ...]] | None = None
    read: Callable = read_path
    resampling: Resampling | None = None

    def listing(self, splits: dict[str, tuple[str, ...]], notes: Iterable[str] = ()) -> Listing:
        """The classes in these splits. EXIF's orientation is ignored: published figures were made so."""
        listings = {}
        for split, names in splits.items():
            above = tuple(self.superclasses[name] for name in names) if self.superclasses else None
            listings[split] = SplitListing(names, tuple(self.images[name] for name in names), above)
        return Listing(listings, self.read, self.resampling, orient=False, notes=tuple(notes))


def by_class(folder: Path, pairs: Iterable[tuple[str, str]], listed_in: str = "") -> dict[str, Images]:
    """The images of each class, in the natural order of their files.

    Args:
        folder: what the files are relative to.
        pairs: names of class and file.
        listed_in: the name of the dataset's list that they are from, if any: then all files must be there.
    """
    files = defaultdict(list)
    for name, file in pairs:
        files[name].append(file)
    if listed_in:
        check_present(folder, [file for members in files.values() for file in members], listed_in)
    return {name: Images(str(folder), tuple(sorted(members, key=natural_key))) for name, members in files.items()}


def check_present(folder: Path, names: Iterable[str], listed_in: str) -> None:
    """Raises `DatasetError` unless every image that a dataset's own list names is in its folder."""
    names = list(names)
    if missing := sorted((n for n in names if not os.path.isfile(os.path.join(folder, n))), key=natural_key):
        raise DatasetError(
            f"{len(missing)} of the {len(names)} images that {listed_in} lists are missing from {folder}: "
            f"{some(missing)}. {AGAIN}"
        )


def read_text(path: Path) -> str:
    """A text file.

    Raises:
        DatasetError: the file can't be read or isn't UTF-8.
    """
    if os.path.exists(path) and not os.path.isfile(path):
        raise DatasetError(f"{path} is not a file. Correct the path.")  # reading a device or a pipe could take for ever
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise DatasetError(f"{path} can't be read ({error.strerror}). Check the path and its permissions.") from error
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path} is not UTF-8 ({error}). Save it with that encoding.") from error


def read_json(path: Path, object_hook: Callable[[dict], object] | None = None) -> dict:
    """A JSON file whose outermost value is an object.

    Raises:
        DatasetError: see `read_text`; or the file is something else.
    """
    text = read_text(path)
    try:
        content = json.loads(text, object_hook=object_hook)
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{path} is not JSON that can be read ({error}). Get the published file.") from error
    if not isinstance(content, dict):
        raise DatasetError(f"{path} is not a JSON object. Get the published file.")
    return content
