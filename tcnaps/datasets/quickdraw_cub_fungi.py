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
from collections import defaultdict
from functools import lru_cache, partial
from math import isqrt
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from tcnaps.config import settings
from tcnaps.datasets.decoding import ImageError
from tcnaps.datasets.image_source import DatasetError
from tcnaps.datasets.listing import FileSource, ImageFile
from tcnaps.datasets.names import natural_key
from tcnaps.datasets.reader_parts import (
    Classes,
    PackedImages,
    check_present,
    read_json,
    read_table,
    split_source,
    thinned,
)

PREFIX = "full_numpy_bitmap_"  # browsers put it before the names of QuickDraw's files
ANEW = "Download or unpack the dataset again."
QUICKDRAW_HELP = (
    "The .npy files, one a class, are published at "
    "console.cloud.google.com/storage/browser/quickdraw_dataset/full/numpy_bitmap (345 files, 37 GiB; see "
    "github.com/googlecreativelab/quickdraw-dataset). 'path' is the folder that holds them. A part of them will do."
)
CUB_HELP = (
    "CUB_200_2011.tgz (1.1 GB) is published at data.caltech.edu/records/65de6-vp158. 'path' is the folder "
    "CUB_200_2011, with images/, images.txt, classes.txt and image_class_labels.txt in it."
)
FUNGI_HELP = (
    "fungi_train_val.tgz (13 GB) and train_val_annotations.tgz (3 MB) are described at "
    "github.com/visipedia/fgvcx_fungi_comp. 'path' is the folder with images/, train.json and val.json in it, or with "
    "images/ alone, if that holds a folder a class."
)


def open_quickdraw(name: str, dataset: settings.QuickDraw, root: Path) -> FileSource:
    """Points at QuickDraw's .npy files; see `FileSource`."""
    folder = root / Path(dataset.path).expanduser()
    found = partial(quickdraw, folder, dataset.images_per_class)
    return split_source(found, folder, ["*.npy"], dataset.splits, root, (folder,), QUICKDRAW_HELP)


def open_cub(name: str, dataset: settings.CUB, root: Path) -> FileSource:
    """Points at CUB-200-2011; see `FileSource`."""
    folder = root / Path(dataset.path).expanduser()
    needs = tuple(folder / part for part in ("images", "images.txt", "classes.txt", "image_class_labels.txt"))
    return split_source(partial(cub, folder), folder, ["*.txt", "images/*"], dataset.splits, root, needs, CUB_HELP)


def open_fungi(name: str, dataset: settings.Fungi, root: Path) -> FileSource:
    """Points at FGVCx Fungi 2018; see `FileSource`."""
    folder = root / Path(dataset.path).expanduser()
    watched, needs = ["*.json", "images", "images/*"], (folder / "images",)
    return split_source(partial(fungi, folder), folder, watched, dataset.splits, root, needs, FUNGI_HELP)


def quickdraw(folder: Path, images_per_class: int | None = None) -> Classes:
    """Drawings by class, from the names of the files.

    Args:
        folder: with the .npy files.
        images_per_class: at most so many of each class are listed, spread evenly over its file.

    Raises:
        DatasetError: there are no files, two are of one class, or one isn't whole or doesn't hold square bitmaps.
    """
    files = sorted(folder.glob("*.npy"), key=lambda file: natural_key(file.name))
    if not files:
        raise DatasetError(f"{folder} holds no .npy files. {QUICKDRAW_HELP}")
    images, places = {}, {}
    for file in files:
        name = file.stem.removeprefix(PREFIX)
        if name in places:
            raise DatasetError(f"{places[name]} and {file} are both of the class '{name}'; delete one.")
        places[name] = file
        _, n_images, _, _ = bitmaps(str(file), file.stat().st_mtime_ns)
        images[name] = PackedImages((str(file),), thinned(n_images, images_per_class)[:, None])
    return Classes(images, read=read_bitmap)


def read_bitmap(image: ImageFile) -> UInt8[np.ndarray, "side side"]:
    """One drawing of a .npy file, white on black. Nothing but the drawing is read.

    Raises:
        ImageError: the file has become another one.
        OSError: it can't be read.
    """
    with open(image.path, "rb", buffering=0) as stream:
        start, n_images, side, factor = bitmaps(image.path, os.fstat(stream.fileno()).st_mtime_ns)
        (row,), size = image.position, side * side
        content = os.pread(stream.fileno(), size, start + row * size)
    if row >= n_images or len(content) < size:
        raise ImageError(f"{image.path}: there is no drawing {row}: the file has changed since it was looked through.")
    return np.frombuffer(content, dtype=np.uint8).reshape(side, side) * np.uint8(factor)


@lru_cache(maxsize=16)
def bitmaps(path: str, changed: int) -> tuple[int, int, int, int]:
    """What the head of a .npy file of bitmaps says.

    Args:
        path: the file.
        changed: when the file was, so that what is remembered of it isn't of another version.

    Returns:
        where its data starts, in bytes; the number of images; their side; what their values have to be multiplied by.

    Raises:
        DatasetError: it is no .npy file, isn't whole, or holds something else.
    """
    try:
        array = np.lib.format.open_memmap(path, mode="r")
    except (ValueError, OSError) as error:
        raise DatasetError(f"{path} is no .npy file, or was cut short ({error}). {ANEW}") from error
    shape = array.shape
    side = isqrt(shape[1]) if len(shape) == 2 else shape[1] if len(shape) == 3 else 0
    if not side or shape[1:] not in ((side * side,), (side, side)):
        raise DatasetError(f"{path} holds an array of the shape {shape}, not (n, 784), a row a drawing. {ANEW}")
    if array.dtype not in (np.uint8, np.bool_) or not array.flags.c_contiguous:
        raise DatasetError(
            f"{path} holds {array.dtype} in the order {'C' if array.flags.c_contiguous else 'F'}, not "
            f"uint8 in the order C. {ANEW}"
        )
    return array.offset, len(array), side, 255 if array.dtype == np.bool_ else 1


def cub(folder: Path) -> Classes:
    """The 200 species of CUB-200-2011, called as their folders: "001.Black_footed_Albatross".

    Raises:
        DatasetError: the lists contradict each other, or images are missing.
    """
    species = dict(read_table(folder / "classes.txt", 2))
    labels = dict(read_table(folder / "image_class_labels.txt", 2))
    files = defaultdict(list)
    for number, file in read_table(folder / "images.txt", 2):
        name = species.get(labels.get(number))
        if name is None or name != file.rpartition("/")[0]:
            raise DatasetError(
                f"{folder / 'images.txt'}: {file}, image {number}, is of {name or 'no class'} by "
                f"image_class_labels.txt and classes.txt. {ANEW}"
            )
        files[name].append(file)
    return Classes(_listed_images(folder, "images", files, "images.txt"))


def fungi(folder: Path) -> Classes:
    """The 1,394 species of FGVCx Fungi 2018, called as in Meta-Dataset: "0226.Cortinarius malicorius".

    Their numbers are part of the names: two pairs of species share a name (github.com/visipedia/fgvcx_fungi_comp,
    issue 1). Without train.json and val.json the folders in images/ are the classes, by whatever names they have.

    Raises:
        DatasetError: the lists contradict each other, one of the two is missing, images are missing, or there are
            neither lists nor folders.
    """
    lists = [file for file in (folder / "train.json", folder / "val.json") if file.is_file()]
    if len(lists) == 1:
        missing = "val.json" if lists[0].name == "train.json" else "train.json"
        raise DatasetError(
            f"{folder} has {lists[0].name}, but no {missing}: Meta-Dataset's images are those of both. {FUNGI_HELP}"
        )
    if not lists:
        return Classes(_in_folders(folder))
    return Classes(_listed_images(folder, "", _annotated(lists), "train.json or val.json"))


def _annotated(lists: list[Path]) -> dict[str, list[str]]:
    """Files by species, from annotations of MSCOCO's kind; the species are the same in all lists."""
    species, files, of_image = None, defaultdict(list), {}
    for file in lists:
        content = read_json(file)
        try:
            names = {entry["id"]: f"{entry['id']:04d}.{entry['name']}" for entry in content["categories"]}
            if names != (species or names):
                raise DatasetError(f"{lists[0]} and {file} name the species differently. {ANEW}")
            species = names
            paths = {entry["id"]: entry["file_name"] for entry in content["images"]}
            for entry in content["annotations"]:
                image = paths[entry["image_id"]]
                if of_image.setdefault(image, entry["category_id"]) != entry["category_id"]:
                    raise DatasetError(f"{file}: {image} is of two species. {ANEW}")
                files[names[entry["category_id"]]].append(image)
        except DatasetError:
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise DatasetError(f"{file} is no list of annotated images ({error!r}). {ANEW}") from error
    return files


def _in_folders(folder: Path) -> dict[str, list[ImageFile]]:
    """The JPEGs of each folder in images/."""
    files = defaultdict(list)
    for path in (folder / "images").glob("*/*"):
        if path.suffix.lower() in (".jpg", ".jpeg"):
            files[path.parts[-2]].append(str(path))
    if not files:
        raise DatasetError(f"{folder} has no train.json and val.json, nor folders of JPEGs in images/. {FUNGI_HELP}")
    return {name: [ImageFile(path) for path in sorted(paths, key=natural_key)] for name, paths in files.items()}


def _listed_images(folder: Path, below: str, files: dict[str, list[str]], listed_in: str) -> dict[str, list[ImageFile]]:
    """Images by class, in the order of their names, after checking that they are there."""
    check_present(folder / below, [file for members in files.values() for file in members], listed_in, ANEW)
    return {
        name: [ImageFile(str(folder / below / file)) for file in sorted(members, key=natural_key)]
        for name, members in files.items()
    }
