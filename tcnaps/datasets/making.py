"""Makes a prepared dataset: arrays are written under temporary names, checked and renamed; the index comes last.

So whatever interrupts a preparation, a folder with an index is complete, and one without is prepared anew.
"""

import errno
import fcntl
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tqdm.auto import tqdm

from tcnaps.datasets import journal
from tcnaps.datasets.array_files import file_size, reserve, sha256
from tcnaps.datasets.image_source import DatasetError
from tcnaps.datasets.preparing import (
    FORMAT,
    NOT_PREPARED,
    REPORT,
    Filled,
    Preparation,
    SplitLayout,
    complete_index,
    plain,
    recipe_hash,
    state,
    write_index,
)

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def make(preparation: Preparation, place: Path) -> dict:
    """Makes a dataset and returns its index. If other processes are at it already, waits for what they make.

    Raises:
        DatasetError: it can't be made: files are missing, unreadable or contradictory, or there is no room.
    """
    place.mkdir(parents=True, exist_ok=True)
    with _lock(place / ".lock"):
        index, reason = state(preparation, place)
        if index is not None:
            return index
        if preparation.originals is None:
            return _make(preparation, place)
        stamp = plain(preparation.originals.stamp())  # first: what changes meanwhile is to be noticed
        index = _of_the_same_files(preparation, place)
        if index is None:
            if reason != NOT_PREPARED:
                tqdm.write(f"{preparation.dataset} is prepared anew: {reason}.", file=sys.stderr)
            index = _make(preparation, place)
        index["stamp"] = stamp
        write_index(index, place)
        _remove_partial(place)
        return index


def _of_the_same_files(preparation: Preparation, place: Path) -> dict | None:
    """The index of what is there, if its originals were merely moved or touched."""
    index, _ = complete_index(preparation, place)
    return index if index is not None and index.get("files") == preparation.originals.digest() else None


def _make(preparation: Preparation, place: Path) -> dict:
    """Makes the arrays and the index of a dataset; the caller holds the lock."""
    size, key = preparation.image_size, recipe_hash(preparation)
    layouts = preparation.layouts()
    for stale in ("index.json", REPORT, "train.npy", "valid.npy", "test.npy"):
        (place / stale).unlink(missing_ok=True)
    if preparation.originals is None or not journal.continues(place / journal.NAME, key):
        _remove_partial(place)
    partial = {split: place / f"{split}.npy.partial" for split in layouts}
    shapes = {partial[split]: (sum(layout.class_sizes), size, size, 3) for split, layout in layouts.items()}
    try:
        for file, shape in shapes.items():
            reserve(file, shape)
        filled = preparation.fill(partial) or Filled(layouts)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        _remove_partial(place)
        raise _no_room(preparation.dataset, place, sum(map(file_size, shapes.values())), error) from error
    index = {
        "format": FORMAT,
        "dataset": preparation.dataset,
        "image_size": size,
        "recipe_hash": key,
        "recipe": dict(preparation.recipe),
        "splits": {split: _entry(partial[split], layout) for split, layout in filled.layouts.items()},
        **filled.notes,
    }
    for split, file in partial.items():
        os.replace(file, place / f"{split}.npy")
    if preparation.originals is None:
        write_index(index, place)
    return index


def _entry(file: Path, layout: SplitLayout) -> dict:
    return {
        "file": file.name.removesuffix(".partial"),
        "bytes": file.stat().st_size,
        "sha256": sha256(file),
        "class_names": list(layout.class_names),
        "class_sizes": list(layout.class_sizes),
        "superclasses": None if layout.superclasses is None else list(layout.superclasses),
        "spans": None if layout.spans is None else [list(span) for span in layout.spans],
    }


def _remove_partial(place: Path) -> None:
    """Removes what a preparation that was interrupted has left."""
    for left in place.glob("*.partial"):
        left.unlink()


def _no_room(dataset: str, place: Path, needed: int, error: OSError) -> DatasetError:
    free = shutil.disk_usage(place).free
    return DatasetError(
        f"Dataset '{dataset}' takes {needed / 1e9:.3g} GB in {place}, where {free / 1e9:.3g} GB are free "
        f"({error.strerror}): make room, or set the study's data_folder to another disk."
    )


@contextmanager
def _lock(file: Path) -> Iterator[None]:
    """Holds a lock that other processes wait for; the system frees it even when its holder is killed."""
    with file.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield
