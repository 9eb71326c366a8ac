"""Arrays of images, one .npy file per split: filled by several processes, chunk by chunk, and resumed."""

import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap
from tqdm.auto import tqdm

from tcnaps.config.storage import replacing
from tcnaps.datasets.image_source import DatasetError

IDLE_SECONDS = 30  # after which a process ends whose parent was killed


@dataclass(frozen=True)
class Chunk:
    """Images of one class that lie together in a split's array.

    Attributes:
        class_index: of the class within the split.
        row: of the first image within the array.
        task: what is handed to the process that makes them.
    """

    split: str
    class_index: int
    row: int
    n_images: int
    task: Any


def n_jobs_for(n_images: int, images_per_process: int) -> int:
    """As many processes as there are cores, fewer where they would take longer to start than they save."""
    import joblib  # slow to import, and not needed for what is prepared already

    return max(1, min(joblib.cpu_count(), n_images // images_per_process))


def create(file: Path, shape: tuple[int, ...], dtype: type = np.uint8) -> None:
    """Creates an array of zeros and takes its room on the disk. One of this shape that is there already is kept.

    Raises:
        OSError: there is no room. (Writing to a mapped file on a full disk would kill the process instead.)
    """
    try:
        kept = np.load(file, mmap_mode="r").shape == shape
    except (OSError, ValueError, EOFError):
        kept = False
    if not kept:
        open_memmap(file, mode="w+", dtype=dtype, shape=shape)
    if hasattr(os, "posix_fallocate"):
        with file.open("r+b") as stream:
            os.posix_fallocate(stream.fileno(), 0, file.stat().st_size)


def fill(
    arrays: Mapping[str, Path], chunks: Sequence[Chunk], work: Callable, n_jobs: int, progress: Path, name: str
) -> list[tuple[Chunk, int, str]]:
    """Fills arrays (split -> file, from `create`), except for what an earlier attempt has finished.

    Args:
        work: a function of a module, or a partial one: a chunk's task -> pixels, uint8 (n, size, size, 3), and number
            within the chunk -> reason of the images that can't be read.
        progress: a file with the checksum of every finished chunk. One with unreadable images is never finished, so
            that these are tried again.
        name: for the progress bar.

    Returns:
        Chunk, number within the chunk and reason of each image that can't be read.

    Raises:
        DatasetError: a process was killed, or ran out of memory.
    """
    images = {split: open_memmap(file, mode="r+") for split, file in arrays.items()}
    create(progress, (len(chunks),), np.uint32)
    finished, unreadable = open_memmap(progress, mode="r+"), []

    def rows_of(chunk: Chunk) -> np.ndarray:
        return images[chunk.split][chunk.row : chunk.row + chunk.n_images]

    left = [k for k, chunk in enumerate(chunks) if not finished[k] or finished[k] != zlib.crc32(rows_of(chunk))]
    total, to_make = sum(map(len, images.values())), sum(chunks[k].n_images for k in left)
    with tqdm(total=total, initial=total - to_make, desc=name, unit="image", leave=False, disable=None) as bar:
        made = _in_parallel(work, [chunks[k].task for k in left], n_jobs)
        for k, (pixels, reasons) in zip(left, made):
            rows = rows_of(chunks[k])
            rows[:] = pixels
            if not reasons:
                finished[k] = zlib.crc32(rows)
            unreadable += [(chunks[k], number, reason) for number, reason in reasons.items()]
            bar.update(len(pixels))
    for array in images.values():
        array.flush()
    return unreadable


def _in_parallel(work: Callable, tasks: list, n_jobs: int) -> Iterator[tuple[np.ndarray, dict[int, str]]]:
    """What `work` makes of each task, in order; one job works in this process."""
    import joblib
    from joblib.externals.loky import get_reusable_executor

    complete, options = False, {"idle_worker_timeout": IDLE_SECONDS} if n_jobs > 1 else {}
    parallel = joblib.Parallel(n_jobs, return_as="generator", batch_size=1, max_nbytes=None, **options)
    try:
        yield from parallel(joblib.delayed(work)(task) for task in tasks)
        complete = True
    except (BrokenProcessPool, MemoryError) as error:
        raise DatasetError(
            "A process that makes images was killed or ran out of memory. Use fewer processes (--processes), or look "
            f"for a huge image; what is finished is kept. ({error})"
        ) from error
    finally:
        if n_jobs > 1:
            get_reusable_executor().shutdown(wait=True, kill_workers=not complete)


def leave_out(file: Path, rows: Sequence[int]) -> None:
    """Takes rows out of an array."""
    images = np.load(file, mmap_mode="r")
    kept = np.delete(np.arange(len(images)), rows)
    with replacing(file) as path:
        fewer = open_memmap(path, mode="w+", dtype=images.dtype, shape=(len(kept), *images.shape[1:]))
        for start in range(0, len(kept), 1024):
            fewer[start : start + 1024] = images[kept[start : start + 1024]]
        fewer.flush()
