"""A user's images → features. A study's network is first adapted to the labelled images and to some of the others."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm

from tcnaps.config import UserError
from tcnaps.data.decoding import to_rgb
from tcnaps.data.image_source import DatasetError
from tcnaps.data.listing import open_regular
from tcnaps_suite.experiments.networks import AT_ONCE, Network

NARROWEST = 50  # times as long as it is wide: an image beyond that is not read
TO_ADAPT = 200  # unlabelled images that a study's network is adapted to; the paper's episodes have as many at most


@torch.inference_mode()
def embed(
    files: Sequence[Path], codes: np.ndarray, network: Network, device: torch.device | str = "cpu"
) -> tuple[np.ndarray, dict[int, str]]:
    """Features of the files, (n, d), nan where a file can't be read; and the numbers of such files, with the reasons.

    Args:
        codes: each file's class, numbered from 0, or -1 where it has no label.
    """
    extract = network.features or _adapted(files, codes, network, device)
    features, unreadable = {}, {}
    for start in tqdm(range(0, len(files), AT_ONCE), desc="features", unit="batch"):
        images, reasons = _read(files, range(start, min(start + AT_ONCE, len(files))), network)
        unreadable |= reasons
        if images:
            of_batch = extract(torch.stack(list(images.values())).to(device))
            features |= zip(images, of_batch.flatten(1).float().cpu().numpy())
    table = np.full((len(files), len(next(iter(features.values()), ()))), np.nan, np.float32)
    for row, of_image in features.items():
        table[row] = of_image
    return table, unreadable


def _read(files: Sequence[Path], rows: Iterable[int], network: Network) -> tuple[dict[int, Tensor], dict[int, str]]:
    """The images of these files as the network takes them, and the reasons why others can't be read."""
    images, reasons = {}, {}
    for row in rows:
        try:
            with open_regular(files[row]) as file:
                image = to_rgb(file.read(), fast=False, orient=True)
            if max(image.size) > NARROWEST * min(image.size):  # networks scale the short side up to theirs
                raise DatasetError(f"{image.width} × {image.height} pixels are too narrow to be resized")
            images[row] = network.transform(image)
        except (DatasetError, OSError) as error:
            reasons[row] = str(error)
    return images, reasons


def _adapted(
    files: Sequence[Path], codes: np.ndarray, network: Network, device: torch.device | str
) -> Callable[[Tensor], Tensor]:
    """The network, adapted to the labelled images and to some of the others."""
    others = np.flatnonzero(codes < 0)
    others = others[np.unique(np.linspace(0, len(others) - 1, TO_ADAPT).astype(int))]
    sets = [_read(files, rows.tolist(), network)[0] for rows in (np.flatnonzero(codes >= 0), others)]
    for images, kind in zip(sets, ("labelled", "unlabelled")):
        if not images:
            raise UserError(f"No {kind} image can be read, such as {files[0 if kind == 'labelled' else others[0]]}.")
    support, query = (torch.stack(list(images.values())).to(device) for images in sets)
    labels = np.unique(codes[list(sets[0])], return_inverse=True)[1]  # no image of some class may be readable
    return network.adapted(support, torch.from_numpy(labels).to(device), query)
