"""Features of image files, kept on disk: a run that was stopped goes on, and a second one computes only what is new."""

import os
import stat
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from tcnaps.config.storage import file_digest, replacing

SAVED_EVERY = 60.0  # seconds
COLUMNS = ("files", "sizes", "times", "digests")  # name below the folder, bytes, nanoseconds, SHA-256

Stamp = tuple[str, int, int]  # name, size and time of change of a file


class FeatureCache:
    """Features under one network, in a folder of .npz files that are written one after the other, each whole or not.

    A file is known by its `Stamp`, and else by its content: it may have been moved to another class or renamed.
    A damaged .npz is named and deleted, and what was in it is computed again.

    Attributes:
        features: (n, d) float32, what was on disk.
    """

    def __init__(self, place: Path):
        self._place, self._new, self._saved = place, [], time.monotonic()
        parts = [part for file in sorted(place.glob("*.npz")) if (part := _read(file))]
        self.features = np.concatenate([part["features"] for part in parts] or [np.empty((0, 0), np.float32)])
        names, sizes, times, digests = (
            [value for part in parts for value in part[column].tolist()] for column in COLUMNS
        )
        self._by_stamp = {stamp: row for row, stamp in enumerate(zip(names, sizes, times))}
        self._by_digest, self._sizes = {digest: row for row, digest in enumerate(digests)}, set(sizes)

    def find(self, folder: Path, stamps: Sequence[Stamp | None]) -> Int[np.ndarray, "n"]:
        """Each file's row of `features`, or −1. Contents are read only where the size is that of a known file."""
        found = np.full(len(stamps), -1)
        for number, stamp in enumerate(stamps):
            row = self._by_stamp.get(stamp, -1)
            if row < 0 and stamp is not None and stamp[1] in self._sizes:
                row = self._by_digest.get(digest := file_digest(folder / stamp[0]), -1)
                if row >= 0:  # next time its stamp is known
                    self.add([stamp], [digest], self.features[row : row + 1])
            found[number] = row
        return found

    def add(self, stamps: Sequence[Stamp], digests: Sequence[str], features: Float[np.ndarray, "n d"]) -> None:
        """Keeps features; they are on disk a minute later, or after `save`."""
        self._new.append((stamps, digests, features))
        if time.monotonic() - self._saved > SAVED_EVERY:
            self.save()

    def save(self) -> None:
        """Writes what is not on disk yet."""
        if self._new:
            stamps, digests = ([row for part in self._new for row in part[k]] for k in (0, 1))
            columns = dict(zip(COLUMNS, [*map(np.array, zip(*stamps)), np.array(digests)]))
            with replacing(self._place / f"{time.time_ns()}.npz") as temporary:
                np.savez(temporary, **columns, features=np.concatenate([part[2] for part in self._new]))
        self._new, self._saved = [], time.monotonic()


def stamp_of(folder: Path, name: str) -> Stamp | None:
    """A file's stamp; None if it can't be found or is no regular file."""
    try:
        status = os.stat(folder / name)
    except OSError:
        return None
    return (name, status.st_size, status.st_mtime_ns) if stat.S_ISREG(status.st_mode) else None


def _read(file: Path) -> dict[str, np.ndarray] | None:
    try:
        with open(file, "rb") as opened, np.load(opened) as arrays:
            part = {name: arrays[name] for name in (*COLUMNS, "features")}
        if {len(values) for values in part.values()} != {len(part["features"])} or part["features"].ndim != 2:
            raise ValueError("its arrays differ in length")
        return part
    except Exception as error:  # damage shows in many ways
        print(f"{file} is damaged ({error}): its features are computed again.", file=sys.stderr)
        file.unlink()
        return None
