"""How torchvision lays out the datasets that are files of images: folders and lists -> classes.

The files are read directly: torchvision has no public list of them. All images of a dataset are taken together,
whatever it was divided into for supervised learning, for few-shot learning divides classes.

What Meta-Dataset does to images before it stores them is done here as well (google-research/meta-dataset,
meta_dataset/dataset_conversion/dataset_to_records.py at 751e991), so that a study sees what the paper's did:

    Omniglot       inverted: white ink on black
    FGVC-Aircraft  cut out by the boxes of images_box.txt as they stand, which also removes the line of text below
    MSCOCO         cut out by the boxes; see `mscoco`
    DTD, Flowers   whole

Two things differ. Meta-Dataset stores what it has changed as JPEGs of Pillow's quality 75; here nothing is lost. And
its Traffic Sign is GTSRB's official training set, of 39,209 images, where torchvision has the smaller training set of
the competition of 2011 (26,640) and the official test set (12,630). For Meta-Dataset's very images, use its records.
"""

import csv
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from tcnaps.datasets.changed_images import read_box, read_inverted
from tcnaps.datasets.class_names import FLOWERS, TRAFFIC_SIGNS
from tcnaps.datasets.image_source import DatasetError
from tcnaps.datasets.listing import ImageFile
from tcnaps.datasets.mscoco import mscoco
from tcnaps.datasets.names import natural_key
from tcnaps.datasets.reader_parts import Classes, PackedImages, check_present, check_total, read_table

ANEW = "Delete the folder, then download or unpack the dataset again."
TOTALS = {"Omniglot": 32_460, "DTD": 5_640, "GTSRB": 26_640 + 12_630}  # images; the others have lists of theirs


def omniglot(folder: Path) -> Classes:
    """Characters by alphabet. Without a split file the background set is for training, the evaluation set for testing.

    Meta-Dataset takes five of the background set's alphabets for validation.
    """
    images, alphabets, splits = {}, {}, {}
    for split, part in (("train", "images_background"), ("test", "images_evaluation")):
        files = defaultdict(list)
        for path in (folder / part).glob("*/*/*.png"):
            files[f"{path.parts[-3]}/{path.parts[-2]}"].append(path)
        splits[split] = tuple(sorted(files, key=natural_key))
        for name in splits[split]:
            images[name] = _image_files(files[name])
            alphabets[name] = name.partition("/")[0]
    _check_total("Omniglot", folder, images)
    return Classes(images, alphabets, splits, read=read_inverted)


def aircraft(folder: Path) -> Classes:
    """The 100 variants of FGVC-Aircraft, each image with its box."""
    data = folder / "data"
    variants = dict(row for part in ("trainval", "test") for row in read_table(data / f"images_variant_{part}.txt", 2))
    boxes = {row[0]: row[1:] for row in read_table(data / "images_box.txt", 5)}
    check_present(data / "images", [f"{name}.jpg" for name in variants], "images_variant_*.txt", ANEW)
    names = defaultdict(list)
    for name in sorted(variants):
        names[variants[name]].append(name)
    images = {}
    for variant, members in names.items():
        paths = tuple(str(data / "images" / f"{name}.jpg") for name in members)
        images[variant] = PackedImages(paths, _whole_numbers([boxes.get(name) for name in members], members, data))
    return Classes(images, read=read_box)


def textures(folder: Path) -> Classes:
    """The 47 textures of DTD."""
    files = defaultdict(list)
    for path in (folder / "images").glob("*/*.jpg"):
        files[path.parts[-2]].append(path)
    images = {name: _image_files(paths) for name, paths in files.items()}
    _check_total("DTD", folder, images)
    return Classes(images)


def flowers(folder: Path) -> Classes:
    """The 102 kinds of Oxford Flowers, called as in Meta-Dataset: "001.pink primrose"."""
    from scipy.io import loadmat

    try:
        labels = loadmat(folder / "imagelabels.mat")["labels"].ravel().tolist()
    except Exception as error:  # of any kind, from the depths of a damaged file
        raise DatasetError(f"{folder / 'imagelabels.mat'} can't be read ({error}). {ANEW}") from error
    images = defaultdict(list)
    for number, label in enumerate(labels, start=1):
        if label not in range(1, len(FLOWERS) + 1):
            raise DatasetError(
                f"{folder / 'imagelabels.mat'}: image {number} has the label {label}, but there are "
                f"1 to {len(FLOWERS)}. {ANEW}"
            )
        images[f"{label:03d}.{FLOWERS[label - 1]}"].append(f"image_{number:05d}.jpg")
    check_present(folder / "jpg", [file for files in images.values() for file in files], "imagelabels.mat", ANEW)
    return Classes({name: [ImageFile(str(folder / "jpg" / file)) for file in files] for name, files in images.items()})


def traffic_signs(folder: Path) -> Classes:
    """The 43 signs of GTSRB, called as in Meta-Dataset: "14.Stop"."""
    files = defaultdict(list)
    for path in (folder / "GTSRB" / "Training").glob("*/*.ppm"):
        files[path.parts[-2]].append(path)
    tested = folder / "GTSRB" / "Final_Test" / "Images"
    table = folder / "GT-final_test.csv"
    try:
        with open(table, newline="", encoding="utf-8") as stream:
            rows = [(row["Filename"], int(row["ClassId"])) for row in csv.DictReader(stream, delimiter=";")]
    except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
        raise DatasetError(f"{table} can't be read ({error!r}). {ANEW}") from error
    check_present(tested, [file for file, _ in rows], table.name, ANEW)
    for file, label in rows:
        files[f"{label:05d}"].append(tested / file)
    unknown = sorted(files.keys() - {f"{label:05d}" for label in range(len(TRAFFIC_SIGNS))})
    if unknown:
        raise DatasetError(f"{folder}: there is no class {unknown[0]}; classes are 00000 to 00042. {ANEW}")
    images = {f"{int(label):02d}.{TRAFFIC_SIGNS[int(label)]}": _image_files(files[label]) for label in sorted(files)}
    _check_total("GTSRB", folder, images)
    return Classes(images)


def _image_files(paths: Sequence[Path]) -> list[ImageFile]:
    return [ImageFile(path) for path in sorted(map(str, paths), key=natural_key)]


def _check_total(name: str, folder: Path, images: dict[str, list[ImageFile]]) -> None:
    check_total(name, folder, sum(map(len, images.values())), TOTALS[name], ANEW)


def _whole_numbers(boxes: list, names: list[str], data: Path) -> Int64[np.ndarray, "n_boxes 4"]:
    try:
        return np.array([[int(value) for value in box] for box in boxes], dtype=np.int64)
    except (TypeError, ValueError) as error:
        name = next((name for name, box in zip(names, boxes) if box is None), None)
        problem = f"has no box for image {name}" if name else f"has a box that isn't four whole numbers ({error})"
        raise DatasetError(f"{data / 'images_box.txt'} {problem}. {ANEW}") from error


@dataclass(frozen=True)
class Layout:
    """Where torchvision puts a dataset, and how it is read from there.

    Attributes:
        folder: below torchvision's root.
        needs: what must be in it.
        watched: patterns of what its stamp is made of.
        classes: reads them, given the folder.
        published: where the dataset is published, and how much there is to download.
    """

    folder: str
    needs: tuple[str, ...]
    watched: tuple[str, ...]
    classes: Callable[[Path], Classes]
    published: str


LAYOUTS = {
    "Omniglot": Layout(
        "omniglot-py",
        ("images_background", "images_evaluation"),
        ("images_*/*", "images_*/*/*"),
        omniglot,
        "images_background.zip and images_evaluation.zip of github.com/brendenlake/omniglot (about 15 MB)",
    ),
    "FGVCAircraft": Layout(
        "fgvc-aircraft-2013b",
        ("data/images", "data/images_box.txt", "data/images_variant_trainval.txt", "data/images_variant_test.txt"),
        ("data/images", "data/*.txt"),
        aircraft,
        "fgvc-aircraft-2013b.tar.gz of www.robots.ox.ac.uk/~vgg/data/fgvc-aircraft (2.8 GB)",
    ),
    "DTD": Layout(
        "dtd/dtd",
        ("images",),
        ("images/*",),
        textures,
        "dtd-r1.0.1.tar.gz of www.robots.ox.ac.uk/~vgg/data/dtd (about 600 MB)",
    ),
    "Flowers102": Layout(
        "flowers-102",
        ("jpg", "imagelabels.mat"),
        ("jpg", "imagelabels.mat"),
        flowers,
        "102flowers.tgz and imagelabels.mat of www.robots.ox.ac.uk/~vgg/data/flowers/102 (about 350 MB)",
    ),
    "GTSRB": Layout(
        "gtsrb",
        ("GTSRB/Training", "GTSRB/Final_Test/Images", "GT-final_test.csv"),
        ("GTSRB/Training/*", "GTSRB/Final_Test/Images", "GT-final_test.csv"),
        traffic_signs,
        "GTSRB-Training_fixed.zip, GTSRB_Final_Test_Images.zip and GTSRB_Final_Test_GT.zip of benchmark.ini.rub.de "
        "(about 300 MB)",
    ),
    "CocoDetection": Layout(
        ".",
        ("train2017",),
        ("train2017", "annotations/instances_train2017.json", "instances_train2017.json"),
        mscoco,
        "train2017.zip (18 GB) and annotations_trainval2017.zip (241 MB) of cocodataset.org",
    ),
}
