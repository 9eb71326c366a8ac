"""The test images of MNIST, CIFAR-10 and CIFAR-100, in the folders where torchvision puts them.

They are resized by Lanczos, as in the CNAPS release (cambridge-mlg/cnaps, src/prepare_extra_datasets.py).
"""

import warnings
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tcnaps.config import settings
from tcnaps.data.image_source import DatasetError
from tcnaps.data.listing import ImageFile, Listing, Source, located

FOLDERS = {"MNIST": "MNIST/raw", "CIFAR10": "cifar-10-batches-py", "CIFAR100": "cifar-100-python"}


def open_torchvision(name: str, dataset: settings.Torchvision) -> Source:
    """Points at one of the datasets. With `download`, torchvision fetches what is missing when it is prepared."""
    kind, base = dataset.name, located(dataset.path)
    folder = base / FOLDERS[kind]

    def listing() -> Listing:
        try:
            images = _opened(kind, base, dataset.download)
        except Exception as error:  # damaged files, the network and the disk raise errors of every kind
            raise DatasetError(
                f"Dataset '{name}': torchvision can't read or download {kind} in {base} ({error}). Unpack it again so "
                f"that there is {folder}, or try again later."
            ) from error
        classes: dict[str, list[ImageFile]] = {label: [] for label in sorted(images.classes)}
        for row, label in enumerate(images.targets):
            classes[images.classes[label]].append(ImageFile(str(folder), (row,)))
        return Listing({"test": classes})

    needs = () if dataset.download else (folder,)
    help = "Unpack it there, or set 'download: true' to have torchvision download it."
    return Source(listing, needs, help, partial(_read_row, kind, base), orient=False, resampling="lanczos")


@lru_cache(maxsize=1)
def _opened(kind: str, base: Path, download: bool = False) -> Any:
    """torchvision's dataset, which has checked its files."""
    import torchvision

    with warnings.catch_warnings(action="ignore"):  # some versions of NumPy warn of pickles as old as CIFAR's
        return getattr(torchvision.datasets, kind)(base, train=False, download=download)


def _read_row(kind: str, base: Path, image: ImageFile) -> Image.Image:
    return Image.fromarray(np.asarray(_opened(kind, base).data[image.position[0]])).convert("RGB")
