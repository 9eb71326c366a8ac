"""Prepared datasets on disk: one memory-mapped uint8 array per split, and an index that says what they hold.

    <folder>/<dataset>-<image size>-<recipe>/train.npy    uint8 (n, size, size, 3), images of a class together
                                            /valid.npy
                                            /test.npy
                                            /index.json   classes, sizes, checksums, and the recipe
                                            /unreadable.csv   images that were left out, if any, and why

Arrays are written under temporary names and then renamed; the index comes last. So a folder with an index is complete
whatever interrupts a preparation; one without is prepared again, except for what is finished.
"""

import errno
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from filelock import FileLock
from tqdm.auto import tqdm

from tcnaps.config.storage import digest_of, file_digest, write_text
from tcnaps.datasets.arrays import create
from tcnaps.datasets.image_source import SPLITS, DatasetError, ImageSource

FORMAT = 1  # of the index and the arrays
INDEX, REPORT = "index.json", "unreadable.csv"
NOT_PREPARED = "nothing is there"
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class MissingFiles(DatasetError):
    """Files that a dataset would be made from are missing; the message says how to get them."""


@dataclass(frozen=True)
class SplitLayout:
    """What a split holds: names, sizes and hierarchy of its classes, in the order of the array."""

    class_names: tuple[str, ...]
    class_sizes: tuple[int, ...]
    superclasses: tuple[str, ...] | None = None
    spans: tuple[tuple[int, ...], ...] | None = None

    def __str__(self) -> str:
        groups = f" in {len(set(self.superclasses)):,} superclasses" if self.superclasses else ""
        return f"{len(self.class_names):,} classes{groups}, {sum(self.class_sizes):,} images"


@dataclass(frozen=True)
class Plan:
    """What is to be made: the layout of each split, and what fills the arrays (split -> .npy file of that length).

    `fill` may take rows out. It then returns the layouts that are left, and more entries for the index.
    """

    layouts: Mapping[str, SplitLayout]
    fill: Callable[[Mapping[str, Path]], tuple[Mapping[str, SplitLayout], Mapping] | None]


class Originals:
    """The files that a dataset is made from."""

    def stamp(self) -> dict:
        """Cheap facts about them, as values for JSON. Raises `MissingFiles` where they are gone."""
        raise NotImplementedError

    def digest(self) -> str:
        """A digest of all names, sizes and times, after a look through all files."""
        raise NotImplementedError

    def fetch(self) -> None:
        """Gets what is missing of them where that is possible. Raises `MissingFiles` if it fails."""

    def accept(self, place: Path, index: dict) -> None:
        """Raises `DatasetError` if a prepared dataset isn't good enough."""


@dataclass(frozen=True)
class Preparation:
    """How a dataset is made.

    Attributes:
        splits: None if they are known only once it is prepared.
        recipe: everything that decides which pixels it has, as values for JSON: versions, options, where the files
            are. Its digest is part of the folder's name, so datasets of different recipes never meet.
        plan: looks through what the dataset is made from.
        originals: None if it isn't made from files.
    """

    dataset: str
    image_size: int
    splits: tuple[str, ...] | None
    recipe: Mapping[str, object]
    plan: Callable[[], Plan]
    originals: Originals | None = None

    @property
    def recipe_digest(self) -> str:
        content = {"format": FORMAT, "dataset": self.dataset, "image_size": self.image_size}
        return digest_of(content | {"recipe": dict(self.recipe)})

    def place(self, folder: str | Path) -> Path:
        """Where the prepared files are."""
        return Path(folder) / f"{self.dataset}-{self.image_size}-{self.recipe_digest[:8]}"


def open_prepared(preparation: Preparation, folder: str | Path, split: str) -> ImageSource:
    """Opens a split of a dataset, after preparing the dataset if its files are missing, stale or cut short.

    Safe to call from several processes at once: one prepares, the others wait.

    Raises:
        DatasetError: the dataset has no such split or can't be made, or its file has been overwritten.
    """
    _check_split(preparation, split, preparation.splits)
    entries = ensure_prepared(preparation, folder)["splits"]
    _check_split(preparation, split, entries)
    file, layout = preparation.place(folder) / entries[split]["file"], layout_of(entries[split])
    try:
        images = np.load(file, mmap_mode="r")
    except ValueError as error:  # it has the right size but is no array
        raise DatasetError(f"{file} can't be read ({error}); delete {file.parent} to have it made anew.") from error
    return ImageSource(
        dataset=preparation.dataset,
        split=split,
        images=images,
        class_names=layout.class_names,
        class_starts=np.concatenate([[0], np.cumsum(layout.class_sizes)]).astype(np.int64),
        superclasses=layout.superclasses,
        spans=None if layout.spans is None else tuple(np.array(span, np.int64) for span in layout.spans),
        digest=entries[split]["sha256"],
    )


def ensure_prepared(preparation: Preparation, folder: str | Path) -> dict:
    """Prepares a dataset unless it is there and fresh. Returns its index.

    Raises:
        DatasetError: it can't be made: files are missing, unreadable or contradictory, there is no room, or the folder
            can't be written to.
    """
    place, originals = preparation.place(folder), preparation.originals
    index, reason = state(preparation, place)
    if index is None:
        try:
            if originals is not None:
                originals.fetch()
                originals.stamp()
            place.mkdir(parents=True, exist_ok=True)
        except MissingFiles as error:
            raise MissingFiles(f"{error}\nNor is it prepared in {place}: {reason}.") from error
        except OSError as error:
            remedy = "Set the study's data_folder to another folder, or repair the path"
            raise DatasetError(f"Dataset '{preparation.dataset}' can't be prepared: {error}. {remedy}.") from error
        with FileLock(place / ".lock"):
            index = _make_or_renew(preparation, place)
    if originals is not None:
        originals.accept(place, index)
    return index


def verify(preparation: Preparation, folder: str | Path) -> None:
    """Compares every array of a dataset with the checksum taken when it was made.

    Raises:
        DatasetError: the dataset isn't prepared, or a file has changed since; the message names it and the remedy.
    """
    place = preparation.place(folder)
    index, reason = state(preparation, place)
    if index is None:
        raise DatasetError(f"{place} holds no complete dataset ({reason}); open it once to prepare it.")
    for entry in index["splits"].values():
        file = place / entry["file"]
        if file_digest(file) != entry["sha256"]:
            raise DatasetError(f"{file} has changed since it was made; delete {place} to have it made anew.")


def state(preparation: Preparation, place: Path, *, stamped: bool = True) -> tuple[dict | None, str]:
    """The index of a dataset that is complete and fresh; otherwise None, and the reason.

    Fresh: it was made by this recipe, and its originals, if they are still there, haven't changed.

    Args:
        stamped: False leaves the originals out of it.
    """
    try:
        index = json.loads((place / INDEX).read_text(encoding="utf-8"))
        if index["recipe_hash"] != preparation.recipe_digest:
            return None, f"{place} was made by another recipe"
        for entry in index["splits"].values():
            file = place / entry["file"]
            if not file.exists() or file.stat().st_size != entry["bytes"]:
                return None, f"{file} is missing or cut short"
        if stamped and preparation.originals is not None and index["stamp"] != preparation.originals.stamp():
            return None, "the files that it was made from have changed, or the code that finds them"
    except FileNotFoundError:
        return None, NOT_PREPARED
    except MissingFiles:
        pass
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None, f"{place / INDEX} can't be read"
    return index, ""


def layout_of(entry: Mapping) -> SplitLayout:
    """What a split holds, from its entry in the index."""
    spans = entry["spans"] and [tuple(span) for span in entry["spans"]]
    values = (entry["class_names"], entry["class_sizes"], entry["superclasses"], spans)
    return SplitLayout(*(value and tuple(value) for value in values))


def report(place: Path, index: Mapping) -> list[str]:
    """What the user of a prepared dataset should know."""
    remarks = list(index.get("remarks", ()))
    if left_out := sum(index.get("unreadable", {}).values()):
        images = count(left_out, "unreadable image was", "unreadable images were")
        advice = f"Once they are repaired, delete {place} to make it anew"
        remarks.insert(0, f"{images} left out; {place / REPORT} lists them. {advice}")
    return remarks


def count(number: int, one: str, more: str) -> str:
    """A number with its noun and verb."""
    return f"{number:,} {one if number == 1 else more}"


def _check_split(preparation: Preparation, split: str, splits: Iterable[str] | None) -> None:
    if splits is not None and split not in splits:
        raise DatasetError(f"Dataset '{preparation.dataset}' has no split '{split}'; it has: {', '.join(splits)}.")


def _make_or_renew(preparation: Preparation, place: Path) -> dict:
    """Makes a dataset, or merely renews its stamp if its files were only touched. The caller holds the lock."""
    index, reason = state(preparation, place)
    if index is not None:
        return index  # another process has just made it
    stamp, originals = None, preparation.originals
    if originals is not None:
        stamp = originals.stamp()  # first: later changes are to be noticed
        index, _ = state(preparation, place, stamped=False)
    if index is None or index.get("files") != originals.digest():
        if reason != NOT_PREPARED:
            tqdm.write(f"{preparation.dataset} is prepared anew: {reason}.", file=sys.stderr)
        index = _make(preparation, place)
        for line in report(place, index):
            tqdm.write(f"{preparation.dataset}: {line}", file=sys.stderr)
    content = json.dumps(index | {"stamp": stamp}, indent=1)
    write_text(place / INDEX, content)
    _remove_partial(place)
    return json.loads(content)


def _make(preparation: Preparation, place: Path) -> dict:
    plan, size = preparation.plan(), preparation.image_size
    for stale in (INDEX, REPORT, *(f"{split}.npy" for split in SPLITS)):
        (place / stale).unlink(missing_ok=True)
    partial = {split: place / f"{split}.npy.partial" for split in plan.layouts}
    shapes = {split: (sum(layout.class_sizes), size, size, 3) for split, layout in plan.layouts.items()}
    try:
        for split, file in partial.items():
            create(file, shapes[split])
        layouts, notes = plan.fill(partial) or (plan.layouts, {})
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        _remove_partial(place)
        needed, free = sum(map(np.prod, shapes.values())) / 1e9, shutil.disk_usage(place).free / 1e9
        raise DatasetError(
            f"Dataset '{preparation.dataset}' takes {needed:.3g} GB in {place}, where {free:.3g} GB are free "
            f"({error.strerror}): make room, or set the study's data_folder to another disk."
        ) from error
    entries = {}
    for split, file in partial.items():
        facts = {"file": f"{split}.npy", "bytes": file.stat().st_size, "sha256": file_digest(file)}
        entries[split] = facts | asdict(layouts[split])
    for split, file in partial.items():
        os.replace(file, place / f"{split}.npy")
    made = {"format": FORMAT, "dataset": preparation.dataset, "image_size": size, "recipe": dict(preparation.recipe)}
    return made | {"recipe_hash": preparation.recipe_digest, "splits": entries, **notes}


def _remove_partial(place: Path) -> None:
    for left in place.glob("*.partial"):
        left.unlink()
