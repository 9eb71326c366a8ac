"""Which images a dataset has, before any of them is made: what every reader of files, and the miniature, hands over.

A reader is a function `open(dataset_name, dataset) -> Source`. It finds files and says how one image's bytes or
pixels are read; `tcnaps.data.files` does the rest.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image

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
    """All images of a dataset. Its functions are of a module, or partial ones: other processes import them.

    Attributes:
        splits: the images of each class of "train", "valid" and "test"; a split may be left out.
        superclasses: of every class, if there are any.
        spans: of each split, for every inner node of a hierarchy the numbers of the classes below it, if there is one.
        read: reads one image: its encoded bytes, or the decoded image in RGB. It may raise `DatasetError` or OSError.
        resampling: what images of this source want. The dataset's own key goes before it, the study's after it.
        orient: whether EXIF's orientation counts.
        notes: what is left out, for the user to know.
        work: images of one class -> pixels, uint8 (n, size, size, 3), and number -> reason of those that can't be read.
        images_at_once: the most that `work` is given.
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
    """What a dataset is made from: pointed at, but not looked through.

    Attributes:
        listing: looks through it; called only when the dataset has to be made.
        needs: files and folders that must exist; changes of them make what is prepared stale.
        help: how to get the data; shown where something is missing.
        fetch: gets what is missing, where that is possible.
    """

    listing: Callable[[], Listing]
    needs: tuple[Path, ...] = ()
    help: str = ""
    fetch: Callable[[], None] = lambda: None
