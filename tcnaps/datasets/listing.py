"""Which images a dataset of files has, before any of them is opened: what every reader of files hands over.

A reader is a module with a function `open(dataset_name, dataset, root) -> FileSource`. It finds files and says how
one image's bytes or pixels are read; `tcnaps.datasets.files` does the rest: decoding, resizing, checking, writing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tcnaps.config.settings import Resampling


@dataclass(frozen=True, slots=True)
class ImageFile:
    """Where one image is.

    Attributes:
        path: the file, which may hold other images too.
        position: within the file, where that needs saying: (offset, length, label) of a record, (row,) of an array,
            (left, top, right, bottom) of a box in pixels.
    """

    path: str
    position: tuple[int, ...] = ()


def read_path(image: ImageFile) -> str:
    """A reader for files that hold one encoded image each: the file itself."""
    return image.path


@dataclass(frozen=True)
class SplitListing:
    """The classes of one split and their images.

    Attributes:
        class_names: unique within the split.
        images: one sequence per class, in an order that is the same on every machine.
        superclasses, spans: the hierarchy, if there is one; see `ImageSource`.

    Raises:
        ValueError: there isn't one sequence of images, or one superclass, per class.
    """

    class_names: tuple[str, ...]
    images: tuple[Sequence[ImageFile], ...]
    superclasses: tuple[str, ...] | None = None
    spans: tuple[np.ndarray, ...] | None = None

    def __post_init__(self) -> None:
        for key in ("images", "superclasses"):
            values = getattr(self, key)
            if values is not None and len(values) != len(self.class_names):
                raise ValueError(
                    f"{len(self.class_names)} class_names, but {len(values)} {key}: one per class is needed"
                )


@dataclass(frozen=True)
class Listing:
    """All images of a dataset.

    Attributes:
        splits: "train", "valid" and "test"; one that the dataset doesn't have is left out.
        read: reads one image: its encoded bytes, the path of a file that holds them, or uint8 pixels (height, width)
            or (height, width, 3). A function of a module, or a partial one, so that other processes can import it. It
            may raise `DatasetError` or OSError where the image can't be read.
        resampling: what images of this source want. The dataset's own key goes before it, the study's after it.
        orient: whether EXIF's orientation counts.
        box: whether `ImageFile.position` is a box to be cut out before resizing.
        notes: what the user should know of the dataset, such as what is left out.
    """

    splits: dict[str, SplitListing]
    read: Callable[[ImageFile], bytes | str | np.ndarray] = read_path
    resampling: Resampling | None = None
    orient: bool = True
    box: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class FileSource:
    """A dataset of files that has been pointed at, but not looked through.

    Attributes:
        stamp: cheap facts, as JSON-able values, that change when the files do: times of folders, sizes of lists.
            Asked for at every opening.
        listing: looks through all files; called only when the dataset has to be made or checked.
        needs: paths that must exist. If one is missing, the error names it and shows `help`.
        help: how to get the data: who publishes it and where, how large it is, what to unpack where.
        fetch: gets what is missing of `needs`; None where that is left to the user. Called only when the dataset has to
            be made or checked.
    """

    stamp: Callable[[], dict]
    listing: Callable[[], Listing]
    needs: tuple[Path, ...] = ()
    help: str = ""
    fetch: Callable[[], None] | None = None
