"""A study's dataset of files: where it is, whether what was prepared of it still holds, how it is prepared."""

import importlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tcnaps.config import project_root, settings
from tcnaps.config.fingerprint import code_fingerprint
from tcnaps.datasets.decoding import decode
from tcnaps.datasets.decoding_jobs import Job
from tcnaps.datasets.filling import fill, refuse_reported
from tcnaps.datasets.image_source import DatasetError
from tcnaps.datasets.listing import FileSource
from tcnaps.datasets.listing_scan import Scan, scan
from tcnaps.datasets.preparing import Filled, MissingFiles, Originals, Preparation, SplitLayout, plain, recipe_hash

DECODING = 1  # raise it when the same file would become other pixels
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
IMAGES_PER_PROCESS = 300  # a process for fewer costs more to start than it decodes in that time
WITHOUT_EFFECT = {"domain", "path", "resampling", "unreadable", "download"}  # on which image gets which row


@dataclass(frozen=True)
class Files:
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

    @property
    def resampling(self) -> settings.Resampling:
        """What the study asks for; a reader may want something else if the dataset's own key is not set."""
        return self.dataset.resampling or self.decoding.resampling

    def stamp(self) -> dict:
        """What changes when the files do, or the code that finds them.

        Raises:
            MissingFiles: some are not there; the message says how to get them.
        """
        missing = self._missing()
        try:
            if not missing:
                return {"path": str(self.root), "reader": self.reader, "files": plain(self.source.stamp())}
        except FileNotFoundError as error:
            missing = [error.filename]
        paths = ", ".join(map(str, missing))
        raise MissingFiles(f"Dataset '{self.name}': there is no {paths}. {self.source.help}".rstrip())

    def fetch(self) -> None:
        """Gets what is missing, where the source can.

        Raises:
            MissingFiles: it could not be had.
        """
        if self.source.fetch is not None and self._missing():
            self.source.fetch()

    def _missing(self) -> list[Path]:
        return [path for path in self.source.needs if not path.exists()]

    def scan(self) -> Scan:
        """Looks through all files.

        Raises:
            DatasetError: the dataset contradicts itself; see `tcnaps.datasets.listing_scan.scan`.
        """
        return scan(self.name, self.source.listing(), self.root)

    def job(self, found: Scan) -> Job:
        """How its images are decoded.

        Raises:
            ImportError: an optional package is missing.
        """
        listing = found.listing
        resampling = self.dataset.resampling or listing.resampling or self.decoding.resampling
        decode(b"P6 1 1 255\n\0\0\0", 1, resampling, self.decoding.jpeg_dct)  # whether it can be done at all
        return Job(listing.read, self.image_size, resampling, self.decoding.jpeg_dct, listing.orient, listing.box)

    def n_processes(self, found: Scan) -> int:
        """How many processes decode its images."""
        if self.processes is not None:
            return self.processes
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return max(1, min(cores, found.n_images // IMAGES_PER_PROCESS))


def point_at(
    name: str, dataset: settings.AnyDataset, image_size: int, decoding: settings.Decoding, processes: int | None = None
) -> Files:
    """A study's dataset, by the reader of its source. A relative path is taken from the project's root.

    Where the reader needs an optional package that is missing, it is as if the files were.

    Raises:
        DatasetError: the reader finds the study's settings wanting.
    """
    module_name, function = READERS[dataset.source]
    root = project_root() / Path(dataset.path).expanduser()
    try:
        module = importlib.import_module(f"tcnaps.datasets.{module_name}")
    except ImportError as error:
        source = _without_package(f"Dataset '{name}' can't be read: {error}")
        return Files(name, dataset, image_size, decoding, root, source)
    source = getattr(module, function)(name, dataset, project_root())
    reader = code_fingerprint([module.__file__], without=["tcnaps.datasets"])
    return Files(name, dataset, image_size, decoding, root, source, reader, processes)


def _without_package(message: str) -> FileSource:
    def refuse() -> dict:
        raise MissingFiles(message)

    return FileSource(refuse, refuse)


def preparation(files: Files) -> Preparation:
    """How a dataset of files is made."""
    source = files.dataset.model_dump(mode="json", exclude=WITHOUT_EFFECT)
    recipe = {"decoding": DECODING, "resampling": files.resampling, "jpeg_dct": files.decoding.jpeg_dct, **source}
    found_last: list[Scan] = []

    def layouts() -> dict[str, SplitLayout]:
        found_last[:] = [files.scan()]
        return found_last[0].layouts

    def fill_arrays(arrays: Mapping[str, Path]) -> Filled:
        found = found_last.pop()  # and no other: the arrays have been laid out for it
        refuse = files.dataset.unreadable == "refuse"
        try:
            processes = files.n_processes(found)
            filled = fill(files.name, found, files.job(found), arrays, recipe_hash(made), processes, refuse)
        except DatasetError:
            files.stamp()  # a disk that has gone meanwhile is the better reason
            raise
        if any(filled.notes["unreadable"].values()):
            files.stamp()
        return filled

    def accept(place: Path, index: dict) -> None:
        if files.dataset.unreadable == "refuse":
            refuse_reported(files.name, place, index)

    # Studies that decode differently share a data folder; neither undoes what the other has prepared.
    tags = [files.resampling.replace(" ", "-")] if files.resampling != "bilinear" else []
    tags += ["fast-dct"] if files.decoding.jpeg_dct == "fast" else []
    made = Preparation(
        files.name,
        files.image_size,
        None,
        recipe,
        layouts,
        fill_arrays,
        Originals(files.stamp, lambda: files.scan().digest, accept, files.fetch),
        tag="".join(f"-{tag}" for tag in tags),
    )
    return made
