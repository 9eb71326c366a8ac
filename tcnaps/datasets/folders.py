"""Folders of images as datasets: split/class/*, or class/* with a split file or with fractions of the classes.

    path/train/cat/1.jpg           a folder a split ("val", "valid" or "validation"; any of the three may be missing)
    path/cat/1.jpg                 with `splits`, a split file, or with `fractions`

With `superclasses` the class folders lie one level deeper: path/train/Greek/alpha/1.png is of the class "Greek/alpha"
and of the superclass "Greek". Below the folder of its class an image may lie as deep as it likes.

With `splits` or `fractions`, folders named after splits are put together: train/cat and test/cat are one class. Thus a
dataset for ordinary classification, which has every class in every split, is split by class.
"""

from pathlib import Path

from tcnaps.config.settings import Folder
from tcnaps.datasets.class_folders import (
    ClassFolder,
    Plan,
    check_classes,
    class_folders,
    cut,
    folder_source,
    split_folders,
)
from tcnaps.datasets.image_folders import existing_folder, scan_folder, subfolders
from tcnaps.datasets.image_source import DatasetError
from tcnaps.datasets.listing import FileSource
from tcnaps.datasets.names import some
from tcnaps.datasets.split_files import SPLITS, is_address, local_path, match_classes, read_splits

_EXPECTED = """Images must lie in one of these ways:
    {path}/train/{class_}/1.jpg   a folder a split: train, val (or valid) and test, those that there are
    {path}/{class_}/1.jpg         with splits: a split file, or fractions: [0.6, 0.2, 0.2] of the classes"""


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
        raise DatasetError(
            f"Dataset '{name}': its fractions {list(dataset.fractions)} add up to "
            f"{sum(dataset.fractions):g}; they must add up to 1."
        )
    path = root / Path(dataset.path).expanduser()
    help = _EXPECTED.format(path=path.name, class_="Greek/alpha" if dataset.superclasses else "cat")
    needs = [path]
    if dataset.splits is not None and not is_address(dataset.splits):
        needs.append(local_path(dataset.splits, root))
    return folder_source(name, path, lambda: _plan(name, dataset, path, root, help), tuple(needs), help)


def _plan(name: str, dataset: Folder, path: Path, root: Path, help: str) -> Plan:
    """Which class folders are of which split."""
    existing_folder(path, name, help)
    by_split = split_folders(path)
    if dataset.splits is None and dataset.fractions is None:
        if by_split is None:
            raise DatasetError(_neither(name, path, help))
        splits = {split: class_folders(folder, dataset.superclasses) for split, folder in by_split.items()}
        check_classes(splits, f"Dataset '{name}', {path}")
        return Plan(splits)
    pooled: dict[str, ClassFolder] = {}
    for folder in [path] if by_split is None else by_split.values():
        for found in class_folders(folder, dataset.superclasses):
            pooled[found.name] = pooled[found.name].joined(found) if found.name in pooled else found
    check_classes({"all": tuple(pooled.values())}, f"Dataset '{name}', {path}")
    if dataset.fractions is not None:
        return _by_fractions(name, pooled, dataset.fractions)
    return _by_split_file(pooled, dataset.splits, root)


def _by_fractions(name: str, classes: dict[str, ClassFolder], fractions: tuple[float, float, float]) -> Plan:
    """Superclasses stay whole: alphabets that are tested on must be new, not just letters of them."""
    groups: dict[str, list[ClassFolder]] = {}
    for found in classes.values():
        groups.setdefault(found.superclass or found.name, []).append(found)
    parts = cut(groups, fractions)
    for split, fraction in zip(SPLITS, fractions):
        if fraction and not parts[split]:
            raise DatasetError(
                f"Dataset '{name}': {fraction:g} of {len(groups)} classes or superclasses is none for "
                f"the split '{split}'; give it a larger fraction, or 0."
            )
    return Plan({s: tuple(found for group in part for found in groups[group]) for s, part in parts.items() if part})


def _by_split_file(classes: dict[str, ClassFolder], place: str, root: Path) -> Plan:
    superclasses = [found.superclass for found in classes.values()]
    matched = match_classes(read_splits(place, root), classes, place, superclasses if all(superclasses) else None)
    unlisted = sorted(classes.keys() - {name for names in matched.values() for name in names})
    notes = []
    if unlisted:
        notes.append(
            f"left out, because {place} does not list them: {len(unlisted)} of {len(classes)} classes, {some(unlisted)}"
        )
    return Plan({split: tuple(classes[name] for name in names) for split, names in matched.items()}, tuple(notes))


def _neither(name: str, path: Path, help: str) -> str:
    """What to say of a folder that has neither layout."""
    folders, here = [folder.name for folder in subfolders(path)], scan_folder(path, deep=False)
    found = [
        f"{len(folders)} folders ({some(folders)})" if folders else "no folders",
        f"{len(here.images)} images",
        f"{len(here.others)} other files",
    ]
    remedy = "Put the images of each class into a folder of their own."
    if folders:
        remedy = (
            "If these folders are the classes, say which are for training and which for testing: by splits, a "
            "split file, or by fractions of the classes."
        )
    if len(folders) == 1:
        remedy += f" If the dataset lies in '{folders[0]}', make that the end of its path."
    return f"Dataset '{name}': {path} holds {', '.join(found)}, and no folder train, val or test. {remedy}\n{help}"
