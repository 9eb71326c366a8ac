"""Arrays of images, one .npy file per split: filled chunk by chunk by several processes, resumed after an interruption."""

import os
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.lib.format import open_memmap, write_array_header_1_0
from tqdm.auto import tqdm

from tcnaps.datasets.image_source import DatasetError

# Beside the arrays: one row per chunk, all 0 until it is finished.
PROGRESS, FINISHED = "finished.npy.partial", np.dtype([("digest", np.uint64), ("pixels", np.uint32)])
ROWS_MOVED = 256  # at once


@dataclass(frozen=True)
class Chunk:
    """Images that lie together in a split's array.

    Attributes:
        start: row of the first one.
        digest: 64 bits that change when the pixels may.
        task: what is handed to the process that makes them.
    """

    split: str
    start: int
    n_images: int
    digest: int
    task: object


def in_parallel(work: Callable, tasks: Iterable, n_jobs: int) -> Iterator:
    """The results of `work` for each task, in their order; one job works in this process.

    Raises:
        DatasetError: a process was killed, or ran out of memory.
    """
    import joblib  # takes a while, and opening what is prepared doesn't need it
    from joblib.externals.loky import get_reusable_executor

    pool = joblib.Parallel(n_jobs, return_as="generator", batch_size=1, max_nbytes=None)
    finished = False
    try:
        yield from pool(joblib.delayed(work)(task) for task in tasks)
        finished = True
    except (BrokenProcessPool, MemoryError) as error:
        raise DatasetError(
            "A process that makes images was killed or ran out of memory. Use fewer processes (--processes), or "
            f"look for a huge image; what is finished is kept. ({error})"
        ) from error
    finally:
        if n_jobs > 1:
            get_reusable_executor().shutdown(wait=True, kill_workers=not finished)


def n_jobs_for(n_images: int, images_per_process: int) -> int:
    """As many processes as there are cores, fewer where they would take longer to start than they save."""
    import joblib

    return max(1, min(joblib.cpu_count(), n_images // images_per_process))


def create(file: Path, shape: tuple[int, ...], dtype: np.dtype | type = np.uint8) -> None:
    """Creates an array of zeros and takes its room on the disk. One of this shape that is there already is kept.

    Raises:
        OSError: there is no room. (Writing to a mapped file on a full disk would kill the process instead.)
    """
    try:
        kept = np.load(file, mmap_mode="r")
        kept = kept.shape == shape and kept.dtype == dtype
    except (OSError, ValueError, EOFError):
        kept = False
    if not kept:
        open_memmap(file, mode="w+", dtype=dtype, shape=shape)
    if hasattr(os, "posix_fallocate"):
        with file.open("r+b") as stream:
            os.posix_fallocate(stream.fileno(), 0, file.stat().st_size)


def fill(
    arrays: Mapping[str, Path], chunks: Iterable[Chunk], n_chunks: int, work: Callable, n_jobs: int, name: str
) -> list[tuple[str, int, str]]:
    """Fills arrays, except for what an earlier attempt has finished.

    A chunk is finished if its digest is still the same and its rows hold what was written. Chunks with unreadable
    images never are, so that these are tried again.

    Args:
        arrays: split -> file, from `create`.
        work: a function of a module, or a partial one: a chunk's task -> its pixels, and a dict of the unreadable
            ones: number within the chunk -> reason.

    Returns:
        Split, row and reason of each image that can't be read.

    Raises:
        DatasetError: as `in_parallel`.
    """
    images = {split: open_memmap(file, mode="r+") for split, file in arrays.items()}
    progress = next(iter(arrays.values())).with_name(PROGRESS)
    create(progress, (n_chunks,), FINISHED)
    finished, waiting, unreadable = open_memmap(progress, mode="r+"), deque(), []
    n_images = sum(map(len, images.values()))
    with tqdm(total=n_images, desc=name, unit="image", leave=False, disable=None) as bar:

        def unfinished() -> Iterator:
            for number, chunk in enumerate(chunks):
                rows = images[chunk.split][chunk.start : chunk.start + chunk.n_images]
                if finished[number].item() == (chunk.digest, zlib.crc32(rows)):
                    bar.update(chunk.n_images)
                else:
                    waiting.append((number, chunk))
                    yield chunk.task

        for pixels, reasons in in_parallel(work, unfinished(), n_jobs):
            number, chunk = waiting.popleft()
            rows = images[chunk.split][chunk.start : chunk.start + chunk.n_images]
            rows[:] = pixels
            if not reasons:
                finished[number] = (chunk.digest, zlib.crc32(rows))
            unreadable += [(chunk.split, chunk.start + row, reason) for row, reason in reasons.items()]
            bar.update(chunk.n_images)
    for array in images.values():
        array.flush()
    return unreadable


def leave_out(file: Path, rows: list[int]) -> None:
    """Takes rows (in rising order) out of an array, in place."""
    if not rows:
        return
    images = open_memmap(file, mode="r+")
    kept = np.delete(np.arange(len(images)), rows)
    for start in range(rows[0], len(kept), ROWS_MOVED):  # rows only move towards the front
        images[start : start + ROWS_MOVED] = images[kept[start : start + ROWS_MOVED]]
    images.flush()
    shape = (len(kept), *images.shape[1:])
    with file.open("r+b") as stream:  # NumPy pads headers: those of all lengths take as many bytes
        write_array_header_1_0(stream, {"descr": "|u1", "fortran_order": False, "shape": shape})
        stream.truncate(images.offset + int(np.prod(shape)))
