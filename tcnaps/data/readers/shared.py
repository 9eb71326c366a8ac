"""Helpers of the readers: names in one order on every machine, walking through folders, reading JSON."""

import json
import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tcnaps.config import project_root
from tcnaps.data.image_source import DatasetError
from tcnaps.data.listing import open_regular

LEFTOVERS = frozenset(["thumbs.db", "ehthumbs.db", "desktop.ini", "__macosx", "@eadir"])  # of file managers


def located(path: str) -> Path:
    """A path from a study; relative ones are taken from the project's root."""
    return project_root() / Path(path).expanduser()


def normal(name: str) -> str:
    """A name in one spelling: macOS splits accented letters in two, and some of Meta-Dataset's fungi end in a space."""
    return unicodedata.normalize("NFC", name).strip()


def natural_key(name: str) -> tuple:
    """Sorts as people count: image2 before image10. Any two different names have a fixed order."""
    parts: list = re.split("([0-9]+)", normal(name))  # text and digits alternate
    parts[1::2] = map(int, parts[1::2])
    return parts, name


def some(names: Iterable[str]) -> str:
    """The first names of many, for a message: 'a', 'b', 'c' and 7 more."""
    names = list(names)
    shown = ", ".join(f"'{name}'" for name in names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"


def walk(folder: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """Like `os.walk`, but follows links, enters no folder twice, and has the same order on every machine.

    Hidden files and leftovers of file managers are left out.
    """

    def fail(error: OSError) -> None:
        raise DatasetError(f"{error.filename} can't be looked through ({error.strerror}). Check its permissions.")

    entered = {os.path.realpath(folder)}
    for place, folders, files in os.walk(folder, followlinks=True, onerror=fail):
        for name in folders + files:
            if name.encode(errors="replace") != os.fsencode(name):
                raise DatasetError(f"{place}: the name {os.fsencode(name)!r} is not UTF-8. Rename it.")
        real = {name: os.path.realpath(os.path.join(place, name)) for name in _in_order(folders)}
        folders[:] = [name for name in real if real[name] not in entered]
        entered.update(real.values())
        yield place, list(folders), _in_order(files)


def _in_order(names: list[str]) -> list[str]:
    visible = (name for name in names if not name.startswith(".") and name.casefold() not in LEFTOVERS)
    return sorted(visible, key=natural_key)


def read_json(path: Path, object_hook: Callable[[dict], object] | None = None) -> dict:
    """Reads a JSON file whose outermost value is an object."""
    try:
        with open_regular(path) as file:
            content = json.loads(file.read().decode("utf-8-sig"), object_hook=object_hook)
        if not isinstance(content, dict):
            raise ValueError("it holds no object")
    except (OSError, ValueError, RecursionError) as error:
        raise DatasetError(f"{path} is not JSON that can be read ({error}). Get the published file.") from error
    return content
