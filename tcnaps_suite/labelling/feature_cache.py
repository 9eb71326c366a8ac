"""Features of image files, kept on disk: a run that was stopped goes on, and a second one computes only what is new."""

import sys
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tcnaps.config.storage import replacing


def read_features(place: Path) -> dict[str, np.ndarray]:
    """Features by the SHA-256 of an image file's content. A damaged .npz is named and deleted."""
    features = {}
    for file in sorted(place.glob("*.npz")):
        try:
            with open(file, "rb") as opened, np.load(opened) as arrays:
                features |= dict(zip(arrays["digests"].tolist(), arrays["features"], strict=True))
        except Exception as error:  # damage shows in many ways
            print(f"{file} is damaged ({error}): its features are computed again.", file=sys.stderr)
            file.unlink()
    return features


def write_features(place: Path, features: Mapping[str, np.ndarray]) -> None:
    """Writes them into one more .npz, whole or not at all."""
    with replacing(place / f"{time.time_ns()}.npz") as temporary:
        np.savez(temporary, digests=list(features), features=list(features.values()))
