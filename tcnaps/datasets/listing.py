"""Which images a dataset of files has, before any of them is opened: what every reader of files hands over.

A reader is a function `open(dataset_name, dataset, root) -> FileSource`. It finds files and says how one image's bytes
or pixels are read; `tcnaps.datasets.files` does the rest.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from tcnaps.config.settings import Resampling


@dataclass(frozen=True, slots=True)
class ImageFile:
    """Where one image is.

    Attributes:
        path: the file, which may hold other images too.
        position: within the file, where that needs saying: (offset, length, label, number) of a record, (row,) of an
            array, (left, top, right, bottom) of a box in pixels.
    """

    path: str
    position: tuple[int, ...] = ()


def read_path(image: ImageFile) -> str:
    """A reader for files that hold one encoded image each: the file itself."""
    return image.path


@dataclass(frozen=True, eq=False)
class Images(Sequence):
    """The images of a class. Each `ImageFile` is made when it is asked for, since there may be millions.

    Attributes:
        folder: the folder that holds all files.
        names: the path of each image's file within the folder; with positions, a single name may serve all images.
        positions: see `ImageFile.position`; None where each file is one image.
    """

    folder: str
    names: Sequence[str]
    positions: Int64[np.ndarray, "n_images k"] | None = None

    def __len__(self) -> int:
        return len(self.names) if self.positions is None else len(self.positions)

    def __getitem__(self, index):
        one_name = self.positions is not None and len(self.names) == 1
        if isinstance(index, slice):
            names = self.names if one_name else self.names[index]
            return Images(self.folder, names, None if self.positions is None else self.positions[index])
        position = () if self.positions is None else tuple(self.positions[index].tolist())
        return ImageFile(os.path.join(self.folder, self.names[0 if one_name else index]), position)


@dataclass(frozen=True)
class SplitListing:
    """The classes of one split and their images.

    Attributes:
        class_names: unique within the split.
        images: those of each class, in an order that is the same on every machine.
        superclasses, spans: the hierarchy, if there is one; see `ImageSource`.
    """

    class_names: tuple[str, ...]
    images: tuple[Images, ...]
    superclasses: tuple[str, ...] | None = None
    spans: tuple[tuple[int, ...], ...] | None = None


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
        notes: what is left out, for the user to know.
    """

    splits: dict[str, SplitListing]
    read: Callable[[ImageFile], bytes | str | np.ndarray] = read_path
    resampling: Resampling | None = None
    orient: bool = True
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class FileSource:
    """A dataset of files that has been pointed at, but not looked through.

    Attributes:
        listing: looks through all files; called only when the dataset has to be made.
        needs: files and folders that must exist. What is prepared of them is stale once a file's size or time of
            change differs, or one is added to a folder, taken away or renamed.
        help: how to get the data; shown where something is missing.
        fetch: gets what is missing, where that is possible.
    """

    listing: Callable[[], Listing]
    needs: tuple[Path, ...]
    help: str = ""
    fetch: Callable[[], None] = lambda: None
