"""Arrays of images, filled by several processes, chunk by chunk. What a killed process has finished is kept."""

import contextlib
import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.format import open_memmap
from tqdm.auto import tqdm

from tcnaps.config.storage import replacing
from tcnaps.data.image_source import DatasetError

IMAGES_PER_PROCESS = 2000  # a process for fewer takes longer to start than it saves
IDLE_SECONDS = 30  # after which a process ends whose parent was killed


class Chunk(NamedTuple):
    """Images of one class, and the row of the first of them in the split's array."""

    split: str
    label: str
    start: int
    images: Sequence[Any]


def open_array(file: Path, shape: tuple[int, ...], dtype: type = np.uint8) -> np.memmap:
    """Opens an array for writing. What an array of this shape that is there already holds is kept."""
    with contextlib.suppress(OSError, ValueError, EOFError):  # it isn't there, or was cut short
        array = np.load(file, mmap_mode="r+")
        if array.shape == shape:
            return array
    array = open_memmap(file, mode="w+", dtype=dtype, shape=shape)
    if hasattr(os, "posix_fallocate"):  # else writing to a mapped file on a full disk would kill the process
        with file.open("r+b") as stream:
            os.posix_fallocate(stream.fileno(), 0, file.stat().st_size)
    return array


def fill(
    arrays: Mapping[str, np.memmap], finished: np.memmap, chunks: Sequence[Chunk], work: Callable, name: str
) -> list[tuple[Chunk, int, str]]:
    """Fills the arrays of all splits, except for what an earlier attempt has finished.

    Args:
        finished: uint32 (n_chunks,), the checksum of each finished chunk, else 0. A chunk with unreadable images is
            never finished, so that these are tried again.
        work: see `Listing`.
        name: for the progress bar.

    Returns:
        of each image that can't be read its chunk, its number within the chunk, and the reason.
    """
    parts = [arrays[chunk.split][chunk.start : chunk.start + len(chunk.images)] for chunk in chunks]
    left = [k for k, part in enumerate(parts) if not finished[k] or finished[k] != zlib.crc32(part)]
    total, to_make, unreadable = sum(map(len, parts)), sum(len(parts[k]) for k in left), []
    with tqdm(total=total, initial=total - to_make, desc=name, unit="image", leave=False, disable=None) as bar:
        for k, (pixels, reasons) in zip(left, _made(work, [chunks[k].images for k in left], to_make)):
            parts[k][:] = pixels
            finished[k] = 0 if reasons else zlib.crc32(parts[k])
            unreadable += [(chunks[k], number, reason) for number, reason in reasons.items()]
            bar.update(len(pixels))
    for array in arrays.values():
        array.flush()
    return unreadable


def _made(work: Callable, tasks: list[Sequence], n_images: int) -> Iterator[tuple[np.ndarray, dict[int, str]]]:
    """What `work` makes of each task, in order; one job works in this process."""
    import joblib  # slow to import, and not needed for what is prepared already

    n_jobs = max(1, min(joblib.cpu_count(), n_images // IMAGES_PER_PROCESS))
    options = {"batch_size": 1, "max_nbytes": None, "idle_worker_timeout": IDLE_SECONDS}
    try:
        yield from joblib.Parallel(n_jobs, return_as="generator", **options)(map(joblib.delayed(work), tasks))
    except (BrokenProcessPool, MemoryError) as error:
        raise DatasetError(
            "A process that makes images was killed or ran out of memory. Set LOKY_MAX_CPU_COUNT=1 for fewer of them, "
            f"or look for a huge image; what is finished is kept. ({error})"
        ) from error


def leave_out(file: Path, rows: Sequence[int]) -> None:
    """Takes rows out of an array."""
    images = np.load(file, mmap_mode="r")
    kept = np.delete(np.arange(len(images)), rows)
    with replacing(file) as path:
        fewer = open_memmap(path, mode="w+", dtype=images.dtype, shape=(len(kept), *images.shape[1:]))
        for start in range(0, len(kept), 1024):
            fewer[start : start + 1024] = images[kept[start : start + 1024]]
        fewer.flush()
