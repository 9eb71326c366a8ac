"""Files -> class-indexed images. `open_source` prepares a dataset on first use and opens it afterwards."""

import difflib
from collections.abc import Callable
from pathlib import Path

from tcnaps import config, settings
from tcnaps.datasets import source
from tcnaps.datasets.source import DatasetError, ImageSource

__all__ = ["DatasetError", "ImageSource", "open_source", "preparation", "verify"]


def _miniature(name: str, image_size: int) -> source.Preparation:
    from tcnaps.datasets import (
        miniature,  # fonts and image libraries: needed only when a dataset of it is opened
    )

    if name not in miniature.RECIPES:
        near = difflib.get_close_matches(name, miniature.RECIPES, n=1)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        raise DatasetError(
            f"The miniature has no dataset '{name}'; it has: {', '.join(miniature.RECIPES)}.{hint}"
        )
    return miniature.preparation(name, image_size)


_SOURCES: dict[str, Callable[[str, int], source.Preparation]] = {"miniature": _miniature}


def preparation(name: str, dataset: settings.Dataset, image_size: int) -> source.Preparation:
    """How a study's dataset is made.

    Raises:
        DatasetError: its source has no dataset of this name, or can't make images of this size.
    """
    return _SOURCES[dataset.source](name, image_size)


def open_source(
    name: str, dataset: settings.Dataset, split: str, image_size: int, folder: str | Path
) -> ImageSource:
    """Opens one split of a study's dataset; prepares the dataset on first use, or when its files are stale.

    Args:
        name: the dataset's key in the study.
        split: "train", "valid" or "test".
        image_size: side in pixels.
        folder: the study's data folder; a relative one is taken from the project's root.

    Raises:
        DatasetError: there is no such dataset or split, or it can't be made in this size; the message
            names what there is.
    """
    return source.open_prepared(preparation(name, dataset, image_size), _absolute(folder), split)


def open_split(study: config.Study, name: str, split: str) -> ImageSource:
    """Opens one split of one of a study's datasets; see `open_source`."""
    return open_source(name, study.datasets[name], split, study.image_size, study.data_folder, study.decoding)


def verify(name: str, dataset: settings.Dataset, image_size: int, folder: str | Path) -> None:
    """Compares a prepared dataset with the checksums taken when it was made.

    Raises:
        DatasetError: there is no such dataset, it isn't prepared, or a file of it has changed.
    """
    source.verify(preparation(name, dataset, image_size), _absolute(folder))


def _absolute(folder: str | Path) -> Path:
    return config.project_root() / folder
