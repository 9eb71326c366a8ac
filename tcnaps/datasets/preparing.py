"""Prepared datasets on disk: one memory-mapped uint8 array per split, and an index that says what they hold.

    <folder>/<dataset>-<image size>-<recipe>/train.npy    uint8 (n, size, size, 3), images of a class together
                                            /valid.npy
                                            /test.npy
                                            /index.json   classes, sizes, checksums, and the recipe
                                            /unreadable.csv   images that were left out, if any, and why

Arrays are written under temporary names and then renamed; the index comes last. So a folder with an index is complete
whatever interrupts a preparation; one without is prepared again, except for what is finished.
"""

import csv
import errno
import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from filelock import FileLock
from tqdm.auto import tqdm

from tcnaps.config.storage import digest_of, file_digest, replacing, write_text
from tcnaps.datasets import arrays
from tcnaps.datasets.image_source import SPLITS, DatasetError, ImageSource

FORMAT = 1  # of the index and the arrays
INDEX, REPORT = "index.json", "unreadable.csv"
NOT_PREPARED = "nothing is there"
SHOWN = 10  # unreadable images that an error names


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
    """What is to be made: the layout of each split; all images in chunks, and what makes those (`arrays.fill`)."""

    layouts: Mapping[str, SplitLayout]
    chunks: Sequence[arrays.Chunk]
    work: Callable
    n_jobs: int = 1
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Preparation:
    """How a dataset is made.

    Attributes:
        recipe: everything that decides which pixels it has, as values for JSON: versions, options, where the files
            are. Its digest is part of the folder's name, so datasets of different recipes never meet.
        plan: looks through what the dataset is made from.
        stamp: a cheap digest that changes when the original files do. Raises `MissingFiles` where they are gone; what
            is prepared already is then taken as fresh.
        fetch: gets missing files, where that is possible.
        refuse: whether images that can't be read are an error. They are left out otherwise.
    """

    dataset: str
    image_size: int
    recipe: Mapping[str, object]
    plan: Callable[[], Plan]
    stamp: Callable[[], str] = lambda: ""
    fetch: Callable[[], None] = lambda: None
    refuse: bool = False

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
    entries = ensure_prepared(preparation, folder)["splits"]
    if split not in entries:
        raise DatasetError(f"Dataset '{preparation.dataset}' has no split '{split}'; it has: {', '.join(entries)}.")
    file, layout = preparation.place(folder) / f"{split}.npy", layout_of(entries[split])
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
    place = preparation.place(folder)
    index, reason = state(preparation, place)
    if index is not None:
        return index
    try:
        preparation.fetch()
        preparation.stamp()
        place.mkdir(parents=True, exist_ok=True)
    except MissingFiles as error:
        raise MissingFiles(f"{error}\nNor is it prepared in {place}: {reason}.") from error
    except OSError as error:
        remedy = "Set the study's data_folder to another folder, or repair the path"
        raise DatasetError(f"Dataset '{preparation.dataset}' can't be prepared: {error}. {remedy}.") from error
    with FileLock(place / ".lock"):
        index, reason = state(preparation, place)
        if index is None:  # no other process has just made it
            if reason != NOT_PREPARED:
                tqdm.write(f"{preparation.dataset} is prepared anew: {reason}.", file=sys.stderr)
            index = _make(preparation, place)
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
    for split, entry in index["splits"].items():
        if file_digest(place / f"{split}.npy") != entry["sha256"]:
            file = place / f"{split}.npy"
            raise DatasetError(f"{file} has changed since it was made; delete {place} to have it made anew.")


def state(preparation: Preparation, place: Path) -> tuple[dict | None, str]:
    """The index of a dataset that is complete and fresh; otherwise None, and the reason.

    Fresh: it was made by this recipe, and its originals, if they are still there, haven't changed.
    """
    try:
        index = json.loads((place / INDEX).read_text(encoding="utf-8"))
        if index["recipe_hash"] != preparation.recipe_digest:
            return None, f"{place} was made by another recipe"
        for split, entry in index["splits"].items():
            file = place / f"{split}.npy"
            if not file.exists() or file.stat().st_size != entry["bytes"]:
                return None, f"{file} is missing or cut short"
        if index["stamp"] != preparation.stamp():
            return None, "the files that it was made from have changed"
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


def _make(preparation: Preparation, place: Path) -> dict:
    """Makes a dataset. The caller holds the lock."""
    stamp = preparation.stamp()  # first: later changes are to be noticed
    plan, size = preparation.plan(), preparation.image_size
    for stale in (INDEX, REPORT, *(f"{split}.npy" for split in SPLITS)):
        (place / stale).unlink(missing_ok=True)
    # What an earlier attempt has finished counts only where that was the same images.
    layouts = {split: asdict(layout) for split, layout in plan.layouts.items()}
    progress = place / f"finished-{digest_of([stamp, layouts])[:16]}.partial"
    if not progress.exists():
        _remove_partial(place)
    partial = {split: place / f"{split}.npy.partial" for split in plan.layouts}
    shapes = {split: (sum(layout.class_sizes), size, size, 3) for split, layout in plan.layouts.items()}
    try:
        for split, file in partial.items():
            arrays.create(file, shapes[split])
        failed = arrays.fill(partial, plan.chunks, plan.work, plan.n_jobs, progress, preparation.dataset)
        layouts, notes = _without(preparation, place, plan, failed, partial), list(plan.notes)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        _remove_partial(place)
        needed, free = sum(map(np.prod, shapes.values())) / 1e9, shutil.disk_usage(place).free / 1e9
        raise DatasetError(
            f"Dataset '{preparation.dataset}' takes {needed:.3g} GB in {place}, where {free:.3g} GB are free "
            f"({error.strerror}): make room, or set the study's data_folder to another disk."
        ) from error
    if failed:
        notes.insert(0, f"unreadable images left out: {len(failed):,}, listed in {place / REPORT}")
    entries = {
        split: {"bytes": file.stat().st_size, "sha256": file_digest(file)} | asdict(layouts[split])
        for split, file in partial.items()
    }
    for split, file in partial.items():
        os.replace(file, place / f"{split}.npy")
    index = {"format": FORMAT, "dataset": preparation.dataset, "image_size": size, "recipe": dict(preparation.recipe)}
    index |= {"recipe_hash": preparation.recipe_digest, "splits": entries, "notes": notes, "stamp": stamp}
    content = json.dumps(index, indent=1)
    write_text(place / INDEX, content)
    _remove_partial(place)
    return json.loads(content)


def _without(
    preparation: Preparation, place: Path, plan: Plan, failed: list, files: Mapping[str, Path]
) -> Mapping[str, SplitLayout]:
    """Reports images that can't be read, and takes them out of the arrays. Returns the layouts that are left."""
    if not failed:
        return plan.layouts
    preparation.stamp()  # raises if a whole disk has gone
    sizes = {split: list(layout.class_sizes) for split, layout in plan.layouts.items()}
    with replacing(place / REPORT) as path, path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["file", "class", "split", "reason", "position"])
        for chunk, number, reason in failed:
            image, name = chunk.task[number], plan.layouts[chunk.split].class_names[chunk.class_index]
            writer.writerow([image.path, name, chunk.split, reason, " ".join(map(str, image.position))])
            sizes[chunk.split][chunk.class_index] -= 1
    empty = [name for split, of in sizes.items() for name, n in zip(plan.layouts[split].class_names, of) if not n]
    if preparation.refuse or empty:
        why = f"no image of class '{empty[0]}' can be read" if empty else f"{len(failed):,} images can't be read"
        remedy = "repair or remove them" + ("" if empty else ", or set the dataset's `unreadable` to 'leave out'")
        shown = "".join(f"\n  {chunk.task[number].path}: {reason}" for chunk, number, reason in failed[:SHOWN])
        raise DatasetError(
            f"Dataset '{preparation.dataset}': {why}; nothing was prepared. "
            f"{place / REPORT} lists all: {remedy}.{shown}"
        )
    for split, file in files.items():
        if rows := [chunk.row + number for chunk, number, _ in failed if chunk.split == split]:
            arrays.leave_out(file, rows)
    return {split: replace(layout, class_sizes=tuple(sizes[split])) for split, layout in plan.layouts.items()}


def _remove_partial(place: Path) -> None:
    for left in place.glob("*.partial"):
        left.unlink()
