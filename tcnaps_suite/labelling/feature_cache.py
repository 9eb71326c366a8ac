"""Features of image files, kept on disk: a run that was stopped goes on, and a second one computes only what is new."""

import contextlib
import hashlib
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from tcnaps.config.storage import replacing, write_text
from tcnaps.data.listing import open_regular

DIGESTS = "digests.json"  # name below the folder → size, time of change, SHA-256


def digests_of(folder: Path, names: Sequence[str], readers: int) -> list[str | None]:
    """The SHA-256 of each file's content, None where it can't be read. Only files of a new size or time are read."""
    memory, known = folder / ".features" / DIGESTS, {}
    with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):  # none yet, or damaged
        known = {name: [*of] for name, of in json.loads(memory.read_text(encoding="utf-8")).items() if len(of) == 3}

    def entry(name: str) -> list:
        try:
            status = os.stat(folder / name)
            stamp = [status.st_size, status.st_mtime_ns]
            if known.get(name, [])[:2] == stamp:
                return known[name]
            with open_regular(folder / name) as opened:
                return [*stamp, hashlib.file_digest(opened, "sha256").hexdigest()]
        except OSError:
            return [0, 0, None]

    with ThreadPoolExecutor(readers) as pool:
        entries = dict(zip(names, pool.map(entry, names)))
    if entries != known:
        write_text(memory, json.dumps(entries))
    return [digest for _, _, digest in entries.values()]


def read_features(place: Path) -> dict[str, np.ndarray]:
    """Features by the SHA-256 of an image file's content. A damaged .npz is named and deleted."""
    features = {}
    for file in sorted(place.glob("[!.]*.npz")):
        try:
            with open(file, "rb") as opened, np.load(opened) as arrays:
                features |= dict(zip(arrays["digests"].tolist(), arrays["features"], strict=True))
        except (OSError, MemoryError):  # the disk's trouble, not the file's
            raise
        except Exception as error:  # damage shows in many ways
            print(f"{file} is damaged ({error}): its features are computed again.", file=sys.stderr)
            file.unlink()
    return features


def write_features(place: Path, features: Mapping[str, np.ndarray]) -> None:
    """Writes them into one more .npz, whole or not at all."""
    with replacing(place / f"{time.time_ns()}.npz") as temporary:
        np.savez(temporary, digests=list(features), features=list(features.values()))
