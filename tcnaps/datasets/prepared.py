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
import reprlib
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from filelock import FileLock
from tqdm.auto import tqdm

from tcnaps.config.storage import file_digest, write_text
from tcnaps.datasets.arrays import create
from tcnaps.datasets.image_source import SPLITS, DatasetError, ImageSource
from tcnaps.datasets.preparing import (
    FORMAT,
    INDEX,
    NOT_PREPARED,
    REPORT,
    Filled,
    MissingFiles,
    Preparation,
    SplitLayout,
    complete_index,
    folder_of,
    layout_of,
    state,
)

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def open_prepared(preparation: Preparation, folder: str | Path, split: str) -> ImageSource:
    """Opens a split of a dataset, after preparing the dataset if its files are missing, stale or cut short.

    Safe to call from several processes at once: one prepares, the others wait.

    Raises:
        DatasetError: the dataset has no such split or can't be made, or its file has been overwritten.
    """
    _check_split(preparation, split, preparation.splits)
    index = ensure_prepared(preparation, folder)
    place = folder_of(preparation, folder)
    _check_split(preparation, split, index["splits"])
    entry = index["splits"][split]
    layout = layout_of(entry)
    try:
        images = np.load(place / entry["file"], mmap_mode="r")
    except ValueError as error:  # it has the right size but is no array
        raise DatasetError(
            f"{place / entry['file']} can't be read ({error}); delete {place} to have it made anew."
        ) from error
    return ImageSource(
        dataset=preparation.dataset,
        split=split,
        images=images,
        class_names=layout.class_names,
        class_starts=np.concatenate([[0], np.cumsum(layout.class_sizes)]).astype(np.int64),
        superclasses=layout.superclasses,
        spans=None if layout.spans is None else tuple(np.array(span, np.int64) for span in layout.spans),
        digest=entry["sha256"],
    )


def ensure_prepared(preparation: Preparation, folder: str | Path) -> dict:
    """Prepares a dataset unless it is there and fresh. Returns its index.

    Raises:
        DatasetError: it can't be made: files are missing, unreadable or contradictory, there is no room, or a path is
            too long.
    """
    place, originals = folder_of(preparation, folder), preparation.originals
    try:
        index, reason = state(preparation, place)
        if index is None:
            if originals is not None:
                _require_originals(preparation, place, reason)
            place.mkdir(parents=True, exist_ok=True)
            with FileLock(place / ".lock"):
                index = _make_or_renew(preparation, place)
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        path = reprlib.repr(str(error.filename))
        raise DatasetError(
            f"Dataset '{preparation.dataset[:30]}': a path is too long for this system: {path}"
        ) from error
    if originals is not None:
        originals.accept(place, index)
    return index


def verify(preparation: Preparation, folder: str | Path) -> None:
    """Compares every array of a dataset with the checksum taken when it was made.

    Raises:
        DatasetError: the dataset isn't prepared, or a file has changed since; the message names it and the remedy.
    """
    place = folder_of(preparation, folder)
    index, reason = state(preparation, place)
    if index is None:
        raise DatasetError(
            f"{place} holds no complete dataset '{preparation.dataset}' of this version ({reason}); "
            "open it once to prepare it."
        )
    for entry in index["splits"].values():
        if file_digest(place / entry["file"]) != entry["sha256"]:
            raise DatasetError(
                f"{place / entry['file']} has changed since it was made; delete {place} to have it made anew."
            )


def _check_split(preparation: Preparation, split: str, splits: Iterable[str] | None) -> None:
    if splits is not None and split not in splits:
        raise DatasetError(f"Dataset '{preparation.dataset}' has no split '{split}'; it has: {', '.join(splits)}.")


def _require_originals(preparation: Preparation, place: Path, reason: str) -> None:
    try:
        preparation.originals.fetch()
        preparation.originals.stamp()
    except MissingFiles as error:
        raise MissingFiles(f"{error}\nNor is it prepared in {place}: {reason}.") from error


def _make_or_renew(preparation: Preparation, place: Path) -> dict:
    """Makes a dataset, or merely renews its stamp if its files were only touched. The caller holds the lock."""
    index, reason = state(preparation, place)
    if index is not None:
        return index  # another process has just made it
    originals = preparation.originals
    stamp = None if originals is None else originals.stamp()  # first: later changes are to be noticed
    if originals is not None:
        index, _ = complete_index(preparation, place)
    if index is None or index.get("files") != originals.digest():
        if reason != NOT_PREPARED:
            tqdm.write(f"{preparation.dataset} is prepared anew: {reason}.", file=sys.stderr)
        index = _make(preparation, place)
    write_text(place / INDEX, json.dumps(index | {"stamp": stamp}, indent=1))
    for left in place.glob("*.partial"):
        left.unlink()
    return index


def _make(preparation: Preparation, place: Path) -> dict:
    plan, size = preparation.plan(), preparation.image_size
    for stale in (INDEX, REPORT, *(f"{split}.npy" for split in SPLITS)):
        (place / stale).unlink(missing_ok=True)
    partial = {split: place / f"{split}.npy.partial" for split in plan.layouts}
    shapes = {split: (sum(layout.class_sizes), size, size, 3) for split, layout in plan.layouts.items()}
    try:
        for split, file in partial.items():
            create(file, shapes[split])
        filled = plan.fill(partial) or Filled(plan.layouts)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        for file in place.glob("*.partial"):
            file.unlink()
        needed, free = sum(map(np.prod, shapes.values())), shutil.disk_usage(place).free
        raise DatasetError(
            f"Dataset '{preparation.dataset}' takes {needed / 1e9:.3g} GB in {place}, where {free / 1e9:.3g} GB are "
            f"free ({error.strerror}): make room, or set the study's data_folder to another disk."
        ) from error
    entries = {split: _entry(partial[split], layout) for split, layout in filled.layouts.items()}
    for split, file in partial.items():
        os.replace(file, place / f"{split}.npy")
    made = {"format": FORMAT, "dataset": preparation.dataset, "image_size": size, "recipe": dict(preparation.recipe)}
    return made | {"recipe_hash": preparation.recipe_digest, "splits": entries, **filled.notes}


def _entry(file: Path, layout: SplitLayout) -> dict:
    return {
        "file": file.name.removesuffix(".partial"),
        "bytes": file.stat().st_size,
        "sha256": file_digest(file),
        "class_names": layout.class_names,
        "class_sizes": layout.class_sizes,
        "superclasses": layout.superclasses,
        "spans": layout.spans,
    }
