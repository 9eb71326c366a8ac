"""Folders of images: split/class/*, or class/* with a split file or with fractions of the classes.

    path/train/cat/1.jpg           a folder per split ("val", "valid" or "validation"; any of the three may be missing)
    path/cat/1.jpg                 with `splits`, a split file, or with `fractions`

With `superclasses` the class folders lie one level deeper: path/train/Greek/alpha/1.png is of the class "Greek/alpha"
and of the superclass "Greek". Below the folder of its class an image may lie at any depth.

With `splits` or `fractions`, folders named after splits are pooled: train/cat and test/cat are one class. A dataset for
ordinary classification, which has every class in every split, is thus split by class.
"""

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from tcnaps.config.settings import Folder
from tcnaps.config.storage import digest_of
from tcnaps.datasets.image_source import DatasetError
from tcnaps.datasets.listing import FileSource, Listing, SplitListing
from tcnaps.datasets.readers.csv_lists import (
    check_disjoint,
    is_address,
    local_path,
    match_classes,
    read_splits,
    split_of,
)
from tcnaps.datasets.readers.shared import SPLITS, Images, natural_key, normal, some, stamp, walk

# Of the formats that are decoded; a test holds the two together.
EXTENSIONS = frozenset(
    ".jpg .jpeg .jpe .jfif .png .gif .bmp .tif .tiff .webp .ppm .pgm .pbm .pnm .jp2 .j2k .avif".split()
)
_EXPECTED = """Images must lie in one of these ways:
    {path}/train/{class_}/1.jpg   a folder per split: train, val (or valid) and test, those that there are
    {path}/{class_}/1.jpg         with splits: a split file, or fractions: [0.6, 0.2, 0.2] of the classes"""


Classes = dict[str, tuple[Path, ...]]  # "class" or "superclass/class" -> its folders, several where splits are pooled


def open_folder(name: str, dataset: Folder, root: Path) -> FileSource:
    """Points at folders of images. Problems with the files come up when the source is asked for stamp or listing.

    Args:
        name: the dataset's key in the study.
        dataset: its section.
        root: what relative paths are taken from.

    Raises:
        DatasetError: `splits` and `fractions` are both given, or the fractions don't add up to 1.
    """
    if dataset.splits is not None and dataset.fractions is not None:
        raise DatasetError(f"Dataset '{name}' has both splits and fractions; remove one of the two keys.")
    if dataset.fractions is not None and abs(sum(dataset.fractions) - 1) > 1e-6:
        total = f"{list(dataset.fractions)} add up to {sum(dataset.fractions):g}"
        raise DatasetError(f"Dataset '{name}': its fractions {total}; they must add up to 1.")
    path = root / Path(dataset.path).expanduser()
    help = _EXPECTED.format(path=path.name, class_="Greek/alpha" if dataset.superclasses else "cat")
    needs = [path]
    if dataset.splits is not None and not is_address(dataset.splits):
        needs.append(local_path(dataset.splits, root))

    def plan() -> tuple[dict[str, Classes], list[str]]:
        by_split = split_folders(path)
        if dataset.splits is None and dataset.fractions is None:
            if by_split is None:
                raise DatasetError(f"Dataset '{name}': {_neither(path)}\n{help}")
            return own_splits(by_split, dataset.superclasses), []
        classes: Classes = {}
        for folder in [path] if by_split is None else by_split.values():
            for found, folders in class_folders(folder, dataset.superclasses).items():
                classes[found] = classes.get(found, ()) + folders
        if dataset.fractions is not None:
            return _by_fractions(name, classes, dataset.fractions), []
        listed = read_splits(dataset.splits, root)
        matched, notes = match_classes(listed, classes, dataset.splits, superclasses(classes))
        return {split: {found: classes[found] for found in names} for split, names in matched.items()}, notes

    return folder_source(name, path, plan, tuple(needs), help)


def folder_source(
    name: str,
    path: Path,
    plan: Callable[[], tuple[dict[str, Classes], list[str]]],
    needs: tuple[Path, ...],
    help: str,
    review: Callable[[dict[str, SplitListing]], Iterable[str]] = lambda splits: (),
) -> FileSource:
    """A source of class folders.

    Args:
        name: of the dataset.
        path: its folder.
        plan: returns the classes of each split, and notes for the user.
        needs, help: see `FileSource`.
        review: returns more notes, given what was found.
    """

    def facts() -> dict:
        splits, _ = plan()
        folders = [folder for classes in splits.values() for own in classes.values() for folder in own]
        names = {split: list(classes) for split, classes in splits.items()}
        return {"classes": digest_of(names), "files": stamp(folders, path)}

    def listing() -> Listing:
        splits, notes = plan()
        found, others = {}, Counter()
        for split, classes in splits.items():
            found[split] = _list_images(f"Dataset '{name}', split {split}", path, classes, others)
        if others:
            notes = [*notes, f"left out, because their names are not those of images: {_counted(others)}"]
        return Listing(found, notes=(*notes, *_notes(path, splits, found), *review(found)))

    return FileSource(facts, listing, needs, help)


def subfolders(folder: Path) -> list[Path]:
    """The folders in a folder, in natural order."""
    return [folder / name for name in next(walk(folder))[1]]


def split_folders(path: Path) -> dict[str, Path] | None:
    """The folders named after splits, or None if there are none.

    Raises:
        DatasetError: there are two of one split, or other folders beside them.
    """
    folders = subfolders(path)
    by_split: dict[str, Path] = {}
    for folder in folders:
        if (split := split_of(folder.name)) and by_split.setdefault(split, folder) != folder:
            names = f"'{by_split[split].name}' and '{folder.name}'"
            raise DatasetError(f"{path} has two folders of one split, {names}; put them together.")
    besides = [folder.name for folder in folders if folder not in by_split.values()]
    if by_split and besides:
        named = some(folder.name for folder in by_split.values())
        raise DatasetError(
            f"{path} has folders of splits ({named}) and others beside them: {some(besides)}. Move the others away; "
            f"or, if all of them are classes, rename {named}."
        )
    return {split: by_split[split] for split in SPLITS if split in by_split} or None


def class_folders(folder: Path, grouped: bool = False) -> Classes:
    """The classes in a folder.

    Args:
        grouped: whether they lie in folders of their superclasses.

    Raises:
        DatasetError: there is no class in the folder, or in one of a superclass.
    """
    classes: Classes = {}
    for group in subfolders(folder) if grouped else [folder]:
        inner = subfolders(group)
        if grouped and not inner:
            raise DatasetError(
                f"{group} is to be a superclass, but has no folders of classes in it: remove the key superclasses, or "
                "delete the folder."
            )
        for place in inner:
            name = normal(place.relative_to(folder).as_posix())
            classes[name] = classes.get(name, ()) + (place,)
    if not classes:
        raise DatasetError(f"{folder} has no classes: put one folder per class into it, or delete the folder.")
    return classes


def superclasses(classes: Iterable[str]) -> dict[str, str]:
    """The superclass of each class that has one."""
    return {name: name.partition("/")[0] for name in classes if "/" in name}


def own_splits(by_split: dict[str, Path], grouped: bool = False) -> dict[str, Classes]:
    """The classes in the folders of splits.

    Raises:
        DatasetError: a class is in two splits; see also `class_folders`.
    """
    splits = {split: class_folders(folder, grouped) for split, folder in by_split.items()}
    remedy = (
        "Or have these classes split anew by fractions, such as [0.6, 0.2, 0.2], or by a split file: images of all "
        "folders are then pooled."
    )
    check_disjoint(splits, next(iter(by_split.values())).parent, remedy)
    return splits


def cut(names: Iterable[str], fractions: tuple[float, float, float]) -> dict[str, tuple[str, ...]]:
    """Deals names out to the splits by the SHA-256 of each: the same on every machine and in every order.

    The numbers are exact but for rounding. When a name is added, at most one other moves from each split to the next or
    back; all others stay where they were.

    Args:
        fractions: for train, valid and test; they add up to 1.
    """
    names = sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest())
    ends = [int(len(names) * sum(fractions[: k + 1]) + 0.5) for k in range(len(SPLITS))]
    return {
        split: tuple(sorted(names[start:end], key=natural_key)) for split, start, end in zip(SPLITS, [0, *ends], ends)
    }


def _by_fractions(name: str, classes: Classes, fractions: tuple[float, float, float]) -> dict[str, Classes]:
    """Superclasses stay whole: alphabets that are tested on must be new, not just letters of them."""
    groups: dict[str, Classes] = {}
    for found, folders in classes.items():
        groups.setdefault(superclasses([found]).get(found, found), {})[found] = folders
    parts = cut(groups, fractions)
    for split, fraction in zip(SPLITS, fractions):
        if fraction and not parts[split]:
            raise DatasetError(
                f"Dataset '{name}': {fraction:g} of {len(groups)} classes or superclasses is none for the split "
                f"'{split}'; make this fraction larger, or 0."
            )
    return {split: {k: v for group in part for k, v in groups[group].items()} for split, part in parts.items() if part}


def _list_images(place: str, path: Path, classes: Classes, others: Counter) -> SplitListing:
    """The images of each class of a split; other files are counted in `others`, by extension.

    Raises:
        DatasetError: a class has no images.
    """
    names = sorted(classes, key=natural_key)
    images = []
    for name in names:
        of_class = []
        for folder in classes[name]:
            inner = []
            for entry in (entry for _, _, files in walk(folder) for entry in files):
                if _is_image(entry):
                    inner.append(entry.path[len(str(path)) + 1 :])
                else:
                    others[_extension(entry) or "without extension"] += 1
            of_class += sorted(inner, key=natural_key)
        images.append(Images(str(path), tuple(of_class)))
    if empty := [name for name, of_class in zip(names, images) if not of_class]:
        raise DatasetError(
            f"{place}: {len(empty)} of {len(classes)} classes have no images: {some(empty)}. Put images into "
            f"{classes[empty[0]][0]} or take the class out. Files by extension: {_counted(others) or 'none'}."
        )
    above = superclasses(names)
    return SplitListing(tuple(names), tuple(images), tuple(above.values()) if above else None)


def _notes(path: Path, splits: dict[str, Classes], found: dict[str, SplitListing]) -> list[str]:
    """What the user should know of images that lie higher or deeper than expected."""
    folders = [folder for classes in splits.values() for own in classes.values() for folder in own]
    notes = []
    for folder in sorted({path, *(above for inner in folders for above in inner.parents if path in above.parents)}):
        if stray := sorted(entry.name for entry in next(walk(folder))[2] if _is_image(entry)):
            notes.append(f"left out, because {folder} is not the folder of a class: {some(stray)}")
    tops = [{os.path.dirname(name) for name in images.names} for part in found.values() for images in part.images]
    deep = [inner for inner in tops if len(inner) > 1 and len({os.path.dirname(name) for name in inner}) == 1]
    if len(deep) > len(tops) / 2 and len(folders) == len(tops):
        notes.append(
            f"most classes have their images in several folders, such as {some(sorted(deep[0]))}: if those are the "
            "classes, set superclasses: true"
        )
    return notes


def _extension(entry: os.DirEntry) -> str:
    return os.path.splitext(entry.name)[1].lower()


def _is_image(entry: os.DirEntry) -> bool:
    """By its name. A link that leads nowhere counts; pipes and devices don't: reading one could take for ever."""
    if entry.is_symlink():
        return _extension(entry) in EXTENSIONS and (os.path.isfile(entry.path) or not os.path.exists(entry.path))
    return _extension(entry) in EXTENSIONS and entry.is_file()


def _counted(extensions: Counter[str]) -> str:
    return ", ".join(f"{count} {extension}" for extension, count in extensions.most_common(5))


def _neither(path: Path) -> str:
    """What to say of a folder that has neither layout."""
    _, folders, files = next(walk(path))
    held = f"{len(folders)} folders ({some(folders)}), {sum(map(_is_image, files))} images"
    remedy = "Put the images of each class into a folder of their own."
    if folders:
        remedy = (
            "If these are the classes, say which are for training and which for testing, by splits or by fractions."
        )
    if len(folders) == 1:
        remedy += f" If the dataset lies in '{folders[0]}', make that the end of its path."
    return f"{path} holds {held}, and no folder train, val or test. {remedy}"
