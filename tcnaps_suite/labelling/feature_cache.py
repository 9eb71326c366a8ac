"""Features of image files, kept on disk: a run that was stopped goes on, and a second one computes only what is new."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float

from tcnaps.config.storage import replacing

SAVED_EVERY = 60.0  # seconds


class FeatureCache:
    """Features under one network, in a folder of .npz files that are written one after the other, each whole or not.

    `features` has them by the SHA-256 of an image file's content. A damaged .npz is named and deleted.
    """

    def __init__(self, place: Path):
        self._place, self._new, self._saved = place, {}, time.monotonic()
        self.features: dict[str, np.ndarray] = {}
        for file in sorted(place.glob("*.npz")):
            self.features |= _read(file)

    def add(self, digests: Sequence[str | None], features: Float[np.ndarray, "n d"]) -> None:
        """Keeps features; they are on disk a minute later, or after `save`."""
        new = {digest: row for digest, row in zip(digests, features) if digest is not None}
        self.features |= new
        self._new |= new
        if time.monotonic() - self._saved > SAVED_EVERY:
            self.save()

    def save(self) -> None:
        if self._new:
            with replacing(self._place / f"{time.time_ns()}.npz") as temporary:
                np.savez(temporary, digests=list(self._new), features=list(self._new.values()))
        self._new, self._saved = {}, time.monotonic()


def _read(file: Path) -> dict[str, np.ndarray]:
    try:
        with open(file, "rb") as opened, np.load(opened) as arrays:
            return dict(zip(arrays["digests"].tolist(), arrays["features"], strict=True))
    except Exception as error:  # damage shows in many ways
        print(f"{file} is damaged ({error}): its features are computed again.", file=sys.stderr)
        file.unlink()
        return {}
