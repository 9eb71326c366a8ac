"""Lists of classes and images: which class is in which split, and which images a class has.

    class,split                    a CSV with one line per class; more columns do no harm
    {"train": [...], "test": []}   JSON, as published with Meta-Dataset
    train.csv val.csv test.csv     a folder with one CSV per split: filename,label with one line per image, as for
                                   mini-ImageNet; or wnid,category with one line per class, as for tiered-ImageNet

A list may be named by an http or https address. It is downloaded once, into data/splits of the project, under the
SHA-256 of its address; delete it there to have it downloaded again.
"""

import hashlib
import io
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from tcnaps.config.storage import digest_of
from tcnaps.datasets.downloads import DownloadError, download
from tcnaps.datasets.image_source import DatasetError
from tcnaps.datasets.listing import FileSource, Listing
from tcnaps.datasets.readers.shared import (
    SPLITS,
    Classes,
    natural_key,
    nearest,
    normal,
    read_json,
    read_text,
    some,
    stamp,
)

WNID = re.compile("n[0-9]{8}")  # the name of an ImageNet class
REMEDY = 'Write a CSV whose first line is class,split, or JSON like {"train": ["cat"], "valid": ["dog"], "test": []}'
_ALIASES = {"train": "train", "valid": "valid", "val": "valid", "validation": "valid", "test": "test"}
_COLUMNS = {"class": "class", "label": "class", "wnid": "class", "split": "split", "file": "file", "filename": "file"}


def split_of(name: str) -> str | None:
    """ "train", "valid" or "test" for any usual name of it, else None."""
    return _ALIASES.get(name.strip().casefold())


def is_address(place: str) -> bool:
    return place.startswith(("http://", "https://"))


def local_path(place: str, root: Path) -> Path:
    """Where a list lies, or where one named by its address is kept once it is downloaded.

    Args:
        place: a path, relative to `root` unless it is absolute, or an address.
        root: the project's root.
    """
    if not is_address(place):
        return root / Path(place).expanduser()
    return root / "data" / "splits" / hashlib.sha256(place.encode()).hexdigest()


def fetch(place: str, root: Path) -> Path:
    """The path of a list, or of a folder of lists, after downloading one that is named by its address.

    Raises:
        DatasetError: there is nothing at the path, or the address can't be downloaded or is not a list.
    """
    path = local_path(place, root)
    if os.path.exists(path):  # False for a path that is too long
        return path
    if not is_address(place):
        raise DatasetError(f"There is no split file {path}. Correct its path. {REMEDY}.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:  # others may be downloading it at the same time
            downloaded = Path(folder) / path.name
            download(place, downloaded)
            _read(downloaded)  # a page that says "not found" must not stay
            os.replace(downloaded, path)
    except (DownloadError, DatasetError) as error:
        raise DatasetError(f"{place}: {error} Or download it with a browser and name the file instead.") from error
    except OSError as error:
        raise DatasetError(f"{place} can't be kept in {path.parent} ({error.strerror}). Make room there.") from error
    return path


def read_splits(place: str, root: Path, otherwise: str | None = None) -> dict[str, tuple[str, ...]]:
    """The classes of each split, as they are listed. A split without classes is left out.

    Args:
        place: a file, a folder with train.csv, val.csv and test.csv, or an address; relative to `root`.
        root: the project's root.
        otherwise: the split of all classes of a list that names no splits; None refuses such a list.

    Raises:
        DatasetError: the list is missing or unreadable, contradicts itself, or does not name splits.
    """
    path = fetch(place, root)
    if path.is_dir():
        return {split: tuple(classes) for split, classes in read_image_lists(path).items()}
    table = _read(path)
    if "split" not in table and otherwise:
        table = table.assign(split=otherwise)
    elif "split" not in table:
        raise DatasetError(f"{place} has no column 'split'. {REMEDY}; or name a folder with train.csv and test.csv.")
    of_split = table["split"].map(split_of)
    if of_split.isna().any():
        unknown = dict.fromkeys(table["split"][of_split.isna()])
        raise DatasetError(f"{place}: there is no split {some(unknown)}; splits are {', '.join(SPLITS)}. {REMEDY}.")
    splits = {split: tuple(dict.fromkeys(table["class"][of_split == split])) for split in SPLITS}
    splits = {split: names for split, names in splits.items() if names}
    check_disjoint(splits, place)
    return splits


def read_image_lists(folder: Path) -> dict[str, dict[str, tuple[str, ...]]]:
    """Reads those of train.csv, val.csv and test.csv that a folder has.

    Returns:
        for each split and class the names of its images; no names where the files list classes alone.

    Raises:
        DatasetError: there is no such file, one is unreadable, or a class is in two splits.
    """
    files: dict[str, Path] = {}
    for file in sorted(folder.glob("*.csv")):
        if (split := split_of(file.stem)) and files.setdefault(split, file) != file:
            raise DatasetError(f"{folder} has both {files[split].name} and {file.name}; delete one.")
    if not files:
        raise DatasetError(f"{folder} has no train.csv, val.csv or test.csv. Put them there, or name another file.")
    lists = {}
    for split in (split for split in SPLITS if split in files):
        groups = _read(files[split]).groupby("class", sort=False)
        lists[split] = {name: tuple(rows["file"]) if "file" in rows else () for name, rows in groups}
    check_disjoint(lists, folder)
    return lists


def match_classes(
    splits: Mapping[str, Iterable[str]], found: Iterable[str], place: str, superclasses: Mapping[str, str] | None = None
) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """Finds the listed classes among those that a dataset has.

    Args:
        splits: listed names.
        found: names of the dataset's classes.
        place: the split file's name in messages.
        superclasses: of each class in `found`, if any; a listed superclass stands for all its classes.

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
    matched: dict[str, tuple[str, ...]] = {}
    for split, listed in splits.items():
        listed = list(listed)
        if missing := [name for name in listed if _plain(name) not in known]:
            raise DatasetError(
                f"{place}: {len(missing)} of the {len(listed)} classes of '{split}' are not in the dataset: "
                f"{some(missing)}.{nearest(missing[0], known)} Correct the split file, or add what is missing."
            )
        matched[split] = tuple(sorted({name for entry in listed for name in known[_plain(entry)]}, key=natural_key))
    check_disjoint(matched, place)
    left_out = sorted(set(found).difference(*matched.values()), key=natural_key)
    if not left_out:
        return matched, []
    return matched, [
        f"left out, because {place} does not list them: {len(left_out)} of {len(found)} classes, {some(left_out)}"
    ]


def split_source(
    found: Callable[[], Classes],
    folder: Path,
    place: str | None,
    root: Path,
    needs: tuple[Path, ...],
    help: str,
    fetch: Callable[[], None] | None = None,
    watched: str = "",
) -> FileSource:
    """A source of classes that are split by name.

    Args:
        found: looks for all classes.
        folder: the dataset's.
        place: path or address of a split file. Classes that it doesn't list are left out, with a note. Without one,
            classes are split as the dataset has them, or else are all for testing.
        root: the project's root.
        needs, help, fetch: see `FileSource`.
        watched: a pattern, below `folder`, of files whose changes count besides those of `needs`.
    """

    def facts() -> dict:
        files = stamp([*needs, *(sorted(folder.glob(watched)) if watched else ())], folder)
        return {"files": files, "splits": None if place is None else digest_of(read_splits(place, root))}

    def listing() -> Listing:
        classes = found()
        if place is None:
            everything = {"test": tuple(sorted(classes.images, key=natural_key))}
            return classes.listing(classes.splits or everything)
        return classes.listing(*match_classes(read_splits(place, root), classes.images, place, classes.superclasses))

    return FileSource(facts, listing, needs, help, fetch)


def check_disjoint(splits: Mapping[str, Iterable[str]], place: object, remedy: str = "") -> None:
    """Checks that no class is in two splits.

    Raises:
        DatasetError: one is.
    """
    seen: dict[str, str] = {}
    for split, names in splits.items():
        for name in names:
            if (other := seen.setdefault(_plain(name), split)) != split:
                raise DatasetError(
                    f"{place}: the class '{name}' is in two splits, {other} and {split}; take it out of one: what a "
                    f"model is tested on must be new to it. {remedy}".rstrip()
                )


def _plain(name: str) -> str:
    return normal(name).strip()  # some of Meta-Dataset's names of fungi end in a space


def _read(path: Path):
    """A table with a column "class" and, where the list has them, "split" and "file"."""
    import pandas

    text = read_text(path).lstrip()
    if text.startswith("<"):
        raise DatasetError(f"{path} is a web page, not a split file. On GitHub, take the address behind 'Raw'.")
    if text.startswith(("{", "[")):
        table = pandas.DataFrame(_from_json(path), columns=["class", "split"])
    else:
        table = _from_csv(text, path)
    if table.empty:
        raise DatasetError(f"{path} lists no class. {REMEDY}.")
    if (lacking := (table == "").any(axis="columns")).any():
        raise DatasetError(f"{path}, line {lacking.idxmax() + 1}: a field is missing ({', '.join(table)}); add it.")
    if "file" in table and (repeated := table["file"].duplicated()).any():
        line = repeated.idxmax()
        raise DatasetError(f"{path}, line {line + 1}: '{table['file'][line]}' is listed twice; delete one of them.")
    return table


def _from_json(path: Path) -> list[tuple[str, str]]:
    rows = []
    for split, names in read_json(path).items():
        if not isinstance(names, list) or any(type(name) not in (str, int) for name in names):
            raise DatasetError(f"{path}: '{split}' must be a list of class names. {REMEDY}.")
        rows += [(str(name), split) for name in names]  # the classes of Traffic Sign are numbers
    return rows


def _from_csv(text: str, path: Path):
    import pandas

    try:
        table = pandas.read_csv(io.StringIO(text), header=None, dtype=str, na_filter=False, skipinitialspace=True)
    except ValueError as error:  # empty, an open quotation mark, a line of too many fields
        raise DatasetError(f"{path} is not a CSV that can be read ({str(error).strip()}). {REMEDY}.") from error
    table = table.fillna("").map(str.strip)
    columns = {_COLUMNS.get(name.casefold()): k for k, name in reversed(list(enumerate(table.iloc[0])))}
    if "class" in columns:
        return table[1:].rename(columns={k: name for name, k in columns.items() if name})[
            [name for name in ("class", "split", "file") if name in columns]
        ]
    if table[0].str.fullmatch(WNID.pattern).all():
        return table[[0]].set_axis(["class"], axis="columns")
    raise DatasetError(f"{path}: its first line ({', '.join(table.iloc[0])}) is not a known header. {REMEDY}.")
