"""Files → arrays of images by class. `open_split` prepares a dataset on first use and opens it afterwards."""

import os
from collections.abc import Collection
from functools import partial
from importlib.metadata import entry_points

from tcnaps.config import Study
from tcnaps.config.settings import AnyDataset, Decoding, Miniature
from tcnaps.data.decoding import decode_images
from tcnaps.data.image_source import SPLITS, DatasetError, ImageSource
from tcnaps.data.listing import located
from tcnaps.data.preparing import Preparation, ensure_prepared
from tcnaps.data.readers.folders import open_folder
from tcnaps.data.readers.meta_dataset import open_records

__all__ = ["SPLITS", "DatasetError", "ImageSource", "open_split", "open_splits", "preparation"]

READERS = {"folder": open_folder, "records": open_records}
VERSION = 2  # raise it when the same files become other classes or pixels


def preparation(name: str, dataset: AnyDataset, image_size: int, decoding: Decoding = Decoding()) -> Preparation:
    """How a study's dataset is made."""
    if isinstance(dataset, Miniature):
        for point in entry_points(group="tcnaps.data", name="miniature"):
            return point.load().preparation(name, image_size)
        raise DatasetError("The built-in datasets are in the package tcnaps_suite, which is not installed here.")
    source = READERS[dataset.source](name, dataset)
    keys = dataset.model_dump(mode="json", exclude={"domain", "images"})
    recipe = {"version": VERSION, "decoding": decoding.model_dump(), **keys, "path": os.path.normpath(dataset.path)}
    options = {"resampling": dataset.resampling or decoding.resampling, "fast": decoding.jpeg_dct == "fast"}
    work = partial(decode_images, read=source.read, orient=source.orient, size=image_size, **options)
    return Preparation(name, image_size, recipe, source.listing, work, needs=source.needs, help=source.help)


def open_splits(study: Study, name: str, checked: Collection[str] = SPLITS) -> dict[str, ImageSource]:
    """Opens the splits of a study's dataset; see `ensure_prepared`. Those in `checked` have their SHA-256 compared."""
    made = preparation(name, study.datasets[name], study.image_size, study.decoding)
    return ensure_prepared(made, located(study.data_folder), checked).splits


def open_split(study: Study, name: str, split: str) -> ImageSource:
    """Opens one split ("train", "valid" or "test") of one of a study's datasets; see `open_splits`."""
    if split not in (splits := open_splits(study, name, [split])):
        raise DatasetError(f"Dataset '{name}' has no split '{split}'; it has: {', '.join(splits)}.")
    return splits[split]
