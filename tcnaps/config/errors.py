"""Errors that a user can mend, and what their messages are made of."""

import difflib
import reprlib
from collections.abc import Iterable

from pydantic import ValidationError

MAKE = (
    "`make figures` in a terminal computes a study's results: some 20 minutes on two cores for the built-in study, "
    "STUDY=<file> for any other."
)


class UserError(ValueError):
    """Something outside the code is wrong: a file, a key, a parameter. The message says what and how to mend it.

    Notebooks show the message alone, without a traceback, and how long it takes to make what is missing.
    """

    def _render_traceback_(self) -> list[str]:
        missing = "`make figures`" in str(self) and MAKE not in str(self)
        return [f"{type(self).__name__}: {self}", *[f"\n{MAKE} Then run this notebook again."] * missing]


class ConfigError(UserError):
    """A study's YAML is wrong; the message names file, key and remedy."""


def nearest(name: object, known: Iterable[str]) -> str:
    """The end of a message about a name that does not exist: the most similar one, or all that there are."""
    names = list(known)
    near = difflib.get_close_matches(str(name)[:100], names, n=1)
    return f"; did you mean '{near[0]}'?" if near else f"; known: {', '.join(names) or 'none'}"


def explained(error: ValidationError) -> list[str]:
    """One line for each thing that is wrong with a section: the key's path and what pydantic says of it."""
    lines = []
    for found in error.errors(include_url=False):
        path, message = list(map(str, found["loc"])), found["msg"].removeprefix("Value error, ")
        if found["type"] == "unknown_key":
            path.append(found["ctx"]["key"])
        elif found["type"] not in ("missing", "value_error"):
            message += f" (got {reprlib.repr(found['input'])})"
        lines.append(": ".join([".".join(path)] * bool(path) + [message]))
    return lines
