"""Readers of files: one module per published dataset or family."""

import importlib

from tcnaps.config import settings
from tcnaps.datasets.listing import FileSource

READERS = {  # source -> module and function (name, dataset) -> FileSource
    "folder": ("folders", "open_folder"),
    "mini-imagenet": ("mini_tiered_imagenet", "open_mini_imagenet"),
    "tiered-imagenet": ("mini_tiered_imagenet", "open_tiered_imagenet"),
    "feti": ("mini_tiered_imagenet", "open_feti"),
    "records": ("meta_dataset", "open_records"),
    "torchvision": ("torchvision_sets", "open_torchvision"),
}


def open_files(name: str, dataset: settings.AnyDataset) -> FileSource:
    """Points at the files of a study's dataset.

    Raises:
        DatasetError: the reader can't use the section's keys.
    """
    module, function = READERS[dataset.source]
    return getattr(importlib.import_module(f"{__name__}.{module}"), function)(name, dataset)
