"""Names of classes and files: one order and one spelling on every machine, whatever its locale and file system."""

import difflib
import re
import unicodedata
from collections.abc import Iterable

from tcnaps.datasets.image_source import DatasetError

_DIGITS = re.compile("([0-9]+)")


def normal(name: str) -> str:
    """One spelling (Unicode NFC): macOS writes an accented letter of a file's name as two characters."""
    return unicodedata.normalize("NFC", name)


def natural_key(name: str) -> tuple:
    """Sorts as people count: image2 before image10. Names that differ at all are in a fixed order."""
    parts = _DIGITS.split(normal(name))  # text and digits by turns
    return tuple(int(part) if k % 2 else part for k, part in enumerate(parts)), name


def nearest(name: str, names: Iterable[str]) -> str:
    """ " Did you mean 'x'?", or nothing where no name is near."""
    by_folded = {other.casefold(): other for other in names}
    found = difflib.get_close_matches(name.casefold(), by_folded, n=1)
    return f" Did you mean '{by_folded[found[0]]}'?" if found else ""


def some(names: Iterable[str], n: int = 3) -> str:
    """The first names of many, for a message: 'a', 'b', 'c' and 7 more."""
    names = list(names)
    shown = ", ".join(f"'{name}'" for name in names[:n])
    return shown if len(names) <= n else f"{shown} and {len(names) - n} more"


def check_distinct(names: Iterable[str], place: object) -> None:
    """Checks that no two names are the same but for upper and lower case.

    Raises:
        DatasetError: two are; on another file system they would be one.
    """
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(normal(name).casefold(), name)
        if other != name:
            raise DatasetError(
                f"{place}: '{other}' and '{name}' differ only in upper and lower case or in how accents are written; "
                "rename one, or put their images together."
            )
