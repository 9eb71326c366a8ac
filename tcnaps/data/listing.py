"""The images of a dataset before they are made: what every reader of files, and the miniature, returns.

A reader is a function `open(dataset_name, dataset) -> Source`. It finds files and says how one image is read;
`tcnaps.data.files` does the rest.
"""

import errno
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from PIL import Image

from tcnaps.config.settings import Resampling


class ImageFile(NamedTuple):
    """Where one image is: a file and, if the file holds more than this image, a position in it.

    Positions are (offset, length, label) of a record, (row,) of an array, or (left, top, right, bottom) of a box.
    """

    path: str
    position: tuple[int, ...] = ()


class Row(NamedTuple):
    """An image with its class and its split, as readers list it. A class in a superclass is called superclass/class."""

    label: str
    split: str
    image: ImageFile

    @property
    def superclass(self) -> str:
        return self.label.partition("/")[0]


def open_regular(path: str | Path) -> BinaryIO:
    """Opens a file for reading. Refuses pipes and devices, which could block for ever, with an OSError."""
    if os.path.exists(path) and not os.path.isfile(path):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return open(path, "rb")


def read_file(image: ImageFile) -> bytes:
    """Reads a file that holds one encoded image."""
    with open_regular(image.path) as file:
        return file.read()


@dataclass(frozen=True)
class Listing:
    """All images of a dataset. Its functions must be importable by other processes, or partial ones of such.

    Attributes:
        splits: the images of each class of "train", "valid" and "test", in the same order on every machine. A split may
            be missing.
        superclasses: the superclass of every class, if there are any.
        spans: per split, for every inner node of a hierarchy the numbers of the classes below it, if there is one.
        read: reads one image: its encoded bytes, or the decoded image in RGB. It may raise `DatasetError` or OSError.
        resampling: the source's default; the dataset's own key overrides it, and it overrides the study's.
        orient: whether EXIF's orientation is applied.
        notes: what is left out, for the user.
        work: images of one class -> pixels, uint8 (n, size, size, 3), and number -> reason of unreadable ones.
        images_at_once: the most images that `work` is given.
    """

    splits: Mapping[str, Mapping[str, Sequence[Any]]]
    superclasses: Mapping[str, str] = field(default_factory=dict)
    spans: Mapping[str, tuple[tuple[int, ...], ...]] = field(default_factory=dict)
    read: Callable[[ImageFile], bytes | Image.Image] = read_file
    resampling: Resampling | None = None
    orient: bool = True
    notes: tuple[str, ...] = ()
    work: Callable | None = None
    images_at_once: int = 128


class Source(NamedTuple):
    """What a dataset is made from. Its files have not been looked through yet.

    Attributes:
        listing: looks through the files; called only when the dataset has to be made.
        needs: files and folders that must exist; changes of them make the prepared dataset stale.
        help: how to get the data; shown where something is missing.
        fetch: downloads what is missing, where that is possible.
    """

    listing: Callable[[], Listing]
    needs: tuple[Path, ...] = ()
    help: str = ""
    fetch: Callable[[], None] = lambda: None
