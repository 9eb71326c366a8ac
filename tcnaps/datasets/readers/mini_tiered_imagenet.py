"""mini-ImageNet, tiered-ImageNet and FETI, from the layouts that people have (docs/data.md).

mini-ImageNet is of Vinyals et al. 2016, in the split of Ravi and Larochelle 2017; tiered-ImageNet of Ren et al. 2018,
without its 34 categories, since its episodes draw classes uniformly (appendix A.2); FETI of the paper, section 4.3 and
appendix A.4.
"""

from pathlib import Path

from tcnaps.config.settings import FETI, MiniImageNet, TieredImageNet
from tcnaps.datasets.image_source import DatasetError
from tcnaps.datasets.listing import FileSource, Listing
from tcnaps.datasets.readers.csv_lists import (
    WNID,
    list_files,
    listed_images,
    match_classes,
    read_list,
    split_of,
    splits_of,
)
from tcnaps.datasets.readers.folders import Classes, class_folders, list_folders, own_splits, subfolders

MINI_HELP = """\
mini-ImageNet must lie there in one of these ways. Lists: github.com/twitter-research/meta-learning-lstm; images:
github.com/yaoyao-liu/mini-imagenet-tools makes them. docs/data.md says more.
    train.csv  val.csv  test.csv  images/n0153282900000005.jpg
    train/n01532829/*.jpg  val/n01855672/*.jpg  test/n01930112/*.jpg"""
TIERED_HELP = """\
tiered-ImageNet must lie there in one of these ways. Lists: github.com/renmengye/few-shot-ssl-public; images: those of
ILSVRC 2012, from image-net.org. docs/data.md says more.
    train/n02687172/*.jpg  val/n…/*.jpg  test/n…/*.jpg
    n01440764/*.JPEG  n01443537/*.JPEG …               an ImageNet folder; class_lists: the folder of the lists"""
FETI_HELP = """\
FETI is ImageNet without the test classes of mini- and tiered-ImageNet: its 1,000 folders must lie there, or a folder
train with them; test_classes names the test.csv of github.com/twitter-research/meta-learning-lstm and of
github.com/renmengye/few-shot-ssl-public. docs/data.md says more."""


def open_mini_imagenet(name: str, dataset: MiniImageNet, root: Path) -> FileSource:
    """Points at mini-ImageNet: lists beside a folder `images`, or class folders per split; see `FileSource`."""
    path = root / Path(dataset.path).expanduser()
    lists = [file for file in sorted(path.glob("*.csv")) if split_of(file.stem)]

    def listing() -> Listing:
        if not lists:
            return list_folders(name, path, own_splits(path, MINI_HELP))
        table = read_list(path)
        if "file" not in table:
            raise DatasetError(f"Dataset '{name}': the lists in {path} name no images (filename,label).\n{MINI_HELP}")
        return Listing(listed_images(path / "images", table, path))

    return FileSource(listing, (path, *lists, *([path / "images"] if lists else [])), MINI_HELP)


def open_tiered_imagenet(name: str, dataset: TieredImageNet, root: Path) -> FileSource:
    """Points at tiered-ImageNet: class folders per split, or an ImageNet folder with tiered's class lists."""
    path, lists = root / Path(dataset.path).expanduser(), list_files(dataset.class_lists, root)

    def listing() -> Listing:
        if not lists:
            return list_folders(name, path, own_splits(path, TIERED_HELP))
        classes = _imagenet_classes(name, path, TIERED_HELP)
        splits, _ = match_classes(splits_of(read_list(lists[0])), classes, lists[0])
        return list_folders(name, path, {split: {k: classes[k] for k in names} for split, names in splits.items()})

    return FileSource(listing, (path, *lists), TIERED_HELP)


def open_feti(name: str, dataset: FETI, root: Path) -> FileSource:
    """Points at FETI: for training, classes of ImageNet that neither mini- nor tiered-ImageNet tests on."""
    path = root / Path(dataset.path).expanduser()
    lists = [list_files(place, root) for place in dataset.test_classes]

    def listing() -> Listing:
        classes = _imagenet_classes(name, path, FETI_HELP)
        tested = {found for file, *_ in lists for found in splits_of(read_list(file, "test")).get("test", ())}
        kept = {wnid: folders for wnid, folders in classes.items() if wnid not in tested}
        if not kept or not tested:
            few = f"{len(tested)} of the {len(classes)} classes of {path} are test classes"
            raise DatasetError(f"Dataset '{name}': {few}.\n{FETI_HELP}")
        return list_folders(name, path, {"train": kept})

    return FileSource(listing, (path, *(file for files in lists for file in files)), FETI_HELP)


def _imagenet_classes(name: str, path: Path, help: str) -> Classes:
    """The classes of an ImageNet folder, from the folder itself or from `train` in it."""
    for folder in (path, path / "train"):
        if folder.is_dir() and any(WNID.fullmatch(inner.name) for inner in subfolders(folder)):
            return {wnid: folders for wnid, folders in class_folders(folder).items() if WNID.fullmatch(wnid)}
    raise DatasetError(
        f"Dataset '{name}': neither {path} nor a folder train in it has folders of ImageNet's classes, such as "
        f"n01440764. Unpack the archive of each class into a folder of its name.\n{help}"
    )
