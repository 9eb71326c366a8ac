"""Prepared datasets on disk: one memory-mapped uint8 array per split, and an index that says what they hold.

    <folder>/<dataset>-<image size>-<recipe>/train.npy    uint8 (n, size, size, 3), images of a class together
                                            /valid.npy
                                            /test.npy
                                            /index.json   classes, sizes, checksums, and the recipe
                                            /unreadable.csv   images that were left out, if any, and why

Arrays are written under temporary names and then renamed; the index comes last. So a folder with an index is complete
whatever interrupts a preparation; one without is prepared again, except for what is finished. The index has a digest of
itself, and every process that opens an array compares it with its checksum first: what is damaged is prepared again.
"""

import csv
import json
import os
import warnings
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from filelock import FileLock

from tcnaps.config.storage import digest_of, file_digest, replacing, write_text
from tcnaps.data.arrays import Chunk, fill, leave_out, open_array
from tcnaps.data.image_source import SPLITS, DatasetError, ImageSource
from tcnaps.data.listing import Listing, Source
from tcnaps.data.readers.shared import walk

INDEX, REPORT, LOCK = "index.json", "unreadable.csv", ".lock"
DIGEST = "digest"  # in the index, of the rest of it
SHOWN = 10  # unreadable images that an error names


class MissingFiles(DatasetError):
    """Files that a dataset would be made from are missing; the message says how to get them."""


@dataclass(frozen=True)
class Preparation:
    """How a dataset is made.

    Attributes:
        recipe: everything that decides which pixels it has, as values for JSON: versions, options, where the files
            are. Its digest is part of the folder's name, so datasets of different recipes never meet.
        source: what it is made from.
        refuse: whether images that can't be read are an error. They are left out otherwise.
    """

    dataset: str
    image_size: int
    recipe: Mapping[str, object]
    source: Source
    refuse: bool = False

    def place(self, folder: str | Path) -> Path:
        """Where the prepared files are."""
        digest = digest_of({"dataset": self.dataset, "image_size": self.image_size, "recipe": dict(self.recipe)})
        return Path(folder) / f"{self.dataset}-{self.image_size}-{digest[:8]}"

    def stamp(self) -> str:
        """A cheap digest that changes when files of the source, or folders below, are added, taken away or renamed.

        Of files the sizes and times of change count, of folders the times of all folders below. Names are relative, so
        that a dataset may be moved.

        Raises:
            MissingFiles: there are none; what is prepared already is then taken as fresh.
        """
        needs, found = self.source.needs, []
        if missing := [path for path in needs if not os.path.exists(path)]:  # False for over-long ones, too
            paths = ", ".join(map(str, missing))
            raise MissingFiles(f"Dataset '{self.dataset}': there is no {paths}. {self.source.help}".rstrip())
        for path in needs:
            for place in (place for place, _, _ in walk(path)) if path.is_dir() else [path]:
                of_place, is_file = os.stat(place), not os.path.isdir(place)
                found.append([os.path.relpath(place, needs[0]), is_file and of_place.st_size, of_place.st_mtime_ns])
        return digest_of(found)


class Prepared(NamedTuple):
    """The splits of a dataset, and what was left out of it."""

    splits: dict[str, ImageSource]
    notes: list[str]


def ensure_prepared(preparation: Preparation, folder: str | Path, splits: Collection[str] = SPLITS) -> Prepared:
    """Opens a dataset, after preparing it if its files are missing, stale or damaged.

    Safe to call from several processes at once: one prepares, the others wait.

    Args:
        splits: whose arrays are compared with their checksums; a second per gigabyte, or what the disk takes.

    Raises:
        DatasetError: it can't be made: files are missing, unreadable or contradictory, there is no room, or the folder
            can't be written to.
    """
    place, found = preparation.place(folder), opened(preparation, folder, splits)
    if found is not None:
        return found
    try:
        preparation.source.fetch()
        preparation.stamp()  # raises where files are missing, before a folder is made
        place.mkdir(parents=True, exist_ok=True)
        with FileLock(place / LOCK):  # another process may just have made it
            return opened(preparation, folder, splits) or _make(preparation, place)
    except OSError as error:
        remedy = "Repair the path or make room, or set the study's data_folder to another folder"
        raise DatasetError(
            f"Dataset '{preparation.dataset}' can't be prepared in {place}: {error}. {remedy}."
        ) from error


def opened(preparation: Preparation, folder: str | Path, splits: Collection[str] = ()) -> Prepared | None:
    """Opens a dataset that is complete and whose originals, if they are there, are unchanged; None of any other.

    Args:
        splits: whose arrays are compared with their checksums.
    """
    place = preparation.place(folder)
    try:
        index = json.loads((place / INDEX).read_text(encoding="utf-8"))
        if index.pop(DIGEST, None) not in (None, digest_of(index)):  # earlier versions wrote none
            return _damaged(place / INDEX)
        for split in index["splits"].keys() & splits:
            file = place / f"{split}.npy"
            if not _is_whole(file, file.stat().st_mtime_ns, index["splits"][split]["sha256"]):
                return _damaged(file)
        found = _prepared(index, place)
        return found if index["stamp"] == preparation.stamp() else None
    except MissingFiles:
        return found
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # it isn't there, or is damaged
        return None


@cache
def _is_whole(file: Path, changed: int, digest: str) -> bool:
    """Whether an array has its digest; once per process as long as its time of change (`changed`) stays the same."""
    return file_digest(file) == digest


def _damaged(file: Path) -> None:
    warnings.warn(f"{file} is damaged: it does not have the digest it was written with.", stacklevel=4)


def _prepared(index: Mapping, place: Path) -> Prepared:
    splits = {
        split: ImageSource(
            index["dataset"],
            split,
            images=np.load(place / f"{split}.npy", mmap_mode="r"),
            class_names=tuple(entry["class_names"]),
            class_starts=np.cumsum([0, *entry["class_sizes"]], dtype=np.int64),
            superclasses=None if entry["superclasses"] is None else tuple(entry["superclasses"]),
            spans=None if entry["spans"] is None else tuple(np.array(span, np.int64) for span in entry["spans"]),
            digest=entry["sha256"],
        )
        for split, entry in index["splits"].items()
    }
    return Prepared(splits, index["notes"])


def _make(preparation: Preparation, place: Path) -> Prepared:
    """Makes a dataset. The caller holds the lock."""
    stamp = preparation.stamp()  # first: later changes are to be noticed
    listing, size = preparation.source.listing(), preparation.image_size
    chunks = list(_chunks(listing))
    if not chunks:
        raise DatasetError(f"Dataset '{preparation.dataset}' has no images in a split {', '.join(SPLITS)}. Add some.")
    partial = f"{digest_of(stamp)[:16]}.partial"  # what an earlier attempt has finished counts if it was of these files
    for old in place.iterdir():
        if old.name != LOCK and not old.name.endswith(partial):
            old.unlink()
    ends = {chunk.split: chunk.start + len(chunk.images) for chunk in chunks}  # the last of each split counts
    arrays = {split: open_array(place / f"{split}.{partial}", (end, size, size, 3)) for split, end in ends.items()}
    finished = open_array(place / f"finished.{partial}", (len(chunks),), np.uint32)
    failed = fill(arrays, finished, chunks, listing.work, preparation.dataset)
    notes = list(listing.notes)
    if failed:
        preparation.stamp()  # raises if a whole disk has gone
        _report(preparation, listing, place, failed)
        notes.insert(0, f"unreadable images left out: {len(failed):,}, listed in {place / REPORT}")
    entries = {}
    for split, array in arrays.items():
        entries[split] = _entry(listing, split, Path(array.filename), failed)
        os.replace(array.filename, place / f"{split}.npy")
    index = {"dataset": preparation.dataset, "image_size": size, "recipe": dict(preparation.recipe)}
    index |= {"splits": entries, "notes": notes, "stamp": stamp}
    write_text(place / INDEX, json.dumps(index | {DIGEST: digest_of(index)}, indent=1))
    Path(finished.filename).unlink()
    return _prepared(index, place)


def _entry(listing: Listing, split: str, file: Path, failed: list[tuple[Chunk, int, str]]) -> dict:
    """What the index says of a split, after taking out the images that can't be read."""
    lost = [(chunk, number) for chunk, number, _ in failed if chunk.split == split]
    if lost:
        leave_out(file, [chunk.start + number for chunk, number in lost])
    classes, n_lost = listing.splits[split], Counter(chunk.label for chunk, _ in lost)
    return {
        "sha256": file_digest(file),
        "class_names": list(classes),
        "class_sizes": [len(images) - n_lost[label] for label, images in classes.items()],
        "superclasses": [listing.superclasses[label] for label in classes] if listing.superclasses else None,
        "spans": listing.spans.get(split),
    }


def _chunks(listing: Listing) -> Iterator[Chunk]:
    """All images in the order of their rows, class by class."""
    for split in (split for split in SPLITS if split in listing.splits):
        start = 0
        for label, images in listing.splits[split].items():
            for first in range(0, len(images), listing.images_at_once):
                yield Chunk(split, label, start + first, images[first : first + listing.images_at_once])
            start += len(images)


def _report(preparation: Preparation, listing: Listing, place: Path, failed: list[tuple[Chunk, int, str]]) -> None:
    """Lists the images that can't be read.

    Raises:
        DatasetError: they are refused, or are all of a class.
    """
    rows = [(chunk.images[number], chunk, reason) for chunk, number, reason in failed]
    with replacing(place / REPORT) as path, path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["file", "class", "split", "reason", "position"])
        for image, chunk, reason in rows:
            writer.writerow([image.path, chunk.label, chunk.split, reason, " ".join(map(str, image.position))])
    lost = Counter((chunk.split, chunk.label) for _, chunk, _ in rows)
    empty = [label for (split, label), count in lost.items() if count == len(listing.splits[split][label])]
    if preparation.refuse or empty:
        why = f"no image of class '{empty[0]}' can be read" if empty else f"{len(failed):,} images can't be read"
        remedy = "repair or remove them" + ("" if empty else ", or set the dataset's `unreadable` to 'leave out'")
        shown = "".join(f"\n  {image.path}: {reason}" for image, _, reason in rows[:SHOWN])
        raise DatasetError(
            f"Dataset '{preparation.dataset}': {why}; nothing was prepared. "
            f"{place / REPORT} lists all: {remedy}.{shown}"
        )
