"""The images of episodes and batches, from prepared files to the device that computes with them."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from tcnaps.data.image_source import ImageSource
from tcnaps.episodes.sampling import Draw
from tcnaps.method.episode import Episode, scale_pixels


def load_episode(source: ImageSource, draw: Draw, device: torch.device | str = "cpu") -> Episode:
    """The episode that `sampling.draw_episode` chose."""
    images = read_images([source], np.concatenate([draw.support_images, draw.query_images]), device)
    support, query = images.split([len(draw.support_images), len(draw.query_images)])
    return Episode(support, draw.support_labels, query, draw.query_labels, draw=draw)


def read_images(
    sources: Sequence[ImageSource], numbers: Int[np.ndarray, "n"], device: torch.device | str = "cpu"
) -> Float[Tensor, "n 3 height width"]:
    """Images scaled to [-1, 1], by numbers that count through all sources: the second's follow the first's."""
    starts = np.cumsum([0, *(len(source.images) for source in sources)])
    owners = np.searchsorted(starts, numbers, side="right") - 1
    pixels = np.empty((len(numbers), *sources[0].images.shape[1:]), np.uint8)
    for k in np.unique(owners):
        pixels[owners == k] = sources[k].images[numbers[owners == k] - starts[k]]
    kind, on_host = torch.device(device).type, torch.from_numpy(pixels)
    if kind == "cpu":
        return scale_pixels(pixels)
    if kind == "cuda":  # from pinned memory this process need not wait for the copy
        on_host = on_host.pin_memory()
    # Bytes are copied to the device and scaled there: they take a quarter of the room of floats.
    return scale_pixels(on_host.to(device, non_blocking=kind == "cuda"))
