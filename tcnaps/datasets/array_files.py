"""Array files that are written piece by piece: room on the disk, rows left out, checksums."""

import hashlib
import io
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

BLOCK = 1 << 24  # bytes moved at once


def header(shape: tuple[int, ...]) -> bytes:
    """How a .npy file of uint8 begins. NumPy leaves room in it, so all lengths of an array take as many bytes."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "|u1", "fortran_order": False, "shape": shape})
    return stream.getvalue()


def file_size(shape: tuple[int, ...]) -> int:
    """Bytes of a .npy file of uint8."""
    return len(header(shape)) + int(np.prod(shape, dtype=np.int64))


def reserve(file: Path, shape: tuple[int, ...]) -> None:
    """Creates a .npy file of uint8 and takes its room on the disk: mapped writes to a full disk kill the process.

    Rows of a file that is there already are kept, whatever its length was.

    Raises:
        OSError: there is no room, among other things.
    """
    with file.open("r+b" if file.exists() else "w+b") as stream:
        stream.write(header(shape))
        stream.truncate(file_size(shape))
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(stream.fileno(), 0, file_size(shape))


def leave_out(file: Path, rows: Sequence[int]) -> None:
    """Takes rows out of a .npy file of uint8 in place, a block at a time.

    Args:
        rows: their numbers, in rising order.
    """
    if not len(rows):
        return
    shape = np.load(file, mmap_mode="r").shape
    row_bytes = int(np.prod(shape[1:], dtype=np.int64))
    start = len(header(shape))
    starts = [row + 1 for row in rows]
    with file.open("r+b", buffering=0) as stream:
        written = start + rows[0] * row_bytes
        for first, end in zip(starts, [*rows[1:], shape[0]]):  # what lies between two that go moves towards the front
            for position in range(start + first * row_bytes, start + end * row_bytes, BLOCK):
                block = os.pread(stream.fileno(), min(BLOCK, start + end * row_bytes - position), position)
                written += os.pwrite(stream.fileno(), block, written)
        stream.write(header((shape[0] - len(rows), *shape[1:])))
        stream.truncate(written)


def sha256(file: Path) -> str:
    """The checksum of a file."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
