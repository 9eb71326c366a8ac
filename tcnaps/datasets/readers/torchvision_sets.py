"""The datasets that torchvision has, in the folders where it puts them; `path` in a study is its root.

All images of a dataset are taken together, whatever it was divided into for supervised learning, since few-shot
learning divides classes. MNIST and CIFAR are as in the CNAPS release (cambridge-mlg/cnaps,
src/prepare_extra_datasets.py): the test images alone, resized by Lanczos. Without a split file all classes are for
testing, but for Omniglot's.

What Meta-Dataset does to images before it stores them is done here as well (google-research/meta-dataset,
meta_dataset/dataset_conversion/dataset_to_records.py at 751e991): Omniglot is inverted to white ink on black; aircraft
are cut out by the boxes of images_box.txt as they stand, objects of MSCOCO as `mscoco` says. docs/data.md names what
differs; for Meta-Dataset's very images, use its records.
"""

import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import UInt8

from tcnaps.config import settings
from tcnaps.datasets.decoding import to_rgb
from tcnaps.datasets.image_source import DatasetError
from tcnaps.datasets.listing import FileSource, ImageFile, Images, Listing, read_file
from tcnaps.datasets.preparing import MissingFiles
from tcnaps.datasets.readers.csv_lists import list_files, match_classes, read_list, splits_of
from tcnaps.datasets.readers.folders import superclasses
from tcnaps.datasets.readers.mscoco import ANNOTATIONS, mscoco
from tcnaps.datasets.readers.shared import AGAIN, by_class, read_text

# Of GTSRB's classes 00000 to 00042, from Meta-Dataset's meta_dataset/dataset_conversion/TrafficSign_labels.txt.
TRAFFIC_SIGNS = (
    "Speed limit (20km/h); Speed limit (30km/h); Speed limit (50km/h); Speed limit (60km/h); Speed limit (70km/h); "
    "Speed limit (80km/h); End of speed limit (80km/h); Speed limit (100km/h); Speed limit (120km/h); No passing; "
    "No passing for vehicles over 3.5 metric tons; Right-of-way at the next intersection; Priority road; Yield; Stop; "
    "No vehicles; Vehicles over 3.5 metric tons prohibited; No entry; General caution; Dangerous curve to the left; "
    "Dangerous curve to the right; Double curve; Bumpy road; Slippery road; Road narrows on the right; Road work; "
    "Traffic signals; Pedestrians; Children crossing; Bicycles crossing; Beware of ice/snow; Wild animals crossing; "
    "End of all speed and passing limits; Turn right ahead; Turn left ahead; Ahead only; Go straight or right; "
    "Go straight or left; Keep right; Keep left; Roundabout mandatory; End of no passing; "
    "End of no passing by vehicles over 3.5 metric tons"
).split("; ")


def open_torchvision(name: str, dataset: settings.Torchvision, root: Path) -> FileSource:
    """Points at one of torchvision's datasets; see `FileSource`. With `download`, it can be fetched.

    Classes that a split file doesn't list are left out. Without one, classes are split as the dataset has them, or
    else are all for testing.
    """
    kind, base = dataset.name, root / Path(dataset.path).expanduser()
    layout, lists = LAYOUTS[kind], list_files(dataset.splits, root)
    folder = base / layout.folder
    needs = tuple(folder / part for part in layout.needs)
    by_hand = f"Unpack what docs/data.md names so that there is {needs[0]}"
    help = by_hand + (", or set 'download: true' to have torchvision download it." if layout.downloads else ".")
    fetch = partial(_download, name, kind, base, needs, by_hand) if dataset.download else lambda: None

    def listing() -> Listing:
        try:
            found = replace(layout.listing(folder), orient=False)  # published figures were made so
        except DatasetError:
            raise
        except Exception as error:  # of any kind, from the depths of a damaged list or archive
            raise DatasetError(f"Dataset '{name}': {kind} in {folder} can't be read ({error!r}). {AGAIN}") from error
        if not lists:
            return found
        images = {name: of_class for part in found.splits.values() for name, of_class in part.items()}
        listed = splits_of(read_list(lists[0]))
        splits, notes = match_classes(listed, images, dataset.splits, found.superclasses)
        chosen = {split: {name: images[name] for name in names} for split, names in splits.items()}
        return replace(found, splits=chosen, notes=notes)

    return FileSource(listing, (*needs, *lists), help, fetch)


def _download(name: str, kind: str, base: Path, needs: tuple[Path, ...], by_hand: str) -> None:
    """Has torchvision download a dataset that isn't there."""
    import torchvision

    try:
        base.mkdir(parents=True, exist_ok=True)
        for options in [] if all(path.exists() for path in needs) else LAYOUTS[kind].downloads:
            getattr(torchvision.datasets, kind)(base, download=True, **options)
    except Exception as error:  # of the network, the disk, or the archives
        raise MissingFiles(  # what is prepared holds even where there is no network
            f"Dataset '{name}': torchvision could not download {kind} to {base} ({error}). Try again. Or set "
            f"'download: false'. {by_hand}."
        ) from error


def _in_folders(folder: Path, pattern: str, depth: int = 1) -> Images:
    """Images by the last `depth` folders that they lie in."""
    files = [path.relative_to(folder) for path in folder.glob(pattern)]
    return by_class(folder, (("/".join(file.parts[-1 - depth : -1]), file.as_posix()) for file in files))


def omniglot(folder: Path) -> Listing:
    """Characters by alphabet. Without a split file the background set is for training, the evaluation set for testing.

    Meta-Dataset takes five of the background set's alphabets for validation.
    """
    parts = {"train": "images_background", "test": "images_evaluation"}
    splits = {split: _in_folders(folder / part, "*/*/*.png", depth=2) for split, part in parts.items()}
    names = [name for images in splits.values() for name in images]
    return Listing(splits, superclasses(names), read=read_inverted)


def aircraft(folder: Path) -> Listing:
    """The 100 variants of FGVC-Aircraft, each image with its box."""
    data = folder / "data"

    def table(name: str) -> list[list[str]]:
        return [line.strip().split(maxsplit=1) for line in read_text(data / name).splitlines() if line.strip()]

    rows = table("images_variant_trainval.txt") + table("images_variant_test.txt")
    images = by_class(data / "images", ((variant, f"{name}.jpg") for name, variant in rows), "images_variant_*.txt")
    boxes = {name: tuple(map(int, box.split())) for name, box in table("images_box.txt")}
    for variant, found in images.items():
        images[variant] = [ImageFile(image.path, boxes[Path(image.path).stem]) for image in found]
    return Listing({"test": images}, read=read_box)


def flowers(folder: Path) -> Listing:
    """The 102 kinds of Oxford Flowers, called as in Meta-Dataset: "001.pink primrose".

    Before torchvision 0.22, which brings their names, they are called "001" and so on.
    """
    from scipy.io import loadmat
    from torchvision.datasets import Flowers102

    names = getattr(Flowers102, "classes", [""] * 102)
    kinds = {label: f"{label:03d}.{name}".rstrip(".") for label, name in enumerate(names, start=1)}
    labels = loadmat(folder / "imagelabels.mat")["labels"].ravel().tolist()
    pairs = [(kinds[label], f"image_{number:05d}.jpg") for number, label in enumerate(labels, start=1)]
    return Listing({"test": by_class(folder / "jpg", pairs, "imagelabels.mat")})


def traffic_signs(folder: Path) -> Listing:
    """The 43 signs of GTSRB, called as in Meta-Dataset: "14.Stop"."""
    import pandas

    tested, table = "GTSRB/Final_Test/Images", folder / "GT-final_test.csv"
    files = [path.relative_to(folder) for path in (folder / "GTSRB" / "Training").glob("*/*.ppm")]
    rows = pandas.read_csv(table, sep=";", usecols=["Filename", "ClassId"], dtype={"Filename": str, "ClassId": int})
    pairs = [(int(file.parts[-2]), file.as_posix()) for file in files]
    pairs += [(label, f"{tested}/{file}") for file, label in zip(rows["Filename"], rows["ClassId"])]
    named = [(f"{label:02d}.{dict(enumerate(TRAFFIC_SIGNS))[label]}", file) for label, file in pairs]
    return Listing({"test": by_class(folder, named, table.name)})


def arrays(kind: str, file: str, folder: Path) -> Listing:
    """The test images of MNIST, CIFAR10 or CIFAR100, in `file`, as torchvision's class `kind` reads and checks them."""
    import torchvision

    base = folder.parents[LAYOUTS[kind].folder.count("/")]
    with warnings.catch_warnings(action="ignore"):  # some versions of NumPy warn of pickles as old as CIFAR's
        opened = getattr(torchvision.datasets, kind)(base, train=False)
    pixels, labels = np.ascontiguousarray(opened.data), np.asarray(opened.targets)
    rows = {name: np.flatnonzero(labels == label).tolist() for label, name in enumerate(opened.classes)}
    images = {
        name: [ImageFile(str(folder / file), (row,)) for row in of_class] for name, of_class in rows.items() if of_class
    }
    # The pixels are few enough to go to other processes.
    return Listing({"test": images}, read=partial(read_row, pixels), resampling="lanczos")


def read_inverted(image: ImageFile) -> UInt8[np.ndarray, "height width 3"]:
    """Pixels of an image file, black and white exchanged."""
    return 255 - np.asarray(to_rgb(read_file(image), fast=False, orient=False))


def read_box(image: ImageFile) -> UInt8[np.ndarray, "height width 3"]:
    """What lies in a box of an image file: left, top, right and bottom, the numbers of the image's position.

    JPEGs are decoded with the accurate DCT, as by Meta-Dataset, whatever the study's: it cuts with Pillow.
    """
    decoded = to_rgb(read_file(image), fast=False, orient=False)
    left, top, right, bottom = image.position
    if not (0 <= left < right <= decoded.width and 0 <= top < bottom <= decoded.height):
        raise DatasetError(
            f"the box {image.position} does not lie within its {decoded.width} x {decoded.height} pixels."
        )
    return np.asarray(decoded.crop(image.position))


def read_row(pixels: UInt8[np.ndarray, "n_images ..."], image: ImageFile) -> UInt8[np.ndarray, "..."]:
    """One image of an array that holds all of them."""
    return pixels[image.position[0]]


class Layout(NamedTuple):
    """Where torchvision puts a dataset, and how it is read from there."""

    folder: str  # below torchvision's root
    needs: tuple[str, ...]  # what must be in it
    listing: Callable[[Path], Listing]
    downloads: Iterable[dict] = ()  # the arguments of torchvision's class for each part that it downloads


AIRCRAFT = ("data/images", "data/images_box.txt", "data/images_variant_trainval.txt", "data/images_variant_test.txt")
SIGNS = ("GTSRB/Training", "GTSRB/Final_Test/Images", "GT-final_test.csv")
DIGITS = ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", "train-images-idx3-ubyte", "train-labels-idx1-ubyte")
BATCHES = ("test_batch", "batches.meta", *(f"data_batch_{k}" for k in range(1, 6)))
PARTS = ("images_background", "images_evaluation")
TRAIN, TEST, NOT_TRAIN = {"split": "train"}, {"split": "test"}, {"train": False}
LAYOUTS = {
    "Omniglot": Layout("omniglot-py", PARTS, omniglot, ({"background": True}, {"background": False})),
    "FGVCAircraft": Layout("fgvc-aircraft-2013b", AIRCRAFT, aircraft, ({"split": "trainval"},)),
    "DTD": Layout(
        "dtd/dtd", ("images",), lambda folder: Listing({"test": _in_folders(folder, "images/*/*.jpg")}), (TRAIN,)
    ),
    "Flowers102": Layout("flowers-102", ("jpg", "imagelabels.mat"), flowers, (TRAIN,)),
    "GTSRB": Layout("gtsrb", SIGNS, traffic_signs, (TRAIN, TEST)),
    "MNIST": Layout("MNIST/raw", DIGITS, partial(arrays, "MNIST", DIGITS[0]), (NOT_TRAIN,)),
    "CIFAR10": Layout("cifar-10-batches-py", BATCHES, partial(arrays, "CIFAR10", "test_batch"), (NOT_TRAIN,)),
    "CIFAR100": Layout(
        "cifar-100-python", ("test", "meta", "train"), partial(arrays, "CIFAR100", "test"), (NOT_TRAIN,)
    ),
    "CocoDetection": Layout(
        ".", ("train2017", ANNOTATIONS), lambda folder: Listing({"test": mscoco(folder)}, read=read_box)
    ),
}
