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
import json
import os
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
    n_jobs: int | None = None
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

    def place(self, folder: str | Path) -> Path:
        """Where the prepared files are."""
        digest = digest_of({"dataset": self.dataset, "image_size": self.image_size, "recipe": dict(self.recipe)})
        return Path(folder) / f"{self.dataset}-{self.image_size}-{digest[:8]}"


def open_prepared(preparation: Preparation, folder: str | Path, split: str) -> ImageSource:
    """Opens a split of a dataset, after preparing the dataset if its files are missing, stale or cut short.

    Safe to call from several processes at once: one prepares, the others wait.

    Raises:
        DatasetError: the dataset has no such split or can't be made.
    """
    entries = ensure_prepared(preparation, folder)["splits"]
    if split not in entries:
        raise DatasetError(f"Dataset '{preparation.dataset}' has no split '{split}'; it has: {', '.join(entries)}.")
    layout = layout_of(entries[split])
    return ImageSource(
        dataset=preparation.dataset,
        split=split,
        images=np.load(preparation.place(folder) / f"{split}.npy", mmap_mode="r"),
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
        with FileLock(place / ".lock"):
            index, reason = state(preparation, place)
            if index is None:  # no other process has just made it
                if reason != NOT_PREPARED:
                    tqdm.write(f"{preparation.dataset} is prepared anew: {reason}.", file=sys.stderr)
                index = _make(preparation, place)
    except MissingFiles as error:
        raise MissingFiles(f"{error}\nNor is it prepared in {place}: {reason}.") from error
    except OSError as error:
        remedy = "Repair the path or make room, or set the study's data_folder to another folder"
        raise DatasetError(f"Dataset '{preparation.dataset}' can't be prepared: {error}. {remedy}.") from error
    return index


def state(preparation: Preparation, place: Path) -> tuple[dict | None, str]:
    """The index of a dataset that is complete and whose originals, if they are there, are unchanged; or why not."""
    try:
        index = json.loads((place / INDEX).read_text(encoding="utf-8"))
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
    except (OSError, ValueError, KeyError, TypeError):
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
    for left in () if progress.exists() else place.glob("*.partial"):
        left.unlink()
    files = {split: place / f"{split}.npy.partial" for split in plan.layouts}
    sizes = {split: sum(layout.class_sizes) for split, layout in plan.layouts.items()}
    opened = {split: arrays.create(file, (sizes[split], size, size, 3)) for split, file in files.items()}
    failed = arrays.fill(opened, plan.chunks, plan.work, progress, preparation.dataset, plan.n_jobs)
    notes = list(plan.notes)
    if failed:
        preparation.stamp()  # raises if a whole disk has gone
        layouts = _leave_out(preparation, place, plan, failed, files)
        notes.insert(0, f"unreadable images left out: {len(failed):,}, listed in {place / REPORT}")
    entries = {}
    for split, file in files.items():
        entries[split] = {"bytes": file.stat().st_size, "sha256": file_digest(file)} | layouts[split]
        os.replace(file, place / f"{split}.npy")
    index = {"dataset": preparation.dataset, "image_size": size, "recipe": dict(preparation.recipe)}
    index |= {"splits": entries, "notes": notes, "stamp": stamp}
    write_text(place / INDEX, json.dumps(index, indent=1))
    progress.unlink()
    return index


def _leave_out(
    preparation: Preparation, place: Path, plan: Plan, failed: list, files: Mapping[str, Path]
) -> dict[str, dict]:
    """Reports images that can't be read, and takes them out of the arrays. Returns the layouts that are left."""
    sizes = {split: list(layout.class_sizes) for split, layout in plan.layouts.items()}
    with replacing(place / REPORT) as path, path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["file", "class", "split", "reason", "position"])
        for chunk, number, _, reason in failed:
            image, name = chunk.task[number], plan.layouts[chunk.split].class_names[chunk.class_index]
            writer.writerow([image.path, name, chunk.split, reason, " ".join(map(str, image.position))])
            sizes[chunk.split][chunk.class_index] -= 1
    empty = [name for split, of in sizes.items() for name, n in zip(plan.layouts[split].class_names, of) if not n]
    if preparation.refuse or empty:
        why = f"no image of class '{empty[0]}' can be read" if empty else f"{len(failed):,} images can't be read"
        remedy = "repair or remove them" + ("" if empty else ", or set the dataset's `unreadable` to 'leave out'")
        shown = "".join(f"\n  {chunk.task[number].path}: {reason}" for chunk, number, _, reason in failed[:SHOWN])
        raise DatasetError(
            f"Dataset '{preparation.dataset}': {why}; nothing was prepared. "
            f"{place / REPORT} lists all: {remedy}.{shown}"
        )
    for split, file in files.items():
        if rows := [row for chunk, _, row, _ in failed if chunk.split == split]:
            arrays.leave_out(file, rows)
    return {split: asdict(replace(plan.layouts[split], class_sizes=tuple(of))) for split, of in sizes.items()}
