"""Meta-Dataset's records: a folder with dataset_spec.json and one file per class, `<class id>.tfrecords`.

Images are decoded as by Meta-Dataset: EXIF's orientation is ignored. For its very pixels a study needs TensorFlow's way
of decoding and resizing too: `decoding: {jpeg_dct: fast, resampling: aligned corners}`.

Not read: pools of training and test images of one class, in two files per class (`{}_{}.tfrecords`).
"""

from functools import partial
from pathlib import Path

import numpy as np

from tcnaps.config import settings
from tcnaps.datasets.image_source import DatasetError
from tcnaps.datasets.listing import FileSource, ImageFile, Images, Listing, SplitListing
from tcnaps.datasets.readers.shared import some
from tcnaps.datasets.readers.specification import read_specification

SPECIFICATION = "dataset_spec.json"
FILE_PATTERN = "{}.tfrecords"
SHOWN = 5  # damaged files that a message names
HELP = (
    "'path' must be the folder of one dataset, like records/omniglot, with dataset_spec.json and 0.tfrecords, "
    "1.tfrecords and so on. Meta-Dataset's programs make them: "
    "doc/dataset_conversion.md of github.com/google-research/meta-dataset."
)


def open_records(name: str, dataset: settings.Records, root: Path) -> FileSource:
    """Points at a dataset of records; see `FileSource`."""
    folder = root / Path(dataset.path).expanduser()
    needs = (folder, folder / SPECIFICATION, *sorted(folder.glob("*.tfrecords")))
    return FileSource(partial(list_records, name, folder, dataset.images_per_class), needs, HELP)


def read_record(image: ImageFile) -> bytes:
    """The encoded image of one record, after comparing its checksums and its label.

    Raises:
        RecordError: the record is damaged, isn't there, or is of another class than its file.
        OSError: the file can't be read.
    """
    from tcnaps.datasets.readers.records import RecordError, record_at

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
    try:
        import tcnaps.datasets.readers.records  # noqa: F401
    except ImportError as error:
        raise DatasetError(f"Dataset '{name}': {error}") from error
    specification = read_specification(folder / SPECIFICATION)
    if specification.file_pattern != FILE_PATTERN:
        raise DatasetError(
            f"{folder / SPECIFICATION}: file_pattern is '{specification.file_pattern}', which is not read here. "
            f"Convert the dataset with one file per class, '{FILE_PATTERN}'."
        )
    splits = {split: content for split, content in specification.splits.items() if content.ids}
    files = [FILE_PATTERN.format(k) for content in splits.values() for k in content.ids]
    if missing := [file for file in files if not (folder / file).is_file()]:
        raise DatasetError(
            f"{len(missing)} of {len(files)} files of records are missing from {folder}: {some(missing, SHOWN)}. "
            "Copy or convert the dataset again."
        )
    images, problems = {}, []
    for content in splits.values():
        for label, size in zip(content.ids, content.class_sizes):
            try:
                images[label] = _list_class(folder, label, size, images_per_class)
            except (DatasetError, OSError) as error:
                problems.append(str(error))
    if problems:
        more = f"\nand {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        raise DatasetError("\n".join(problems[:SHOWN]) + more)
    listed = {
        split: SplitListing(c.class_names, tuple(images[k] for k in c.ids), c.superclasses, c.spans)
        for split, c in splits.items()
    }
    return Listing(listed, read=read_record, orient=False)


def _list_class(folder: Path, label: int, size: int, images_per_class: int | None) -> Images:
    """Where the images of a class are: offset, length, label and number of each record."""
    from tcnaps.datasets.readers.records import read_index

    file = FILE_PATTERN.format(label)
    offsets, lengths = read_index(folder / file)
    if len(offsets) != size:
        raise DatasetError(
            f"{folder / file} has {len(offsets)} records, but {SPECIFICATION} says {size}: the file was cut off "
            "between two records, or one of the two is of another conversion. Copy or convert both again."
        )
    n_kept = min(size, images_per_class or size)
    kept = np.arange(n_kept, dtype=np.int64) * size // n_kept  # spread evenly
    labels = np.full(len(kept), label, dtype=np.int64)
    return Images(str(folder), (file,), np.stack([offsets[kept], lengths[kept], labels, kept], axis=1))
