"""Split files: which classes are for training, validation and testing.

    CSV     a line a class, with a header: class,split or split,class; more columns do no harm
            a folder with train.csv, val.csv and test.csv: a line a class (tiered-ImageNet: wnid,category, without a
            header) or a line an image (Ravi and Larochelle: filename,label)
    JSON    Meta-Dataset's: {"train": [classes], "valid": [...], "test": [...]}

A file may be named by an http or https address. It is fetched once, into data/splits of the project's root under the
SHA-256 of its address, and used from there ever after; delete it there to have it fetched anew. Nothing is fetched that
a study doesn't name.
"""

import hashlib
import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from tcnaps.datasets.downloads import DownloadError, download
from tcnaps.datasets.names import natural_key, nearest, normal, some
from tcnaps.datasets.split_tables import (
    REMEDY,
    SPLITS,
    Row,
    SplitFileError,
    by_split,
    check_disjoint,
    check_new,
    parse,
    split_of,
)

__all__ = [
    "SPLITS",
    "SplitFileError",
    "fetch",
    "is_address",
    "local_path",
    "match_classes",
    "read_classes",
    "read_image_lists",
    "read_splits",
    "split_of",
    "stamp",
]


def is_address(place: str) -> bool:
    return place.startswith(("http://", "https://"))


def local_path(place: str, root: Path) -> Path:
    """Where a split file lies, or where one named by its address is kept once fetched.

    Args:
        place: a path, taken from `root` if it is relative, or an address.
        root: the project's root.
    """
    if not is_address(place):
        return root / Path(place).expanduser()
    extension = PurePosixPath(urlsplit(place).path).suffix.lower()
    name = hashlib.sha256(place.encode()).hexdigest()
    return root / "data" / "splits" / f"{name}{extension if extension in ('.csv', '.json', '.tsv') else '.txt'}"


def fetch(place: str, root: Path) -> Path:
    """Returns the path of a split file or of a folder of them, after fetching what is named by its address.

    Raises:
        SplitFileError: there is nothing at the path, the address can't be fetched, or no split file is there.
    """
    path = local_path(place, root)
    if path.exists():
        return path
    if not is_address(place):
        raise SplitFileError(f"There is no split file {path}. Correct its path. {REMEDY}.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:  # others may be fetching it at the same time
            fetched = Path(folder) / path.name
            download(place, fetched)
            parse(_text(fetched, place), place)  # a page that says "not found" must not stay
            os.replace(fetched, path)
    except DownloadError as error:
        raise SplitFileError(
            f"{error} Or fetch it with a browser, and name the file in place of its address."
        ) from error
    except OSError as error:
        raise SplitFileError(
            f"{place} can't be kept in {path.parent} ({error.strerror}). Make room, or name a file in "
            "place of the address."
        ) from error
    return path


def stamp(place: str, root: Path) -> str:
    """SHA-256 of a split file, or of those of a folder.

    Raises:
        SplitFileError: there is none.
    """
    path = fetch(place, root)
    files = _files_of(path) if path.is_dir() else {"": path}
    digests = [f"{split} {hashlib.sha256(_bytes(file)).hexdigest()}" for split, file in files.items()]
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def read_splits(place: str, root: Path) -> dict[str, tuple[str, ...]]:
    """The classes of each split, as they are listed. A split without classes is left out.

    Args:
        place: a file, a folder with train.csv, val.csv and test.csv, or an address; a relative path is taken from
            `root`.
        root: the project's root.

    Raises:
        SplitFileError: see `SplitFileError`.
    """
    path = fetch(place, root)
    if path.is_dir():
        return {split: tuple(classes) for split, classes in read_image_lists(path).items()}
    content = parse(_text(path, place), place)
    return content if isinstance(content, dict) else by_split(content, place)


def read_classes(place: str, root: Path) -> tuple[str, ...]:
    """The test classes that a file lists: all its classes, if it says nothing of splits.

    Raises:
        SplitFileError: see `SplitFileError`; or the file has splits, but none is "test".
    """
    path = fetch(place, root)
    if path.is_dir():
        raise SplitFileError(f"{path} is a folder; name the file in it that lists the test classes.")
    content = parse(_text(path, place), place)
    if not isinstance(content, dict):
        if content[0].split is None:
            return tuple(dict.fromkeys(row.class_name for row in content))
        content = by_split(content, place)
    if "test" not in content:
        raise SplitFileError(f"{place} lists no test classes, only: {', '.join(content)}. Name a file that does.")
    return content["test"]


def read_image_lists(folder: Path) -> dict[str, dict[str, tuple[str, ...]]]:
    """Reads train.csv, val.csv and test.csv of a folder, those that are there.

    Returns:
        for each split and class the names of its images; no names where the files list classes alone.

    Raises:
        SplitFileError: there is no such file, one lists nothing, a class is in two splits, or an image or class is
            listed twice.
    """
    lists = {split: _image_list(file, split) for split, file in _files_of(folder).items()}
    check_disjoint(lists, str(folder))
    return lists


def match_classes(
    splits: Mapping[str, Iterable[str]], found: Iterable[str], place: str, superclasses: Iterable[str] | None = None
) -> dict[str, tuple[str, ...]]:
    """Finds the listed classes among those that a dataset has. Those that aren't listed are in no split.

    Args:
        splits: listed names.
        found: names of the dataset's classes.
        place: what messages call the split file.
        superclasses: one for each of `found`, where there are any; a listed superclass stands for all its classes.

    Returns:
        names of `found`, in natural order.

    Raises:
        SplitFileError: a listed class is not among `found`, or a class is in two splits.
    """
    found = list(found)
    known: dict[str, list[str]] = {}
    for name, superclass in zip(found, superclasses or []):
        known.setdefault(_plain(superclass), []).append(name)
    known |= {_plain(name): [name] for name in found}
    matched: dict[str, tuple[str, ...]] = {}
    for split, listed in splits.items():
        listed = list(listed)
        missing = [name for name in listed if _plain(name) not in known]
        if missing:
            raise SplitFileError(
                f"{place}: {len(missing)} of the {len(listed)} classes of '{split}' are not in the dataset: "
                f"{some(missing)}.{nearest(missing[0], known)} Correct the split file, or add what is missing."
            )
        matched[split] = tuple(sorted({name for entry in listed for name in known[_plain(entry)]}, key=natural_key))
    check_disjoint(matched, place)
    return matched


def _plain(name: str) -> str:
    return normal(name).strip()  # some of Meta-Dataset's names of fungi end in a space


def _files_of(folder: Path) -> dict[str, Path]:
    """The CSVs of a folder that are named after splits."""
    files: dict[str, Path] = {}
    for file in sorted(folder.glob("*.csv")):
        split = split_of(file.stem)
        if split in files:
            raise SplitFileError(f"{folder} has both {files[split].name} and {file.name}; delete one.")
        if split:
            files[split] = file
    if not files:
        raise SplitFileError(f"{folder} has no train.csv, val.csv or test.csv. Put them there, or name another file.")
    return {split: files[split] for split in SPLITS if split in files}


def _image_list(file: Path, split: str) -> dict[str, tuple[str, ...]]:
    """The names of the images of each class, from the CSV of one split."""
    rows = parse(_text(file, str(file)), str(file))
    if isinstance(rows, dict):
        raise SplitFileError(f"{file} is JSON; rename it, and name it alone as the split file.")
    classes: dict[str, list[str]] = {}
    seen: dict[str, str] = {}
    for row in rows:
        _check_split(row, split, file)
        check_new(seen, row.file or row.class_name, f"{file}, line {row.line}", f"line {row.line}")
        classes.setdefault(row.class_name, []).extend([row.file] if row.file else [])
    return {name: tuple(files) for name, files in classes.items()}


def _check_split(row: Row, split: str, file: Path) -> None:
    if row.split is not None and split_of(row.split) != split:
        raise SplitFileError(
            f"{file}, line {row.line}: the split '{row.split}' in the list of '{split}'. Take the "
            "line out, or name this file alone as the split file."
        )


def _text(path: Path, place: str) -> str:
    try:
        return _bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SplitFileError(
            f"{place} is not UTF-8 (byte {error.start} is {error.object[error.start]:#04x}); save it "
            "anew with that encoding."
        ) from error


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SplitFileError(f"{path} can't be read ({error.strerror}). Check the path and its permissions.") from error
