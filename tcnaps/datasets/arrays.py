"""Arrays of images, one .npy file per split: filled by several processes, chunk by chunk, and resumed."""

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

# Beside the arrays: one entry per chunk, 0 until it is finished.
PROGRESS, FINISHED = "finished.npy.partial", np.dtype([("digest", np.uint64), ("pixels", np.uint32)])
ROWS_MOVED = 256  # at once
IDLE_SECONDS = 30  # after which a process ends whose parent was killed


@dataclass(frozen=True)
class Chunk:
    """Images that lie together in a split's array.

    Attributes:
        number: of the chunk within the dataset.
        start: row of the first image.
        digest: 64 bits that change when the pixels may.
        task: what is handed to the process that makes them.
    """

    number: int
    split: str
    start: int
    n_images: int
    digest: int
    task: object


def in_parallel(work: Callable, chunks: Iterable[Chunk], n_jobs: int) -> Iterator[tuple[Chunk, tuple]]:
    """Each chunk, in order, with what `work` makes of its task; one job works in this process.

    Args:
        work: a function of a module, or a partial one: a chunk's task -> pixels, uint8 (n, size, size, 3), and number
            within the chunk -> reason of the images that can't be read.

    Raises:
        DatasetError: a process was killed, or ran out of memory.
    """
    import joblib  # slow to import, and not needed for what is prepared already
    from joblib.externals.loky import get_reusable_executor

    waiting, complete = deque(), False

    def tasks() -> Iterator:
        for chunk in chunks:
            waiting.append(chunk)
            yield joblib.delayed(work)(chunk.task)

    options = {"return_as": "generator", "batch_size": 1, "max_nbytes": None}
    if n_jobs > 1:
        options["idle_worker_timeout"] = IDLE_SECONDS
    try:
        for made in joblib.Parallel(n_jobs, **options)(tasks()):
            yield waiting.popleft(), made
        complete = True
    except (BrokenProcessPool, MemoryError) as error:
        raise DatasetError(
            f"A process that makes images was killed or ran out of memory, near {waiting[0].task!r:.300}. Use fewer "
            f"processes (--processes), or look for a huge image; what is finished is kept. ({error})"
        ) from error
    finally:
        if n_jobs > 1:
            get_reusable_executor().shutdown(wait=True, kill_workers=not complete)


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
    """Fills arrays (split -> file, from `create`), except for what an earlier attempt has finished.

    A chunk is finished if its digest is still the same and its rows hold what was written. Chunks with unreadable
    images never are, so that these are tried again.

    Returns:
        Split, row and reason of each image that can't be read.

    Raises:
        DatasetError: as `in_parallel`.
    """
    images = {split: open_memmap(file, mode="r+") for split, file in arrays.items()}
    progress = next(iter(arrays.values())).with_name(PROGRESS)
    create(progress, (n_chunks,), FINISHED)
    finished, unreadable = open_memmap(progress, mode="r+"), []
    with tqdm(total=sum(map(len, images.values())), desc=name, unit="image", leave=False, disable=None) as bar:

        def rows_of(chunk: Chunk) -> np.ndarray:
            return images[chunk.split][chunk.start : chunk.start + chunk.n_images]

        def unfinished() -> Iterator[Chunk]:
            for chunk in chunks:
                if finished[chunk.number].item() == (chunk.digest, zlib.crc32(rows_of(chunk))):
                    bar.update(chunk.n_images)
                else:
                    yield chunk

        for chunk, (pixels, reasons) in in_parallel(work, unfinished(), n_jobs):
            rows = rows_of(chunk)
            rows[:] = pixels
            if not reasons:
                finished[chunk.number] = (chunk.digest, zlib.crc32(rows))
            unreadable += [(chunk.split, chunk.start + number, reason) for number, reason in reasons.items()]
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
        moved = kept[start : start + ROWS_MOVED]
        images[start : start + len(moved)] = images[moved]
    images.flush()
    shape = (len(kept), *images.shape[1:])
    with file.open("r+b") as stream:  # NumPy pads headers: those of all lengths take as many bytes
        write_array_header_1_0(stream, {"descr": "|u1", "fortran_order": False, "shape": shape})
        stream.truncate(images.offset + int(np.prod(shape)))
