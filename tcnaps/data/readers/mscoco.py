"""MSCOCO's annotated objects as images: each is cut out by its box.

As in Meta-Dataset (google-research/meta-dataset, dataset_to_records.py at 751e991, MSCOCOConverter): all 860,001
objects of train2017, including tiny ones and crowds. Boxes are enlarged by 1.2 about their middle and cut at the
image's borders.
"""

from pathlib import Path

import numpy as np
from jaxtyping import Float64, Int64

from tcnaps.data.listing import ImageFile
from tcnaps.data.readers.shared import read_json

BOX_SCALE = 1.2  # MSCOCOConverter's box_scale_ratio
ANNOTATIONS = "annotations/instances_train2017.json"


def mscoco(folder: Path) -> tuple[list[str], list[ImageFile]]:
    """The category and the box of each object, in the annotations' order. There are 80 categories."""
    content = read_json(folder / ANNOTATIONS, _only_boxes)
    categories = {entry["id"]: entry["name"] for entry in content["categories"]}
    by_id = {entry["id"]: entry for entry in content["images"]}
    pictures = [by_id[image] for image, *_ in content["annotations"]]
    sizes = np.array([(picture["width"], picture["height"]) for picture in pictures], np.int64).reshape(-1, 2)
    boxes = np.array([box for _, _, *box in content["annotations"]], np.float64).reshape(-1, 4)
    boxes = enlarged(boxes, sizes)
    paths = [str(folder / "train2017" / picture["file_name"]) for picture in pictures]
    images = [ImageFile(path, tuple(box)) for path, box in zip(paths, boxes.tolist())]
    return [categories[category] for _, category, *_ in content["annotations"]], images


def enlarged(
    boxes: Float64[np.ndarray, "n_boxes 4"], sizes: Int64[np.ndarray, "n_boxes 2"], scale: float = BOX_SCALE
) -> Int64[np.ndarray, "n_boxes 4"]:
    """Boxes scaled about their middle, as whole pixels within the image, by MSCOCOConverter's arithmetic.

    Args:
        boxes: left, top, width and height, from the middle of the first pixel.
        sizes: width and height of each box's image.

    Returns:
        left, top, right and bottom, right and bottom exclusive. A box outside its image is left without pixels.
    """
    corners = boxes[:, :2] - 0.5 * boxes[:, 2:] * (scale - 1.0)
    first = np.rint(corners - 0.5).astype(np.int64)  # rint: halves to even, as Python's round
    past = np.rint(corners + boxes[:, 2:] * scale - 0.5).astype(np.int64) + 1
    return np.concatenate([np.maximum(first, 0), np.minimum(past, sizes)], axis=1)


def _only_boxes(entry: dict) -> dict | tuple:
    """Reduces an annotation to (image, category, left, top, width, height): outlines take too much memory."""
    if "bbox" not in entry:
        return entry
    return entry.get("image_id"), entry.get("category_id"), *entry["bbox"]
