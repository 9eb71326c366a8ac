"""QuickDraw, CUB-200-2011 and FGVCx Fungi 2018, as they are distributed.

All images of a dataset are taken together, whatever it was divided into. Without a split file all classes are for
testing; Meta-Dataset's are in its repository, meta_dataset/dataset_conversion/splits, and names of classes are as
there. So are the images (google-research/meta-dataset, dataset_to_records.py at 751e991, QuickdrawConverter and so on):

    QuickDraw   white on black, as distributed; not inverted
    CUB         whole, not cut out by bounding_boxes.txt
    Fungi       whole, those of train.json and val.json; the test images have no labels

One thing differs: Meta-Dataset stores QuickDraw's bitmaps as JPEGs of Pillow's quality 75; here nothing is lost.
"""

import os
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from tcnaps.config import settings
from tcnaps.datasets.decoding import ImageError
from tcnaps.datasets.image_source import DatasetError
from tcnaps.datasets.listing import FileSource, ImageFile
from tcnaps.datasets.readers.csv_lists import split_source
from tcnaps.datasets.readers.shared import AGAIN, Classes, Images, by_class, natural_key, read_json, read_table, thinned

SIDE = 28  # pixels
PREFIX = "full_numpy_bitmap_"  # browsers put it before the names of QuickDraw's files
QUICKDRAW_HELP = (
    "The .npy files, one per class, are published at "
    "console.cloud.google.com/storage/browser/quickdraw_dataset/full/numpy_bitmap (345 files, 37 GiB; see "
    "github.com/googlecreativelab/quickdraw-dataset). 'path' is the folder that holds them. A part of them will do."
)
CUB_HELP = (
    "CUB_200_2011.tgz (1.1 GB) is published at data.caltech.edu/records/65de6-vp158. 'path' is the folder "
    "CUB_200_2011, with images/, images.txt, classes.txt and image_class_labels.txt in it."
)
FUNGI_HELP = (
    "fungi_train_val.tgz (13 GB) and train_val_annotations.tgz (3 MB) are described at "
    "github.com/visipedia/fgvcx_fungi_comp. 'path' is the folder with images/, train.json and val.json in it."
)


def open_quickdraw(name: str, dataset: settings.QuickDraw, root: Path) -> FileSource:
    """Points at QuickDraw's .npy files; see `FileSource`."""
    folder = root / Path(dataset.path).expanduser()
    found = partial(quickdraw, folder, dataset.images_per_class)
    return split_source(found, folder, dataset.splits, root, (folder,), QUICKDRAW_HELP, watched="*.npy")


def open_cub(name: str, dataset: settings.CUB, root: Path) -> FileSource:
    """Points at CUB-200-2011; see `FileSource`."""
    folder = root / Path(dataset.path).expanduser()
    needs = tuple(folder / part for part in ("images", "images.txt", "classes.txt", "image_class_labels.txt"))
    return split_source(partial(cub, folder), folder, dataset.splits, root, needs, CUB_HELP)


def open_fungi(name: str, dataset: settings.Fungi, root: Path) -> FileSource:
    """Points at FGVCx Fungi 2018; see `FileSource`."""
    folder = root / Path(dataset.path).expanduser()
    needs = tuple(folder / part for part in ("images", "train.json", "val.json"))
    return split_source(partial(fungi, folder), folder, dataset.splits, root, needs, FUNGI_HELP)


def quickdraw(folder: Path, images_per_class: int | None = None) -> Classes:
    """Drawings by class, from the names of the files.

    Args:
        folder: with the .npy files.
        images_per_class: at most so many of each class are listed, spread evenly over its file.

    Raises:
        DatasetError: there are no files, two are of one class, or one isn't whole or doesn't hold bitmaps.
    """
    files = sorted(folder.glob("*.npy"), key=lambda file: natural_key(file.name))
    if not files:
        raise DatasetError(f"{folder} holds no .npy files. {QUICKDRAW_HELP}")
    images = {}
    for file in files:
        name = file.stem.removeprefix(PREFIX)
        if name in images:
            raise DatasetError(f"{folder} has two files of the class '{name}', with and without {PREFIX}; delete one.")
        n_images = len(bitmaps(str(file), file.stat().st_mtime_ns))
        images[name] = Images(str(folder), (file.name,), thinned(n_images, images_per_class)[:, None])
    return Classes(images, read=read_bitmap)


def read_bitmap(image: ImageFile) -> UInt8[np.ndarray, "28 28"]:
    """One drawing of a .npy file, white on black. Nothing but the drawing is read.

    Raises:
        ImageError: the file has become another one.
        OSError: it can't be read.
    """
    drawings, (row,) = bitmaps(image.path, os.stat(image.path).st_mtime_ns), image.position
    if row >= len(drawings):
        raise ImageError(f"{image.path}: there is no drawing {row}: the file has changed since it was looked through.")
    return np.array(drawings[row]).reshape(SIDE, SIDE)


@lru_cache(maxsize=16)
def bitmaps(path: str, changed: int) -> UInt8[np.ndarray, "n_images 784"]:
    """A .npy file of bitmaps, memory-mapped.

    Args:
        path: the file.
        changed: when the file was, so that what is remembered of it isn't of another version.

    Raises:
        DatasetError: it is not a .npy file, isn't whole, or holds something else.
    """
    try:
        array = np.lib.format.open_memmap(path, mode="r")
    except (ValueError, OSError) as error:
        raise DatasetError(f"{path} is not a .npy file, or was cut short ({error}). {AGAIN}") from error
    if array.shape[1:] != (SIDE * SIDE,) or array.dtype != np.uint8 or not array.flags.c_contiguous:
        raise DatasetError(
            f"{path} holds {array.dtype} of the shape {array.shape}, not one row of 784 uint8 per drawing. {AGAIN}"
        )
    return array


def cub(folder: Path) -> Classes:
    """The 200 species of CUB-200-2011, called as their folders: "001.Black_footed_Albatross".

    Raises:
        DatasetError: the lists contradict each other, or images are missing.
    """
    species = dict(read_table(folder / "classes.txt", 2))
    labels = dict(read_table(folder / "image_class_labels.txt", 2))
    pairs = []
    for number, file in read_table(folder / "images.txt", 2):
        name = species.get(labels.get(number))
        if name is None or name != file.rpartition("/")[0]:
            raise DatasetError(
                f"{folder / 'images.txt'}: {file}, image {number}, is of {name or 'no class'} by "
                f"image_class_labels.txt and classes.txt. {AGAIN}"
            )
        pairs.append((name, file))
    return Classes(by_class(folder / "images", pairs, "images.txt"))


def fungi(folder: Path) -> Classes:
    """The 1,394 species of FGVCx Fungi 2018, called as in Meta-Dataset: "0226.Cortinarius malicorius".

    Their numbers are part of the names: two pairs of species share a name (github.com/visipedia/fgvcx_fungi_comp,
    issue 1).

    Raises:
        DatasetError: the lists contradict each other, or images are missing.
    """
    species, of_image, pairs = None, {}, []
    for file in (folder / "train.json", folder / "val.json"):
        content = read_json(file)
        try:
            names = {entry["id"]: f"{entry['id']:04d}.{entry['name']}" for entry in content["categories"]}
            paths = {entry["id"]: entry["file_name"] for entry in content["images"]}
            labelled = [(paths[entry["image_id"]], names[entry["category_id"]]) for entry in content["annotations"]]
        except (KeyError, TypeError, ValueError) as error:
            raise DatasetError(f"{file} is not a list of annotated images ({error!r}). {AGAIN}") from error
        if names != (species or names):
            raise DatasetError(f"train.json and {file} name the species differently. {AGAIN}")
        species = names
        for image, name in labelled:
            if of_image.setdefault(image, name) != name:
                raise DatasetError(f"{file}: {image} is of two species. {AGAIN}")
            pairs.append((name, image))
    return Classes(by_class(folder, pairs, "train.json or val.json"))
