"""The images of episodes and batches, read ahead by PyTorch's `DataLoader` if asked to.

This process decides which images to read, one episode after the other; workers only fetch pixels. So results are the
same with any number of workers.
"""

import mmap
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import tee
from multiprocessing import get_all_start_methods, get_context, parent_process
from threading import Thread
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from tcnaps.config.errors import UserError
from tcnaps.data.image_source import ImageSource
from tcnaps.episodes.sampling import Draw
from tcnaps.method.episode import Episode, scale_pixels


class LoadingError(UserError, RuntimeError):
    """Images can't be read; the message names the file, and the episode or batch."""


def load_episode(source: ImageSource, draw: Draw) -> Episode:
    """The episode that `sampling.draw_episode` chose."""
    return next(read_episodes([(source, draw)]))


def read_episodes(
    tasks: Iterable[tuple[ImageSource, Draw]], workers: int = 0, device: torch.device | str = "cpu"
) -> Iterator[Episode]:
    """The episodes of these draws, in their order.

    Args:
        tasks: taken as they are needed; with workers, up to two more per worker.
        workers: processes that read ahead; 0 reads in this process.

    Raises:
        LoadingError: images can't be read.
        RuntimeError: a worker died. Lower the number of workers where memory is short.
    """

    def request(task: tuple[ImageSource, Draw]) -> _Request:
        source, draw = task
        name = f"episode {draw.index} of dataset '{draw.dataset}', split '{draw.split}'"
        return _request(name, [source], np.concatenate([draw.support_images, draw.query_images]))

    tasks, to_read = tee(tasks)
    for (_, draw), images in zip(tasks, _read(map(request, to_read), workers, torch.device(device))):
        support, query = images.split([len(draw.support_images), len(draw.query_images)])
        yield Episode(
            support_images=support,
            support_labels=torch.from_numpy(draw.support_labels).to(device),
            query_images=query,
            query_labels=torch.from_numpy(draw.query_labels).to(device),
            draw=draw,
        )


def read_batches(
    sources: Sequence[ImageSource],
    batches: Iterable[Int[np.ndarray, "_"]],
    workers: int = 0,
    device: torch.device | str = "cpu",
) -> Iterator[Float[Tensor, "_ 3 height width"]]:
    """The images of each batch, scaled to [-1, 1]; `workers` and errors are those of `read_episodes`.

    Args:
        batches: numbers of images, counted through all sources: those of the second follow those of the first.
    """
    names = ", ".join(source.dataset for source in sources)
    requests = (_request(f"{len(numbers)} images of {names}", sources, numbers) for numbers in batches)
    return _read(requests, workers, torch.device(device))


class _InFile(NamedTuple):
    """Images in a prepared file, by number. A worker opens the file itself, so that no pixels are sent to it."""

    path: str
    numbers: Int[np.ndarray, "n"]


class _Request(NamedTuple):
    """Images to read together: parts of several arrays, and the places of their images in the result."""

    name: str
    parts: list[_InFile | UInt8[np.ndarray, "_n height width 3"]]
    places: Int[np.ndarray, "n"]


def _request(name: str, sources: Sequence[ImageSource], numbers: Int[np.ndarray, "n"]) -> _Request:
    starts = np.cumsum([0, *(len(source.images) for source in sources)])
    owners = np.searchsorted(starts, numbers, side="right") - 1
    parts: list = []
    for k in np.unique(owners):
        images, rows = sources[k].images, numbers[owners == k] - starts[k]
        whole_file = isinstance(images, np.memmap) and isinstance(images.base, mmap.mmap)
        parts.append(_InFile(str(images.filename), rows) if whole_file else images[rows])
    return _Request(name, parts, np.argsort(owners, kind="stable"))


class _Reader(Dataset):
    """Reads whatever images are requested. It holds nothing, so workers start quickly."""

    def __getitem__(self, request: _Request) -> UInt8[np.ndarray, "n height width 3"] | LoadingError:
        pixels = []
        for part in request.parts:
            try:
                pixels.append(np.load(part.path, "r")[part.numbers] if isinstance(part, _InFile) else part)
            except (OSError, ValueError) as error:  # returned, so that it is raised without a worker's traceback
                remedy = "Delete the file's folder to have it prepared again"
                return LoadingError(f"{request.name}: {part.path} can't be read ({error}). {remedy}.")
        return np.concatenate(pixels)[np.argsort(request.places)]


def _read(
    requests: Iterable[_Request], workers: int, device: torch.device
) -> Iterator[Float[Tensor, "n 3 height width"]]:
    """The images of each request, scaled to [-1, 1]."""
    if workers < 0:
        raise ValueError(f"workers is {workers}; it must be 0 (read in this process) or more")
    # Workers start without forking this process, which may have threads and a GPU. PyTorch is imported once.
    context = get_context("forkserver" if "forkserver" in get_all_start_methods() else "spawn")
    context.set_forkserver_preload([__name__])
    loader = DataLoader(
        _Reader(),
        batch_size=None,  # one request per item
        sampler=requests,
        num_workers=workers,
        pin_memory=device.type == "cuda",
        multiprocessing_context=context if workers else None,
        worker_init_fn=_end_with_parent if workers else None,
        generator=torch.Generator(),  # otherwise it would draw from the global one
    )
    batches = iter(loader)
    try:
        for pixels in batches:
            if isinstance(pixels, LoadingError):
                raise pixels
            if device.type == "cuda":  # from pinned memory this process need not wait for the copy
                pixels = pixels.pin_memory()
            # Bytes are copied to the device and scaled there: they take a quarter of the room of floats.
            on_device = pixels.numpy() if device.type == "cpu" else pixels.to(device, non_blocking=pixels.is_pinned())
            yield scale_pixels(on_device)
    finally:
        del batches  # ends the workers now, even if a traceback keeps this frame alive


def _end_with_parent(worker: int) -> None:
    """Ends this worker when the process that started it ends, even if that one is killed."""

    def wait() -> None:
        parent_process().join()
        os._exit(1)

    Thread(target=wait, daemon=True).start()
