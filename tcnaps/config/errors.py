"""Errors that a user can mend, and how their messages end."""

import difflib
from collections.abc import Iterable

MAKE = "`make figures` in a terminal computes a study's results: some 20 minutes on two cores for the built-in study, "
MAKE += "STUDY=<file> for any other."


class UserError(ValueError):
    """A file, a key or a parameter is wrong. Notebooks show the message, which says what to do, without a traceback."""

    def _render_traceback_(self) -> list[str]:
        missing = "`make figures`" in str(self) and MAKE not in str(self)
        return [f"{type(self).__name__}: {self}", *[f"\n{MAKE} Then run this notebook again."] * missing]


class ConfigError(UserError):
    """A study's YAML is wrong; the message names file, key and remedy."""


def nearest(name: object, known: Iterable[str]) -> str:
    """Ends a message about an unknown name: names the most similar known one, or lists all known ones."""
    names = list(known)
    near = difflib.get_close_matches(str(name)[:100], names, n=1)
    return f"; did you mean '{near[0]}'?" if near else f"; known: {', '.join(names) or 'none'}"
