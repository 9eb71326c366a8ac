"""Arrays of images, one .npy file per split: filled by several processes, chunk by chunk, and resumed."""

import contextlib
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

IMAGES_PER_PROCESS = 2000  # a process for fewer takes longer to start than it saves
IDLE_SECONDS = 30  # after which a process ends whose parent was killed


@dataclass(frozen=True)
class Chunk:
    """Images of one class that lie together in a split's array; `task` goes to the process that makes them."""

    split: str
    class_index: int
    n_images: int
    task: Any


def create(file: Path, shape: tuple[int, ...], dtype: type = np.uint8) -> np.memmap:
    """Opens an array for writing. What an array of this shape that is there already holds is kept.

    Raises:
        DatasetError: there is no room. (Writing to a mapped file on a full disk would kill the process instead.)
    """
    array = None
    with contextlib.suppress(OSError, ValueError, EOFError):  # it isn't there, or was cut short
        array = np.load(file, mmap_mode="r+")
    if array is None or array.shape != shape:
        array = open_memmap(file, mode="w+", dtype=dtype, shape=shape)
    if hasattr(os, "posix_fallocate"):
        size = file.stat().st_size
        try:
            with file.open("r+b") as stream:
                os.posix_fallocate(stream.fileno(), 0, size)
        except OSError as error:
            file.unlink()
            remedy = "make room, or set the study's data_folder to another disk"
            raise DatasetError(
                f"There is no room for {file}, {size / 1e9:.3g} GB ({error.strerror}): {remedy}."
            ) from error
    return array


def fill(
    arrays: Mapping[str, np.memmap],
    chunks: Sequence[Chunk],
    work: Callable,
    progress: Path,
    name: str,
    n_jobs: int | None = None,
) -> list[tuple[Chunk, int, int, str]]:
    """Fills arrays, from `create`, except for what an earlier attempt has finished.

    Args:
        work: a function of a module, or a partial one: a chunk's task -> pixels, uint8 (n, size, size, 3), and number
            within the chunk -> reason of the images that can't be read.
        progress: a file with the checksum of every finished chunk. One with unreadable images is never finished, so
            that these are tried again.
        name, n_jobs: for the progress bar; how many processes work, None for one per core, fewer for few images.

    Returns:
        of each image that can't be read its chunk, number within the chunk, row within the array, and the reason.
    """
    finished, unreadable, rows, past = create(progress, (len(chunks),), np.uint32), [], [], dict.fromkeys(arrays, 0)
    for chunk in chunks:
        rows.append(slice(past[chunk.split], past[chunk.split] + chunk.n_images))
        past[chunk.split] += chunk.n_images

    def pixels_of(k: int) -> np.ndarray:
        return arrays[chunks[k].split][rows[k]]

    left = [k for k in range(len(chunks)) if not finished[k] or finished[k] != zlib.crc32(pixels_of(k))]
    total, to_make = sum(past.values()), sum(chunks[k].n_images for k in left)
    with tqdm(total=total, initial=total - to_make, desc=name, unit="image", leave=False, disable=None) as bar:
        for k, (pixels, reasons) in zip(left, _made(work, [chunks[k] for k in left], n_jobs)):
            pixels_of(k)[:] = pixels
            if not reasons:
                finished[k] = zlib.crc32(pixels_of(k))
            unreadable += [(chunks[k], n, rows[k].start + n, reason) for n, reason in reasons.items()]
            bar.update(len(pixels))
    for array in arrays.values():
        array.flush()
    return unreadable


def _made(work: Callable, chunks: list[Chunk], n_jobs: int | None) -> Iterator[tuple[np.ndarray, dict[int, str]]]:
    """What `work` makes of each chunk, in order; one job works in this process."""
    import joblib  # slow to import, and not needed for what is prepared already

    n_jobs = n_jobs or max(1, min(joblib.cpu_count(), sum(chunk.n_images for chunk in chunks) // IMAGES_PER_PROCESS))
    options = {"batch_size": 1, "max_nbytes": None, "idle_worker_timeout": IDLE_SECONDS}
    try:
        yield from joblib.Parallel(n_jobs, return_as="generator", **options)(
            joblib.delayed(work)(c.task) for c in chunks
        )
    except (BrokenProcessPool, MemoryError) as error:
        raise DatasetError(
            "A process that makes images was killed or ran out of memory. Use fewer processes (--processes), or look "
            f"for a huge image; what is finished is kept. ({error})"
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
