"""A study's dataset of files: when it is stale, and how what a reader finds becomes pixels."""

import importlib
import os
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from tcnaps.config import settings
from tcnaps.config.storage import digest_of
from tcnaps.datasets.decoding import square, to_rgb
from tcnaps.datasets.image_source import DatasetError
from tcnaps.datasets.listing import FileSource, ImageFile, Listing
from tcnaps.datasets.preparing import MissingFiles, Preparation
from tcnaps.datasets.readers.shared import located, walk

READERS = {  # source -> module and function (name, dataset) -> FileSource
    "folder": ("folders", "open_folder"),
    "mini-imagenet": ("mini_tiered_imagenet", "open_mini_imagenet"),
    "tiered-imagenet": ("mini_tiered_imagenet", "open_tiered_imagenet"),
    "feti": ("mini_tiered_imagenet", "open_feti"),
    "records": ("meta_dataset", "open_records"),
    "torchvision": ("torchvision_sets", "open_torchvision"),
}
VERSION = 2  # to be raised when the same files become other classes or pixels


def open_files(name: str, dataset: settings.AnyDataset) -> FileSource:
    """Points at the files of a study's dataset.

    Raises:
        DatasetError: the reader can't use the section's keys.
    """
    module, function = READERS[dataset.source]
    return getattr(importlib.import_module(f"tcnaps.datasets.readers.{module}"), function)(name, dataset)


def preparation(
    name: str, dataset: settings.AnyDataset, source: FileSource, image_size: int, decoding: settings.Decoding
) -> Preparation:
    """How a dataset of files is made of what its reader finds."""
    own = dataset.model_dump(mode="json", exclude={"domain", "download", "unreadable"})
    recipe = {"version": VERSION, "decoding": decoding.model_dump(), **own, "path": os.path.normpath(dataset.path)}

    def listing() -> Listing:
        found = source.listing()
        # The dataset's own key goes first, then what its source wants, then the study's.
        resampling = dataset.resampling or found.resampling or decoding.resampling
        options = {"size": image_size, "resampling": resampling, "fast": decoding.jpeg_dct == "fast"}
        return replace(found, work=partial(decode_images, read=found.read, orient=found.orient, **options))

    def facts() -> str:
        if missing := [path for path in source.needs if not os.path.exists(path)]:  # False for over-long ones, too
            paths = ", ".join(map(str, missing))
            raise MissingFiles(f"Dataset '{name}': there is no {paths}. {source.help}".rstrip())
        return stamp(source.needs, located(dataset.path))

    return Preparation(name, image_size, recipe, listing, facts, source.fetch, dataset.unreadable == "refuse")


def stamp(paths: Iterable[Path], base: Path) -> str:
    """A digest that changes when files or folders below are added, taken away or renamed.

    Of files the sizes and times of change count, of folders the times of all folders below. Names are taken relative to
    `base`, so that a dataset may be moved.
    """
    places = (place for path in paths for place in ((p for p, _, _ in walk(path)) if path.is_dir() else [path]))
    found = ((place, os.stat(place)) for place in places)
    return digest_of([[os.path.relpath(p, base), not os.path.isdir(p) and s.st_size, s.st_mtime_ns] for p, s in found])


def decode_images(
    images: list[ImageFile], *, read, orient: bool, size: int, resampling: str, fast: bool
) -> tuple[np.ndarray, dict[int, str]]:
    """What `Listing.work` does for files; `Listing` and `tcnaps.datasets.decoding` explain the options.

    Returns:
        pixels, uint8 (n, size, size, 3), 0 for an image that can't be read; and number -> reason of such.
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
