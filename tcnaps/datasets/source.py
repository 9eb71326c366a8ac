"""Prepared datasets on disk: one memory-mapped uint8 array a split beside an index that says what it holds.

    <folder>/<dataset>-<image size>/train.npy    uint8 (n, size, size, 3), images of a class together
                                   /valid.npy
                                   /test.npy
                                   /index.json   classes, sizes, checksums, and the recipe they were made by

Arrays are written under temporary names, checked and renamed; the index comes last. So whatever
interrupts a preparation, a folder with an index is complete, and one without is prepared anew.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

FORMAT = 1  # of the index and the arrays


class DatasetError(ValueError):
    """A dataset, split or prepared file is not what was asked for; the message names it and the remedy."""


@dataclass(frozen=True, eq=False)
class ImageSource:
    """Class-indexed images of one dataset and split.

    Attributes:
        split: "train", "valid" or "test".
        images: uint8 (n, size, size, 3), memory-mapped and read-only; images of a class lie together.
        class_names: one a class, unique.
        class_starts: int64 (n_classes + 1,); class k is images[class_starts[k]:class_starts[k + 1]].
        superclasses: one a class where classes come in groups (the script of a character), else None.
        spans: int64, the classes below each inner node of a hierarchy (ImageNet's), where there is one, else None.
    """

    dataset: str
    split: str
    images: np.ndarray
    class_names: tuple[str, ...]
    class_starts: np.ndarray
    superclasses: tuple[str, ...] | None = None
    spans: tuple[np.ndarray, ...] | None = None
    digest: str = ""  # SHA-256 of the images' file when it was made

    @property
    def n_classes(self) -> int:
        return len(self.class_names)

    @property
    def class_sizes(self) -> np.ndarray:
        """Images a class, int64 (n_classes,)."""
        return np.diff(self.class_starts)

    def images_of(self, class_index: int) -> np.ndarray:
        """All images of a class, uint8 (n, size, size, 3).

        Raises:
            IndexError: there is no such class.
        """
        if not 0 <= class_index < self.n_classes:
            raise IndexError(
                f"{self.dataset}, {self.split}: there is no class {class_index}; "
                f"classes are 0 to {self.n_classes - 1}"
            )
        return self.images[self.class_starts[class_index] : self.class_starts[class_index + 1]]

    def image(self, class_index: int, image_index: int) -> np.ndarray:
        """One image, uint8 (size, size, 3), by its class and its number within the class.

        Raises:
            IndexError: there is no such class, or no such image of it.
        """
        images = self.images_of(class_index)
        if not 0 <= image_index < len(images):
            raise IndexError(
                f"{self.dataset}, {self.split}, class {self.class_names[class_index]}: "
                f"there is no image {image_index}; "
                f"images are 0 to {len(images) - 1}"
            )
        return images[image_index]


@dataclass(frozen=True)
class SplitLayout:
    """What a split will hold: names, sizes and hierarchy of its classes, in the order of the array."""

    class_names: tuple[str, ...]
    class_sizes: tuple[int, ...]
    superclasses: tuple[str, ...] | None = None
    spans: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True)
class Preparation:
    """How a dataset is made: what `open_prepared` needs when the files are missing or stale.

    Attributes:
        recipe: everything that shapes the pixels (versions, options), as JSON-able values; files of
            another recipe are stale.
        layouts: returns the layout of each split.
        fill: writes the images into the arrays at the given paths, one .npy file of the layout's shape a
            split.
    """

    dataset: str
    image_size: int
    splits: tuple[str, ...]
    recipe: Mapping[str, object]
    layouts: Callable[[], dict[str, SplitLayout]]
    fill: Callable[[Mapping[str, Path]], None]


def open_prepared(preparation: Preparation, folder: Path, split: str) -> ImageSource:
    """Opens a split of a dataset, after preparing the dataset if its files are missing, stale or cut short.

    Safe to call from several processes at once: one prepares, the others wait.

    Raises:
        DatasetError: the dataset has no such split, or its file has been overwritten.
    """
    if split not in preparation.splits:
        raise DatasetError(
            f"Dataset '{preparation.dataset}' has no split '{split}'; "
            f"it has: {', '.join(preparation.splits)}."
        )
    index = ensure_prepared(preparation, folder)
    place = folder_of(preparation, folder)
    entry = index["splits"][split]
    superclasses = entry["superclasses"]
    spans = entry.get("spans")  # indexes made before there were any lack the key
    try:
        images = np.load(place / entry["file"], mmap_mode="r")
    except ValueError as error:  # the right size, but not an array: overwritten by something else
        raise DatasetError(
            f"{place / entry['file']} can't be read ({error}); delete {place} to have it made anew."
        ) from error
    return ImageSource(
        dataset=preparation.dataset,
        split=split,
        images=images,
        class_names=tuple(entry["class_names"]),
        class_starts=np.concatenate([[0], np.cumsum(entry["class_sizes"])]).astype(np.int64),
        superclasses=None if superclasses is None else tuple(superclasses),
        spans=None if spans is None else tuple(np.array(span, np.int64) for span in spans),
        digest=entry["sha256"],
    )


def folder_of(preparation: Preparation, folder: Path) -> Path:
    """Where a dataset's prepared files lie."""
    return Path(folder) / f"{preparation.dataset}-{preparation.image_size}"


def ensure_prepared(preparation: Preparation, folder: Path) -> dict:
    """Prepares a dataset unless it is there and fresh, and returns its index."""
    place = folder_of(preparation, folder)
    index = _fresh_index(preparation, place)
    if index is None:
        place.mkdir(parents=True, exist_ok=True)
        with _lock(place / ".lock"):
            index = _fresh_index(preparation, place)  # another process may have made it meanwhile
            if index is None:
                index = _prepare(preparation, place)
    return index


def verify(preparation: Preparation, folder: Path) -> None:
    """Compares every array of a dataset with the checksum taken when it was made.

    Raises:
        DatasetError: the dataset isn't prepared, or a file has changed since; the message names it and
            how to make it anew.
    """
    place = folder_of(preparation, folder)
    index = _fresh_index(preparation, place)
    if index is None:
        raise DatasetError(
            f"{place} holds no complete dataset '{preparation.dataset}' of this version; "
            "open it once to prepare it."
        )
    for entry in index["splits"].values():
        if _sha256(place / entry["file"]) != entry["sha256"]:
            raise DatasetError(
                f"{place / entry['file']} has changed since it was made; delete {place} to have it made anew."
            )


def _recipe_hash(preparation: Preparation) -> str:
    content = {
        "format": FORMAT,
        "dataset": preparation.dataset,
        "image_size": preparation.image_size,
        "recipe": dict(preparation.recipe),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _fresh_index(preparation: Preparation, place: Path) -> dict | None:
    """The index, if it is of this recipe and every file has the size it had when it was made; else None."""
    try:
        index = json.loads((place / "index.json").read_text())
        if index["recipe_hash"] != _recipe_hash(preparation):
            return None
        complete = all(
            (place / entry["file"]).stat().st_size == entry["bytes"] for entry in index["splits"].values()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # missing, cut short or of another format: all mean "make it anew"
    return index if complete else None


def _prepare(preparation: Preparation, place: Path) -> dict:
    """Makes the arrays and the index of a dataset; the caller holds the lock."""
    for left in place.glob("*.partial"):  # by a preparation that was killed
        left.unlink()
    (place / "index.json").unlink(missing_ok=True)
    size = preparation.image_size
    layouts = preparation.layouts()
    partial = {split: place / f"{split}.npy.partial" for split in layouts}
    for split, layout in layouts.items():
        _reserve(partial[split], (sum(layout.class_sizes), size, size, 3))
    preparation.fill(partial)
    entries = {}
    for split, layout in layouts.items():
        file = place / f"{split}.npy"
        entries[split] = {
            "file": file.name,
            "bytes": partial[split].stat().st_size,
            "sha256": _sha256(partial[split]),
            "class_names": list(layout.class_names),
            "class_sizes": list(layout.class_sizes),
            "superclasses": None if layout.superclasses is None else list(layout.superclasses),
            "spans": None if layout.spans is None else [list(span) for span in layout.spans],
        }
        os.replace(partial[split], file)
    index = {
        "format": FORMAT,
        "dataset": preparation.dataset,
        "image_size": size,
        "recipe_hash": _recipe_hash(preparation),
        "recipe": dict(preparation.recipe),
        "splits": entries,
    }
    temporary = place / "index.json.partial"
    temporary.write_text(json.dumps(index, indent=1, ensure_ascii=False))
    os.replace(temporary, place / "index.json")
    return index


def _reserve(file: Path, shape: tuple[int, ...]) -> None:
    """Creates an array file and takes its room on the disk: mapped writes to a full disk kill the process."""
    np.lib.format.open_memmap(file, mode="w+", dtype=np.uint8, shape=shape).flush()
    if hasattr(os, "posix_fallocate"):
        with file.open("r+b") as stream:
            os.posix_fallocate(stream.fileno(), 0, file.stat().st_size)


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def _lock(file: Path) -> Iterator[None]:
    """Holds a lock that other processes wait for; the system frees it even when its holder is killed."""
    with file.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield
