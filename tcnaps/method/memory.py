"""Freed memory that stays with the process, so that the next episode need not ask the system for it again.

The C library of Linux gives large blocks back as soon as they are freed; asking for them again costs a page fault for
every 4 KiB, which on a CPU can take as long as the convolutions between.
"""

import ctypes
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

# Parameters of mallopt, and what glibc's own adaptation of them ends at.
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
USUAL = {MMAP_THRESHOLD: 32 << 20, TRIM_THRESHOLD: 64 << 20}
KEEPING = {MMAP_THRESHOLD: 1 << 30, TRIM_THRESHOLD: -1}  # -1: nothing is ever given back
SOME = {MMAP_THRESHOLD: 64 << 20, TRIM_THRESHOLD: 512 << 20}

_lock, _holders, _usual = threading.Lock(), 0, USUAL


def keep_some_memory() -> None:
    """From here on up to 512 MiB of freed memory stay with the process, where the C library is glibc."""
    global _usual
    if _usual is not SOME:
        with _lock:
            _usual = SOME
            if _holders == 0:
                _set(SOME)


@contextmanager
def kept_memory() -> Iterator[None]:
    """While it lasts, memory that is freed stays with this process; then it goes back to the system, or all but some.

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
                _set(_usual)


def _set(thresholds: dict[int, int]) -> None:
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    if not hasattr(library, "gnu_get_libc_version"):
        return
    for parameter, value in thresholds.items():
        library.mallopt(parameter, value)
    if thresholds is not KEEPING:
        library.malloc_trim(0)
