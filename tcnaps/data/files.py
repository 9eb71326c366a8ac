"""A study's dataset of files: which reader finds them, and how they become pixels."""

import importlib
import os
from dataclasses import replace
from functools import partial

import numpy as np

from tcnaps.config import settings
from tcnaps.data.decoding import square, to_rgb
from tcnaps.data.image_source import DatasetError
from tcnaps.data.listing import ImageFile, Listing, Source
from tcnaps.data.preparing import Preparation

READERS = {  # source -> module and function (name, dataset) -> Source
    "folder": ("folders", "open_folder"),
    "mini-imagenet": ("mini_tiered_imagenet", "open_mini_imagenet"),
    "tiered-imagenet": ("mini_tiered_imagenet", "open_tiered_imagenet"),
    "feti": ("mini_tiered_imagenet", "open_feti"),
    "records": ("meta_dataset", "open_records"),
    "torchvision": ("torchvision_sets", "open_torchvision"),
}
VERSION = 2  # raise it when the same files become other classes or pixels


def open_files(name: str, dataset: settings.AnyDataset) -> Source:
    """Calls the reader of a study's dataset of files.

    Raises:
        DatasetError: the reader can't use the section's keys.
    """
    module, function = READERS[dataset.source]
    return getattr(importlib.import_module(f"tcnaps.data.readers.{module}"), function)(name, dataset)


def preparation(
    name: str, dataset: settings.AnyDataset, source: Source, image_size: int, decoding: settings.Decoding
) -> Preparation:
    """How a dataset is made from the files that its reader finds."""
    keys = dataset.model_dump(mode="json", exclude={"domain", "download", "unreadable"})
    recipe = {"version": VERSION, "decoding": decoding.model_dump(), **keys, "path": os.path.normpath(dataset.path)}

    def listing() -> Listing:
        images = source.listing()
        work = partial(
            decode_images,
            read=images.read,
            orient=images.orient,
            size=image_size,
            resampling=dataset.resampling or images.resampling or decoding.resampling,
            fast=decoding.jpeg_dct == "fast",
        )
        return replace(images, work=work)

    return Preparation(name, image_size, recipe, source._replace(listing=listing), dataset.unreadable == "refuse")


def decode_images(
    images: list[ImageFile], *, read, orient: bool, size: int, resampling: str, fast: bool
) -> tuple[np.ndarray, dict[int, str]]:
    """`Listing.work` for files; `Listing` and `tcnaps.data.decoding` explain the options.

    Returns:
        pixels, uint8 (n, size, size, 3), 0 where an image can't be read; and number -> reason of those images.
    """
    pixels, unreadable = np.zeros((len(images), size, size, 3), np.uint8), {}
    for number, image in enumerate(images):
        try:
            content = read(image)
            decoded = to_rgb(content, fast, orient) if isinstance(content, bytes) else content
            pixels[number] = square(decoded, size, resampling)
        except (DatasetError, OSError) as error:
            unreadable[number] = str(error)
    return pixels, unreadable
