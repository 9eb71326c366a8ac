"""Worker processes that read images: starting one, asking it, and telling of what it was at when it died."""

import mmap
import os
import signal
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import Pipe, reduction

import numpy as np
from jaxtyping import UInt8

from tcnaps.episodes import reading

PATIENCE = 5  # seconds that a process which has ended, or has been killed, is given to be gone


class LoadingError(RuntimeError):
    """Images can't be read, or the process that read them died; the message names the episode or batch."""


class Memory:
    """Bytes shared with a worker. They have no name, so that they are gone with the processes that use them.

    They are used again and again: reading into fresh memory takes several times as long as the reading itself.
    """

    def __init__(self, number: int):
        self.number, self.size = number, 0
        if hasattr(os, "memfd_create"):  # only bounded by the memory, unlike /dev/shm, which is small in containers
            self.descriptor = os.memfd_create("tcnaps")
        else:
            with tempfile.TemporaryFile() as file:
                self.descriptor = os.dup(file.fileno())

    def grow(self, size: int) -> None:
        """Makes room for so many bytes, where there is less."""
        if self.size < size:
            self.size = 1 << (size - 1).bit_length()  # rarely, then; what isn't used takes no memory
            os.ftruncate(self.descriptor, self.size)
            self.mapped = mmap.mmap(self.descriptor, self.size)


@dataclass(eq=False)
class Job:
    """Images that a worker has been asked for.

    Attributes:
        name: what they are, for errors.
        answered: whether they have been read; `problem` says why not, where they could not be.
    """

    name: str
    shape: tuple[int, ...]
    worker: "Worker"
    memory: Memory
    answered: bool = False
    problem: str | None = None
    dropped: bool = False

    def wait(self) -> UInt8[np.ndarray, "n height width 3"]:
        """The images, in shared memory that is theirs until `drop` is called.

        Raises:
            LoadingError: they can't be read, or the worker died.
        """
        while not self.answered:
            self.worker.receive()
        if self.problem is not None:
            raise LoadingError(f"{self.name}: {self.problem}")
        return np.frombuffer(self.memory.mapped, np.uint8, int(np.prod(self.shape))).reshape(self.shape)

    def drop(self) -> None:
        """Gives the memory back, once the worker is done with it."""
        self.dropped = True
        if self.answered:
            self.worker.free.append(self.memory)


class Worker:
    """A process that runs `tcnaps.episodes.reading` and answers in the order in which it is asked.

    It is started as a program of its own: that takes milliseconds, copies nothing of this process, and unlike
    `multiprocessing` does not run the main module again. It leads a session of its own, lest Ctrl-C in a terminal
    reach it; when this process is gone it ends by itself.
    """

    def __init__(self):
        self.connection, theirs = Pipe()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", reading.__file__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self.jobs: deque[Job] = deque()
        self.memories: list[Memory] = []
        self.free: list[Memory] = []

    def ask(self, name: str, shape: tuple[int, ...], pieces: Sequence[reading.Piece]) -> Job:
        """Has images read.

        Raises:
            LoadingError: the worker has died.
        """
        while not self.free and any(job.dropped for job in self.jobs):  # memory that will be free soon
            self.receive()
        new = not self.free
        if new:
            self.memories.append(Memory(len(self.memories)))
        memory = self.memories[-1] if new else self.free.pop()
        memory.grow(int(np.prod(shape)))
        job = Job(name, shape, self, memory)
        self.jobs.append(job)
        try:
            self.connection.send((memory.number, memory.size, pieces))
            if new:
                reduction.send_handle(self.connection, memory.descriptor, self.process.pid)
        except OSError as error:
            raise self._death() from error
        return job

    def receive(self) -> None:
        """Waits for the answer to the oldest question that has none.

        Raises:
            LoadingError: the worker has died.
        """
        try:
            problem = self.connection.recv()
        except (EOFError, OSError) as error:
            raise self._death() from error
        job = self.jobs.popleft()
        job.answered, job.problem = True, problem
        if job.dropped:
            job.drop()

    def end(self) -> None:
        """Ends the process, whatever it is at: it holds nothing that could be lost."""
        self.connection.close()
        self.process.kill()
        self._wait()
        for memory in self.memories:
            os.close(memory.descriptor)

    def _wait(self) -> int | None:
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:  # it waits for a disk, and ends when that answers
            return None

    def _death(self) -> LoadingError:
        code = self._wait()
        how = f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"
        names = "; ".join(job.name for job in self.jobs)
        return LoadingError(
            f"a worker process that reads images died ({how}) while it was on {names}. If memory is short, lower the "
            "number of workers; 0 reads without any"
        )
