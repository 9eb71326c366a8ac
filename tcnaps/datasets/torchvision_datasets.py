"""The datasets that torchvision has, in the folders where it puts them; `path` in a study is its root.

    Omniglot, FGVCAircraft, DTD, Flowers102, GTSRB, CocoDetection     image files; see `torchvision_layouts`
    MNIST, CIFAR10, CIFAR100                                          the test images, resized by Lanczos

MNIST and CIFAR are as in the CNAPS release (cambridge-mlg/cnaps, src/prepare_extra_datasets.py): test images alone, all
classes for testing, Lanczos. Without a split file all classes of the others are for testing too, but for Omniglot.

torchvision itself is imported only to download, and to read MNIST and CIFAR, whose files it checks.
"""

import fcntl
import warnings
from collections import defaultdict
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from tcnaps.config import settings
from tcnaps.datasets.image_source import DatasetError
from tcnaps.datasets.listing import FileSource, ImageFile
from tcnaps.datasets.preparing import MissingFiles
from tcnaps.datasets.reader_parts import Classes, PackedImages, check_total, split_source
from tcnaps.datasets.torchvision_layouts import ANEW, LAYOUTS, Layout

N_TEST_IMAGES = 10_000  # of MNIST, of CIFAR-10 and of CIFAR-100
DOWNLOADS = {  # what torchvision's class is called with, once for each part; it doesn't download MSCOCO
    "Omniglot": ({"background": True}, {"background": False}),
    "FGVCAircraft": ({"split": "trainval"},),
    "DTD": ({"split": "train"},),
    "Flowers102": ({"split": "train"},),
    "GTSRB": ({"split": "train"}, {"split": "test"}),
    "MNIST": ({"train": False},),
    "CIFAR10": ({"train": False},),
    "CIFAR100": ({"train": False},),
}


def open_torchvision(name: str, dataset: settings.Torchvision, root: Path) -> FileSource:
    """Points at one of torchvision's datasets; see `FileSource`. With `download`, it can be fetched."""
    kind, base = dataset.name, root / Path(dataset.path).expanduser()
    layout = (LAYOUTS | ARRAYS)[kind]
    folder = base / layout.folder
    needs = tuple(folder / part for part in layout.needs)
    by_hand = f"unpack {layout.published} so that there is {needs[0]}"
    help = f"{kind} is not downloaded by torchvision: {by_hand}."
    if kind in DOWNLOADS:
        when = "Preparing it lets" if dataset.download else "Set 'download: true' to have"
        help = f"{when} torchvision download {kind} to {base}, or {by_hand}."
    fetches = dataset.download and kind in DOWNLOADS
    fetch = partial(_download, name, kind, base, needs, by_hand) if fetches else None
    found = partial(layout.classes, folder)
    return split_source(found, folder, layout.watched, dataset.splits, root, needs, help, fetch)


def read_row(pixels: UInt8[np.ndarray, "n_images ..."], image: ImageFile) -> UInt8[np.ndarray, "..."]:
    """One image of an array that holds all of them."""
    return pixels[image.position[0]]


def list_arrays(kind: str, folder: Path) -> Classes:
    """The test images of MNIST, CIFAR10 or CIFAR100.

    Args:
        kind: torchvision's class.
        folder: where it has unpacked the files.

    Raises:
        DatasetError: files are missing or damaged.
    """
    layout = ARRAYS[kind]
    base = folder.parents[layout.folder.count("/")]
    pixels, targets, names = _load(kind, base)
    check_total(kind, folder, len(pixels), N_TEST_IMAGES, ANEW)
    rows = defaultdict(list)
    for row, target in enumerate(targets):
        rows[names[target]].append([row])
    path = (str(folder / layout.needs[0]),)
    return Classes(
        {name: PackedImages(path, np.array(members, dtype=np.int64)) for name, members in rows.items()},
        read=partial(read_row, pixels),  # few enough to go along to whatever process reads them
        resampling="lanczos",
    )


def _load(kind: str, base: Path) -> tuple[np.ndarray, list[int], list[str]]:
    import torchvision

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some versions of NumPy warn of pickles as old as CIFAR's
            opened = getattr(torchvision.datasets, kind)(base, train=False)
        pixels = np.ascontiguousarray(opened.data)
        return pixels, [int(target) for target in opened.targets], list(opened.classes)
    except Exception as error:  # its readers let slip whatever damaged bytes make them stumble over
        raise DatasetError(f"torchvision can't read {kind} in {base} ({error}). {ANEW}") from error


def _download(name: str, kind: str, base: Path, needs: tuple[Path, ...], by_hand: str) -> None:
    """Has torchvision download a dataset; other processes that want it too wait."""
    import torchvision

    try:
        base.mkdir(parents=True, exist_ok=True)
        with open(base / ".download.lock", "w") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            if not all(path.exists() for path in needs):
                for options in DOWNLOADS[kind]:
                    getattr(torchvision.datasets, kind)(base, download=True, **options)
    except Exception as error:  # of the network, the disk, or the archives
        raise MissingFiles(  # what is prepared holds even where there is no network
            f"Dataset '{name}': torchvision could not download {kind} to {base} ({error}). Try again, or set "
            f"'download: false' and {by_hand}."
        ) from error
    missing = [path for path in needs if not path.exists()]
    if missing:
        raise MissingFiles(
            f"Dataset '{name}': torchvision has downloaded {kind}, but there is no {missing[0]}. Set 'download: false' "
            f"and {by_hand}."
        )


def _array_layout(kind: str, folder: str, needs: tuple[str, ...], published: str) -> Layout:
    return Layout(folder, needs, needs[:2], partial(list_arrays, kind), published)


# The test images come first, then their labels or the names of classes, then what torchvision also looks for.
ARRAYS = {
    "MNIST": _array_layout(
        "MNIST",
        "MNIST/raw",
        ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", "train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
        "the four files of MNIST (about 11 MB)",
    ),
    "CIFAR10": _array_layout(
        "CIFAR10",
        "cifar-10-batches-py",
        ("test_batch", "batches.meta", *(f"data_batch_{k}" for k in range(1, 6))),
        "cifar-10-python.tar.gz of www.cs.toronto.edu/~kriz/cifar.html (170 MB)",
    ),
    "CIFAR100": _array_layout(
        "CIFAR100",
        "cifar-100-python",
        ("test", "meta", "train"),
        "cifar-100-python.tar.gz of www.cs.toronto.edu/~kriz/cifar.html (169 MB)",
    ),
}
