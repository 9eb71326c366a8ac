"""A user's images → features. A study's network is first adapted to the labelled images and to some of the others."""

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from tqdm.auto import tqdm

from tcnaps.config import UserError
from tcnaps.data.decoding import to_rgb
from tcnaps.data.image_source import DatasetError
from tcnaps.data.listing import open_regular
from tcnaps_suite.experiments.networks import AT_ONCE, PACKAGES, Network, open_network
from tcnaps_suite.labelling.feature_cache import digests_of, read_features, write_features

NARROWEST = 50  # an image more than this many times as long as it is wide is not read
LARGEST = 120e6  # pixels: a larger one is not read
TO_ADAPT = 200  # unlabelled images that a study's network is adapted to; the paper's episodes have as many at most
READERS = min(4, os.cpu_count() or 1)  # threads that read images ahead


def features_of(
    folder: Path, names: Sequence[str], codes: np.ndarray, source: str, device: torch.device | str = "cpu"
) -> tuple[np.ndarray, dict[int, str]]:
    """`embed` for a network by its name. Features are kept in FOLDER/.features, but not those of an adapted network."""
    files = [folder / name for name in names]
    kind, _, network = source.partition(":")
    if kind not in PACKAGES:
        return embed(files, codes, open_network(source, device), device)
    place, reasons = folder / ".features" / f"{kind}-{network}-{version(PACKAGES[kind])}", {}
    kept = read_features(place)
    digests = digests_of(folder, names, READERS)
    if missing := [number for number, digest in enumerate(digests) if digest not in kept]:

        def keep(numbers: Iterable[int], features: np.ndarray) -> None:
            new = {digests[missing[number]]: row for number, row in zip(numbers, features)}
            new.pop(None, None)  # a file that could not be read at first
            kept.update(new)
            write_features(place, new)

        new = [files[number] for number in missing]
        reasons = embed(new, codes[missing], open_network(source, device), device, keep)[1]
    unknown = np.full(len(next(iter(kept.values()), ())), np.nan, np.float32)
    features = np.stack([kept.get(digest, unknown) for digest in digests])
    return features, {missing[number]: reason for number, reason in reasons.items()}


@torch.inference_mode()
def embed(
    files: Sequence[Path],
    codes: np.ndarray,
    network: Network,
    device: torch.device | str = "cpu",
    keep: Callable[[Iterable[int], np.ndarray], None] = lambda numbers, features: None,
) -> tuple[np.ndarray, dict[int, str]]:
    """Features of the files, (n, d), nan where a file can't be read; and the numbers of such files, with the reasons.

    `codes` are the files' classes, or −1. `keep` is given the numbers of every batch that was read, and its features.
    """
    extract = network.features or _adapted(files, codes, network, device)
    table, unreadable = np.empty((len(files), 0), np.float32), {}
    # Decoding ignores warnings in several threads at once, which may leave them ignored: the filters are put back.
    with warnings.catch_warnings(), tqdm(total=len(files), desc="features", unit="image") as progress:
        for batch in _batches(files, network):
            unreadable |= {number: image for number, image in batch.items() if isinstance(image, str)}
            if readable := {number: image for number, image in batch.items() if number not in unreadable}:
                features = extract(torch.stack(list(readable.values())).to(device)).flatten(1).float().cpu().numpy()
                if not table.shape[1]:
                    table = np.full((len(files), features.shape[1]), np.nan, np.float32)
                table[list(readable)] = features
                keep(readable, features)
            progress.update(len(batch))
    return table, unreadable


def _batches(files: Sequence[Path], network: Network) -> Iterator[dict[int, Tensor | str]]:
    """The files in order, `AT_ONCE` at a time. While a batch is used, the next one is read."""
    parts = [range(start, min(start + AT_ONCE, len(files))) for start in range(0, len(files), AT_ONCE)]
    with ThreadPoolExecutor(READERS) as pool:
        coming = {}
        for part in [*parts, range(0)]:
            batch, coming = coming, {row: pool.submit(_read, files[row], network) for row in part}
            if batch:
                yield {row: reading.result() for row, reading in batch.items()}


def _read(file: Path, network: Network) -> Tensor | str:
    """A file's image as the network takes it, or the reason why it can't be read."""
    try:
        return network.transform(read_image(file))
    except (DatasetError, OSError) as error:
        return str(error)


def read_image(file: Path, side: int | None = None) -> Image.Image:
    """A file's image; `side` is that of `to_rgb`. Raises a DatasetError or an OSError where it can't be read."""
    with open_regular(file) as opened:
        return to_rgb(opened.read(), check=_check_size, side=side)


def _check_size(image: Image.Image) -> None:
    """Raises a DatasetError where an image is too narrow or too large to be read."""
    width, height = image.size
    if max(width, height) > NARROWEST * min(width, height):  # networks scale the short side up to theirs
        raise DatasetError(f"{width} × {height} pixels are too narrow to be resized")
    if width * height > LARGEST:
        raise DatasetError(f"{width} × {height} pixels are too many: save it smaller")


def _adapted(
    files: Sequence[Path], codes: np.ndarray, network: Network, device: torch.device | str
) -> Callable[[Tensor], Tensor]:
    """The network, adapted to the labelled images and to some of the others."""
    others = np.flatnonzero(codes < 0)
    others = others[np.unique(np.linspace(0, len(others) - 1, TO_ADAPT).astype(int))]
    sets = [
        {row: image for row in rows.tolist() if not isinstance(image := _read(files[row], network), str)}
        for rows in (np.flatnonzero(codes >= 0), others)
    ]
    for images, kind in zip(sets, ("labelled", "unlabelled")):
        if not images:
            raise UserError(f"No {kind} image can be read, such as {files[0 if kind == 'labelled' else others[0]]}.")
    support, query = (torch.stack(list(images.values())).to(device) for images in sets)
    labels = np.unique(codes[list(sets[0])], return_inverse=True)[1]  # no image of some class may be readable
    return network.adapted(support, torch.from_numpy(labels).to(device), query)
