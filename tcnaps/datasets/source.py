"""Prepared datasets on disk: one memory-mapped uint8 array a split beside an index that says what it holds.

    <folder>/<dataset>-<image size>/train.npy    uint8 (n, size, size, 3), images of a class together
                                   /valid.npy
                                   /test.npy
                                   /index.json   classes, sizes, checksums, and the recipe they were made by
                                   /unreadable.csv   images that were left out, if any, and why

`tcnaps.datasets.making` makes them.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from tcnaps.datasets.array_files import sha256
from tcnaps.datasets.image_source import DatasetError, ImageSource
from tcnaps.datasets.making import make
from tcnaps.datasets.preparing import MissingFiles, Preparation, SplitLayout, folder_of, layout_of, state

__all__ = ["DatasetError", "ImageSource", "Preparation", "SplitLayout", "open_prepared", "verify"]


def open_prepared(preparation: Preparation, folder: Path, split: str) -> ImageSource:
    """Opens a split of a dataset, after preparing the dataset if its files are missing, stale or cut short.

    Safe to call from several processes at once: one prepares, the others wait.

    Raises:
        DatasetError: the dataset has no such split, can't be made, or its file has been overwritten.
    """
    _check_split(preparation, split, preparation.splits)
    index = ensure_prepared(preparation, folder)
    place = folder_of(preparation, folder)
    _check_split(preparation, split, index["splits"])
    entry = index["splits"][split]
    layout = layout_of(entry)
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
        class_names=layout.class_names,
        class_starts=np.concatenate([[0], np.cumsum(layout.class_sizes)]).astype(np.int64),
        superclasses=layout.superclasses,
        spans=None if layout.spans is None else tuple(np.array(span, np.int64) for span in layout.spans),
        digest=entry["sha256"],
    )


def ensure_prepared(preparation: Preparation, folder: Path) -> dict:
    """Prepares a dataset unless it is there and fresh, and returns its index.

    Raises:
        DatasetError: it can't be made: files are missing, unreadable or contradictory, or there is no room.
    """
    place = folder_of(preparation, folder)
    index, reason = state(preparation, place)
    if index is None:
        if preparation.originals is not None:
            _require(preparation, place, reason)
        index = make(preparation, place)
    if preparation.originals is not None:
        preparation.originals.accept(place, index)
    return index


def verify(preparation: Preparation, folder: Path) -> None:
    """Compares every array of a dataset with the checksum taken when it was made.

    Raises:
        DatasetError: the dataset isn't prepared, or a file has changed since; the message names it and
            how to make it anew.
    """
    place = folder_of(preparation, folder)
    index, reason = state(preparation, place)
    if index is None:
        raise DatasetError(
            f"{place} holds no complete dataset '{preparation.dataset}' of this version ({reason}); "
            "open it once to prepare it."
        )
    for entry in index["splits"].values():
        if sha256(place / entry["file"]) != entry["sha256"]:
            raise DatasetError(
                f"{place / entry['file']} has changed since it was made; delete {place} to have it made anew."
            )


def _check_split(preparation: Preparation, split: str, splits: Iterable[str] | None) -> None:
    if splits is not None and split not in splits:
        raise DatasetError(f"Dataset '{preparation.dataset}' has no split '{split}'; it has: {', '.join(splits)}.")


def _require(preparation: Preparation, place: Path, reason: str) -> None:
    try:
        preparation.originals.fetch()
        preparation.originals.stamp()
    except MissingFiles as error:
        raise MissingFiles(f"{error}\nNor is it prepared in {place}: {reason}.") from error
