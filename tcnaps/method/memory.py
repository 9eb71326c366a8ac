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


@cache
def keep_some_memory() -> None:
    """From now on, up to 512 MiB of freed memory stay with the process."""
    _keep(512 << 20, largest_block=64 << 20)


@contextmanager
def kept_memory() -> Iterator[None]:
    """Within the block all freed memory stays with the process; afterwards, all but 512 MiB goes back.

    Peak memory rises somewhat, since free blocks of different sizes cannot always serve each other.
    """
    _keep(-1, largest_block=1 << 30)
    try:
        yield
    finally:
        _keep(512 << 20, largest_block=64 << 20)


def _keep(n_bytes: int, largest_block: int) -> None:
    """`n_bytes` of −1 is everything."""
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    if hasattr(library, "gnu_get_libc_version"):
        library.mallopt(MMAP_THRESHOLD, largest_block)
        library.mallopt(TRIM_THRESHOLD, n_bytes)
        if n_bytes >= 0:
            library.malloc_trim(0)
