"""Images of episodes and batches: read ahead by worker processes, handed over in order.

Which images they are is decided here, one episode after the other; workers only read bytes. So episodes are the same
with any number of workers.
"""

import itertools
import mmap
import os
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from tcnaps.datasets.image_source import ImageSource
from tcnaps.episodes import reading
from tcnaps.episodes.reading_workers import Job, LoadingError, Worker
from tcnaps.episodes.sampling import Draw
from tcnaps.method.episode import Episode, scale_pixels

__all__ = ["Loader", "LoadingError", "Part", "Request", "episode_request"]


@dataclass(frozen=True, eq=False)
class Part:
    """Some images of one source, and their places among all that are read together."""

    images: UInt8[np.ndarray, "n_images height width 3"]
    numbers: Int[np.ndarray, "n"]
    places: Int[np.ndarray, "n"]


@dataclass(frozen=True, eq=False)
class Request:
    """Images to be read together, all of one size. `name` says what they are, for errors."""

    name: str
    parts: tuple[Part, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, height, width, 3)."""
        return (sum(len(part.numbers) for part in self.parts), *self.parts[0].images.shape[1:])

    def pieces(self) -> list[reading.Piece] | None:
        """Where the images lie in files, or None where any of them does not."""
        files = [_file_of(part.images) for part in self.parts]
        if None in files:
            return None
        return [
            (path, first, part.images[0].nbytes, part.numbers.tolist(), part.places.tolist())
            for (path, first), part in zip(files, self.parts)
        ]


def episode_request(source: ImageSource, draw: Draw) -> Request:
    """All images of an episode, support before query."""
    numbers = np.concatenate([draw.support_images, draw.query_images])
    name = f"episode {draw.index} of dataset '{draw.dataset}', split '{draw.split}'"
    return Request(name, (Part(source.images, numbers, np.arange(len(numbers))),))


class Loader:
    """Reads images in this process when they are asked for, or ahead of that in worker processes.

    A context manager: leaving it, also by an error or an interrupt, ends the workers. Its iterators may be used in
    turns and need not be exhausted. Images that are in memory already never pass through a worker.

    Args:
        workers: processes that read; 0 reads in this one. They read one episode more ahead than they are.
        device: where images end up.

    Raises:
        ValueError: the number of workers is negative.
    """

    def __init__(self, workers: int = 0, device: torch.device | str = "cpu"):
        if workers < 0:
            raise ValueError(f"workers is {workers}; it must be 0 (read in this process) or more")
        self.device = torch.device(device)
        self._files: dict[str, int] = {}
        self._workers: list[Worker] = []
        self._finalizer = weakref.finalize(self, _end, self._workers, self._files)  # also where nobody closes it
        for _ in range(workers):
            self._workers.append(Worker())
        self._turns = itertools.cycle(self._workers)

    def __enter__(self) -> "Loader":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        """Ends the workers, whatever they are at."""
        self._finalizer()

    def episodes(self, tasks: Iterable[tuple[ImageSource, Draw]]) -> Iterator[Episode]:
        """The episodes of these draws, in their order.

        Tasks are taken a few at a time. An error of theirs is raised when the episode's turn comes.

        Raises:
            LoadingError: images can't be read, or a worker died.
            ValueError: the loader is closed.
        """
        draws: deque[Draw] = deque()

        def requests() -> Iterator[Request]:
            for source, draw in tasks:
                draws.append(draw)
                yield episode_request(source, draw)

        for images in self.read(requests()):
            draw = draws.popleft()
            support, query = images.split([len(draw.support_images), len(draw.query_images)])
            yield Episode.unchecked(  # bytes are finite, and the labels of draws are right
                len(draw.classes),
                support_images=support,
                support_labels=torch.from_numpy(draw.support_labels).to(self.device),
                query_images=query,
                query_labels=torch.from_numpy(draw.query_labels).to(self.device),
                draw=draw,
            )

    def read(self, requests: Iterable[Request]) -> Iterator[Float[Tensor, "n 3 height width"]]:
        """The images of each request, scaled to [-1, 1]; see `episodes`."""
        self._check_open()
        images = self._read(requests)
        yield from images if self.device.type != "cuda" else self._ahead(images)

    def _ahead(self, batches: Iterator[Tensor]) -> Iterator[Tensor]:
        """One further than asked for: its copy runs on a stream of its own, beside what the device computes."""
        stream, current = torch.cuda.Stream(self.device), torch.cuda.current_stream(self.device)
        coming = None
        while True:
            with torch.cuda.stream(stream):
                following = next(batches, None), stream.record_event()
            if coming is not None:
                images, arrived = coming
                current.wait_event(arrived)
                images.record_stream(current)  # its memory is not given away before what uses it here is done
                yield images
            if following[0] is None:
                return
            coming = following

    def _read(self, requests: Iterable[Request]) -> Iterator[Float[Tensor, "n 3 height width"]]:
        if not self._workers:
            yield from (self._scaled(_read_here(request, self._files)) for request in requests)
            return
        requests = _with_error_last(requests)
        waiting = deque(map(self._ask, itertools.islice(requests, len(self._workers) + 1)))
        try:
            while waiting:
                self._check_open()
                images = self._answer(waiting[0])
                waiting.popleft()
                waiting.extend(map(self._ask, itertools.islice(requests, 1)))
                yield images
        finally:
            for job in waiting:
                if isinstance(job, Job):
                    job.drop()

    def _check_open(self) -> None:
        if not self._finalizer.alive:
            raise ValueError("this loader is closed; read inside its `with` block")

    def _ask(self, request: Request | Exception) -> Job | Request | Exception:
        """What to expect an answer from: a worker's job, or the request itself where it is none for a worker."""
        pieces = None if isinstance(request, Exception) else request.pieces()
        return request if pieces is None else next(self._turns).ask(request.name, request.shape, pieces)

    def _answer(self, job: Job | Request | Exception) -> Float[Tensor, "n 3 height width"]:
        if isinstance(job, Exception):
            raise job
        if isinstance(job, Request):
            return self._scaled(_read_here(job, self._files))
        images = self._scaled(job.wait())
        job.drop()
        return images

    def _scaled(self, pixels: UInt8[np.ndarray, "n height width 3"]) -> Float[Tensor, "n 3 height width"]:
        """Scaled where they are used: bytes are a quarter of what numbers are to copy."""
        if self.device.type == "cpu":
            return scale_pixels(pixels)
        images = torch.from_numpy(pixels)
        if self.device.type == "cuda":  # from pinned memory: the host would wait for a copy from elsewhere
            return scale_pixels(images.pin_memory().to(self.device, non_blocking=True))
        return scale_pixels(images.to(self.device))


def _end(workers: list[Worker], files: dict[str, int]) -> None:
    for worker in workers:
        worker.end()
    for file in files.values():
        os.close(file)


def _read_here(request: Request, files: dict[str, int]) -> UInt8[np.ndarray, "n height width 3"]:
    pixels = np.empty(request.shape, np.uint8)
    pieces = request.pieces()
    if pieces is None:
        for part in request.parts:
            pixels[part.places] = part.images[part.numbers]
        return pixels
    try:
        reading.read(pieces, memoryview(pixels.reshape(-1)), files)
    except (OSError, EOFError) as error:
        raise LoadingError(f"{request.name}: {type(error).__name__}: {error}") from error
    return pixels


def _file_of(images: np.ndarray) -> tuple[str, int] | None:
    """The file of a memory-mapped array and where in it the array starts; None for others, and for parts of one."""
    if isinstance(images, np.memmap) and isinstance(images.base, mmap.mmap) and images.flags.c_contiguous:
        return str(images.filename), images.offset
    return None


def _with_error_last(requests: Iterable[Request]) -> Iterator[Request | Exception]:
    """The requests; where producing one fails, the error in its place, to be raised when its turn comes."""
    try:
        yield from requests
    except Exception as error:
        yield error
