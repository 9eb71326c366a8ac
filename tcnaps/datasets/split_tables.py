"""What stands in split files: text -> the classes of each split. `split_files` says which layouts there are.

Commas may be tabs or semicolons. "val", "valid" and "validation" are one split.
"""

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tcnaps.datasets.image_source import DatasetError
from tcnaps.datasets.names import normal

SPLITS = ("train", "valid", "test")
WNID = re.compile("n[0-9]{8}")  # the name of a class of ImageNet
REMEDY = 'Write a CSV whose first line is class,split, or JSON like {"train": ["cat"], "valid": ["dog"], "test": []}'

_ALIASES = {"train": "train", "valid": "valid", "val": "valid", "validation": "valid", "test": "test"}
_COLUMNS = {  # of each, the first that is there
    "class_name": ("class", "label", "class_name", "classname", "wnid", "category", "name"),
    "split": ("split", "set", "subset", "partition"),
    "file": ("filename", "file_name", "file", "image", "image_name", "path"),
}


class SplitFileError(DatasetError):
    """A split file is missing, of no known layout, or contradicts itself or the dataset; the message says where."""


@dataclass(frozen=True)
class Row:
    """One line of a CSV; None where it has no such column."""

    line: int
    class_name: str
    split: str | None
    file: str | None


def split_of(name: str) -> str | None:
    """ "train", "valid" or "test" for any usual name of it, else None."""
    return _ALIASES.get(name.strip().casefold())


def parse(text: str, place: str) -> list[Row] | dict[str, tuple[str, ...]]:
    """Reads JSON into the classes of each split, and anything else as the lines of a CSV.

    Args:
        text: what stands in a split file.
        place: what messages call it.

    Raises:
        SplitFileError: it is neither, or of unknown columns or keys, or lists nothing; a cell is missing.
    """
    if text.lstrip()[:1] == "<":
        raise SplitFileError(f"{place} is a web page, not a split file. On GitHub, take the address behind 'Raw'.")
    return _parse_json(text, place) if text.lstrip()[:1] in ("{", "[") else _parse_rows(text, place)


def by_split(rows: Iterable[Row], place: str) -> dict[str, tuple[str, ...]]:
    """The classes of each split, from the lines of a CSV that has a column of splits.

    Raises:
        SplitFileError: it has none, or an unknown split; a line is there twice, or a class in two splits.
    """
    splits: dict[str, dict[str, None]] = {}
    seen: dict[str, str] = {}
    for row in rows:
        if row.split is None:
            raise SplitFileError(
                f"{place} has no column that says of which split a class is. {REMEDY}; or name the "
                "folder that has train.csv, val.csv and test.csv."
            )
        split = _known_split(row.split, f"{place}, line {row.line}")
        check_new(seen, row.file or f"{row.class_name}, {split}", f"{place}, line {row.line}", f"line {row.line}")
        splits.setdefault(split, {})[row.class_name] = None
    return complete({split: tuple(names) for split, names in splits.items()}, place)


def complete(splits: Mapping[str, tuple[str, ...]], place: str) -> dict[str, tuple[str, ...]]:
    """The splits that have classes, in their usual order.

    Raises:
        SplitFileError: there is no class at all, or one is in two splits.
    """
    kept = {split: splits[split] for split in SPLITS if splits.get(split)}
    if not kept:
        raise SplitFileError(f"{place} lists no class at all. {REMEDY}.")
    check_disjoint(kept, place)
    return kept


def check_disjoint(splits: Mapping[str, Iterable[str]], place: str) -> None:
    """Checks that no class is in two splits.

    Raises:
        SplitFileError: one is.
    """
    seen: dict[str, str] = {}
    for split, names in splits.items():
        for name in names:
            other = seen.setdefault(normal(name).strip(), split)
            if other != split:
                raise SplitFileError(
                    f"{place}: the class '{name}' is in two splits, {other} and {split}; take it out of one: what a "
                    "model is tested on must be new to it."
                )


def check_new(seen: dict[str, str], entry: str, place: str, number: str) -> None:
    """Notes an entry and where it stands.

    Raises:
        SplitFileError: it was there before.
    """
    if entry in seen:
        raise SplitFileError(f"{place}: '{entry}' is there already, in {seen[entry]}; delete one of them.")
    seen[entry] = number


def _parse_json(text: str, place: str) -> dict[str, tuple[str, ...]]:
    try:
        content = json.loads(text, object_pairs_hook=_unique_keys)
    except ValueError as error:
        raise SplitFileError(f"{place} is no JSON that can be read ({error}). {REMEDY}.") from error
    if not isinstance(content, dict):
        raise SplitFileError(f"{place} is JSON, but doesn't say which classes are of which split. {REMEDY}.")
    splits: dict[str, tuple[str, ...]] = {}
    for key, names in content.items():
        split = _known_split(key, place)
        if split in splits:
            raise SplitFileError(f"{place}: the split '{split}' is there twice; put its classes together.")
        if not isinstance(names, list) or any(type(name) not in (str, int) for name in names):
            raise SplitFileError(f"{place}: '{key}' must be a list of names of classes. {REMEDY}.")
        seen: dict[str, str] = {}
        for k, name in enumerate(map(str, names), start=1):  # Traffic Sign's classes are numbers
            check_new(seen, name, f"{place}, '{key}', entry {k}", f"entry {k}")
        splits[split] = tuple(seen)
    return complete(splits, place)


def _unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    keys = [key for key, _ in pairs]
    if len(set(keys)) < len(keys):
        raise ValueError(f"the key '{next(key for key in keys if keys.count(key) > 1)}' is there twice")
    return dict(pairs)


def _parse_rows(text: str, place: str) -> list[Row]:
    first = text.partition("\n")[0]
    delimiter = max(",\t;", key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        lines = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader if any(map(str.strip, cells))]
    except csv.Error as error:
        raise SplitFileError(f"{place}, line {reader.line_num}: not CSV ({error}). {REMEDY}.") from error
    if not lines:
        raise SplitFileError(f"{place} is empty. {REMEDY}.")
    columns, headed = _columns(lines, place)
    if headed and len(lines) == 1:
        raise SplitFileError(f"{place} has a header and nothing below it: it lists no class. {REMEDY}.")
    return [_row(line, cells, columns, place) for line, cells in lines[headed:]]


def _columns(lines: list[tuple[int, list[str]]], place: str) -> tuple[dict[str, int], bool]:
    """The columns' positions, and whether the first line is a header."""
    header = [cell.casefold() for cell in lines[0][1]]
    columns = {
        column: header.index(next(name for name in names if name in header))
        for column, names in _COLUMNS.items()
        if set(names) & set(header)
    }
    if "class_name" in columns:
        return columns, True
    if columns:
        raise SplitFileError(f"{place}: no column of its header ({', '.join(header)}) holds classes; call it 'class'.")
    bodies = [cells for _, cells in lines]
    width = min(map(len, bodies))
    splits = [k for k in range(width) if all(split_of(cells[k]) for cells in bodies)]
    if width == 2 and len(splits) == 1:
        return {"split": splits[0], "class_name": 1 - splits[0]}, False
    if width == 1 or all(WNID.fullmatch(cells[0]) for cells in bodies):  # a category, or words, may stand behind
        return {"class_name": 0}, False
    raise SplitFileError(f"{place}: its first line ({', '.join(lines[0][1])}) is no header known here. {REMEDY}.")


def _row(line: int, cells: list[str], columns: dict[str, int], place: str) -> Row:
    values = {column: cells[k] if k < len(cells) else "" for column, k in columns.items()}
    for column, value in values.items():
        if not value:
            raise SplitFileError(f"{place}, line {line}: the {column.partition('_')[0]} is missing; add it.")
    return Row(line, values["class_name"], values.get("split"), values.get("file"))


def _known_split(name: str, place: str) -> str:
    split = split_of(name)
    if split is None:
        raise SplitFileError(
            f"{place}: there is no split '{name}'; splits are train, valid (or val) and test. {REMEDY}."
        )
    return split
