"""Files → arrays of images by class. `open_split` prepares a dataset on first use and opens it afterwards."""

from collections.abc import Collection
from importlib.metadata import entry_points
from types import ModuleType

from tcnaps.config import settings, study as config
from tcnaps.data.image_source import SPLITS, DatasetError, ImageSource
from tcnaps.data.preparing import Preparation, ensure_prepared

__all__ = ["SPLITS", "DatasetError", "ImageSource", "open_split", "open_splits", "preparation"]


def preparation(
    name: str, dataset: settings.AnyDataset, image_size: int, decoding: settings.Decoding = settings.Decoding()
) -> Preparation:
    """How a study's dataset is made.

    Raises:
        DatasetError: the source has no dataset of this name, or can't use the section's keys.
    """
    if isinstance(dataset, settings.Miniature):
        return built_in().preparation(name, image_size)
    from tcnaps.data import files  # image libraries

    return files.preparation(name, dataset, files.open_files(name, dataset), image_size, decoding)


def built_in() -> ModuleType:
    """The package that draws the built-in datasets, installed as the entry point `miniature` of `tcnaps.data`.

    Raises:
        DatasetError: it is not installed.
    """
    for point in entry_points(group="tcnaps.data", name="miniature"):
        return point.load()
    raise DatasetError("The built-in datasets are in the package tcnaps_suite, which is not installed here.")


def open_splits(study: config.Study, name: str, checked: Collection[str] = SPLITS) -> dict[str, ImageSource]:
    """Opens the splits of one of a study's datasets. It is prepared on first use, or when files are stale or damaged.

    Args:
        checked: the splits whose images are compared with their SHA-256.

    Raises:
        DatasetError: the dataset can't be made; the message names what is missing and how to get it.
        ImportError: an optional package that decoding needs is missing.
    """
    made = preparation(name, study.datasets[name], study.image_size, study.decoding)
    return ensure_prepared(made, config.project_root() / study.data_folder, checked).splits


def open_split(study: config.Study, name: str, split: str) -> ImageSource:
    """Opens one split ("train", "valid" or "test") of one of a study's datasets; see `open_splits`.

    Raises:
        DatasetError: the dataset can't be made, or has no such split.
    """
    splits = open_splits(study, name, [split])
    if split not in splits:
        raise DatasetError(f"Dataset '{name}' has no split '{split}'; it has: {', '.join(splits)}.")
    return splits[split]
