"""How a prepared dataset comes about, what its index says of it, and whether it is still fresh."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tcnaps.config.storage import digest_of
from tcnaps.datasets.image_source import DatasetError

FORMAT = 1  # of the index and the arrays
INDEX = "index.json"
REPORT = "unreadable.csv"  # images that were left out, beside the arrays
NOT_PREPARED = "nothing is there"


class MissingFiles(DatasetError):
    """Files that a dataset would be made from are missing; the message says how to get them."""


@dataclass(frozen=True)
class SplitLayout:
    """What a split holds: names, sizes and hierarchy of its classes, in the order of the array."""

    class_names: tuple[str, ...]
    class_sizes: tuple[int, ...]
    superclasses: tuple[str, ...] | None = None
    spans: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True)
class Filled:
    """What the arrays hold in the end, where it isn't all that was planned, and more entries for the index."""

    layouts: Mapping[str, SplitLayout]
    notes: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """What is to be made.

    Attributes:
        layouts: of each split.
        fill: writes the images into the arrays at the given paths: one .npy file per split, of the layout's shape. It
            may take rows out, and then returns what is left.
    """

    layouts: Mapping[str, SplitLayout]
    fill: Callable[[Mapping[str, Path]], Filled | None]


@dataclass(frozen=True)
class Originals:
    """The files that a dataset is made from.

    Attributes:
        stamp: cheap facts about them, as values for JSON. Raises `MissingFiles` where they are gone; what has been
            prepared is still fresh then.
        digest: a digest of all names, sizes and times; looks through all files.
        accept: given the folder and index of a prepared dataset, raises `DatasetError` if it isn't good enough.
        fetch: gets what is missing of them where that is possible; raises `MissingFiles` if it fails.
    """

    stamp: Callable[[], dict]
    digest: Callable[[], str]
    accept: Callable[[Path, dict], None] = lambda place, index: None
    fetch: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class Preparation:
    """How a dataset is made.

    Attributes:
        splits: None if they are known only once it is prepared.
        recipe: everything that decides which pixels it has, as values for JSON: versions, options, where the files
            are. Its digest is part of the folder's name, so datasets of different recipes never meet.
        plan: looks through what the dataset is made from.
        originals: None if it isn't made from files.
    """

    dataset: str
    image_size: int
    splits: tuple[str, ...] | None
    recipe: Mapping[str, object]
    plan: Callable[[], Plan]
    originals: Originals | None = None

    @property
    def recipe_digest(self) -> str:
        content = {"format": FORMAT, "dataset": self.dataset, "image_size": self.image_size}
        return digest_of(content | {"recipe": dict(self.recipe)})


def folder_of(preparation: Preparation, folder: str | Path) -> Path:
    """Where a dataset's prepared files are."""
    name = f"{preparation.dataset}-{preparation.image_size}-{preparation.recipe_digest[:8]}"
    return Path(folder) / name


def state(preparation: Preparation, place: Path) -> tuple[dict | None, str]:
    """The index of a dataset that is complete and fresh; otherwise None, and the reason.

    Fresh: it was made by this recipe, and its originals, if they are still there, haven't changed.
    """
    index, reason = complete_index(preparation, place)
    if index is not None and preparation.originals is not None:
        try:
            if index.get("stamp") != preparation.originals.stamp():
                return None, "the files that it was made from have changed, or the code that finds them"
        except MissingFiles:
            pass
    return index, reason


def complete_index(preparation: Preparation, place: Path) -> tuple[dict | None, str]:
    """As `state`, whatever has become of the originals."""
    try:
        index = json.loads((place / INDEX).read_text(encoding="utf-8"))
        if index["recipe_hash"] != preparation.recipe_digest:
            return None, f"{place} was made by another recipe"
        for entry in index["splits"].values():
            if not (place / entry["file"]).exists() or (place / entry["file"]).stat().st_size != entry["bytes"]:
                return None, f"{place / entry['file']} is missing or cut short"
    except FileNotFoundError:
        return None, NOT_PREPARED
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None, f"{place / INDEX} can't be read"
    return index, ""


def layout_of(entry: Mapping) -> SplitLayout:
    """What a split holds, from its entry in the index."""
    superclasses, spans = entry["superclasses"], entry.get("spans")  # older indexes have no spans
    return SplitLayout(
        tuple(entry["class_names"]),
        tuple(entry["class_sizes"]),
        None if superclasses is None else tuple(superclasses),
        None if spans is None else tuple(map(tuple, spans)),
    )


def report(place: Path, index: Mapping) -> list[str]:
    """What the user of a prepared dataset should know."""
    remarks = list(index.get("remarks", ()))
    if left_out := sum(index.get("unreadable", {}).values()):
        images = count(left_out, "unreadable image was", "unreadable images were")
        remarks.insert(
            0, f"{images} left out; {place / REPORT} lists them. Once they are repaired, delete {place} to make it anew"
        )
    return remarks


def count(number: int, one: str, more: str) -> str:
    """A number with its noun and verb."""
    return f"{number:,} {one if number == 1 else more}"
