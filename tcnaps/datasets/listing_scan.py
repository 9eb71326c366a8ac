"""A listing is checked, described and cut into chunks, before any image is opened."""

import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path

import numpy as np

from tcnaps.datasets.decoding_jobs import Chunk
from tcnaps.datasets.image_source import DatasetError
from tcnaps.datasets.listing import ImageFile, Listing, SplitListing
from tcnaps.datasets.preparing import SplitLayout, count
from tcnaps.datasets.readers.shared import some

SPLITS = ("train", "valid", "test")
IMAGES_PER_CHUNK = 128


@dataclass(frozen=True)
class Scan:
    """A listing that has been found sound.

    Attributes:
        layouts: what each split holds if every image can be read.
        chunk_digests: for each of `chunks`, where its images are, how they are read, how large and how old their
            files are.
        digest: of all of that, and of all names.
    """

    listing: Listing
    layouts: dict[str, SplitLayout]
    chunk_digests: tuple[str, ...]
    digest: str

    @property
    def n_images(self) -> int:
        return sum(sum(layout.class_sizes) for layout in self.layouts.values())

    def image(self, split: str, row: int) -> tuple[ImageFile, str]:
        """The image of a row of a split's array, and its class."""
        starts = np.cumsum([0, *self.layouts[split].class_sizes])
        k = int(np.searchsorted(starts, row, side="right")) - 1
        part = self.listing.splits[split]
        return part.images[k][row - int(starts[k])], part.class_names[k]


def scan(dataset: str, listing: Listing, root: Path) -> Scan:
    """Checks a listing and notes sizes and times of its files.

    Args:
        root: paths within this folder are noted from here, so that it may be moved.

    Raises:
        DatasetError: there are no splits or classes, a class has no images or a name that another has, or an image is
            listed twice.
    """
    unknown = sorted(listing.splits.keys() - set(SPLITS))
    if unknown or not listing.splits:
        found = f"it has a split '{unknown[0]}'" if unknown else "no images were found"
        raise DatasetError(f"Dataset '{dataset}': {found}; there may be {', '.join(SPLITS)}, and there must be one.")
    listing = _ordered(listing)
    for split, part in listing.splits.items():
        _check_split(dataset, split, part)
    _check_repetition(dataset, listing)
    read = listing.read.func if isinstance(listing.read, partial) else listing.read
    how = f"{read.__module__}.{read.__qualname__} {listing.resampling} {listing.orient} {listing.box}"
    digests = tuple(_digest(chunk, f"{root}{os.sep}", how) for chunk in chunks(listing))
    layouts = {split: _layout(part) for split, part in listing.splits.items()}
    return Scan(listing, layouts, digests, hashlib.sha256(repr((layouts, digests)).encode()).hexdigest())


def chunks(listing: Listing) -> Iterator[Chunk]:
    """All images of a listing, some at a time, in the order of the arrays."""
    for split, part in listing.splits.items():
        images, start = chain.from_iterable(part.images), 0
        while chunk := tuple(islice(images, IMAGES_PER_CHUNK)):
            yield Chunk(split, start, chunk)
            start += len(chunk)


def remarks(layouts: Mapping[str, SplitLayout]) -> list[str]:
    """What a dataset may hold, but whoever uses it should know."""
    found = []
    for split, layout in layouts.items():
        single = [name for name, size in zip(layout.class_names, layout.class_sizes) if size == 1]
        if single:
            found.append(
                f"{split}: {count(len(single), 'class has', 'classes have')} a single image ({some(single)}): an "
                "episode needs one for its support and one for its query set, so none can be made of them"
            )
    names = Counter(chain.from_iterable({*_full_names(layout)} for layout in layouts.values()))
    shared = sorted(name for name, count in names.items() if count > 1)
    if shared:
        found.append(
            f"{count(len(shared), 'class name is', 'class names are')} in more than one split ({some(shared)}): "
            "if they are the same classes, the test shows what was trained on"
        )
    return found


def _ordered(listing: Listing) -> Listing:
    splits = {split: listing.splits[split] for split in SPLITS if split in listing.splits}
    return replace(listing, splits=splits)


def _layout(part: SplitListing) -> SplitLayout:
    spans = None if part.spans is None else tuple(tuple(map(int, span)) for span in part.spans)
    return SplitLayout(tuple(part.class_names), tuple(map(len, part.images)), part.superclasses, spans)


def _check_split(dataset: str, split: str, part: SplitListing) -> None:
    where = f"Dataset '{dataset}', split '{split}'"
    if not part.class_names:
        raise DatasetError(f"{where}: there are no classes; leave the split out or add some.")
    repeated = [name for name, count in Counter(part.class_names).items() if count > 1]
    if repeated:
        raise DatasetError(
            f"{where}: {count(len(repeated), 'class name is', 'class names are')} there more than once "
            f"({some(repeated)}); names must differ within a split."
        )
    empty = [name for name, images in zip(part.class_names, part.images) if not len(images)]
    if empty:
        raise DatasetError(
            f"{where}: {count(len(empty), 'class has', 'classes have')} no images ({some(empty)}); add images or "
            "remove the class."
        )


def _check_repetition(dataset: str, listing: Listing) -> None:
    """Refuses an image that is listed twice. Compares digests of eight bytes: there may be a million images."""
    every = chain.from_iterable(chain.from_iterable(part.images for part in listing.splits.values()))
    digests = np.fromiter(map(_short_digest, every), np.uint64)
    values, counts = np.unique(digests, return_counts=True)
    suspects = set(values[counts > 1].tolist())
    places: dict[ImageFile, str] = {}
    if not suspects:
        return
    for split, part in listing.splits.items():
        for name, images in zip(part.class_names, part.images):
            for image in images:
                if _short_digest(image) in suspects:
                    place = f"class '{name}' of {split}"
                    if image in places:
                        position = f" {image.position}" if image.position else ""
                        raise DatasetError(
                            f"Dataset '{dataset}': {image.path}{position} is listed twice, in {places[image]} and in "
                            f"{place}; an image must be of one class and of one split."
                        )
                    places[image] = place


def _short_digest(image: ImageFile) -> int:
    content = f"{image.path}\0{image.position}".encode("utf-8", "surrogateescape")
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")


def _digest(chunk: Chunk, prefix: str, how: str) -> str:
    content, path, facts = hashlib.blake2b(how.encode(), digest_size=16), None, None
    for image in chunk.images:
        if image.path != path:
            path = image.path
            try:
                found = os.stat(path)
                facts = (found.st_size, found.st_mtime_ns)
            except OSError:
                facts = "missing"  # found out again, with a reason, when it is to be read
        line = f"{path.removeprefix(prefix)}\0{image.position}\0{facts}\n"
        content.update(line.encode("utf-8", "surrogateescape"))
    return content.hexdigest()


def _full_names(layout: SplitLayout) -> list[str]:
    """Class names with their superclasses: every alphabet may have a 'character01'."""
    if layout.superclasses is None:
        return list(layout.class_names)
    return [f"{superclass}/{name}" for superclass, name in zip(layout.superclasses, layout.class_names)]
