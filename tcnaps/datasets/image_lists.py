"""Lists of images: train.csv, val.csv and test.csv that name each image and its class, as mini-ImageNet has them.

    filename,label
    n0153282900000005.jpg,n01532829

Images lie in a folder images, or beside the lists: all together, in folders of their classes, or in those in folders of
their splits.

Ravi and Larochelle's names don't occur in ImageNet. Their number counts the files of a class in ImageNet, in the order
of ImageNet's own numbers and from 1: so n0153282900000005.jpg is the fifth of n01532829_*.JPEG. That is the rule of
mini-imagenet-tools, with which the paper's authors made their images (and of mmfewshot); whether it gives the very
images of Ravi and Larochelle has not been published. It needs all files of a class to be there.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from tcnaps.datasets.image_folders import Images, existing_folder, fingerprint, scan_folder, subfolders
from tcnaps.datasets.image_source import DatasetError
from tcnaps.datasets.listing import FileSource, Listing, SplitListing
from tcnaps.datasets.names import check_distinct, natural_key, some
from tcnaps.datasets.split_files import read_image_lists, split_of

Lists = dict[str, dict[str, tuple[str, ...]]]  # of each split and class, the names of images


def has_lists(path: Path) -> bool:
    """Whether a folder has such lists."""
    return any(split_of(file.stem) for file in path.glob("*.csv"))


def image_list_source(
    name: str, path: Path, help: str, review: Callable[[dict[str, SplitListing]], Iterable[str]]
) -> FileSource:
    """A source of lists and the images that they name.

    Args:
        name: of the dataset.
        path: the folder of the lists.
        help: see `FileSource`.
        review: looks at what was found, and returns what the user should know of it.
    """

    def stamp() -> dict:
        lists = read_image_lists(existing_folder(path, name, help))
        found, _ = _find(path, lists, name)
        folders = {Path(images.folder) for classes in found.values() for images in classes.values()}
        text = json.dumps(lists, sort_keys=True)
        return fingerprint(sorted(folders), path) | {"lists": hashlib.sha256(text.encode()).hexdigest()}

    def listing() -> Listing:
        found, notes = _find(path, read_image_lists(existing_folder(path, name, help)), name)
        splits = {split: _split_listing(classes) for split, classes in found.items()}
        return Listing(splits, notes=(*notes, *review(splits)))

    return FileSource(stamp, listing, (path,), help)


def _split_listing(classes: dict[str, Images]) -> SplitListing:
    names = sorted(classes, key=natural_key)
    return SplitListing(tuple(names), tuple(classes[name] for name in names))


def _find(path: Path, lists: Lists, name: str) -> tuple[dict[str, dict[str, Images]], list[str]]:
    """Finds all listed images.

    Returns:
        the images of each split and class, and what the user should know.

    Raises:
        DatasetError: images are missing, or a list names none.
    """
    check_distinct((class_name for classes in lists.values() for class_name in classes), f"Dataset '{name}', {path}")

    @cache
    def inside(folder: Path) -> frozenset[str]:
        return frozenset(scan_folder(folder, deep=False).images) if folder.is_dir() else frozenset()

    of_splits = [folder for folder in subfolders(path) if split_of(folder.name)]
    found: dict[str, dict[str, Images]] = {}
    n_numbered = 0
    for split, classes in lists.items():
        found[split] = {}
        for class_name, files in classes.items():
            if not files:
                raise DatasetError(
                    f"Dataset '{name}': the list of '{split}' in {path} names no images of "
                    f"{class_name}. If it lists classes alone, take the source 'folder' and name {path} "
                    "in its key splits."
                )
            folders = _folders(path, of_splits, split, class_name)
            place = next((folder for folder in folders if inside(folder).issuperset(files)), None)
            if place is None:
                place, files = _by_number(name, class_name, files, {folder: inside(folder) for folder in folders})
                n_numbered += 1
            found[split][class_name] = Images(str(place), tuple(sorted(files, key=natural_key)))
    notes = []
    if n_numbered:
        notes.append(
            f"images of {n_numbered} classes are taken from ImageNet by their positions within the class, for "
            "the lists' names don't occur there"
        )
    return found, notes


def _folders(path: Path, of_splits: Sequence[Path], split: str, class_name: str) -> list[Path]:
    """Where images of a class may lie, the likeliest first. In ImageNet all of them lie in train."""
    own = [folder / class_name for folder in of_splits if split_of(folder.name) == split]
    train = [folder / class_name for folder in of_splits if split_of(folder.name) == "train" != split]
    return [path / "images", path / "images" / class_name, path / class_name, *own, *train, path]


def _by_number(
    name: str, class_name: str, files: Sequence[str], inside: Mapping[Path, frozenset[str]]
) -> tuple[Path, tuple[str, ...]]:
    """Finds images in ImageNet's folder of their class by their position.

    Returns:
        the folder and the names of the images in it.

    Raises:
        DatasetError: there is no such folder, or a name or position that doesn't occur there.
    """
    listed = [re.fullmatch(rf"{re.escape(class_name)}([0-9]{{8}})\.jpe?g", file, re.IGNORECASE) for file in files]
    for folder, names in inside.items():
        numbered = re.compile(rf"{re.escape(class_name)}_([0-9]+)\.jpe?g", re.IGNORECASE)
        numbers = {file: numbered.fullmatch(file) for file in names}
        if not (numbers and all(numbers.values()) and all(listed)):
            continue
        ordered = sorted(names, key=lambda file: int(numbers[file][1]))
        positions = [int(match[1]) for match in listed]
        if not 1 <= min(positions) <= max(positions) <= len(ordered):
            raise DatasetError(
                f"Dataset '{name}': the lists name image {max(positions)} of {class_name}, but {folder} "
                f"holds {len(ordered)}. Put all of ImageNet's images of this class there."
            )
        return folder, tuple(ordered[position - 1] for position in positions)
    best = max(inside, key=lambda folder: len(inside[folder].intersection(files)))
    missing = sorted(set(files) - inside[best], key=natural_key)
    raise DatasetError(
        f"Dataset '{name}': of {len(files)} images listed of {class_name}, {len(missing)} are not in "
        f"{best}: {some(missing)}. Looked in {', '.join(map(str, inside))}. Put them there or take them "
        "out of the lists; or move the lists away to have folders a split read instead."
    )
