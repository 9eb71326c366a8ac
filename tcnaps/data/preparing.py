"""Prepared datasets on disk: one memory-mapped uint8 array per split, and an index that says what they hold.

    <folder>/<dataset>-<image size>-<recipe>/train.npy    uint8 (n, size, size, 3), images of a class together
                                            /valid.npy
                                            /test.npy
                                            /index.json   classes, sizes, SHA-256 of each array, and the recipe
                                            /unreadable.csv   images that were left out, if any, and why

An array gets its name when it is finished, and then enters the index. After an interruption, preparing goes on with
the first split that is not finished. An array that lost its SHA-256 is named and made again.
"""

import csv
import json
import os
import warnings
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from filelock import FileLock
from numpy.lib import format as npy
from tqdm.auto import tqdm

from tcnaps.config.storage import digest_of, file_digest, replacing, write_text
from tcnaps.data.image_source import SPLITS, DatasetError, ImageSource
from tcnaps.data.listing import Listing, Source
from tcnaps.data.readers.shared import walk

INDEX, REPORT, LOCK = "index.json", "unreadable.csv", ".lock"
REPORT_COLUMNS = ("file", "class", "split", "reason", "position")
SHOWN = 10  # unreadable images that an error names
IMAGES_PER_PROCESS = 2000  # starting a process for fewer takes longer than it saves
IDLE_SECONDS = 30  # a process whose parent was killed ends after this time
UNREADABLE_INDEX = (OSError, ValueError, KeyError, TypeError, AttributeError)  # raised where it is missing or damaged


class MissingFiles(DatasetError):
    """Files that a dataset is made from are missing; the message says how to get them."""


@dataclass(frozen=True)
class Preparation:
    """How a dataset is made.

    Attributes:
        recipe: everything that decides which pixels it has, as values for JSON: versions, options, paths. Its digest is
            part of the folder's name, so datasets of different recipes have different folders.
        source: what it is made from.
        refuse: whether unreadable images are an error. Otherwise they are left out.
    """

    dataset: str
    image_size: int
    recipe: Mapping[str, object]
    source: Source
    refuse: bool = False

    def place(self, folder: str | Path) -> Path:
        """The folder of the prepared files."""
        digest = digest_of({"dataset": self.dataset, "image_size": self.image_size, "recipe": dict(self.recipe)})
        return Path(folder) / f"{self.dataset}-{self.image_size}-{digest[:8]}"

    def stamp(self) -> str:
        """A cheap digest that changes when files of the source are added, taken away or renamed.

        It covers size and time of change of each file in `source.needs`, and the time of change of each folder there
        and below. Names are relative, so a dataset may be moved.

        Raises:
            MissingFiles: a file is missing. What is prepared already then counts as fresh.
        """
        needs, states = self.source.needs, []
        if missing := [str(path) for path in needs if not os.path.exists(path)]:  # False for over-long paths, too
            message = f"Dataset '{self.dataset}': there is no {', '.join(missing)}. {self.source.help}"
            raise MissingFiles(message.rstrip())
        for path in needs:
            for place in (place for place, _, _ in walk(path)) if path.is_dir() else [path]:
                status, is_file = os.stat(place), not os.path.isdir(place)
                states.append([os.path.relpath(place, needs[0]), is_file and status.st_size, status.st_mtime_ns])
        return digest_of(states)


class Prepared(NamedTuple):
    """The splits of a dataset, and notes on what was left out of it."""

    splits: dict[str, ImageSource]
    notes: list[str]


def ensure_prepared(preparation: Preparation, folder: str | Path, splits: Collection[str] = SPLITS) -> Prepared:
    """Opens a dataset, after preparing it if its files are missing, stale or damaged.

    Safe to call from several processes at once: one prepares, the others wait.

    Args:
        splits: the splits whose arrays are compared with their SHA-256, at about a second per gigabyte.

    Raises:
        DatasetError: it can't be made: files are missing, unreadable or contradictory, the disk is full, or the folder
            can't be written to.
    """
    place, prepared = preparation.place(folder), opened(preparation, folder, splits)
    if prepared is not None:
        return prepared
    try:
        preparation.source.fetch()
        preparation.stamp()  # raises where files are missing, before a folder is made
        place.mkdir(parents=True, exist_ok=True)
        with FileLock(place / LOCK):  # another process may just have made it
            return opened(preparation, folder, splits) or _make(preparation, place)
    except OSError as error:
        remedy = "Repair the path, make room, or choose another data_folder in the study."
        raise DatasetError(
            f"Dataset '{preparation.dataset}' can't be prepared in {place}: {error}. {remedy}"
        ) from error


def opened(preparation: Preparation, folder: str | Path, splits: Collection[str] = ()) -> Prepared | None:
    """Opens a dataset that is complete and fresh; returns None for any other. Without its originals it counts as fresh.

    Args:
        splits: the splits whose arrays are compared with their SHA-256.
    """
    place = preparation.place(folder)
    if not (place / INDEX).exists():
        return None
    try:
        index = _read_index(place)
        if not index.get("complete", True):
            return None
        for split in index["splits"].keys() & splits:
            if not _is_whole(place, split, index):
                warnings.warn(f"{place / split}.npy is missing or damaged (not the SHA-256 in {INDEX}).", stacklevel=3)
                return None
        prepared = _prepared(index, place)
        return prepared if index["stamp"] == preparation.stamp() else None
    except MissingFiles:
        return prepared
    except UNREADABLE_INDEX as error:
        warnings.warn(f"{place} is damaged ({error!r}).", stacklevel=3)
        return None


def _read_index(place: Path) -> dict:
    return json.loads((place / INDEX).read_text(encoding="utf-8"))


def _is_whole(place: Path, split: str, index: Mapping) -> bool:
    file = place / f"{split}.npy"
    return file.is_file() and _has_digest(file, file.stat().st_mtime_ns, index["splits"][split]["sha256"])


@cache
def _has_digest(file: Path, time_of_change: int, digest: str) -> bool:
    """Checked once per process, unless the file's time of change differs."""
    return file_digest(file) == digest


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
    stamp = preparation.stamp()  # taken first, so that later changes are noticed
    listing = preparation.source.listing()
    splits = [split for split in SPLITS if any(listing.splits.get(split, {}).values())]
    if not splits:
        raise DatasetError(f"Dataset '{preparation.dataset}' has no images in a split {', '.join(SPLITS)}. Add some.")
    finished = _finished(place, stamp)
    kept = {LOCK, *(f"{split}.npy" for split in finished), *([INDEX] if finished else [])}
    for file in place.iterdir():
        if file.name not in kept:
            file.unlink()
    index: dict[str, Any] = {"dataset": preparation.dataset, "image_size": preparation.image_size}
    index |= {"recipe": dict(preparation.recipe), "stamp": stamp, "notes": list(listing.notes), "splits": {}}
    for split in splits:
        index["splits"][split] = finished.get(split) or _make_split(preparation, listing, split, place)
        write_text(place / INDEX, json.dumps(index | {"complete": False}, indent=1))
    unreadable = [row for entry in index["splits"].values() for row in entry["unreadable"]]
    if unreadable:
        _write_report(place, unreadable)
        index["notes"].insert(0, f"unreadable images left out: {len(unreadable):,}, listed in {place / REPORT}")
    write_text(place / INDEX, json.dumps(index | {"complete": True}, indent=1))
    return _prepared(index, place)


def _finished(place: Path, stamp: str) -> dict[str, dict]:
    """The entries of the whole splits that an earlier preparation made of the same files."""
    try:
        index = _read_index(place)
        entries = index["splits"] if index["stamp"] == stamp else {}
        return {s: entry for s, entry in entries.items() if "unreadable" in entry and _is_whole(place, s, index)}
    except UNREADABLE_INDEX:
        return {}


def _make_split(preparation: Preparation, listing: Listing, split: str, place: Path) -> dict:
    """Writes the array of one split, and returns its entry in the index."""
    classes, size, at_once = listing.splits[split], preparation.image_size, listing.images_at_once
    starts = [(label, start) for label, images in classes.items() for start in range(0, len(images), at_once)]
    chunks = [(label, classes[label][start : start + at_once]) for label, start in starts]
    n_images, unreadable = sum(map(len, classes.values())), []
    results = _pixels(listing, [images for _, images in chunks], n_images)
    bar = tqdm(total=n_images, desc=f"{preparation.dataset} {split}", unit="image", leave=False, disable=None)
    with replacing(place / f"{split}.npy") as temporary, open(temporary, "wb") as file, bar:
        _write_header(file, n_images, size)
        for (label, images), (pixels, reasons) in zip(chunks, results):
            for number, reason in reasons.items():
                position = " ".join(map(str, images[number].position))
                unreadable.append([images[number].path, label, split, reason, position])
            file.write(np.delete(pixels, list(reasons), axis=0).tobytes())
            bar.update(len(pixels))
        if unreadable:
            preparation.stamp()  # raises if the whole disk has gone
            _refuse_unreadable(preparation, classes, unreadable, place)
            file.seek(0)
            _write_header(file, n_images - len(unreadable), size)
    lost = Counter(label for _, label, *_ in unreadable)
    return {
        "sha256": file_digest(place / f"{split}.npy"),
        "class_names": list(classes),
        "class_sizes": [len(images) - lost[label] for label, images in classes.items()],
        "superclasses": [listing.superclasses[label] for label in classes] if listing.superclasses else None,
        "spans": listing.spans.get(split),
        "unreadable": unreadable,
    }


def _write_header(file: BinaryIO, n_images: int, size: int) -> None:
    """Writes the header of a .npy file. Its length does not depend on the number of images."""
    shape = (n_images, size, size, 3)
    npy.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})


def _pixels(listing: Listing, chunks: Sequence[Sequence], n_images: int) -> Iterator[tuple[np.ndarray, dict[int, str]]]:
    """The results of `listing.work` for each chunk, in order. Few images are made in this process."""
    import joblib  # slow to import, and not needed for what is prepared already

    n_jobs = max(1, min(joblib.cpu_count(), n_images // IMAGES_PER_PROCESS))
    options = {"batch_size": 1, "max_nbytes": None, "idle_worker_timeout": IDLE_SECONDS}
    try:
        yield from joblib.Parallel(n_jobs, return_as="generator", **options)(
            joblib.delayed(listing.work)(images) for images in chunks
        )
    except (BrokenProcessPool, MemoryError) as error:
        raise DatasetError(
            "A process that makes images was killed or ran out of memory. Set LOKY_MAX_CPU_COUNT=1 for fewer of them, "
            f"or look for a huge image; finished splits are kept. ({error})"
        ) from error


def _refuse_unreadable(preparation: Preparation, classes: Mapping, unreadable: list[list[str]], place: Path) -> None:
    """Raises DatasetError if unreadable images are refused, or are all images of a class."""
    lost = Counter(label for _, label, *_ in unreadable)
    if empty := [label for label, count in lost.items() if count == len(classes[label])]:
        problem, remedy = f"no image of class '{empty[0]}' can be read", ""
    elif preparation.refuse:
        problem, remedy = f"{len(unreadable):,} images can't be read", ", or set `unreadable` to 'leave out'"
    else:
        return
    _write_report(place, unreadable)
    first = "".join(f"\n  {path}: {reason}" for path, _, _, reason, _ in unreadable[:SHOWN])
    raise DatasetError(
        f"Dataset '{preparation.dataset}': {problem}. {place / REPORT} lists all unreadable images of this split: "
        f"repair or remove them{remedy}.{first}"
    )


def _write_report(place: Path, unreadable: list[list[str]]) -> None:
    with replacing(place / REPORT) as path, path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream, lineterminator="\n").writerows([REPORT_COLUMNS, *unreadable])
