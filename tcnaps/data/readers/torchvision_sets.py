"""torchvision's datasets, in the folders where torchvision puts them; `path` in a study is its root.

The splits for supervised learning are pooled, since few-shot learning splits classes. Of MNIST and CIFAR, only the test
images are taken and resized by Lanczos, as in the CNAPS release (cambridge-mlg/cnaps, src/prepare_extra_datasets.py).
Without a split file all classes are for testing, except Omniglot's background set.

Images are changed as Meta-Dataset changes them (google-research/meta-dataset,
meta_dataset/dataset_conversion/dataset_to_records.py at 751e991): Omniglot is inverted to white ink on black; aircraft
are cut out by the boxes of images_box.txt; objects of MSCOCO are cut out as `mscoco` describes. docs/data.md names the
differences that remain; for exactly Meta-Dataset's images, use its records.
"""

import csv
import os
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageOps

from tcnaps.config import settings
from tcnaps.data.decoding import to_rgb
from tcnaps.data.image_source import DatasetError
from tcnaps.data.listing import ImageFile, Listing, Row, Source, read_file
from tcnaps.data.preparing import MissingFiles
from tcnaps.data.readers.csv_lists import choose, list_files, listing_of, read_list
from tcnaps.data.readers.folders import scan
from tcnaps.data.readers.mscoco import ANNOTATIONS, mscoco
from tcnaps.data.readers.shared import located, some

AGAIN = "Download or unpack the dataset again."
Rows = tuple[list[Row], dict]  # all images of a dataset, and options of the listing


def open_torchvision(name: str, dataset: settings.Torchvision) -> Source:
    """Points at one of torchvision's datasets; see `Source`. Classes that a split file doesn't list are left out."""
    kind, base = dataset.name, located(dataset.path)
    layout, lists = LAYOUTS[kind], list_files(dataset.splits)
    by_hand = f"Unpack what docs/data.md names so that there is {base / layout.needs[0]}"
    help = by_hand + (", or set 'download: true' to have torchvision download it." if layout.downloads else ".")

    def listing() -> Listing:
        try:
            rows, options = layout.rows(base)
        except DatasetError:
            raise
        except Exception as error:  # damaged lists and archives raise errors of every kind
            raise DatasetError(f"Dataset '{name}': {kind} in {base} can't be read ({error!r}). {AGAIN}") from error
        if missing := sorted(path for path in {row.image.path for row in rows} if not os.path.isfile(path)):
            raise DatasetError(f"Dataset '{name}': images that its lists name are missing: {some(missing)}. {AGAIN}")
        rows, notes = choose(rows, read_list(lists[0]).classes, lists[0]) if lists else (rows, ())
        return listing_of(rows, base, notes=notes, orient=False, **options)  # as for published results

    def download() -> None:
        import torchvision

        try:
            base.mkdir(parents=True, exist_ok=True)
            for part in layout.downloads:
                getattr(torchvision.datasets, kind)(base, download=True, **part)
        except Exception as error:  # network, disk and archives raise errors of many kinds
            raise MissingFiles(  # without a network, a prepared dataset still counts as fresh
                f"Dataset '{name}': torchvision could not download {kind} to {base} ({error}). Try again. Or set "
                f"'download: false'. {by_hand}."
            ) from error

    needs = tuple(base / part for part in layout.needs)
    return Source(listing, (*needs, *lists), help, download if dataset.download else lambda: None)


def omniglot(base: Path) -> Rows:
    """Characters by alphabet. Without a split file, the background set is for training, the other for testing."""
    rows = [
        row._replace(split=split)
        for split, part in zip(("train", "test"), OMNIGLOT)
        for row in scan(base / part, grouped=True)[0]
    ]
    return rows, {"read": read_inverted, "grouped": True}


def aircraft(base: Path) -> Rows:
    """The 100 variants of FGVC-Aircraft, each image with its box."""
    data = base / "fgvc-aircraft-2013b" / "data"

    def lines(name: str) -> list[list[str]]:
        return [line.split(maxsplit=1) for line in (data / name).read_text("utf-8").splitlines() if line.strip()]

    boxes = {name: tuple(map(int, box.split())) for name, box in lines("images_box.txt")}
    rows = sorted(lines("images_variant_trainval.txt") + lines("images_variant_test.txt"))
    images = [ImageFile(str(data / "images" / f"{name}.jpg"), boxes[name]) for name, _ in rows]
    return for_testing([variant.strip() for _, variant in rows], images), {"read": read_box}


def textures(base: Path) -> Rows:
    """The 47 kinds of DTD."""
    return [row._replace(split="test") for row in scan(base / "dtd" / "dtd" / "images")[0]], {}


def flowers(base: Path) -> Rows:
    """The 102 kinds of Oxford Flowers, named as in Meta-Dataset: "001.pink primrose"; "001" before torchvision 0.22."""
    from scipy.io import loadmat
    from torchvision.datasets import Flowers102

    folder, names = base / "flowers-102", getattr(Flowers102, "classes", [""] * 102)
    labels = loadmat(folder / "imagelabels.mat")["labels"].ravel().tolist()
    images = [ImageFile(str(folder / "jpg" / f"image_{number:05d}.jpg")) for number in range(1, len(labels) + 1)]
    return for_testing([f"{label:03d}.{names[label - 1]}".rstrip(".") for label in labels], images), {}


def traffic_signs(base: Path) -> Rows:
    """The 43 signs of GTSRB, named after its folders: "00014"."""
    folder = base / "gtsrb"
    with open(folder / "GT-final_test.csv", newline="") as stream:
        signs = sorted((line["Filename"], int(line["ClassId"])) for line in csv.DictReader(stream, delimiter=";"))
    images = [ImageFile(str(folder / "GTSRB" / "Final_Test" / "Images" / file)) for file, _ in signs]
    rows = for_testing([f"{label:05d}" for _, label in signs], images)
    return rows + [row._replace(split="test") for row in scan(folder / "GTSRB" / "Training")[0]], {}


def arrays(kind: str, file: str, base: Path) -> Rows:
    """The test images of MNIST, CIFAR10 or CIFAR100, read from `file` and checked by torchvision's class `kind`."""
    import torchvision

    with warnings.catch_warnings(action="ignore"):  # some versions of NumPy warn of pickles as old as CIFAR's
        opened = getattr(torchvision.datasets, kind)(base, train=False)
    images = [ImageFile(str(base / file), (row,)) for row in range(len(opened.targets))]
    rows = for_testing([opened.classes[label] for label in opened.targets], images)
    # The pixels are few enough to be sent to other processes.
    return rows, {"read": partial(read_row, np.asarray(opened.data)), "resampling": "lanczos"}


def for_testing(labels: list[str], images: list[ImageFile]) -> list[Row]:
    """Images whose classes are all for testing."""
    return [Row(label, "test", image) for label, image in zip(labels, images, strict=True)]


def read_inverted(image: ImageFile) -> Image.Image:
    """Decodes an image file and inverts it."""
    return ImageOps.invert(to_rgb(read_file(image), orient=False))


def read_box(image: ImageFile) -> Image.Image:
    """Decodes an image file and cuts out a box, whose left, top, right and bottom are the image's position.

    JPEGs are always decoded with the accurate DCT: Meta-Dataset cuts with Pillow.
    """
    decoded = to_rgb(read_file(image), orient=False)
    left, top, right, bottom = image.position
    if not (0 <= left < right <= decoded.width and 0 <= top < bottom <= decoded.height):
        raise DatasetError(
            f"the box {image.position} does not lie within its {decoded.width} x {decoded.height} pixels."
        )
    return decoded.crop(image.position)


def read_row(pixels: UInt8[np.ndarray, "n_images ..."], image: ImageFile) -> Image.Image:
    """One image of an array that holds all of them."""
    return Image.fromarray(pixels[image.position[0]]).convert("RGB")


class Layout(NamedTuple):
    """Where torchvision puts a dataset below its root, and the function that reads it."""

    needs: tuple[str, ...]  # files or folders that must exist
    rows: Callable[[Path], Rows]
    downloads: Sequence[dict] = ()  # arguments of torchvision's class, for each part that it can download


OMNIGLOT = "omniglot-py/images_background", "omniglot-py/images_evaluation"
CIFAR10, CIFAR100 = "cifar-10-batches-py", "cifar-100-python"
TRAIN, TEST, NOT_TRAIN = {"split": "train"}, {"split": "test"}, {"train": False}
LAYOUTS = {
    "Omniglot": Layout(OMNIGLOT, omniglot, [{"background": True}, {"background": False}]),
    "FGVCAircraft": Layout(("fgvc-aircraft-2013b/data",), aircraft, [{"split": "trainval"}]),
    "DTD": Layout(("dtd/dtd/images",), textures, [TRAIN]),
    "Flowers102": Layout(("flowers-102",), flowers, [TRAIN]),
    "GTSRB": Layout(("gtsrb",), traffic_signs, [TRAIN, TEST]),
    "MNIST": Layout(("MNIST/raw",), partial(arrays, "MNIST", "MNIST/raw/t10k-images-idx3-ubyte"), [NOT_TRAIN]),
    "CIFAR10": Layout((CIFAR10,), partial(arrays, "CIFAR10", f"{CIFAR10}/test_batch"), [NOT_TRAIN]),
    "CIFAR100": Layout((CIFAR100,), partial(arrays, "CIFAR100", f"{CIFAR100}/test"), [NOT_TRAIN]),
    "CocoDetection": Layout(("train2017", ANNOTATIONS), lambda base: (for_testing(*mscoco(base)), {"read": read_box})),
}
