"""Lists that say which class, or which image, is of which split.

class,split                    a CSV with one line per class; other columns do no harm
file,class,split               or with one line per image: only the listed images are taken
{"train": [...], "test": []}   JSON, as published with Meta-Dataset
train.csv val.csv test.csv     a folder with one CSV per split: filename,label with one line per image, as for
                               mini-ImageNet; or wnid,category with one line per class, as for tiered-ImageNet
"""

import io
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from tcnaps.datasets.image_source import SPLITS, DatasetError
from tcnaps.datasets.listing import ImageFile, Images
from tcnaps.datasets.readers.shared import natural_key, normal, read_json, read_text, some

WNID = re.compile("n[0-9]{8}")  # the name of an ImageNet class
REMEDY = 'Write a CSV whose first line is class,split, or JSON like {"train": ["cat"], "valid": ["dog"], "test": []}'
_ALIASES = {"train": "train", "valid": "valid", "val": "valid", "validation": "valid", "test": "test"}
_COLUMNS = {"class": "class", "label": "class", "wnid": "class", "split": "split", "file": "file", "filename": "file"}
Splits = dict[str, tuple[str, ...]]


def split_of(name: str) -> str | None:
    """ "train", "valid" or "test" for any usual name of it, else None."""
    return _ALIASES.get(name.strip().casefold())


def list_files(place: str | None, root: Path) -> tuple[Path, ...]:
    """The path of a list, relative to `root`, if one is named; and the files in it if it is a folder."""
    if place is None:
        return ()
    path = root / Path(place).expanduser()
    return path, *sorted(path.glob("*.csv"))


def read_list(path: Path, otherwise: str = ""):
    """A table, with the columns "class", "split" and, where the list has it, "file".

    Args:
        path: a file, or a folder with train.csv, val.csv and test.csv.
        otherwise: the split of all classes of a file that names no splits.

    Raises:
        DatasetError: the list is missing or unreadable, contradicts itself, or does not name splits.
    """
    import pandas

    files = {path: otherwise}
    if path.is_dir():
        files = {file: file.stem for file in sorted(path.glob("*.csv")) if split_of(file.stem)}
        if not files:
            raise DatasetError(f"{path} has no train.csv, val.csv or test.csv. Put them there, or name another file.")
    table = pandas.concat([_read(file, split) for file, split in files.items()], ignore_index=True)
    if table.empty:
        raise DatasetError(f"{path} lists no class. {REMEDY}.")
    if (table == "").any(axis=None):
        raise DatasetError(f"{path}: in some lines a field is missing (of {', '.join(table)}). {REMEDY}.")
    known = table["split"].map(split_of)
    if known.isna().any():
        found = some(dict.fromkeys(table["split"][known.isna()]))
        raise DatasetError(f"{path}: there is no split {found}; splits are {', '.join(SPLITS)}. {REMEDY}.")
    table["split"] = known
    if "file" in table and (repeated := table["file"].duplicated()).any():
        raise DatasetError(f"{path}: '{table['file'][repeated].iloc[0]}' is listed twice; delete one of the lines.")
    check_disjoint(splits_of(table), path)
    return table


def _read(path: Path, split: str):
    """A table with the columns "class", "split" (`split` if the file has none) and, where the file has it, "file"."""
    import pandas

    text = read_text(path).lstrip()
    if text.startswith(("{", "[")):
        rows = []
        for key, names in read_json(path).items():
            if not isinstance(names, list) or any(type(name) not in (str, int) for name in names):
                raise DatasetError(f"{path}: '{key}' must be a list of class names. {REMEDY}.")
            rows += [(str(name), key) for name in names]  # the classes of Traffic Sign are numbers
        return pandas.DataFrame(rows, columns=["class", "split"])
    try:
        table = pandas.read_csv(io.StringIO(text), header=None, dtype=str, na_filter=False, skipinitialspace=True)
    except ValueError as error:  # empty, an open quotation mark, a line of too many fields
        raise DatasetError(f"{path} is not a CSV that can be read ({str(error).strip()}). {REMEDY}.") from error
    table = table.fillna("").map(str.strip)
    columns = {_COLUMNS.get(name.casefold()): k for k, name in reversed(list(enumerate(table.iloc[0])))}
    if "class" in columns:
        kept = {columns[name]: name for name in ("class", "split", "file") if name in columns}
        table = table[1:][list(kept)].rename(columns=kept)
    elif table[0].str.fullmatch(WNID.pattern).all():
        table = table[[0]].set_axis(["class"], axis="columns")
    else:
        raise DatasetError(f"{path}: its first line ({', '.join(table.iloc[0])}) is not a known header. {REMEDY}.")
    return table if "split" in table else table.assign(split=split)


def splits_of(table) -> Splits:
    """The classes of each split of a list. A split without classes is left out."""
    splits = {split: tuple(dict.fromkeys(table["class"][table["split"] == split])) for split in SPLITS}
    return {split: names for split, names in splits.items() if names}


def listed_images(folder: Path, table, place: object) -> dict[str, Images]:
    """The images that a list names, in a folder or in the folders of their classes in it."""
    splits: dict[str, Images] = {}
    for (split, name), rows in sorted(table.groupby(["split", "class"]), key=lambda group: natural_key(group[0][1])):
        files = sorted(rows["file"], key=natural_key)
        there = [p for p in (folder, folder / name) if all(os.path.isfile(p / file) for file in files)]
        if not there:
            missing = [f for f in files if not any(os.path.isfile(p / f) for p in (folder, folder / name))]
            raise DatasetError(
                f"{place}: of the {len(files)} images listed of '{name}', {some(missing or files)} are neither in "
                f"{folder} nor in its folder {name}. Put them there or take them out of the list."
            )
        splits.setdefault(split, {})[name] = [ImageFile(str(there[0] / file)) for file in files]
    return splits


def match_classes(
    splits: Mapping[str, Iterable[str]],
    found: Iterable[str],
    place: object,
    superclasses: Mapping[str, str] | None = None,
) -> tuple[Splits, tuple[str, ...]]:
    """Finds the listed classes among those that a dataset has; a listed superclass stands for all its classes.

    Returns:
        names of `found` by split, in natural order; and a note on classes that are not listed, if there are any.

    Raises:
        DatasetError: a listed class is not among `found`, or a class is in two splits.
    """
    found = list(found)
    known: dict[str, list[str]] = {}
    for name, superclass in (superclasses or {}).items():
        known.setdefault(_plain(superclass), []).append(name)
    known |= {_plain(name): [name] for name in found}
    matched: Splits = {}
    for split, listed in splits.items():
        if missing := [name for name in listed if _plain(name) not in known]:
            raise DatasetError(
                f"{place}: {len(missing)} of the classes of '{split}' are not in the dataset: "
                f"{some(missing)}; it has {some(found)}. Correct the split file, or add what is missing."
            )
        matched[split] = tuple(sorted({name for entry in listed for name in known[_plain(entry)]}, key=natural_key))
    check_disjoint(matched, place)
    left_out = sorted(set(found).difference(*matched.values()), key=natural_key)
    note = f"classes left out, because {place} does not list them: {some(left_out)}"
    return matched, (note,) if left_out else ()


def check_disjoint(splits: Mapping[str, Iterable[str]], place: object) -> None:
    """Raises `DatasetError` if a class is in two splits."""
    seen: dict[str, str] = {}
    for split, names in splits.items():
        for name in names:
            if (other := seen.setdefault(_plain(name), split)) != split:
                raise DatasetError(
                    f"{place}: the class '{name}' is in two splits, {other} and {split}; take it out of one, or split "
                    "the classes by fractions or a split file: what a model is tested on must be new to it."
                )


def _plain(name: str) -> str:
    return normal(name).strip()  # some of Meta-Dataset's names of fungi end in a space
