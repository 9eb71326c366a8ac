"""A study's dataset of files: which reader finds them, when they are stale, and how they become pixels."""

import importlib
import os
from functools import partial
from pathlib import Path

import numpy as np

from tcnaps.config import project_root, settings
from tcnaps.datasets.arrays import Chunk, n_jobs_for
from tcnaps.datasets.decoding import decode, from_pixels, read_file
from tcnaps.datasets.image_source import SPLITS, DatasetError
from tcnaps.datasets.listing import FileSource, Images, Listing
from tcnaps.datasets.preparing import MissingFiles, Plan, Preparation, SplitLayout
from tcnaps.datasets.readers.shared import some, stamp

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
IMAGES_PER_PROCESS = 4000  # a process for fewer takes longer to start than it saves


def preparation(
    name: str, dataset: settings.AnyDataset, image_size: int, decoding: settings.Decoding, processes: int | None = None
) -> Preparation:
    """How a dataset of files is made. A relative path is taken from the project's root.

    Args:
        processes: how many decode; None takes as many as there are cores, fewer for few images.

    Raises:
        DatasetError: the reader can't use the study's settings.
    """
    module, function = READERS[dataset.source]
    reader = getattr(importlib.import_module(f"tcnaps.datasets.readers.{module}"), function)
    return preparation_of(reader(name, dataset, project_root()), name, dataset, image_size, decoding, processes)


def preparation_of(
    source: FileSource,
    name: str,
    dataset: settings.AnyDataset,
    image_size: int,
    decoding: settings.Decoding,
    processes: int | None = None,
) -> Preparation:
    """How a dataset is made of what a reader finds; see `preparation`."""
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
        n_images = sum(chunk.n_images for chunk in chunks)
        return Plan(layouts, chunks, work, processes or n_jobs_for(n_images, IMAGES_PER_PROCESS), listing.notes)

    def facts() -> str:
        if missing := [path for path in source.needs if not os.path.exists(path)]:  # False for over-long ones, too
            paths = ", ".join(map(str, missing))
            raise MissingFiles(f"Dataset '{name}': there is no {paths}. {source.help}".rstrip())
        return stamp(source.needs, root)

    refuse = dataset.unreadable == "refuse"
    return Preparation(name, image_size, recipe, plan, facts, source.fetch, refuse)


def decode_images(images: Images, *, read, orient: bool, **options) -> tuple[np.ndarray, dict[int, str]]:
    """Decodes some images.

    Args:
        read, orient: see `Listing`.
        options: size, resampling and jpeg_dct; see `tcnaps.datasets.decoding.decode`.

    Returns:
        Their pixels, uint8 (n, size, size, 3), 0 for an image that can't be read; and its number and the reason.
    """
    size = options["size"]
    pixels, unreadable = np.zeros((len(images), size, size, 3), np.uint8), {}
    for number, image in enumerate(images):
        try:
            content = read(image)
            if isinstance(content, str):
                content = read_file(content)
            if isinstance(content, bytes):
                pixels[number] = decode(content, orient=orient, **options)
            else:
                pixels[number] = from_pixels(np.asarray(content), size, options["resampling"])
        except (DatasetError, OSError) as error:
            unreadable[number] = str(error)
        except Exception as error:
            error.add_note(f"while reading {image}")
            raise
    return pixels, unreadable


def _cut(dataset: str, listing: Listing) -> tuple[dict[str, SplitLayout], list[Chunk]]:
    """The layout of each split, and all images in chunks.

    Raises:
        DatasetError: there are no classes, two of one name, or one without images.
    """
    layouts, chunks = {}, []
    for split in (split for split in SPLITS if split in listing.splits):
        part, row = listing.splits[split], 0
        where, names = f"Dataset '{dataset}', split '{split}'", part.class_names
        if not names:
            raise DatasetError(f"{where}: there are no classes; leave the split out or add some.")
        if len(set(names)) < len(names):
            repeated = dict.fromkeys(name for name in names if names.count(name) > 1)
            raise DatasetError(f"{where}: class names must differ, but some are there twice: {some(repeated)}.")
        if empty := [name for name, images in zip(names, part.images) if not len(images)]:
            raise DatasetError(f"{where}: classes without images: {some(empty)}; add images or remove the classes.")
        for k, images in enumerate(part.images):
            for start in range(0, len(images), IMAGES_PER_CHUNK):
                task = images[start : start + IMAGES_PER_CHUNK]
                chunks.append(Chunk(split, k, row + start, len(task), task))
            row += len(images)
        layouts[split] = SplitLayout(tuple(names), tuple(map(len, part.images)), part.superclasses, part.spans)
    if not layouts:
        raise DatasetError(
            f"Dataset '{dataset}': no images were found; there must be one split of {', '.join(SPLITS)}."
        )
    return layouts, chunks
