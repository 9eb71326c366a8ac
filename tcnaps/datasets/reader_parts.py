"""What the readers of published datasets share: class splits, short lists of many images, checks of what is on disk."""

import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from tcnaps.config.settings import Resampling
from tcnaps.datasets import split_files
from tcnaps.datasets.image_source import DatasetError
from tcnaps.datasets.listing import FileSource, ImageFile, Listing, SplitListing, read_path
from tcnaps.datasets.names import natural_key, some


@dataclass(frozen=True, eq=False)
class PackedImages(Sequence):
    """Many images that lie in a few files: one `ImageFile` at a time, made when it is asked for.

    Attributes:
        paths: one for all images, or one an image.
        positions: see `ImageFile.position`.
    """

    paths: Sequence[str]
    positions: Int64[np.ndarray, "n_images k"]

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, index):
        if isinstance(index, slice):
            return [self[k] for k in range(*index.indices(len(self)))]
        position = tuple(self.positions[index].tolist())  # raises IndexError past the end
        return ImageFile(self.paths[0] if len(self.paths) == 1 else self.paths[index], position)


@dataclass(frozen=True)
class Classes:
    """All classes of a dataset, before they are split.

    Attributes:
        images: by the class's name.
        superclasses: of every class, by its name, where there are any.
        splits: the dataset's own; without them all classes are for testing.
        read, resampling: see `Listing`.
    """

    images: dict[str, Sequence[ImageFile]]
    superclasses: dict[str, str] | None = None
    splits: dict[str, tuple[str, ...]] | None = None
    read: Callable = read_path
    resampling: Resampling | None = None


def split_up(classes: Classes, place: str | None, root: Path) -> Listing:
    """Puts the classes into splits: those of a split file, else the dataset's own, else all of them into "test".

    EXIF's orientation doesn't count: neither boxes nor anybody's published figures were made with it.

    Args:
        classes: all classes.
        place: path or address of a split file of class names; a superclass's name stands for all its classes. Classes
            that it doesn't name are left out, with a note.
        root: the project's root.

    Raises:
        DatasetError: the split file can't be read, or names a class that isn't there.
    """
    names, groups = list(classes.images), classes.superclasses
    notes = []
    if place is not None:
        listed = split_files.read_splits(place, root)
        splits = split_files.match_classes(listed, names, place, groups and [groups[kind] for kind in names])
        unlisted = sorted(set(names).difference(*splits.values()), key=natural_key)
        if unlisted:
            notes.append(
                f"{len(unlisted)} of {len(names)} classes are in no split of {place} and left out: {some(unlisted)}"
            )
    else:
        splits = classes.splits or {"test": tuple(sorted(names, key=natural_key))}
    listings = {
        split: SplitListing(
            chosen,
            tuple(classes.images[kind] for kind in chosen),
            None if groups is None else tuple(groups[kind] for kind in chosen),
        )
        for split, chosen in splits.items()
    }
    return Listing(listings, classes.read, classes.resampling, orient=False, notes=tuple(notes))


def split_source(
    classes: Callable[[], Classes],
    folder: Path,
    watched: Iterable[str],
    place: str | None,
    root: Path,
    needs: tuple[Path, ...],
    help: str,
    fetch: Callable[[], None] | None = None,
) -> FileSource:
    """A source of classes that are split by name; see `stamp` and `split_up`, and for the rest `FileSource`."""
    return FileSource(
        lambda: stamp(folder, watched, place, root), lambda: split_up(classes(), place, root), needs, help, fetch
    )


def stamp(folder: Path, patterns: Iterable[str], place: str | None, root: Path) -> dict[str, str]:
    """Facts that change with the files of a dataset, and with the split file if there is one.

    Args:
        folder: the dataset's.
        patterns: of the files whose sizes and times count, and of the folders whose times do, below `folder`.
        place: path or address of the split file.
        root: the project's root.
    """
    digest = hashlib.sha256()
    for pattern in patterns:
        for path in sorted(folder.glob(pattern)):
            facts = path.stat()
            size = "folder" if path.is_dir() else facts.st_size
            digest.update(f"{path.relative_to(folder)}\0{size}\0{facts.st_mtime_ns}\n".encode())
    facts = {"files": digest.hexdigest()}
    return facts if place is None else {**facts, "splits": split_files.stamp(place, root)}


def check_present(folder: Path, names: Iterable[str], listed_in: str, remedy: str) -> None:
    """Checks that every image which a dataset's own list names is there.

    Args:
        folder: what the names are relative to.
        names: paths with "/" between their parts.
        listed_in: what messages call the list.
        remedy: what to do, as a sentence.

    Raises:
        DatasetError: some are missing.
    """
    by_folder = defaultdict(set)
    for name in names:
        parent, _, file = name.rpartition("/")
        by_folder[parent].add(file)
    missing = []
    for parent, files in by_folder.items():
        place = folder / parent  # a folder is listed once: quicker than to ask for every file
        there = {entry.name for entry in os.scandir(place)} if place.is_dir() else set()
        missing += [f"{parent}/{file}" if parent else file for file in files - there]
    if missing:
        n_images = sum(map(len, by_folder.values()))
        raise DatasetError(
            f"{len(missing)} of the {n_images} images that {listed_in} lists are missing from {folder}: "
            f"{some(sorted(missing, key=natural_key))}. {remedy}"
        )


def check_total(name: str, folder: Path, found: int, published: int, remedy: str) -> None:
    """Checks the number of a published dataset's images, where no list of them says what must be there.

    Raises:
        DatasetError: it isn't what was published.
    """
    if found != published:
        raise DatasetError(
            f"{folder} holds {found} images, but {name} was published with {published}: it was not downloaded or "
            f"unpacked completely, or has been changed. {remedy}"
        )


def thinned(n: int, at_most: int | None) -> Int64[np.ndarray, " kept"]:
    """Numbers of the images of a class that are kept, spread evenly over all `n` of them; all if `at_most` is None."""
    kept = n if at_most is None else min(n, at_most)
    return np.arange(kept, dtype=np.int64) * n // max(kept, 1)


def read_table(path: Path, n_fields: int) -> list[tuple[str, ...]]:
    """The lines of a text file, split at blanks; the last field may have blanks in it.

    Raises:
        DatasetError: the file can't be read, isn't UTF-8, or has a line with fewer fields.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{path} can't be read ({error}). Unpack the dataset again.") from error
    rows = []
    for number, line in enumerate(lines, start=1):
        if fields := line.split(maxsplit=n_fields - 1):
            if len(fields) < n_fields:
                raise DatasetError(
                    f"{path}, line {number}: '{line}' has {len(fields)} of {n_fields} fields. Unpack the dataset again."
                )
            rows.append(tuple(field.strip() for field in fields))
    return rows


def read_json(path: Path, object_hook: Callable[[dict], object] | None = None) -> dict:
    """A JSON file whose outermost value is an object.

    Raises:
        DatasetError: the file can't be read, or is something else.
    """
    try:
        with open(path, encoding="utf-8") as stream:
            content = json.load(stream, object_hook=object_hook)
    except (OSError, ValueError) as error:
        raise DatasetError(f"{path} can't be read ({error}). Unpack the dataset again.") from error
    if not isinstance(content, dict):
        raise DatasetError(f"{path} is not what it should be: a JSON object. Unpack the dataset again.")
    return content
