"""MSCOCO's annotated objects as images: each is cut out by its box.

As in Meta-Dataset (google-research/meta-dataset, dataset_to_records.py at 751e991, MSCOCOConverter): all objects of
train2017, however small and crowds included, 860,001 of them; boxes enlarged to 1.2 about their middle, as far as the
image goes.
"""

from collections import defaultdict
from pathlib import Path

import numpy as np
from jaxtyping import Float64, Int64

from tcnaps.datasets.changed_images import read_box
from tcnaps.datasets.image_source import DatasetError
from tcnaps.datasets.reader_parts import Classes, PackedImages, check_present, read_json

BOX_SCALE = 1.2  # MSCOCOConverter's box_scale_ratio
ANNOTATIONS = ("annotations/instances_train2017.json", "instances_train2017.json")
ANEW = "Unpack train2017.zip and annotations_trainval2017.zip of cocodataset.org again."


def mscoco(folder: Path) -> Classes:
    """The 80 categories of MSCOCO's objects, in the annotations' order, each with its box and the annotation's number.

    Without the number, two objects that fill their image (a pizza and its table) would be one image in two classes.

    Args:
        folder: with train2017/ and the annotations.

    Raises:
        DatasetError: the annotations are missing or something else, or images are missing.
    """
    file = next((place for place in map(folder.joinpath, ANNOTATIONS) if place.is_file()), None)
    if file is None:
        raise DatasetError(f"{folder} has neither {' nor '.join(ANNOTATIONS)}. {ANEW}")
    content = read_json(file, _only_boxes)
    try:
        categories = {entry["id"]: entry["name"] for entry in content["categories"]}
        files = {entry["id"]: entry["file_name"] for entry in content["images"]}
        sizes = {entry["id"]: (entry["width"], entry["height"]) for entry in content["images"]}
        numbers = defaultdict(list)
        for number, (_, category, *_) in enumerate(content["annotations"]):
            numbers[categories[category]].append(number)
        of_images = [entry[0] for entry in content["annotations"]]
        boxes = np.array([entry[2:] for entry in content["annotations"]], dtype=np.float64).reshape(len(of_images), 4)
        around = np.array([sizes[image] for image in of_images], dtype=np.int64).reshape(len(of_images), 2)
        used = {image: files[image] for image in set(of_images)}
    except (KeyError, TypeError, ValueError) as error:
        raise DatasetError(f"{file} is not MSCOCO's list of objects ({error!r}). {ANEW}") from error
    check_present(folder / "train2017", used.values(), file.name, ANEW)
    paths = {image: str(folder / "train2017" / name) for image, name in used.items()}
    positions = np.column_stack([enlarged(boxes, around), np.arange(len(boxes))])
    images = {}
    for category, members in numbers.items():
        images[category] = PackedImages(tuple(paths[of_images[k]] for k in members), positions[members])
    return Classes(images, read=read_box)


def enlarged(
    boxes: Float64[np.ndarray, "n_boxes 4"], sizes: Int64[np.ndarray, "n_boxes 2"], scale: float = BOX_SCALE
) -> Int64[np.ndarray, "n_boxes 4"]:
    """MSCOCO's boxes, scaled about their middle, as whole pixels within the image: MSCOCOConverter's arithmetic.

    Args:
        boxes: left, top, width and height, from the middle of the first pixel.
        sizes: width and height of each box's image.
        scale: of width and height.

    Returns:
        left, top, right and bottom, right and bottom exclusive. A box outside its image is left without pixels.
    """
    corners = boxes[:, :2] - 0.5 * boxes[:, 2:] * (scale - 1.0)
    first = np.rint(corners - 0.5).astype(np.int64)  # rint: halves to even, as Python's round
    past = np.rint(corners + boxes[:, 2:] * scale - 0.5).astype(np.int64) + 1
    return np.concatenate([np.maximum(first, 0), np.minimum(past, sizes)], axis=1)


def _only_boxes(entry: dict) -> dict | tuple:
    """An annotation as (image, category, left, top, width, height): outlines would fill gigabytes of memory."""
    if "bbox" not in entry:
        return entry
    return entry.get("image_id"), entry.get("category_id"), *entry["bbox"]
