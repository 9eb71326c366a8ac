"""mini-ImageNet, tiered-ImageNet and FETI, from the layouts that people have; the help texts below show them.

Numbers of classes and images that differ from the published ones are reported, not refused: smaller sets serve to try
things out.

Sources: mini-ImageNet is of Vinyals et al. 2016, in the split of Ravi and Larochelle 2017; tiered-ImageNet of Ren et
al. 2018, without its 34 categories, since its episodes draw classes uniformly (appendix A.2); FETI of the paper,
section 4.3 and appendix A.4.

Ravi and Larochelle's names don't occur in ImageNet. Their number counts the files of a class in ImageNet, from 1 and in
the order of ImageNet's own numbers: n0153282900000005.jpg is the fifth of n01532829_*.JPEG. That is the rule of
mini-imagenet-tools, with which the paper's authors made their images (and of mmfewshot); whether it gives the very
images of Ravi and Larochelle has not been published.
"""

import os
import re
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from tcnaps.config.settings import FETI, MiniImageNet, TieredImageNet
from tcnaps.config.storage import digest_of
from tcnaps.datasets.image_source import DatasetError
from tcnaps.datasets.listing import FileSource, Listing, SplitListing
from tcnaps.datasets.readers.csv_lists import (
    WNID,
    is_address,
    local_path,
    match_classes,
    read_image_lists,
    read_splits,
    split_of,
)
from tcnaps.datasets.readers.folders import Classes, class_folders, folder_source, own_splits, split_folders, subfolders
from tcnaps.datasets.readers.shared import SPLITS, Images, natural_key, some, stamp

IMAGENET = """\
The images are those of ILSVRC 2012's training set: 1,281,167 images of 1,000 classes, 138 GB, for those who register at
image-net.org. Its archive holds one archive per class; unpack each into a folder of its name: n01440764 and so on."""

MINI_HELP = f"""\
mini-ImageNet has 100 classes of ImageNet with 600 images each: 64 for training, 16 for validation, 20 for testing.
Lists: train.csv, val.csv and test.csv at github.com/twitter-research/meta-learning-lstm, data/miniImagenet. Images:
archives of them (1 to 3 GB) are passed on by many projects; github.com/yaoyao-liu/mini-imagenet-tools, which the paper
used, makes them from ImageNet. One of these must lie in the dataset's path:
    train.csv  val.csv  test.csv  images/n0153282900000005.jpg
    train.csv  val.csv  test.csv  images/n01532829/n01532829_1234.JPEG    ImageNet's own files
    train/n01532829/*.jpg  val/n01855672/*.jpg  test/n01930112/*.jpg
Archives of arrays (.pkl, .npz) aren't read. {IMAGENET}"""

TIERED_HELP = f"""\
tiered-ImageNet has 608 classes of ImageNet: 351 for training, 97 for validation and 160 for testing, with 448,695,
124,261 and 206,209 images. Lists: train.csv, val.csv and test.csv at github.com/renmengye/few-shot-ssl-public,
fewshot/data/tiered_imagenet_split. One of these must lie in the dataset's path:
    train/n02687172/*.jpg  val/n…/*.jpg  test/n…/*.jpg    as github.com/yaoyao-liu/tiered-imagenet-tools makes them
    n01440764/*.JPEG  n01443537/*.JPEG …                  an ImageNet folder; class_lists: the folder of the lists
Archives of arrays (.pkl, .npz) aren't read. {IMAGENET}"""

FETI_HELP = f"""\
FETI is ImageNet without the test classes of mini- and tiered-ImageNet. {IMAGENET}
In the dataset's path must lie those 1,000 folders, or a folder train with them; in test_classes, name the test.csv of
both: github.com/twitter-research/meta-learning-lstm, data/miniImagenet, and github.com/renmengye/few-shot-ssl-public,
fewshot/data/tiered_imagenet_split."""

# The published lists have 20 and 160 test classes; n02110063, n02219486, n04522168 and n07613480 are in both. So 824
# classes are left. The paper counts 825, and 1,055,494 images: one class of 1,300 more, as if one of mini-ImageNet's
# test classes had stayed in. It doesn't say which.
FETI_CLASSES = (824, 825)


def open_mini_imagenet(name: str, dataset: MiniImageNet, root: Path) -> FileSource:
    """Points at mini-ImageNet: lists beside a folder `images`, or class folders per split; see `FileSource`."""
    path = root / Path(dataset.path).expanduser()
    review = partial(compare, n_classes=(64, 16, 20), n_images=600)
    if not any(split_of(file.stem) for file in path.glob("*.csv")):
        return folder_source(name, path, lambda: (_split_plan(name, path, MINI_HELP), []), (path,), MINI_HELP, review)

    def facts() -> dict:
        lists = read_image_lists(path)
        folders = {path / "images", *(path / "images" / wnid for classes in lists.values() for wnid in classes)}
        return {"lists": digest_of(lists), "files": stamp(sorted(filter(Path.is_dir, folders)), path)}

    def listing() -> Listing:
        splits, n_numbered = {}, 0
        for split, classes in read_image_lists(path).items():
            wnids = tuple(sorted(classes, key=natural_key))
            found = [_listed(f"Dataset '{name}'", path / "images", wnid, classes[wnid]) for wnid in wnids]
            splits[split] = SplitListing(wnids, tuple(images for images, _ in found))
            n_numbered += sum(numbered for _, numbered in found)
        notes = [
            f"images of {n_numbered} classes are taken from ImageNet by their positions within the class, since the "
            "lists' names don't occur there"
        ]
        return Listing(splits, notes=(*notes[: n_numbered > 0], *review(splits)))

    return FileSource(facts, listing, (path, path / "images"), MINI_HELP)


def _listed(name: str, folder: Path, wnid: str, files: tuple[str, ...]) -> tuple[Images, bool]:
    """The listed images of a class, and whether they were found by their positions in ImageNet."""
    if not files:
        raise DatasetError(
            f"{name}: the lists in {folder.parent} name no images of {wnid}. If they list classes alone, take the "
            f"source 'folder' and name {folder.parent} in its key splits."
        )
    for place in (folder, folder / wnid):
        if all(os.path.isfile(place / file) for file in files):
            return Images(str(place), tuple(sorted(files, key=natural_key))), False
    prefix = re.escape(wnid)
    positions = [re.fullmatch(rf"{prefix}([0-9]{{8}})\.jpe?g", file, re.IGNORECASE) for file in files]
    there = os.listdir(folder / wnid) if os.path.isdir(folder / wnid) else []
    numbers = {file: re.fullmatch(rf"{prefix}_([0-9]+)\.jpe?g", file, re.IGNORECASE) for file in there}
    if not (numbers and all(numbers.values()) and all(positions)):
        missing = [file for file in files if not any(os.path.isfile(p / file) for p in (folder, folder / wnid))]
        raise DatasetError(
            f"{name}: of {len(files)} images listed of {wnid}, {len(missing)} are neither in {folder} nor in its "
            f"folder {wnid}: {some(sorted(missing, key=natural_key))}. Put them there or take them out of the lists."
        )
    ordered = sorted(numbers, key=lambda file: int(numbers[file][1]))
    wanted = [int(position[1]) for position in positions]
    if not 1 <= min(wanted) <= max(wanted) <= len(ordered):
        raise DatasetError(
            f"{name}: the lists name image {max(wanted)} of {wnid}, but {folder / wnid} holds {len(ordered)}. Put all "
            "of ImageNet's images of this class there."
        )
    return Images(str(folder / wnid), tuple(sorted((ordered[k - 1] for k in wanted), key=natural_key))), True


def open_tiered_imagenet(name: str, dataset: TieredImageNet, root: Path) -> FileSource:
    """Points at tiered-ImageNet: class folders per split, or an ImageNet folder with tiered's class lists."""
    path = root / Path(dataset.path).expanduser()
    lists = dataset.class_lists

    def plan() -> tuple[dict[str, Classes], list[str]]:
        if lists is None:
            return _split_plan(name, path, TIERED_HELP), []
        classes = _imagenet_classes(name, path, TIERED_HELP)
        matched, _ = match_classes(read_splits(lists, root), classes, lists)
        return {split: {wnid: classes[wnid] for wnid in wnids} for split, wnids in matched.items()}, []

    needs = (path, *_local([lists] if lists else [], root))
    return folder_source(name, path, plan, needs, TIERED_HELP, partial(compare, n_classes=(351, 97, 160)))


def open_feti(name: str, dataset: FETI, root: Path) -> FileSource:
    """Points at FETI: for training, classes of ImageNet that neither mini- nor tiered-ImageNet tests on."""
    path = root / Path(dataset.path).expanduser()

    def plan() -> tuple[dict[str, Classes], list[str]]:
        classes = _imagenet_classes(name, path, FETI_HELP)
        lists = {place: read_splits(place, root, otherwise="test").get("test", ()) for place in dataset.test_classes}
        if empty := [place for place, wnids in lists.items() if not wnids]:
            raise DatasetError(f"Dataset '{name}': {some(empty)} lists no test classes. Name a file that does.")
        tested = {wnid for wnids in lists.values() for wnid in wnids}
        kept = {wnid: folders for wnid, folders in classes.items() if wnid not in tested}
        counts = ", ".join(f"{len(wnids)} in {place}" for place, wnids in lists.items()) or "none"
        total = f"test classes: {counts}, {len(tested)} together"
        return {"train": kept}, _check_feti(name, classes, tested, len(kept), total)

    return folder_source(name, path, plan, (path, *_local(dataset.test_classes, root)), FETI_HELP)


def _check_feti(name: str, classes: Classes, tested: set[str], n_kept: int, total: str) -> list[str]:
    """Checks what is left of ImageNet, and returns notes for the user."""
    if not n_kept:
        raise DatasetError(
            f"Dataset '{name}': all {len(classes)} classes of its path are test classes ({total}), so none is left to "
            "train on. Name a folder with all of ImageNet."
        )
    if len(classes) < 1000:
        return [f"{n_kept} of {len(classes)} classes are left for training, after {total}; ImageNet has 1000 classes"]
    unknown = sorted(tested - classes.keys())
    if n_kept not in FETI_CLASSES or unknown:
        raise DatasetError(
            f"Dataset '{name}': {len(classes)} classes less {total} leave {n_kept}, but it should be {FETI_CLASSES[0]} "
            f"with the lists as published, or the paper's {FETI_CLASSES[1]}. Not in ImageNet: {some(unknown) or 'none'}"
            ". Name the test.csv of mini-ImageNet (20 classes) and that of tiered-ImageNet (160) in test_classes."
        )
    if n_kept == FETI_CLASSES[0]:
        return [f"{n_kept} classes are left by the published lists of test classes, where the paper counts 825"]
    return []


def _imagenet_classes(name: str, path: Path, help: str) -> Classes:
    """The classes of an ImageNet folder, from the folder itself or from `train` in it."""
    for folder in (path, path / "train"):
        if folder.is_dir() and any(WNID.fullmatch(inner.name) for inner in subfolders(folder)):
            return {wnid: folders for wnid, folders in class_folders(folder).items() if WNID.fullmatch(wnid)}
    archives = sorted(file.name for file in path.glob("n[0-9]*.tar"))
    unpack = f" It holds {some(archives)}: unpack each into a folder of its name." if archives else ""
    raise DatasetError(
        f"Dataset '{name}': neither {path} nor a folder train in it has folders of ImageNet's classes, such as "
        f"n01440764.{unpack}\n{help}"
    )


def _split_plan(name: str, path: Path, help: str) -> dict[str, Classes]:
    by_split = split_folders(path)
    if by_split is None:
        inside = some(folder.name for folder in subfolders(path)) or "no folders"
        raise DatasetError(f"Dataset '{name}': {path} has none of the known layouts; in it are {inside}.\n{help}")
    return own_splits(by_split)


def _local(places: Iterable[str], root: Path) -> tuple[Path, ...]:
    return tuple(local_path(place, root) for place in places if not is_address(place))


def compare(splits: dict[str, SplitListing], n_classes: tuple[int, int, int], n_images: int | None = None) -> list[str]:
    """What differs from the published dataset.

    Args:
        n_classes: as published, of train, valid and test.
        n_images: of every class, if they are equally many.
    """
    notes = []
    for split, expected in zip(SPLITS, n_classes):
        found = len(splits[split].class_names) if split in splits else 0
        if found != expected:
            notes.append(
                f"ATTENTION: {split} has {found} classes, not {expected} as published: results can't be compared with "
                "published ones"
            )
    sizes = [(name, len(images)) for part in splits.values() for name, images in zip(part.class_names, part.images)]
    if n_images and (odd := [f"{name} ({size})" for name, size in sizes if size != n_images]):
        notes.append(
            f"ATTENTION: {len(odd)} of {len(sizes)} classes don't have {n_images} images, as published: {some(odd)}"
        )
    return notes
