"""Freed memory that stays with the process, so that the next episode need not ask the system for it again.

The C library of Linux gives large blocks back as soon as they are freed; asking for them again costs a page fault for
every 4 KiB, which on a CPU can take as long as the convolutions between.
"""

import ctypes
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

# Parameters of mallopt, and what glibc's own adaptation of them ends at.
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
USUAL = {MMAP_THRESHOLD: 32 << 20, TRIM_THRESHOLD: 64 << 20}
KEEPING = {MMAP_THRESHOLD: 1 << 30, TRIM_THRESHOLD: -1}  # -1: nothing is ever given back

BLOCK = (32 << 20) - (64 << 10)  # just below what that adaptation ends at

_lock, _holders = threading.Lock(), 0


def keep_some_memory() -> None:
    """From here on some 60 MiB of freed memory stay with the process, where the C library is glibc.

    It keeps twice as much as the largest block that was ever given back to the system. This gives back such a block,
    which was never touched and so never took any memory.
    """
    torch.empty(BLOCK, dtype=torch.uint8)


@contextmanager
def kept_memory() -> Iterator[None]:
    """While it lasts, memory that is freed stays with this process; then it goes back to the system.

    It changes how fast things are, never what they are. It may be nested, and does nothing where the C library is not
    glibc. Peak memory rises somewhat, since free blocks of different sizes are not always of use to each other.
    """
    global _holders
    with _lock:
        _holders += 1
        if _holders == 1:
            _set(KEEPING)
    try:
        yield
    finally:
        with _lock:
            _holders -= 1
            if _holders == 0:
                _set(USUAL)


def _set(thresholds: dict[int, int]) -> None:
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    if not hasattr(library, "gnu_get_libc_version"):
        return
    for parameter, value in thresholds.items():
        library.mallopt(parameter, value)
    if thresholds is USUAL:
        library.malloc_trim(0)
