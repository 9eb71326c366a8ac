"""Errors that a user can mend, and what their messages are made of."""

import difflib
import reprlib
from collections.abc import Iterable, Iterator
from typing import get_args

from pydantic import BaseModel, ValidationError


class UserError(ValueError):
    """Something outside the code is wrong: a file, a key, a parameter. The message says what and how to mend it.

    Notebooks show the message alone, without a traceback.
    """

    def _render_traceback_(self) -> list[str]:
        return [f"{type(self).__name__}: {self}"]


class ConfigError(UserError):
    """A study's YAML, or a section of it, is wrong; the message names file, key and remedy."""


def nearest(name: object, known: Iterable[str]) -> str:
    """The end of a message about a name that does not exist: the most similar one, or all that there are."""
    names = list(known)
    near = difflib.get_close_matches(str(name)[:100], names, n=1)
    return f"; did you mean '{near[0]}'?" if near else f"; known: {', '.join(names) or 'none'}"


def shown(value: object) -> str:
    """A value for a message, shortened: what a YAML file says may be of any size."""
    return _short.repr(value)


_short = reprlib.Repr()
_short.maxlevel, _short.maxlist, _short.maxdict, _short.maxtuple = 2, 4, 4, 4
_short.maxstring = _short.maxother = 60


def explained(error: ValidationError, section: type[BaseModel]) -> list[str]:
    """One line for each thing that is wrong with a section: the key's path, what is wrong, and what may be meant."""
    lines = []
    for found in error.errors(include_url=False):
        kind, message = found["type"], found["msg"].removeprefix("Value error, ")
        place = ".".join(part if len(part := str(each)) < 100 else f"{part[:60]}..." for each in found["loc"])
        if kind == "extra_forbidden":
            message = f"there is no such key{nearest(found['loc'][-1], _keys(found['loc'][:-1], section))}"
        elif kind == "missing":
            message = "this key is missing"
        elif kind != "value_error":
            message += f" (got {shown(found['input'])})"
        lines.append(f"{place}: {message}" if place else message)
    return lines


def _keys(path: tuple[int | str, ...], section: type[BaseModel]) -> list[str]:
    """The keys that may stand at a path, in which pydantic names the kind of a protocol and the source of a dataset."""
    sections = [section]
    for part in path:
        fields = [one.model_fields[str(part)] for one in sections if part in one.model_fields]
        of_kind = [one for one in sections if part in _kinds(one)]
        sections = of_kind or [inner for field in fields for inner in _sections(field.annotation)] or sections
    return list(dict.fromkeys(name for one in sections for name in one.model_fields))


def _sections(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _sections(argument)


def _kinds(section: type[BaseModel]) -> tuple[str, ...]:
    field = section.model_fields.get("kind") or section.model_fields.get("source")
    return get_args(field.annotation) if field else ()
