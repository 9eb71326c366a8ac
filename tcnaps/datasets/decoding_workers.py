"""Decodes chunks of images on as many processes as there are cores.

Workers are plain child processes that run this module. (multiprocessing would import the caller's main script again
in each, which notebooks, interactive sessions and scripts without a main guard don't survive.) A worker receives
chunks on standard input, writes their pixels into the array's file and answers each chunk on standard output. Before
every image it notes its number in a small file, which tells what it was on, should it die.
"""

import os
import pickle
import selectors
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from tcnaps.datasets.decoding_jobs import Chunk, Decoded, Job, decode_chunk
from tcnaps.datasets.image_source import DatasetError

NUMBER = struct.Struct("<q")


def decode_all(job: Job, chunks: Iterable[Chunk], done: Callable[[Chunk, Decoded], object], processes: int) -> None:
    """Decodes chunks; `done` is called with each when it is finished, in any order.

    Args:
        processes: 1 decodes in this process.

    Raises:
        DatasetError: a worker failed or died; the message names the image that it was on.
        OSError: an array can't be written.
    """
    if processes == 1:
        for chunk in chunks:
            done(chunk, decode_chunk(job, chunk))
        return
    waiting = iter(chunks)
    workers: list[_Worker] = []
    with selectors.DefaultSelector() as selector:
        try:
            for chunk in waiting:
                workers.append(_Worker(job))
                workers[-1].give(chunk)
                selector.register(workers[-1].answers, selectors.EVENT_READ, workers[-1])
                if len(workers) == processes:
                    break
            while selector.get_map():
                for key, _ in selector.select():
                    worker = key.data
                    finished, decoded = worker.take()
                    chunk = next(waiting, None)
                    if chunk is None:
                        selector.unregister(worker.answers)
                    else:
                        worker.give(chunk)  # first, so that it isn't kept waiting
                    done(finished, decoded)
        finally:
            for worker in workers:
                worker.end()


class _Worker:
    """A child process that decodes one chunk at a time."""

    def __init__(self, job: Job) -> None:
        self._number, self._errors = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            # -P: nothing in the working folder stands in for a module.
            [sys.executable, "-P", "-m", "tcnaps.datasets.decoding_workers", str(self._number.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            pass_fds=[self._number.fileno()],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(_module_folders())},
        )
        self.answers = self._process.stdout
        self._chunk: Chunk | None = None
        self._send(replace(job, parent=os.getpid()))

    def give(self, chunk: Chunk) -> None:
        self._chunk = chunk
        self._number.truncate(0)
        self._send(chunk)

    def take(self) -> tuple[Chunk, Decoded]:
        """The chunk that was given, and what became of it; waits for it.

        Raises:
            DatasetError: the worker has died.
            OSError: it can't write the array.
        """
        try:
            answer = pickle.load(self.answers)
        except (EOFError, pickle.UnpicklingError) as error:
            raise self._death() from error
        if isinstance(answer, OSError):
            raise answer
        return self._chunk, answer

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._number, self._errors):
            try:
                stream.close()
            except BrokenPipeError:
                pass

    def _send(self, message: object) -> None:
        try:
            pickle.dump(message, self._process.stdin)
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has died: `take` says so

    def _death(self) -> DatasetError:
        status = self._process.wait()
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").strip()
        noted = os.pread(self._number.fileno(), NUMBER.size, 0)
        where = "before its first image"
        if len(noted) == NUMBER.size:
            image = self._chunk.images[NUMBER.unpack(noted)[0]]
            position = f" {image.position}" if image.position else ""
            where = f"on {image.path}{position}"
        how = f"failed with status {status}"
        if status < 0:
            how = f"was killed by signal {-status} ({signal.strsignal(-status)})"
            if status == -signal.SIGKILL:
                how += ", as the system does when memory runs out"
        return DatasetError(
            f"A process that decodes images {how} {where}. Repair or remove that image, or use fewer processes; what "
            f"is finished is kept." + (f"\n{said[-2000:]}" if said else "")
        )


def _module_folders() -> list[str]:
    """Where modules are found here, for the workers to find them too."""
    return [str(Path(__file__).resolve().parents[2]), *(os.path.abspath(folder) for folder in sys.path)]


def main() -> None:
    """A worker: a job and chunks from standard input, an answer to each chunk to standard output."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    number = int(sys.argv[1])
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)  # what libraries print must not get among the answers
        job = pickle.load(sys.stdin.buffer)
        while True:
            try:
                chunk = pickle.load(sys.stdin.buffer)
            except EOFError:
                return
            try:
                answer = decode_chunk(job, chunk, lambda k: os.pwrite(number, NUMBER.pack(k), 0))
            except OSError as error:
                answer = error
            pickle.dump(answer, answers)
            answers.flush()


if __name__ == "__main__":
    # Run as a script this module is `__main__`; what is pickled names it by its full name.
    from tcnaps.datasets import decoding_workers

    decoding_workers.main()
