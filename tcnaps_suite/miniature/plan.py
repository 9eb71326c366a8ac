"""The plan of a dataset before it is drawn: the classes of each split, their sizes and parameters."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tcnaps_suite.miniature.painting import generator, log_uniform

# Numbers of classes of the two procedural datasets, and limits of the log-uniform number of images per class. Test
# classes have more than 55 images, enough for 50 queries and 5 support images.
PROCEDURAL_CLASSES = {"train": 40, "valid": 12, "test": 18}
CLASS_SIZES = {"train": (25.0, 90.0), "valid": (25.0, 90.0), "test": (56.0, 90.0)}


class ClassPlan(NamedTuple):
    """One class to draw. Dataset and name seed it; the recipe chooses the parameters."""

    dataset: str
    name: str
    n_images: int
    parameters: Any = None
    superclass: str | None = None


class Recipe(NamedTuple):
    """One dataset of the miniature: `plan(split)` lists the classes, `render(plan, image_size)` draws one in uint8."""

    name: str
    splits: tuple[str, ...]
    plan: Callable[[str], list[ClassPlan]]
    render: Callable[[ClassPlan, int], np.ndarray]


def sized(dataset: str, name: str, split: str, parameters: Any) -> ClassPlan:
    """A class with a log-uniform number of images within CLASS_SIZES, seeded by its name."""
    low, high = CLASS_SIZES[split]
    return ClassPlan(dataset, name, int(log_uniform(generator(dataset, name, "size"), low, high + 1)), parameters)


def procedural(dataset: str, singular: str, split: str) -> list[ClassPlan]:
    """The plan of a dataset whose classes are numbered and drawn at random, seeded by their names."""
    splits = list(PROCEDURAL_CLASSES)
    first = sum(PROCEDURAL_CLASSES[s] for s in splits[: splits.index(split)])
    numbers = range(first, first + PROCEDURAL_CLASSES[split])
    return [sized(dataset, f"{singular}-{number:03d}", split, number) for number in numbers]
