"""A study's dataset of files: which reader finds them, when they are stale, and how they become pixels."""

import importlib
import os
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from tcnaps.config import project_root, settings
from tcnaps.datasets.arrays import Chunk
from tcnaps.datasets.decoding import decode, square
from tcnaps.datasets.image_source import SPLITS, DatasetError
from tcnaps.datasets.listing import FileSource, ImageFile, Listing
from tcnaps.datasets.preparing import MissingFiles, Plan, Preparation, SplitLayout
from tcnaps.datasets.readers.shared import stamp

VERSION = 2  # to be raised when the same files become other classes or pixels
READERS = {  # source -> module and function (name, dataset, project's root) -> FileSource
    "folder": ("folders", "open_folder"),
    "mini-imagenet": ("mini_tiered_imagenet", "open_mini_imagenet"),
    "tiered-imagenet": ("mini_tiered_imagenet", "open_tiered_imagenet"),
    "feti": ("mini_tiered_imagenet", "open_feti"),
    "records": ("meta_dataset", "open_records"),
    "torchvision": ("torchvision_sets", "open_torchvision"),
}
IMAGES_PER_CHUNK = 128


def preparation(
    name: str,
    dataset: settings.AnyDataset,
    image_size: int,
    decoding: settings.Decoding,
    processes: int | None = None,
    source: FileSource | None = None,
) -> Preparation:
    """How a dataset of files is made of what a reader finds, by default that of `dataset.source`.

    Raises:
        DatasetError: the reader can't use the study's settings.
    """
    if source is None:
        module, function = READERS[dataset.source]
        reader = getattr(importlib.import_module(f"tcnaps.datasets.readers.{module}"), function)
        source = reader(name, dataset, project_root())
    root = project_root() / Path(dataset.path).expanduser()
    own = dataset.model_dump(mode="json", exclude={"domain", "download", "unreadable"})
    recipe = {"version": VERSION, "decoding": decoding.model_dump(), **own, "path": os.path.normpath(dataset.path)}

    def plan() -> Plan:
        listing = source.listing()
        layouts, chunks = _cut(name, listing)
        # The dataset's own key goes first, then what its source wants, then the study's.
        resampling = dataset.resampling or listing.resampling or decoding.resampling
        options = {"size": image_size, "resampling": resampling, "jpeg_dct": decoding.jpeg_dct}
        work = partial(decode_images, read=listing.read, orient=listing.orient, **options)
        return Plan(layouts, chunks, work, processes, listing.notes)

    def facts() -> str:
        if missing := [path for path in source.needs if not os.path.exists(path)]:  # False for over-long ones, too
            paths = ", ".join(map(str, missing))
            raise MissingFiles(f"Dataset '{name}': there is no {paths}. {source.help}".rstrip())
        return stamp(source.needs, root)

    return Preparation(name, image_size, recipe, plan, facts, source.fetch, dataset.unreadable == "refuse")


def decode_images(
    images: list[ImageFile], *, read, orient: bool, size: int, resampling: str, jpeg_dct: str
) -> tuple[np.ndarray, dict[int, str]]:
    """Pixels, uint8 (n, size, size, 3), 0 for an image that can't be read; and the numbers of such, with the reasons.

    `Listing` and `tcnaps.datasets.decoding.decode` explain the options.
    """
    pixels, unreadable = np.zeros((len(images), size, size, 3), np.uint8), {}
    for number, image in enumerate(images):
        try:
            content = read(image)
            if isinstance(content, bytes):
                pixels[number] = decode(content, size, resampling, jpeg_dct, orient=orient)
            else:
                pixels[number] = square(Image.fromarray(content).convert("RGB"), size, resampling)
        except (DatasetError, OSError) as error:
            unreadable[number] = str(error)
        except Exception as error:
            error.add_note(f"while reading {image}")
            raise
    return pixels, unreadable


def _cut(dataset: str, listing: Listing) -> tuple[dict[str, SplitLayout], list[Chunk]]:
    """The layout of each split that has classes, and all images in chunks."""
    layouts, chunks = {}, []
    for split in (split for split in SPLITS if listing.splits.get(split)):
        classes = listing.splits[split]
        for k, images in enumerate(classes.values()):
            parts = [images[start : start + IMAGES_PER_CHUNK] for start in range(0, len(images), IMAGES_PER_CHUNK)]
            chunks += [Chunk(split, k, len(part), part) for part in parts]
        above = tuple(listing.superclasses[name] for name in classes) if listing.superclasses else None
        sizes = tuple(map(len, classes.values()))
        layouts[split] = SplitLayout(tuple(classes), sizes, above, listing.spans.get(split))
    if not layouts:
        raise DatasetError(
            f"Dataset '{dataset}': no images were found; there must be one split of {', '.join(SPLITS)}."
        )
    return layouts, chunks
