"""A study's dataset of files: where it is, whether what was prepared of it is still fresh, and how it is prepared."""

import csv
import importlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np

from tcnaps.config import project_root, settings
from tcnaps.config.fingerprint import code_fingerprint
from tcnaps.config.storage import replacing
from tcnaps.datasets import arrays
from tcnaps.datasets.decoding import decode, from_pixels, read_file
from tcnaps.datasets.image_source import DatasetError
from tcnaps.datasets.listing import FileSource, ImageFile, Listing
from tcnaps.datasets.listing_scan import Scan, remarks, scan
from tcnaps.datasets.preparing import REPORT, MissingFiles, Originals, Plan, Preparation, SplitLayout, count

DECODING = 1  # to be raised when the same file becomes other pixels
# Source -> module and function (name, dataset, project's root) -> FileSource. A module is imported only when a dataset
# of it is opened, with the packages that it needs.
READERS = {
    "folder": ("readers.folders", "open_folder"),
    "mini-imagenet": ("readers.mini_tiered_imagenet", "open_mini_imagenet"),
    "tiered-imagenet": ("readers.mini_tiered_imagenet", "open_tiered_imagenet"),
    "feti": ("readers.mini_tiered_imagenet", "open_feti"),
    "records": ("readers.meta_dataset", "open_records"),
    "torchvision": ("readers.torchvision_sets", "open_torchvision"),
    "quickdraw": ("readers.quickdraw_cub_fungi", "open_quickdraw"),
    "cub": ("readers.quickdraw_cub_fungi", "open_cub"),
    "fungi": ("readers.quickdraw_cub_fungi", "open_fungi"),
}
IMAGES_PER_PROCESS = 4000  # a process for fewer takes longer to start than it saves
WITHOUT_EFFECT = {"domain", "resampling", "unreadable", "download"}  # on which image gets which row
NAMED = 10  # unreadable images that an error names


@dataclass(frozen=True)
class Files(Originals):
    """A study's dataset of files.

    Attributes:
        root: its `path`, absolute.
        source: what its reader has found there.
        reader: a digest of the reader's code.
        processes: how many decode; None takes as many as there are cores, fewer for few images.
    """

    name: str
    dataset: settings.AnyDataset
    image_size: int
    decoding: settings.Decoding
    root: Path
    source: FileSource
    reader: str = ""
    processes: int | None = None

    def stamp(self) -> dict:
        """What changes when the files do, or the code that finds them.

        Raises:
            MissingFiles: some are not there; the message says how to get them.
        """
        missing = self._missing()
        try:
            if not missing:
                stamp = {"path": str(self.root), "reader": self.reader, "files": self.source.stamp()}
                return json.loads(json.dumps(stamp))  # as it will be read from the index: tuples become lists
        except FileNotFoundError as error:
            missing = [error.filename]
        paths = ", ".join(map(str, missing))
        raise MissingFiles(f"Dataset '{self.name}': there is no {paths}. {self.source.help}".rstrip())

    def fetch(self) -> None:
        if self.source.fetch is not None and self._missing():
            self.source.fetch()

    def _missing(self) -> list[Path]:
        return [path for path in self.source.needs if not os.path.exists(path)]  # False for over-long ones, too

    def digest(self) -> str:
        return self.scan().digest

    def accept(self, place: Path, index: Mapping) -> None:
        number = sum(index["unreadable"].values())
        if number and self.dataset.unreadable == "refuse":
            with open(place / REPORT, newline="", encoding="utf-8", errors="surrogateescape") as stream:
                lines = [f"{row['file']}: {row['reason']}" for row in islice(csv.DictReader(stream), NAMED)]
            outcome = f"{place} was made without them and lists all in {REPORT}; delete it afterwards"
            raise _refusal(self.name, number, lines, outcome)

    def scan(self) -> Scan:
        """Looks through all files.

        Raises:
            DatasetError: the dataset contradicts itself; see `tcnaps.datasets.listing_scan.scan`.
        """
        return scan(self.name, self.source.listing(), self.root)

    def work(self, found: Scan) -> tuple[partial, int]:
        """What decodes a chunk of its images (`decode_images`), and the number of processes."""
        listing = replace(found.listing, splits={})
        # The dataset's own key goes first, then what its source wants, then the study's.
        resampling = self.dataset.resampling or listing.resampling or self.decoding.resampling
        options = {"size": self.image_size, "resampling": resampling, "jpeg_dct": self.decoding.jpeg_dct}
        n_jobs = self.processes or arrays.n_jobs_for(found.n_images, IMAGES_PER_PROCESS)
        return partial(decode_images, listing, **options), n_jobs


def point_at(
    name: str, dataset: settings.AnyDataset, image_size: int, decoding: settings.Decoding, processes: int | None = None
) -> Files:
    """A study's dataset, by the reader of its source. A relative path is taken from the project's root.

    If the reader needs an optional package that is missing, the files count as missing.

    Raises:
        DatasetError: the reader can't use the study's settings.
    """
    module_name, function = READERS[dataset.source]
    root = project_root() / Path(dataset.path).expanduser()
    try:
        module = importlib.import_module(f"tcnaps.datasets.{module_name}")
    except ImportError as error:
        message = f"Dataset '{name}' can't be read: {error}"

        def refuse() -> dict:
            raise MissingFiles(message)

        return Files(name, dataset, image_size, decoding, root, FileSource(refuse, refuse))
    source = getattr(module, function)(name, dataset, project_root())
    reader = code_fingerprint([module.__file__], without=["tcnaps.datasets"])
    return Files(name, dataset, image_size, decoding, root, source, reader, processes)


def preparation(files: Files) -> Preparation:
    """How a dataset of files is made."""
    source = files.dataset.model_dump(mode="json", exclude=WITHOUT_EFFECT)
    source["path"] = os.path.normpath(source["path"])
    resampling = files.dataset.resampling or files.decoding.resampling
    recipe = {"decoding": DECODING, "resampling": resampling, "jpeg_dct": files.decoding.jpeg_dct, **source}

    def plan() -> Plan:
        found = files.scan()
        return Plan(found.layouts, partial(_fill, files, found))

    return Preparation(files.name, files.image_size, None, recipe, plan, files)


def decode_images(
    listing: Listing, images: Sequence[ImageFile], *, size: int, resampling: settings.Resampling, jpeg_dct: str
) -> tuple[np.ndarray, dict[int, str]]:
    """Decodes some images.

    Args:
        listing: how they are read.

    Returns:
        Their pixels, uint8 (n, size, size, 3), 0 for an image that can't be read; and its number and the reason.
    """
    pixels, unreadable = np.zeros((len(images), size, size, 3), np.uint8), {}
    for number, image in enumerate(images):
        try:
            content, box = listing.read(image), image.position if listing.box else None
            if isinstance(content, str):
                content = read_file(content)
            if isinstance(content, bytes):
                pixels[number] = decode(content, size, resampling, jpeg_dct, box, orient=listing.orient)
            else:
                pixels[number] = from_pixels(np.asarray(content), size, resampling, box)
        except (DatasetError, OSError) as error:
            unreadable[number] = str(error)
        except Exception as error:
            error.add_note(f"while reading {image}")
            raise
    return pixels, unreadable


def _fill(files: Files, found: Scan, paths: Mapping[str, Path]) -> tuple[dict[str, SplitLayout], dict]:
    """Decodes all images into the arrays, and takes out those that can't be read."""
    work, n_jobs = files.work(found)
    failed = arrays.fill(paths, found.chunks(), len(found.digests), work, n_jobs, files.name)
    if failed:
        files.stamp()  # raises if a whole disk has gone
    if failed and files.dataset.unreadable == "refuse":
        lines = [f"{found.image(split, row)[0].path}: {reason}" for split, row, reason in failed[:NAMED]]
        raise _refusal(files.name, len(failed), lines, "nothing was prepared")
    rows = {split: [row for of, row, _ in failed if of == split] for split in paths}
    layouts = {split: _without(files.name, found, split, rows[split]) for split in paths}
    for split, path in paths.items():
        arrays.leave_out(path, rows[split])
    if failed:
        _write_report(next(iter(paths.values())).with_name(REPORT), found, failed)
    notes = {
        "files": found.digest,
        "resampling": work.keywords["resampling"],
        "unreadable": {split: len(rows[split]) for split in paths},
        "remarks": [*found.listing.notes, *remarks(layouts)],
    }
    return layouts, notes


def _without(dataset: str, found: Scan, split: str, rows: list[int]) -> SplitLayout:
    """The layout of a split without some rows."""
    layout = found.layouts[split]
    starts = np.cumsum([0, *layout.class_sizes])
    sizes = layout.class_sizes - np.histogram(rows, starts)[0]
    if not sizes.all():
        first, name = found.image(split, int(starts[sizes.argmin()]))
        others = f", nor of {n_others:,} more" if (n_others := int((sizes == 0).sum()) - 1) else ""
        raise DatasetError(
            f"Dataset '{dataset}', split '{split}': no image of class '{name}' can be read{others}. The first is "
            f"{first.path}. Repair the images or remove the class; --check lists the reasons."
        )
    return replace(layout, class_sizes=tuple(map(int, sizes)))


def _refusal(dataset: str, number: int, lines: list[str], outcome: str) -> DatasetError:
    shown = "".join(f"\n  {line}" for line in lines)
    more = f"\n  and {number - len(lines):,} more" if number > len(lines) else ""
    return DatasetError(
        f"Dataset '{dataset}': {count(number, 'image', 'images')} can't be read; {outcome}. Repair or remove what is "
        f"listed here, or set the dataset's `unreadable` to 'leave out'.{shown}{more}"
    )


def _write_report(file: Path, found: Scan, failed: Sequence[tuple[str, int, str]]) -> None:
    """A CSV of the images that can't be read; `position` says where an image is within a file that holds several."""
    with replacing(file) as path, path.open("w", newline="", encoding="utf-8", errors="surrogateescape") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["file", "class", "split", "reason", "position"])
        for split, row, reason in failed:
            image, class_name = found.image(split, row)
            writer.writerow([image.path, class_name, split, reason, " ".join(map(str, image.position))])
