"""Prepared datasets on disk: one memory-mapped uint8 array per split, and an index that says what they hold.

    <folder>/<dataset>-<image size>-<recipe>/<split>.npy      uint8 (n, size, size, 3), images of a class together
                                            /index.json       classes, sizes, SHA-256 of each array, and the recipe
                                            /unreadable.csv   images that were left out, if any, and why

An array that is finished gets its name and enters the index. After an interruption, preparing goes on with the first
split that is not finished. An array that no longer has its SHA-256 is named and made again.
"""

import contextlib
import csv
import json
import os
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from filelock import FileLock
from numpy.lib import format as npy
from tqdm.auto import tqdm

from tcnaps.config.storage import digest_of, file_digest, replacing, write_text
from tcnaps.data.image_source import SPLITS, DatasetError, ImageSource
from tcnaps.data.listing import Listing, walk

INDEX, REPORT, LOCK = "index.json", "unreadable.csv", ".lock"
IMAGES_PER_PROCESS = 2000  # starting a process for fewer takes longer than it saves
DAMAGED_INDEX = (OSError, ValueError, KeyError, TypeError, AttributeError)  # what a missing or damaged one raises
_has_digest = cache(lambda file, time_of_change, digest: file_digest(file) == digest)  # a file is read once per change
Pixels = tuple[np.ndarray, dict[int, str]]  # uint8 (n, size, size, 3), and number -> reason of unreadable images


class MissingFiles(DatasetError):
    """Files that a dataset is made from are missing."""


@dataclass(frozen=True)
class Preparation:
    """How a dataset is made; see also `Source`."""

    dataset: str
    image_size: int
    recipe: Mapping[str, object]  # what decides which pixels it has, as values for JSON: versions, options, paths
    listing: Callable[[], Listing]
    work: Callable[[Sequence[Any]], Pixels]  # makes images of one class; other processes must be able to import it
    at_once: int = 128  # the most images that `work` is given
    needs: tuple[Path, ...] = ()
    help: str = ""

    def place(self, folder: str | Path) -> Path:
        """The folder of the prepared files. Datasets of different recipes have different folders."""
        digest = digest_of({"dataset": self.dataset, "image_size": self.image_size, "recipe": dict(self.recipe)})
        return Path(folder) / f"{self.dataset}-{self.image_size}-{digest[:8]}"

    def stamp(self) -> str:
        """A cheap digest that changes when files of the source are added, taken away or renamed.

        It covers `needs`: files by size and time of change, folders and those below by time. A moved dataset keeps it.
        """
        if missing := [str(path) for path in self.needs if not os.path.exists(path)]:  # False for over-long paths, too
            raise MissingFiles(f"Dataset '{self.dataset}': there is no {', '.join(missing)}. {self.help}")
        states = []
        for path in self.needs:
            for place in (place for place, _, _ in walk(path)) if path.is_dir() else [path]:
                status, is_file = os.stat(place), not os.path.isdir(place)
                states.append([os.path.relpath(place, self.needs[0]), is_file and status.st_size, status.st_mtime_ns])
        return digest_of(states)


class Prepared(NamedTuple):
    splits: dict[str, ImageSource]
    notes: list[str]  # on what was left out


def ensure_prepared(preparation: Preparation, folder: str | Path, splits: Collection[str] = SPLITS) -> Prepared:
    """Opens a dataset, after preparing it if its files are missing, stale or damaged; a DatasetError says why it can't.

    Of several processes, only one prepares. The arrays of `splits` have their SHA-256 compared: a second per gigabyte.
    """
    place, prepared = preparation.place(folder), opened(preparation, folder, splits)
    if prepared is not None:
        return prepared
    try:
        preparation.stamp()  # raises where files are missing, before a folder is made
        place.mkdir(parents=True, exist_ok=True)
        with FileLock(place / LOCK):  # another process may just have made it
            return opened(preparation, folder, splits) or _make(preparation, place)
    except OSError as error:
        reason = f"Dataset '{preparation.dataset}' can't be prepared in {place}: {error}"
        raise DatasetError(f"{reason}. Repair the path, make room, or set another data_folder in the study.") from error


def opened(preparation: Preparation, folder: str | Path, splits: Collection[str] = ()) -> Prepared | None:
    """Opens a dataset that is complete and fresh, else returns None. One whose originals are gone counts as fresh."""
    place = preparation.place(folder)
    if not (place / INDEX).exists():
        return None
    try:
        index = json.loads((place / INDEX).read_text(encoding="utf-8"))
        if not index["complete"]:
            return None
        if damaged := [split for split in index["splits"].keys() & splits if not _is_whole(place, split, index)]:
            warnings.warn(f"{place / damaged[0]}.npy is missing or damaged (not the SHA-256 in {INDEX}).", stacklevel=3)
            return None
        prepared = _prepared(index, place)
        return prepared if index["stamp"] == preparation.stamp() else None
    except MissingFiles:
        return prepared
    except DatasetError:  # of the originals
        raise
    except DAMAGED_INDEX as error:
        warnings.warn(f"{place} is damaged ({error!r}).", stacklevel=3)
        return None


def _is_whole(place: Path, split: str, index: Mapping) -> bool:
    file = place / f"{split}.npy"
    return file.is_file() and _has_digest(file, file.stat().st_mtime_ns, index["splits"][split]["sha256"])


def _prepared(index: Mapping, place: Path) -> Prepared:
    splits = {}
    for split in (split for split in SPLITS if split in index["splits"]):
        entry = index["splits"][split]
        images = np.load(place / f"{split}.npy", mmap_mode="r")
        names = tuple(entry["class_names"])
        starts = np.cumsum([0, *entry["class_sizes"]], dtype=np.int64)
        superclasses = None if entry["superclasses"] is None else tuple(entry["superclasses"])
        spans = None if entry["spans"] is None else tuple(np.array(span, np.int64) for span in entry["spans"])
        digest = digest_of(entry | {"unreadable": 0}) if "by_class" in index else entry["sha256"]
        splits[split] = ImageSource(index["dataset"], split, images, names, starts, superclasses, spans, digest)
    return Prepared(splits, index["notes"])


def _make(preparation: Preparation, place: Path) -> Prepared:
    """Makes a dataset. The caller holds the lock."""
    stamp = preparation.stamp()  # taken first, so that later changes are noticed
    listing = preparation.listing()
    if not (splits := [split for split in SPLITS if any(listing.splits.get(split, {}).values())]):
        raise DatasetError(f"Dataset '{preparation.dataset}' has no image in any of {', '.join(SPLITS)}. Add some.")
    finished = {}
    with contextlib.suppress(*DAMAGED_INDEX):
        index = json.loads((place / INDEX).read_text(encoding="utf-8"))
        if index["stamp"] == stamp:
            finished = {split: index["splits"][split] for split in index["splits"] if _is_whole(place, split, index)}
    index = {"dataset": preparation.dataset, "image_size": preparation.image_size, "recipe": dict(preparation.recipe)}
    index |= {"stamp": stamp, "notes": list(listing.notes), "splits": finished, "complete": False, "by_class": True}
    write_text(place / INDEX, json.dumps(index))
    for file in place.iterdir():
        if file.name not in (LOCK, INDEX, *(f"{split}.npy" for split in finished)):
            file.unlink()
    for split in splits:
        if split not in finished:
            finished[split] = _make_split(preparation, listing, split, place)
            write_text(place / INDEX, json.dumps(index))
    if unreadable := [row for split in splits for row in finished[split]["unreadable"]]:
        with replacing(place / REPORT) as path, path.open("w", newline="", encoding="utf-8") as stream:
            csv.writer(stream).writerows([("file", "class", "split", "reason", "position"), *unreadable])
        index["notes"].insert(0, f"unreadable images left out: {len(unreadable):,}, listed in {place / REPORT}")
    write_text(place / INDEX, json.dumps(index | {"complete": True}, indent=1))
    return _prepared(index, place)


def _make_split(preparation: Preparation, listing: Listing, split: str, place: Path) -> dict:
    """Writes the array of one split, and returns its entry in the index."""
    classes, size, most = listing.splits[split], preparation.image_size, preparation.at_once
    chunks = [(label, images[k : k + most]) for label, images in classes.items() for k in range(0, len(images), most)]
    n_images, unreadable = sum(map(len, classes.values())), []
    results = _pixels(preparation.work, [images for _, images in chunks], n_images)
    header = {"descr": "|u1", "fortran_order": False, "shape": (n_images, size, size, 3)}
    bar = tqdm(total=n_images, desc=f"{preparation.dataset} {split}", unit="image", leave=False, disable=None)
    with replacing(place / f"{split}.npy") as temporary, open(temporary, "wb") as file, bar:
        npy.write_array_header_1_0(file, header)
        for (label, images), (pixels, reasons) in zip(chunks, results):
            for number, reason in reasons.items():
                path, position = images[number]
                unreadable.append([path, label, split, reason, " ".join(map(str, position))])
            file.write(np.delete(pixels, list(reasons), axis=0).tobytes())
            bar.update(len(pixels))
        if lost := Counter(label for _, label, *_ in unreadable):
            preparation.stamp()  # raises if the whole disk has gone
            file.seek(0)  # a header's length does not depend on the number of images
            npy.write_array_header_1_0(file, header | {"shape": (n_images - len(unreadable), size, size, 3)})
        if empty := [label for label, count in lost.items() if count == len(classes[label])]:
            reasons = [f"\n  {path}: {reason}" for path, label, _, reason, _ in unreadable if label == empty[0]]
            problem = f"no image of class '{empty[0]}' can be read. Repair its images, or take the class away"
            raise DatasetError(f"Dataset '{preparation.dataset}': {problem}.{''.join(reasons[:10])}")
    return {
        "sha256": file_digest(place / f"{split}.npy"),
        "class_names": list(classes),
        "class_sizes": [len(images) - lost[label] for label, images in classes.items()],
        "superclasses": [listing.superclasses[label] for label in classes] if listing.superclasses else None,
        "spans": listing.spans.get(split),
        "unreadable": unreadable,
    }


def _pixels(work: Callable[[Sequence], Pixels], chunks: Sequence[Sequence], n_images: int) -> Iterator[Pixels]:
    """The results of `work` for each chunk, in order. Few images are made in this process."""
    import joblib  # slow to import, and not needed for what is prepared already

    n_jobs = max(1, min(joblib.cpu_count(), n_images // IMAGES_PER_PROCESS))
    # A process whose parent was killed ends after 30 seconds without work.
    parallel = joblib.Parallel(n_jobs, return_as="generator", batch_size=1, max_nbytes=None, idle_worker_timeout=30)
    try:
        yield from parallel(joblib.delayed(work)(images) for images in chunks)
    except (BrokenProcessPool, MemoryError) as error:
        reason = f"A process that makes images was killed or ran out of memory ({error}); finished splits are kept"
        raise DatasetError(f"{reason}. Set LOKY_MAX_CPU_COUNT=1 for fewer of them, or look for huge images.") from error
