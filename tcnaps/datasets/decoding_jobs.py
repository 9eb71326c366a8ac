"""Chunks of images -> pixels in an array's file, the same bytes whichever process does it.

Pixels are written with pwrite, not through a mapping: memory stays flat, and a full disk is an error.
"""

import hashlib
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from tcnaps.config.settings import Resampling
from tcnaps.datasets.decoding import RESAMPLERS, ImageError, decode, resize_aligned
from tcnaps.datasets.image_source import DatasetError
from tcnaps.datasets.listing import ImageFile

MAXIMUM_BYTES = 1 << 30  # of an encoded image


@dataclass(frozen=True)
class Job:
    """What all chunks of a dataset have in common.

    Attributes:
        read, orient, box: as in `Listing`.
        arrays: split -> its array's file and the byte at which the first image starts; None only looks at images.
        parent: the process that a worker works for; when it is gone, the worker writes nothing more.
    """

    read: Callable[[ImageFile], bytes | str | np.ndarray]
    image_size: int
    resampling: Resampling
    jpeg_dct: str
    orient: bool = True
    box: bool = False
    arrays: dict[str, tuple[str, int]] | None = None
    parent: int | None = None


@dataclass(frozen=True)
class Chunk:
    """Images that lie together in a split's array, from row `start` on."""

    split: str
    start: int
    images: tuple[ImageFile, ...]


@dataclass(frozen=True)
class Decoded:
    """What became of a chunk.

    Attributes:
        pixels: a digest of all its pixels.
        images: one of each image's pixels, empty for an image that can't be read.
        unreadable: number within the chunk and reason of the images that can't be read; their pixels are 0.
        retry: whether a reason lies with the system, such as missing rights, not with what the file holds.
    """

    pixels: str
    images: tuple[bytes, ...]
    unreadable: tuple[tuple[int, str], ...]
    retry: bool


def decode_chunk(job: Job, chunk: Chunk, note: Callable[[int], object] = lambda number: None) -> Decoded:
    """Decodes the images of a chunk and writes them into their array.

    Args:
        note: told each image's number within the chunk before it is read.

    Raises:
        OSError: the array can't be written.
    """
    size = job.image_size
    pixels = np.zeros((len(chunk.images), size, size, 3), np.uint8)
    digests, unreadable, retry = [], [], False
    for number, image in enumerate(chunk.images):
        note(number)
        try:
            pixels[number] = read_image(job, image)
        except (DatasetError, OSError) as error:
            unreadable.append((number, str(error)))
            retry |= isinstance(error, OSError)
            digests.append(b"")
            continue
        except Exception as error:
            error.add_note(f"while reading {image}")
            raise
        if job.arrays is None:
            digests.append(hashlib.blake2b(pixels[number], digest_size=16).digest())
    if job.arrays is not None:
        file, first = job.arrays[chunk.split]
        _write(file, memoryview(pixels).cast("B"), first + chunk.start * size * size * 3, job.parent)
    return Decoded(digest(pixels), tuple(digests), tuple(unreadable), retry)


def digest(pixels: np.ndarray | bytes) -> str:
    """The digest of a chunk's pixels."""
    return hashlib.blake2b(pixels, digest_size=16).hexdigest()


def read_image(job: Job, image: ImageFile) -> UInt8[np.ndarray, "size size 3"]:
    """One image as a square of RGB bytes.

    Raises:
        DatasetError: it can't be decoded.
        OSError: it can't be read.
    """
    content = job.read(image)
    box = image.position if job.box else None
    if isinstance(content, str):
        content = _bytes_of(content)
    if isinstance(content, bytes):
        return decode(content, job.image_size, job.resampling, job.jpeg_dct, box, orient=job.orient)
    return _resized(np.asarray(content), box, job.image_size, job.resampling)


def _bytes_of(path: str) -> bytes:
    found = os.stat(path)
    if not stat.S_ISREG(found.st_mode):  # reading a pipe would wait for ever
        raise ImageError("it is not a file.")
    if found.st_size > MAXIMUM_BYTES:
        raise ImageError(f"it has {found.st_size} bytes, more than {MAXIMUM_BYTES}: scale it down first.")
    return Path(path).read_bytes()


def _resized(pixels: np.ndarray, box: tuple[int, ...] | None, size: int, resampling: Resampling) -> np.ndarray:
    """Pixels that a reader has decoded itself -> a square of RGB bytes."""
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or pixels.shape[2:] not in ((), (3,)) or not pixels.size:
        raise ImageError(
            f"it is an array of {pixels.dtype} {pixels.shape}; uint8 (height, width) or (height, width, 3) is needed."
        )
    if box is not None:
        left, top, right, bottom = box
        height, width = pixels.shape[:2]
        if not (0 <= left < right <= width and 0 <= top < bottom <= height):
            raise ImageError(f"the box {box} does not lie within its {width} x {height} pixels.")
        pixels = pixels[top:bottom, left:right]
    if pixels.ndim == 2:
        pixels = np.repeat(pixels[:, :, None], 3, axis=2)
    if resampling == "aligned corners":
        return np.rint(resize_aligned(np.ascontiguousarray(pixels), size)).astype(np.uint8)
    return np.asarray(Image.fromarray(pixels).resize((size, size), RESAMPLERS[resampling]))


def _write(file: str, pixels: memoryview, position: int, parent: int | None) -> None:
    descriptor = os.open(file, os.O_WRONLY)
    try:
        while len(pixels):
            if parent is not None and os.getppid() != parent:
                raise SystemExit("the process that asked for this is gone")  # and another may be at it again
            written = os.pwrite(descriptor, pixels, position)
            pixels, position = pixels[written:], position + written
    finally:
        os.close(descriptor)
