"""Meta-Dataset's records: a folder with dataset_spec.json and one file a class, `<class id>.tfrecords`.

Nothing is decoded otherwise than Meta-Dataset does: EXIF's orientation doesn't count. For its very pixels a study
needs TensorFlow's way of decoding and resizing too: `decoding: {jpeg_dct: fast, resampling: aligned corners}`.

Not read: pools of training and test images of one class, in two files a class (`{}_{}.tfrecords`).
"""

import hashlib
from functools import partial
from pathlib import Path

import numpy as np

from tcnaps.config import settings
from tcnaps.datasets import reader_parts
from tcnaps.datasets.image_source import DatasetError
from tcnaps.datasets.listing import FileSource, ImageFile, Listing, SplitListing
from tcnaps.datasets.names import some
from tcnaps.datasets.specification import ClassSpecification, SplitSpecification, read_specification

SPECIFICATION = "dataset_spec.json"
FILE_PATTERN = "{}.tfrecords"
SHOWN = 5  # damaged files that a message names
HELP = (
    "Meta-Dataset publishes no records: its programs make them from the datasets that others publish; see "
    "doc/dataset_conversion.md of github.com/google-research/meta-dataset. 'path' is the folder of one dataset, like "
    "records/omniglot, with dataset_spec.json and 0.tfrecords, 1.tfrecords and so on in it."
)


def open_records(name: str, dataset: settings.Records, root: Path) -> FileSource:
    """Points at a dataset of records; see `FileSource`."""
    folder = root / Path(dataset.path).expanduser()
    return FileSource(
        stamp=partial(_stamp, folder),
        listing=partial(list_records, name, folder, dataset.images_per_class),
        needs=(folder, folder / SPECIFICATION),
        help=HELP,
    )


def read_record(image: ImageFile) -> bytes:
    """The encoded image of one record, after comparing its checksums and its label.

    Raises:
        RecordError: the record is damaged, isn't there, or is of another class than its file.
        OSError: the file can't be read.
    """
    from tcnaps.datasets.records import RecordError, record_at

    offset, length, label, number = image.position
    try:
        return record_at(image.path, offset, length, expected_label=label)[0]
    except RecordError as error:
        raise RecordError(f"{error} (Record {number} of the file, counted from 0.)") from error


def list_records(name: str, folder: Path, images_per_class: int | None = None) -> Listing:
    """Looks through all records of a dataset: their lengths and the checksums of those, not their images.

    Args:
        name: the dataset's key in the study.
        folder: with dataset_spec.json.
        images_per_class: at most so many of each class are listed, spread evenly over its file.

    Raises:
        DatasetError: google-crc32c isn't installed; the specification is wrong or of a kind that isn't read; files are
            missing, damaged, or hold another number of records than the specification says.
    """
    _check_installed(name)
    specification = read_specification(folder / SPECIFICATION)
    if specification.file_pattern != FILE_PATTERN:
        raise DatasetError(
            f"{folder / SPECIFICATION}: file_pattern is '{specification.file_pattern}': two files a class, one a "
            f"pool of images, are not read here. Convert the dataset with one file a class, '{FILE_PATTERN}'."
        )
    splits = {split: content for split, content in specification.splits.items() if content.classes}
    classes = [kind for content in splits.values() for kind in content.classes]
    missing = [file.name for file in (_file(folder, kind) for kind in classes) if not file.is_file()]
    if missing:
        raise DatasetError(
            f"{len(missing)} of {len(classes)} files of records are missing from {folder}: {some(missing, SHOWN)}. "
            "Copy or convert the dataset again."
        )
    images, problems = {}, []
    for kind in classes:
        try:
            images[kind.id] = _index(folder, kind, images_per_class)
        except DatasetError as error:
            problems.append(str(error))
    if problems:
        more = f"\nand {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        raise DatasetError("\n".join(problems[:SHOWN]) + more)
    return Listing(
        {split: _split(content, images) for split, content in splits.items()}, read=read_record, orient=False
    )


def _check_installed(name: str) -> None:
    try:
        import tcnaps.datasets.records  # noqa: F401
    except ImportError as error:
        raise DatasetError(f"Dataset '{name}': {error}") from error


def _file(folder: Path, kind: ClassSpecification) -> Path:
    return folder / FILE_PATTERN.format(kind.id)


def _index(folder: Path, kind: ClassSpecification, images_per_class: int | None) -> reader_parts.PackedImages:
    """Where the images of a class are: offset, length, label and number of each record."""
    from tcnaps.datasets.records import read_index

    file = _file(folder, kind)
    try:
        offsets, lengths = read_index(file)
    except OSError as error:
        raise DatasetError(f"{file} can't be read ({error.strerror}).") from error
    if len(offsets) != kind.n_images:
        fault = "was cut off between two records" if len(offsets) < kind.n_images else "is of another conversion"
        raise DatasetError(
            f"{file} has {len(offsets)} records, but {SPECIFICATION} gives class {kind.id} ('{kind.name}') "
            f"{kind.n_images} images: the file {fault}, or the specification is of another one. Copy or convert both "
            "again."
        )
    kept = reader_parts.thinned(len(offsets), images_per_class)
    labels = np.full(len(kept), kind.id, dtype=np.int64)
    return reader_parts.PackedImages((str(file),), np.stack([offsets[kept], lengths[kept], labels, kept], axis=1))


def _split(content: SplitSpecification, images: dict[int, reader_parts.PackedImages]) -> SplitListing:
    layout = content.layout()
    return SplitListing(
        layout.class_names,
        tuple(images[kind.id] for kind in content.classes),
        layout.superclasses,
        None if layout.spans is None else tuple(np.array(span, dtype=np.int64) for span in layout.spans),
    )


def _stamp(folder: Path) -> dict[str, str]:
    specification = hashlib.sha256((folder / SPECIFICATION).read_bytes()).hexdigest()
    return {"specification": specification, **reader_parts.stamp(folder, ["*.tfrecords"], None, folder)}
