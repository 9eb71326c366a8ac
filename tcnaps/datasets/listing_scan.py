"""A listing is checked, described and cut into chunks before any image is opened."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path

import numpy as np

from tcnaps.config.storage import digest_of
from tcnaps.datasets.arrays import Chunk
from tcnaps.datasets.image_source import SPLITS, DatasetError
from tcnaps.datasets.listing import ImageFile, Listing
from tcnaps.datasets.preparing import SplitLayout, count

IMAGES_PER_CHUNK = 128
NAMED = 5  # classes that a message names


@dataclass(frozen=True)
class Scan:
    """A listing without contradictions.

    Attributes:
        layouts: what each split holds if every image can be read.
        digests: one per chunk: where its images are, how they are read, the sizes and times of their files.
        digest: of all of these and of all names.
    """

    listing: Listing
    layouts: dict[str, SplitLayout]
    digests: tuple[int, ...]
    digest: str

    @property
    def n_images(self) -> int:
        return sum(sum(layout.class_sizes) for layout in self.layouts.values())

    def chunks(self) -> Iterator[Chunk]:
        """All images, some at a time, in the order of the arrays."""
        for number, (split, start, images) in enumerate(_cut(self.listing)):
            yield Chunk(number, split, start, len(images), self.digests[number], images)

    def image(self, split: str, row: int) -> tuple[ImageFile, str]:
        """The image of a row of a split's array, and its class."""
        starts = np.cumsum([0, *self.layouts[split].class_sizes])
        k = int(np.searchsorted(starts, row, side="right")) - 1
        part = self.listing.splits[split]
        return part.images[k][row - int(starts[k])], part.class_names[k]


def scan(dataset: str, listing: Listing, root: Path) -> Scan:
    """Checks a listing and notes the sizes and times of its files.

    Args:
        root: paths within this folder are noted relative to it, so that it may be moved.

    Raises:
        DatasetError: there are no splits or classes, a class has no images or the name of another one, or an image is
            listed twice.
    """
    unknown = sorted(listing.splits.keys() - set(SPLITS))
    if unknown or not listing.splits:
        found = f"it has a split '{unknown[0]}'" if unknown else "no images were found"
        raise DatasetError(f"Dataset '{dataset}': {found}; there may be {', '.join(SPLITS)}, and there must be one.")
    listing = replace(listing, splits={split: listing.splits[split] for split in SPLITS if split in listing.splits})
    layouts = {}
    for split, part in listing.splits.items():
        spans = None if part.spans is None else tuple(tuple(map(int, span)) for span in part.spans)
        sizes = tuple(map(len, part.images))
        layouts[split] = SplitLayout(tuple(part.class_names), sizes, part.superclasses, spans)
        _check_split(f"Dataset '{dataset}', split '{split}'", layouts[split])
    _check_repetition(dataset, listing)
    read = listing.read.func if isinstance(listing.read, partial) else listing.read
    how = [f"{read.__module__}.{read.__qualname__}", listing.resampling, listing.orient, listing.box]
    digests = tuple(_digest(how, images, f"{root}{os.sep}") for _, _, images in _cut(listing))
    return Scan(listing, layouts, digests, digest_of([repr(layouts), digests]))


def remarks(layouts: Mapping[str, SplitLayout]) -> list[str]:
    """What may be right, but whoever uses the dataset should know."""
    found, names = [], Counter()
    for split, layout in layouts.items():
        if single := [name for name, size in zip(layout.class_names, layout.class_sizes) if size == 1]:
            classes = count(len(single), "class has", "classes have")
            found.append(f"{split}: {classes} a single image ({_some(single)}): too few for support and query set")
        groups = layout.superclasses or [""] * len(layout.class_names)  # every alphabet may have a 'character01'
        names.update(f"{group}/{name}".lstrip("/") for group, name in zip(groups, layout.class_names))
    if shared := sorted(name for name, number in names.items() if number > 1):
        classes = count(len(shared), "class name is", "class names are")
        found.append(f"{classes} in more than one split ({_some(shared)}): are the test classes new ones?")
    return found


def _cut(listing: Listing) -> Iterator[tuple[str, int, tuple[ImageFile, ...]]]:
    for split, part in listing.splits.items():
        images, start = chain.from_iterable(part.images), 0
        while chunk := tuple(islice(images, IMAGES_PER_CHUNK)):
            yield split, start, chunk
            start += len(chunk)


def _digest(how: list, images: tuple[ImageFile, ...], prefix: str) -> int:
    facts: dict[str, object] = {}  # one look at a file that holds many images
    for path in {image.path for image in images}:
        try:
            found = os.stat(path)
            facts[path] = (found.st_size, found.st_mtime_ns)
        except (OSError, ValueError):
            facts[path] = "missing"  # the reason is found when it is to be read
    places = [(image.path.removeprefix(prefix), str(image.position), facts[image.path]) for image in images]
    return int(digest_of([how, places])[:16], 16)


def _check_split(where: str, layout: SplitLayout) -> None:
    if not layout.class_names:
        raise DatasetError(f"{where}: there are no classes; leave the split out or add some.")
    if repeated := [name for name, number in Counter(layout.class_names).items() if number > 1]:
        raise DatasetError(f"{where}: class names must differ, but some are there twice: {_some(repeated)}.")
    if empty := [name for name, size in zip(layout.class_names, layout.class_sizes) if not size]:
        raise DatasetError(f"{where}: classes without images: {_some(empty)}; add images or remove the classes.")


def _check_repetition(dataset: str, listing: Listing) -> None:
    """Refuses an image that is listed twice. Compares hashes first: there may be millions of images."""
    hashes = np.fromiter((hash(image) for _, _, images in _cut(listing) for image in images), np.int64)
    values, counts = np.unique(hashes, return_counts=True)
    suspects, places = set(values[counts > 1].tolist()), {}
    for split, part in listing.splits.items() if suspects else ():
        for name, images in zip(part.class_names, part.images):
            for image in (image for image in images if hash(image) in suspects):
                place = f"class '{name}' of {split}"
                if image in places:
                    position = f" {image.position}" if image.position else ""
                    raise DatasetError(
                        f"Dataset '{dataset}': {image.path}{position} is listed twice, in {places[image]} and in "
                        f"{place}; an image must belong to one class and one split."
                    )
                places[image] = place


def _some(names: list[str]) -> str:
    return ", ".join(map(repr, names[:NAMED])) + (", …" if len(names) > NAMED else "")
