"""Which images a dataset of files has, before any of them is opened: what every reader of files hands over.

A reader is a function `open(dataset_name, dataset, root) -> FileSource`. It finds files and says how one image's bytes
or pixels are read; `tcnaps.datasets.files` does the rest.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tcnaps.config.settings import Resampling


class ImageFile(NamedTuple):
    """Where one image is: a file, which may hold other images too, and a position in it where that needs saying.

    Positions are (offset, length, label) of a record, (row,) of an array, (left, top, right, bottom) of a box.
    """

    path: str
    position: tuple[int, ...] = ()


Images = dict[str, list[ImageFile]]  # the images of each class, in an order that is the same on every machine


def read_file(image: ImageFile) -> bytes:
    """Reads a file that holds one encoded image."""
    return Path(image.path).read_bytes()


@dataclass(frozen=True)
class Listing:
    """All images of a dataset.

    Attributes:
        splits: "train", "valid" and "test"; one that the dataset doesn't have may be left out.
        superclasses: of every class, if there are any.
        spans: of each split, for every inner node of a hierarchy the numbers of the classes below it, if there is one.
        read: reads one image: its encoded bytes, or uint8 pixels (height, width) or (height, width, 3). A function of
            a module, or a partial one, so that other processes can import it. It may raise `DatasetError` or OSError
            where the image can't be read.
        resampling: what images of this source want. The dataset's own key goes before it, the study's after it.
        orient: whether EXIF's orientation counts.
        notes: what is left out, for the user to know.
    """

    splits: Mapping[str, Images]
    superclasses: Mapping[str, str] = field(default_factory=dict)
    spans: Mapping[str, tuple[tuple[int, ...], ...]] = field(default_factory=dict)
    read: Callable[[ImageFile], bytes | np.ndarray] = read_file
    resampling: Resampling | None = None
    orient: bool = True
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class FileSource:
    """A dataset of files that has been pointed at, but not looked through.

    Attributes:
        listing: looks through all files; called only when the dataset has to be made.
        needs: files and folders that must exist; changes of them make what is prepared stale (`shared.stamp`).
        help: how to get the data; shown where something is missing.
        fetch: gets what is missing, where that is possible.
    """

    listing: Callable[[], Listing]
    needs: tuple[Path, ...]
    help: str = ""
    fetch: Callable[[], None] = lambda: None
