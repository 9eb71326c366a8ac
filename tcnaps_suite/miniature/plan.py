"""What a recipe promises before a pixel is drawn: the classes of each split, their sizes and parameters."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tcnaps_suite.miniature.painting import generator, log_uniform

# Classes of the three procedural in-domain datasets; fewest and most images per class, log-uniform. Test classes
# hold more than 55 images so that 50 queries per class can be drawn beside five support images.
PROCEDURAL_CLASSES = {"train": 40, "valid": 12, "test": 18}
CLASS_SIZES = {"train": (25.0, 90.0), "valid": (25.0, 90.0), "test": (56.0, 90.0)}


class ClassPlan(NamedTuple):
    """One class to draw: seeded by dataset and name, from the recipe's own parameters; a glyph's script above it."""

    dataset: str
    name: str
    n_images: int
    parameters: Any = None
    superclass: str | None = None


class Recipe(NamedTuple):
    """One dataset of the miniature: `plan(split)` names the classes, `render(plan, image_size)` draws one.

    `render` returns uint8 (n_images, image_size, image_size, 3) and depends on its arguments alone.
    """

    name: str
    splits: tuple[str, ...]
    plan: Callable[[str], list[ClassPlan]]
    render: Callable[[ClassPlan, int], np.ndarray]


def sized(dataset: str, name: str, split: str, parameters: Any) -> ClassPlan:
    """A class whose number of images is log-uniform within CLASS_SIZES, the same each time."""
    low, high = CLASS_SIZES[split]
    return ClassPlan(dataset, name, int(log_uniform(generator(dataset, name, "size"), low, high + 1)), parameters)


def procedural(dataset: str) -> Callable[[str], list[ClassPlan]]:
    """The `plan` of a dataset whose classes are random: numbered, each with the generator of its name."""

    def plan(split: str) -> list[ClassPlan]:
        splits = list(PROCEDURAL_CLASSES)
        first = sum(PROCEDURAL_CLASSES[s] for s in splits[: splits.index(split)])
        singular = dataset.removesuffix("es" if dataset == "sketches" else "s")
        numbers = range(first, first + PROCEDURAL_CLASSES[split])
        return [sized(dataset, f"{singular}-{number:03d}", split, number) for number in numbers]

    return plan
