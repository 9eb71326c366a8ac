"""What a recipe promises before a pixel is drawn: the classes of each split, their sizes and parameters."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tcnaps.datasets.miniature.painting import generator, log_uniform

# Classes of the three procedural in-domain datasets; fewest and most images per class, log-uniform. Test classes
# hold more than 55 images so that 50 queries per class can be drawn beside five support images.
PROCEDURAL_CLASSES = {"train": 40, "valid": 12, "test": 18}
CLASS_SIZES = {"train": (25.0, 90.0), "valid": (25.0, 90.0), "test": (56.0, 90.0)}


@dataclass(frozen=True)
class ClassPlan:
    """One class to draw: seeded by dataset and name, from the recipe's own parameters; a glyph's script above it."""

    dataset: str
    name: str
    n_images: int
    superclass: str | None = None
    parameters: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Recipe:
    """One dataset of the miniature: `plan(split)` names the classes, `render(plan, image_size)` draws one.

    `render` returns uint8 (n_images, image_size, image_size, 3) and depends on its arguments alone; `parallel` says
    whether drawing pays for starting workers.
    """

    name: str
    splits: tuple[str, ...]
    plan: Callable[[str], list[ClassPlan]]
    render: Callable[[ClassPlan, int], np.ndarray]
    parallel: bool = True


def class_size(dataset: str, name: str, split: str) -> int:
    """Number of images of a class: log-uniform within CLASS_SIZES, the same each time."""
    low, high = CLASS_SIZES[split]
    return int(log_uniform(generator(dataset, name, "size"), low, high + 1))


def procedural(
    dataset: str, parameters: Callable[[np.random.Generator, int], dict]
) -> Callable[[str], list[ClassPlan]]:
    """The `plan` of a dataset whose classes are random: `parameters` of a generator and the class's number."""

    def plan(split: str) -> list[ClassPlan]:
        splits = list(PROCEDURAL_CLASSES)
        first = sum(PROCEDURAL_CLASSES[s] for s in splits[: splits.index(split)])
        singular = dataset.removesuffix("es" if dataset == "sketches" else "s")
        plans = []
        for number in range(first, first + PROCEDURAL_CLASSES[split]):
            name = f"{singular}-{number:03d}"
            drawn = parameters(generator(dataset, name), number)
            plans.append(ClassPlan(dataset, name, class_size(dataset, name, split), parameters=drawn))
        return plans

    return plan
