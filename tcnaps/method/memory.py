"""Freed memory that stays with the process, so that the next episode need not ask the system for it again.

The C library of Linux gives large blocks back as soon as they are freed. Asking for them again costs one page fault
per 4 KiB, which on a CPU can take as long as the convolutions in between. Nothing here changes any result, and nothing
happens where the C library is not glibc.
"""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # parameters of mallopt
SOME = {MMAP_THRESHOLD: 64 << 20, TRIM_THRESHOLD: 512 << 20}
ALL = {MMAP_THRESHOLD: 1 << 30, TRIM_THRESHOLD: -1}  # -1: nothing is ever given back


@cache
def keep_some_memory() -> None:
    """From now on, up to 512 MiB of freed memory stay with the process."""
    _set(SOME)


@contextmanager
def kept_memory() -> Iterator[None]:
    """Within the block all freed memory stays with the process; afterwards, all but 512 MiB goes back.

    Peak memory rises somewhat, since free blocks of different sizes cannot always serve each other.
    """
    _set(ALL)
    try:
        yield
    finally:
        _set(SOME)


def _set(thresholds: dict[int, int]) -> None:
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    if not hasattr(library, "gnu_get_libc_version"):
        return
    for parameter, value in thresholds.items():
        library.mallopt(parameter, value)
    if thresholds is SOME:
        library.malloc_trim(0)
