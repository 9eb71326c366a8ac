"""mini-ImageNet, tiered-ImageNet and FETI, from the layouts that people have; the help texts below say which.

Numbers of classes and images are checked and differences told, not refused: smaller ones serve to try things out.

Sources: mini-ImageNet is of Vinyals et al. 2016, in the split of Ravi and Larochelle 2017; tiered-ImageNet of Ren et
al. 2018, with its 34 categories left aside, for its episodes draw classes uniformly (appendix A.2). FETI is of the
paper, section 4.3 and appendix A.4.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

from tcnaps.config.settings import FETI, MiniImageNet, TieredImageNet
from tcnaps.datasets.class_folders import ClassFolder, Plan, check_classes, class_folders, folder_source, split_folders
from tcnaps.datasets.image_folders import existing_folder, subfolders
from tcnaps.datasets.image_lists import has_lists, image_list_source
from tcnaps.datasets.image_source import DatasetError
from tcnaps.datasets.listing import FileSource, SplitListing
from tcnaps.datasets.names import nearest, some
from tcnaps.datasets.split_files import SPLITS, is_address, local_path, match_classes, read_classes, read_splits
from tcnaps.datasets.split_tables import WNID

IMAGENET = """\
The images are those of ILSVRC 2012's training set: 1,281,167 images of 1,000 classes, 138 GB, for those who register at
image-net.org. Its archive holds one archive a class; unpack each into a folder of its name: n01440764 and so on."""

MINI_HELP = f"""\
mini-ImageNet has 100 classes of ImageNet with 600 images each: 64 for training, 16 for validation, 20 for testing.
Lists: train.csv, val.csv and test.csv at github.com/twitter-research/meta-learning-lstm, data/miniImagenet. Images:
archives of them (1 to 3 GB) are passed on by many projects; github.com/yaoyao-liu/mini-imagenet-tools, which the paper
used, makes them from ImageNet. One of these must lie in the dataset's path:
    train.csv  val.csv  test.csv  images/n0153282900000005.jpg
    train.csv  val.csv  test.csv  images/n01532829/n01532829_1234.JPEG    ImageNet's own files; images/ may be missing
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

# The lists as published have 20 and 160 test classes; n02110063, n02219486, n04522168 and n07613480 are in both. So 824
# classes are left. The paper counts 825, and 1,055,494 images: one class of 1,300 more, as if one of mini-ImageNet's
# test classes had stayed in. Which one, it doesn't say.
FETI_CLASSES = (824, 825)


def open_mini_imagenet(name: str, dataset: MiniImageNet, root: Path) -> FileSource:
    """Points at mini-ImageNet: lists beside images, or class folders a split.

    Args:
        name: the dataset's key in the study.
        dataset: its section.
        root: what relative paths are taken from.
    """
    path = root / Path(dataset.path).expanduser()
    review = comparison((64, 16, 20), 600)
    if has_lists(path):
        return image_list_source(name, path, MINI_HELP, review)
    return folder_source(name, path, lambda: _split_plan(name, path, MINI_HELP), (path,), MINI_HELP, review)


def open_tiered_imagenet(name: str, dataset: TieredImageNet, root: Path) -> FileSource:
    """Points at tiered-ImageNet: class folders a split, or an ImageNet folder with tiered's class lists.

    Args:
        name: the dataset's key in the study.
        dataset: its section.
        root: what relative paths are taken from.
    """
    path = root / Path(dataset.path).expanduser()
    lists = dataset.class_lists

    def plan() -> Plan:
        if lists is None:
            return _split_plan(name, path, TIERED_HELP)
        classes = _imagenet_classes(name, path, TIERED_HELP)
        matched = match_classes(read_splits(lists, root), classes, lists)
        return Plan({split: tuple(classes[wnid] for wnid in wnids) for split, wnids in matched.items()})

    needs = (path, *_local([lists] if lists else [], root))
    return folder_source(name, path, plan, needs, TIERED_HELP, comparison((351, 97, 160)))


def open_feti(name: str, dataset: FETI, root: Path) -> FileSource:
    """Points at FETI: for training, the classes of an ImageNet folder that neither mini- nor tiered-ImageNet tests on.

    Args:
        name: the dataset's key in the study.
        dataset: its section.
        root: what relative paths are taken from.
    """
    path = root / Path(dataset.path).expanduser()

    def plan() -> Plan:
        classes = _imagenet_classes(name, path, FETI_HELP)
        lists = {place: set(read_classes(place, root)) for place in dataset.test_classes}
        kept = classes.keys() - set().union(*lists.values())
        notes = _check_feti(name, classes, lists, len(kept))
        return Plan({"train": tuple(found for wnid, found in classes.items() if wnid in kept)}, notes)

    return folder_source(name, path, plan, (path, *_local(dataset.test_classes, root)), FETI_HELP)


def _check_feti(name: str, classes: dict[str, ClassFolder], lists: dict[str, set[str]], n_kept: int) -> tuple[str, ...]:
    """Checks what is left of ImageNet, and returns what the user should know of it."""
    counts = ", ".join(f"{len(wnids)} in {place}" for place, wnids in lists.items()) or "none"
    total = f"test classes: {counts}, {len(set().union(*lists.values()))} together"
    if not n_kept:
        raise DatasetError(
            f"Dataset '{name}': all {len(classes)} classes of its path are test classes ({total}), so "
            "none is left to train on. Name a folder with all of ImageNet."
        )
    unknown = sorted(set().union(*lists.values()) - classes.keys())
    if len(classes) < 1000:
        return (
            f"{n_kept} of {len(classes)} classes are left for training, after {total}; all of ImageNet would be "
            "1000 classes",
        )
    if unknown:
        raise DatasetError(
            f"Dataset '{name}': of its test_classes, {len(unknown)} are not in ImageNet: "
            f"{some(unknown)}.{nearest(unknown[0], classes)} Correct the lists."
        )
    if n_kept not in FETI_CLASSES:
        raise DatasetError(
            f"Dataset '{name}': {len(classes)} classes less {total} leave {n_kept}, but it should be {FETI_CLASSES[0]} "
            f"with the lists as published, or the paper's {FETI_CLASSES[1]}. Name the test.csv of mini-ImageNet (20 "
            "classes) and that of tiered-ImageNet (160) in test_classes."
        )
    if n_kept == FETI_CLASSES[0]:
        return (f"{n_kept} classes are left by the published lists of test classes, where the paper counts 825",)
    return ()


def _imagenet_classes(name: str, path: Path, help: str) -> dict[str, ClassFolder]:
    """The classes of an ImageNet folder by their names, from the folder itself or from `train` in it."""
    existing_folder(path, name, help)
    for folder in (path, path / "train"):
        if folder.is_dir() and any(WNID.fullmatch(inner.name) for inner in subfolders(folder)):
            return {found.name: found for found in class_folders(folder) if WNID.fullmatch(found.name)}
    archives = sorted(file.name for file in path.glob("n[0-9]*.tar"))
    unpack = f" It holds {some(archives)}: unpack each into a folder of its name." if archives else ""
    raise DatasetError(
        f"Dataset '{name}': neither {path} nor a folder train in it has folders of ImageNet's classes, "
        f"such as n01440764.{unpack}\n{help}"
    )


def _split_plan(name: str, path: Path, help: str) -> Plan:
    """Class folders a split."""
    by_split = split_folders(existing_folder(path, name, help))
    if by_split is None:
        inside = some(folder.name for folder in subfolders(path)) or "no folders"
        raise DatasetError(f"Dataset '{name}': {path} has none of the known layouts; in it are {inside}.\n{help}")
    splits = {split: class_folders(folder) for split, folder in by_split.items()}
    check_classes(splits, f"Dataset '{name}', {path}")
    return Plan(splits)


def _local(places: Iterable[str], root: Path) -> tuple[Path, ...]:
    return tuple(local_path(place, root) for place in places if not is_address(place))


def comparison(
    n_classes: tuple[int, int, int], n_images: int | None = None
) -> Callable[[dict[str, SplitListing]], list[str]]:
    """What compares a dataset with the one published, and returns what differs.

    Args:
        n_classes: as published, of train, valid and test.
        n_images: of every class, if they are equally many.
    """

    def compare(splits: dict[str, SplitListing]) -> list[str]:
        notes = []
        for split, expected in zip(SPLITS, n_classes):
            found = len(splits[split].class_names) if split in splits else 0
            if found != expected:
                notes.append(
                    f"ATTENTION: {split} has {found} classes, not {expected} as published: results can't be "
                    "compared with published ones"
                )
        sizes = {
            name: len(images)
            for listing in splits.values()
            for name, images in zip(listing.class_names, listing.images)
        }
        odd = [f"{name} ({size})" for name, size in sizes.items() if n_images and size != n_images]
        if odd:
            notes.append(
                f"ATTENTION: {len(odd)} of {len(sizes)} classes don't have {n_images} images, as published: {some(odd)}"
            )
        return notes

    return compare
