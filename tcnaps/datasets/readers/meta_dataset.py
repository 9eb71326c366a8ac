"""Meta-Dataset's records: a folder with dataset_spec.json and one file per class, `<class id>.tfrecords`.

Images are decoded as by Meta-Dataset: EXIF's orientation is ignored. For its very pixels a study needs TensorFlow's way
of decoding and resizing too: `decoding: {jpeg_dct: fast, resampling: aligned corners}`.
"""

from functools import partial
from pathlib import Path

from tcnaps.config import settings
from tcnaps.datasets.image_source import DatasetError
from tcnaps.datasets.listing import FileSource, ImageFile, Images, Listing
from tcnaps.datasets.readers import records
from tcnaps.datasets.readers.shared import located
from tcnaps.datasets.readers.specification import read_specification

SPECIFICATION, FILE_PATTERN = "dataset_spec.json", "{}.tfrecords"
HELP = (
    "'path' must be the folder of one dataset, like records/omniglot, with dataset_spec.json and 0.tfrecords, "
    "1.tfrecords and so on. Meta-Dataset's programs make them: "
    "doc/dataset_conversion.md of github.com/google-research/meta-dataset."
)


def open_records(name: str, dataset: settings.Records) -> FileSource:
    """Points at a dataset of records; see `FileSource`."""
    folder = located(dataset.path)
    needs = (folder, folder / SPECIFICATION, *sorted(folder.glob("*.tfrecords")))
    return FileSource(partial(list_records, folder, dataset.images_per_class), needs, HELP)


def read_record(image: ImageFile) -> bytes:
    """The encoded image of one record, after comparing its checksums and its label."""
    offset, length, label = image.position
    return records.record_at(image.path, offset, length, expected_label=label)[0]


def list_records(folder: Path, images_per_class: int | None = None) -> Listing:
    """Looks through all records of a dataset: their lengths and the checksums of those, not their images.

    At most `images_per_class` of each class are listed, spread evenly over its file.

    Raises:
        DatasetError: google-crc32c isn't installed; the specification is wrong or of a kind that isn't read; a file is
            missing, damaged, or holds another number of records than the specification says.
    """
    specification = read_specification(folder / SPECIFICATION)
    if specification.file_pattern != FILE_PATTERN:
        raise DatasetError(
            f"{folder / SPECIFICATION}: file_pattern is '{specification.file_pattern}', which is not read here. "
            f"Convert the dataset with one file per class, '{FILE_PATTERN}'."
        )
    splits: dict[str, Images] = {split: {} for split in specification.classes}
    for split, classes in specification.classes.items():
        for class_name, (label, size) in classes.items():
            file = folder / FILE_PATTERN.format(label)
            found = records.read_index(file)
            if len(found) != size:
                raise DatasetError(
                    f"{file} has {len(found)} records, but {SPECIFICATION} says {size}: the file was cut off "
                    "between two records, or one of the two is of another conversion. Copy or convert both again."
                )
            kept = min(size, images_per_class or size)
            images = [ImageFile(str(file), (*found[k * size // kept], label)) for k in range(kept)]  # spread evenly
            splits[split][class_name] = images
    return Listing(splits, specification.superclasses, specification.spans, read=read_record, orient=False)
