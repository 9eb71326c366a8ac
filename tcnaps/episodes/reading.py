"""Reads images out of prepared files by their numbers; run as a program, it is a worker process of `tcnaps.episodes.loading`.

Files are read, not mapped: for each image of a mapped file the system also reads what lies around it, and where the
file ends early or the disk fails it kills the process in place of an error.

Nothing but the standard library is imported, so that a worker starts at once and needs little memory.
"""

import mmap
import os
import sys
from collections.abc import Iterable, Sequence
from multiprocessing import reduction
from multiprocessing.connection import Connection

# File, where its first image starts, bytes an image, numbers of the images wanted, and their places in the buffer.
Piece = tuple[str, int, int, Sequence[int], Sequence[int]]


def read(pieces: Iterable[Piece], buffer: memoryview, files: dict[str, int]) -> None:
    """Fills a buffer of bytes with images.

    Args:
        files: descriptors of the files that are open already; those opened here are added, for the caller to close.

    Raises:
        OSError: a file can't be opened or read.
        EOFError: a file ends before an image does.
    """
    for path, first, size, numbers, places in pieces:
        if path not in files:
            files[path] = os.open(path, os.O_RDONLY)
        starts = [first + size * number for number in numbers]
        if hasattr(os, "posix_fadvise"):  # all are asked for at once, so that the disk need not wait for this loop
            for start in starts:
                os.posix_fadvise(files[path], start, size, os.POSIX_FADV_WILLNEED)
        for number, start, place in zip(numbers, starts, places):
            wanted = buffer[size * place : size * (place + 1)]
            while wanted:
                n_bytes = os.preadv(files[path], [wanted], start)
                if n_bytes == 0:
                    raise EOFError(f"{path} ends before image {number} does; delete its folder to have it made anew")
                wanted, start = wanted[n_bytes:], start + n_bytes


def serve(connection: Connection) -> None:
    """Reads what is asked for until the other side of the connection closes, be it that its process was killed.

    A question is the number of a piece of shared memory, its size in bytes and what to read into it; a number not
    heard before is followed by the memory's descriptor. The answer is None, or the words for an error.
    """
    files: dict[str, int] = {}
    descriptors: list[int] = []
    memories: list[mmap.mmap | None] = []
    while True:
        try:
            number, size, pieces = connection.recv()
            if number == len(descriptors):
                descriptors.append(reduction.recv_handle(connection))
                memories.append(None)
            answer = None
            try:
                memory = memories[number]
                if memory is None or len(memory) < size:
                    memory = memories[number] = mmap.mmap(descriptors[number], size)
                read(pieces, memoryview(memory), files)
            except Exception as error:  # whatever it is, it belongs to whoever asked
                answer = f"{type(error).__name__}: {error}"
            connection.send(answer)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])))
