"""mini-ImageNet, tiered-ImageNet and FETI, in their usual layouts (docs/data.md).

mini-ImageNet comes from Vinyals et al. 2016, with the split of Ravi and Larochelle 2017. tiered-ImageNet comes from
Ren et al. 2018; its 34 categories are ignored, since episodes draw classes uniformly (appendix A.2). FETI is defined in
section 4.3 and appendix A.4 of the paper.
"""

import re
from functools import partial
from pathlib import Path

from tcnaps.config.settings import FETI, MiniImageNet, TieredImageNet
from tcnaps.data.image_source import DatasetError
from tcnaps.data.listing import Listing, Source
from tcnaps.data.readers.csv_lists import WNID, list_files, listing_of, read_list, split_of
from tcnaps.data.readers.folders import list_folder, scan, subfolders
from tcnaps.data.readers.shared import located

HELP = "docs/data.md shows the layout, and where to get the files."


def open_mini_imagenet(name: str, dataset: MiniImageNet) -> Source:
    """Points at mini-ImageNet: lists beside a folder `images`, or class folders per split; see `Source`."""
    path = located(dataset.path)
    if lists := [file for file in sorted(path.glob("*.csv")) if split_of(file.stem)]:
        images = path / "images"
        return Source(partial(list_folder, images, path), (path, *lists, images), HELP)
    return Source(partial(list_folder, path), (path,), HELP)


def open_tiered_imagenet(name: str, dataset: TieredImageNet) -> Source:
    """Points at tiered-ImageNet: class folders per split, or an ImageNet folder with tiered's class lists."""
    path, lists = located(dataset.path), list_files(dataset.class_lists)

    def listing() -> Listing:
        return list_folder(_imagenet(path), lists[0]) if lists else list_folder(path)

    return Source(listing, (path, *lists), HELP)


def open_feti(name: str, dataset: FETI) -> Source:
    """Points at FETI: the classes of ImageNet that neither mini- nor tiered-ImageNet tests on, all for training."""
    path = located(dataset.path)
    lists = tuple(map(located, dataset.test_classes))

    def listing() -> Listing:
        rows, notes = scan(_imagenet(path))
        tested = {label for file in lists for label, split in read_list(file).classes.items() if split == "test"}
        kept = [row for row in rows if re.fullmatch(WNID, row.label) and row.label not in tested]
        if len(kept) in (0, len(rows)):
            few = "none" if kept else "all"
            raise DatasetError(f"Dataset '{name}': `test_classes` names {few} of the classes of ImageNet in {path}.")
        return listing_of([row._replace(split="train") for row in kept], path, notes=notes)

    return Source(listing, (path, *lists), HELP)


def _imagenet(path: Path) -> Path:
    """The folder of ImageNet's classes: the path itself, or `train` in it."""
    classes = any(re.fullmatch(WNID, folder.name) for folder in subfolders(path))
    return path if classes or not (path / "train").is_dir() else path / "train"
