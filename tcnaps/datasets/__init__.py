"""Files -> class-indexed images. `open_split` prepares a dataset on first use and opens it afterwards."""

from pathlib import Path

from tcnaps.config import settings, study as config
from tcnaps.datasets.image_source import SPLITS, DatasetError, ImageSource
from tcnaps.datasets.preparing import Preparation, ensure_prepared

__all__ = ["SPLITS", "DatasetError", "ImageSource", "open_source", "open_split", "open_splits", "preparation"]


def preparation(
    name: str, dataset: settings.AnyDataset, image_size: int, decoding: settings.Decoding = settings.Decoding()
) -> Preparation:
    """How a study's dataset is made.

    Raises:
        DatasetError: its source has no dataset of this name, or can't use the section's keys.
    """
    if isinstance(dataset, settings.Miniature):
        from tcnaps.datasets import miniature  # fonts

        return miniature.preparation(name, image_size)
    from tcnaps.datasets import files, readers  # image libraries

    return files.preparation(name, dataset, readers.open_files(name, dataset), image_size, decoding)


def open_source(
    name: str,
    dataset: settings.AnyDataset,
    split: str,
    image_size: int,
    folder: str | Path,
    decoding: settings.Decoding = settings.Decoding(),
) -> ImageSource:
    """Opens one split of a dataset; prepares the dataset on first use, or when its files are stale.

    Args:
        name: the dataset's key in the study.
        split: "train", "valid" or "test".
        folder: the study's data folder; a relative one is taken from the project's root.

    Raises:
        DatasetError: there is no such dataset or split, or it can't be made; the message names what there is, or
            what is missing and how to get it.
        ImportError: an optional package that decoding needs is missing.
    """
    splits = ensure_prepared(preparation(name, dataset, image_size, decoding), config.project_root() / folder).splits
    if split not in splits:
        raise DatasetError(f"Dataset '{name}' has no split '{split}'; it has: {', '.join(splits)}.")
    return splits[split]


def open_split(study: config.Study, name: str, split: str) -> ImageSource:
    """Opens one split of one of a study's datasets; see `open_source`."""
    return open_source(name, study.datasets[name], split, study.image_size, study.data_folder, study.decoding)


def open_splits(study: config.Study, name: str) -> dict[str, ImageSource]:
    """Opens every split that one of a study's datasets has; see `open_source`."""
    made = preparation(name, study.datasets[name], study.image_size, study.decoding)
    return ensure_prepared(made, config.project_root() / study.data_folder).splits
