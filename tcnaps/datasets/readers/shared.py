"""What the readers share: names in one order on every machine, compact lists of images, splits by class, checks."""

import difflib
import json
import os
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from tcnaps.config.settings import Resampling
from tcnaps.config.storage import digest_of
from tcnaps.datasets.image_source import SPLITS as SPLITS, DatasetError
from tcnaps.datasets.listing import ImageFile, Listing, SplitListing, read_path

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


def nearest(name: str, names: Iterable[str]) -> str:
    """ " Did you mean 'x'?", or nothing where no name is near."""
    by_folded = {other.casefold(): other for other in names}
    found = difflib.get_close_matches(name.casefold(), by_folded, n=1)
    return f" Did you mean '{by_folded[found[0]]}'?" if found else ""


def some(names: Iterable[str], n: int = 3) -> str:
    """The first names of many, for a message: 'a', 'b', 'c' and 7 more."""
    names = list(names)
    shown = ", ".join(f"'{name}'" for name in names[:n])
    return shown if len(names) <= n else f"{shown} and {len(names) - n} more"


@dataclass(frozen=True, eq=False)
class Images(Sequence):
    """The images of a class: one `ImageFile` at a time, made when it is asked for, since there may be millions.

    Attributes:
        folder: the folder that holds all files.
        names: the path of each image's file within the folder; with positions, a single name may serve all images.
        positions: see `ImageFile.position`; None where each file is one image.
    """

    folder: str
    names: Sequence[str]
    positions: Int64[np.ndarray, "n_images k"] | None = None

    def __len__(self) -> int:
        return len(self.names) if self.positions is None else len(self.positions)

    def __getitem__(self, index):
        if isinstance(index, slice):
            return [self[k] for k in range(*index.indices(len(self)))]
        position = () if self.positions is None else tuple(self.positions[index].tolist())
        name = self.names[0 if position and len(self.names) == 1 else index]
        return ImageFile(os.path.join(self.folder, name), position)


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


def walk(folder: Path) -> Iterator[tuple[str, list[str], list[os.DirEntry]]]:
    """Like `os.walk`, following links, but no folder is entered twice and the order is the same on every machine.

    Yields:
        a folder; the names of the folders in it; its files. Hidden files and what file managers leave behind are left
        out.

    Raises:
        DatasetError: a folder can't be read, or a name is not UTF-8.
    """
    waiting, entered = [str(folder)], set()
    while waiting:
        place = waiting.pop()
        try:
            status = os.stat(place)
            with os.scandir(place) as entries:
                found = [e for e in entries if not e.name.startswith(".") and e.name.casefold() not in LEFTOVERS]
        except OSError as error:
            raise DatasetError(
                f"{place} can't be looked through ({error.strerror}). Check the path and its permissions; an archive "
                "must be unpacked first."
            ) from error
        if (status.st_dev, status.st_ino) in entered:
            continue
        entered.add((status.st_dev, status.st_ino))
        for entry in found:
            if entry.name.encode(errors="replace") != os.fsencode(entry.name):
                raise DatasetError(f"{place}: the name {os.fsencode(entry.name)!r} is not UTF-8. Rename it.")
        inner = {e.name for e in found if (os.path.isdir(e.path) if e.is_symlink() else e.is_dir())}
        folders = sorted(inner, key=natural_key)
        yield place, folders, [entry for entry in found if entry.name not in inner]
        waiting += [os.path.join(place, name) for name in reversed(folders)]


def stamp(paths: Iterable[Path], base: Path) -> str:
    """A digest that changes when files or folders below are added, taken away or renamed.

    Args:
        paths: of files, whose sizes and times of change count; and of folders, of which those of all folders below do.
        base: names are taken relative to it, so that a dataset may be moved.
    """
    facts = []
    for path in paths:
        for place in (Path(place) for place, _, _ in walk(path)) if path.is_dir() else [path]:
            status = place.stat()
            size = None if place.is_dir() else status.st_size
            facts.append([os.path.relpath(place, base), size, status.st_mtime_ns])
    return digest_of(facts)


def check_present(folder: Path, names: Iterable[str], listed_in: str) -> None:
    """Checks that every image that a dataset's own list names is there.

    Args:
        folder: what the names are relative to.
        names: paths of images.
        listed_in: the list's name in messages.

    Raises:
        DatasetError: some are missing.
    """
    names = list(names)
    if missing := sorted((n for n in names if not os.path.isfile(os.path.join(folder, n))), key=natural_key):
        raise DatasetError(
            f"{len(missing)} of the {len(names)} images that {listed_in} lists are missing from {folder}: "
            f"{some(missing)}. {AGAIN}"
        )


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


def thinned(n: int, at_most: int | None) -> Int64[np.ndarray, " kept"]:
    """Numbers of the images of a class that are kept, spread evenly over all `n`; all if `at_most` is None."""
    kept = n if at_most is None else min(n, at_most)
    return np.arange(kept, dtype=np.int64) * n // max(kept, 1)


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
        raise DatasetError(
            f"{path} is not UTF-8 (byte {error.start} is {error.object[error.start]:#04x}). Save it with that encoding."
        ) from error


def read_table(path: Path, n_fields: int) -> list[tuple[str, ...]]:
    """The lines of a text file, split at blanks; the last field may contain blanks.

    Raises:
        DatasetError: see `read_text`; or a line has fewer fields.
    """
    rows = []
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        if fields := line.split(maxsplit=n_fields - 1):
            if len(fields) < n_fields:
                raise DatasetError(f"{path}, line {number}: '{line}' has {len(fields)} of {n_fields} fields. {AGAIN}")
            rows.append(tuple(field.strip() for field in fields))
    return rows


def read_json(path: Path, object_hook: Callable[[dict], object] | None = None) -> dict:
    """A JSON file whose outermost value is an object.

    Raises:
        DatasetError: see `read_text`; or the file is something else.
    """
    text = read_text(path)
    try:
        content = json.loads(text, object_hook=object_hook)
    except (ValueError, RecursionError) as error:
        raise DatasetError(
            f"{path} is not JSON that can be read ({error}). Replace it by the published file."
        ) from error
    if not isinstance(content, dict):
        raise DatasetError(f"{path} is not a JSON object. Replace it by the published file.")
    return content
