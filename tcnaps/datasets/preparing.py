"""How a prepared dataset comes about, and whether one that is there still holds."""

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tcnaps.datasets.image_source import DatasetError

FORMAT = 1  # of the index and the arrays
REPORT = "unreadable.csv"  # images that were left out, beside the arrays
NOT_PREPARED = "nothing is there"


class MissingFiles(DatasetError):
    """Files that a dataset would be made from are not there; the message says how to get them."""


@dataclass(frozen=True)
class SplitLayout:
    """What a split will hold: names, sizes and hierarchy of its classes, in the order of the array."""

    class_names: tuple[str, ...]
    class_sizes: tuple[int, ...]
    superclasses: tuple[str, ...] | None = None
    spans: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True)
class Filled:
    """What became of the arrays: the layouts that they turned out to have, and what the index should say of them."""

    layouts: Mapping[str, SplitLayout]
    notes: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Originals:
    """The files that a dataset is made from, where it is made from files.

    Attributes:
        stamp: cheap facts about them, as JSON-able values. Raises `MissingFiles` where they are gone: then what is
            prepared still holds.
        digest: a digest of all names, sizes and times; looks through all files.
        accept: raises `DatasetError` if a prepared dataset, given its folder and index, is not good enough.
        fetch: gets what is missing of them, where that can be done; raises `MissingFiles` where it fails.
    """

    stamp: Callable[[], dict]
    digest: Callable[[], str]
    accept: Callable[[Path, dict], None]
    fetch: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class Preparation:
    """How a dataset is made: what `open_prepared` needs when the files are missing or stale.

    Attributes:
        splits: None if they are known only once it is prepared.
        recipe: everything that shapes the pixels (versions, options), as JSON-able values; files of
            another recipe are stale.
        layouts: returns the layout of each split.
        fill: writes the images into the arrays at the given paths, one .npy file of the layout's shape a
            split. If it has changed their lengths, it returns what they hold.
        originals: the files that it is made from; partial arrays of an interrupted preparation are then kept as long
            as the journal beside them is of the same recipe.
        tag: ends the name of the folder, for recipes to keep apart.
    """

    dataset: str
    image_size: int
    splits: tuple[str, ...] | None
    recipe: Mapping[str, object]
    layouts: Callable[[], dict[str, SplitLayout]]
    fill: Callable[[Mapping[str, Path]], Filled | None]
    originals: Originals | None = None
    tag: str = ""


def folder_of(preparation: Preparation, folder: Path) -> Path:
    """Where a dataset's prepared files lie."""
    return Path(folder) / f"{preparation.dataset}-{preparation.image_size}{preparation.tag}"


def state(preparation: Preparation, place: Path) -> tuple[dict | None, str]:
    """The index of a dataset that is there, complete and fresh; else None, and the reason.

    Fresh: it is of this recipe, and its originals, if they are still there, haven't changed.
    """
    index, reason = complete_index(preparation, place)
    if index is not None and preparation.originals is not None:
        try:
            if index.get("stamp") != plain(preparation.originals.stamp()):
                return None, "the files that it was made from have changed, or the code that finds them"
        except MissingFiles:
            pass
    return index, reason


def complete_index(preparation: Preparation, place: Path) -> tuple[dict | None, str]:
    """The index or None and the reason, as `state`, whatever has become of the originals."""
    file = place / "index.json"
    try:
        index = json.loads(file.read_text(encoding="utf-8", errors="surrogateescape"))
        if index["recipe_hash"] != recipe_hash(preparation):
            return None, f"{place} was made by another recipe{_differences(index['recipe'], preparation.recipe)}"
        for entry in index["splits"].values():
            if not (place / entry["file"]).exists() or (place / entry["file"]).stat().st_size != entry["bytes"]:
                return None, f"{place / entry['file']} is missing or cut short"
    except FileNotFoundError:
        return None, NOT_PREPARED
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None, f"{file} can't be read"  # cut short or of another format
    return index, ""


def _differences(old: dict, new: Mapping[str, object]) -> str:
    keys = [key for key in {**old, **new} if old.get(key) != plain(new.get(key))]
    parts = [f"{key} {old.get(key)!r}, now {new.get(key)!r}" for key in keys]
    return f" ({'; '.join(parts)})" if parts else ""


def plain(value: object) -> object:
    """What becomes of a value on its way through JSON: tuples turn into lists."""
    return json.loads(json.dumps(value))


def recipe_hash(preparation: Preparation) -> str:
    """A digest of everything that shapes a dataset's pixels."""
    content = {
        "format": FORMAT,
        "dataset": preparation.dataset,
        "image_size": preparation.image_size,
        "recipe": dict(preparation.recipe),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def layout_of(entry: Mapping) -> SplitLayout:
    """What a split holds, from its entry in the index."""
    spans = entry.get("spans")  # indexes made before there were any lack the key
    return SplitLayout(
        tuple(entry["class_names"]),
        tuple(entry["class_sizes"]),
        None if entry["superclasses"] is None else tuple(entry["superclasses"]),
        None if spans is None else tuple(map(tuple, spans)),
    )


def report(place: Path, index: Mapping) -> list[str]:
    """What the index of a prepared dataset says that its user should know."""
    left_out = sum(index.get("unreadable", {}).values())
    if not left_out:
        return list(index.get("remarks", ()))
    images = count(left_out, "unreadable image was", "unreadable images were")
    return [
        f"{images} left out; {place / REPORT} lists them. Once they are repaired, delete {place} to have it made anew",
        *index.get("remarks", ()),
    ]


def count(number: int, one: str, more: str) -> str:
    """A number with its noun and verb."""
    return f"{number:,} {one if number == 1 else more}"


def write_index(index: dict, place: Path) -> None:
    """Writes a dataset's index, all of it or nothing."""
    temporary = place / "index.json.partial"
    content = json.dumps(index, indent=1, ensure_ascii=False)
    temporary.write_text(content, encoding="utf-8", errors="surrogateescape")  # names of files may be no UTF-8
    os.replace(temporary, place / "index.json")
