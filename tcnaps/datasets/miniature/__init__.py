"""The miniature: a small Meta-Dataset made from what the dependencies bring along.

Seven recipes, each one dataset.
"""

import sys
from functools import partial
from importlib.metadata import version

import numpy as np

from tcnaps.config.fingerprint import code_fingerprint
from tcnaps.datasets.arrays import Chunk
from tcnaps.datasets.image_source import DatasetError
from tcnaps.datasets.miniature import digits, glyphs, photographs, shapes, signs, sketches, textures
from tcnaps.datasets.miniature.plan import ClassPlan, Recipe
from tcnaps.datasets.preparing import Plan, Preparation, SplitLayout

MINIMUM_SIZE = 28  # pixels, below which pictograms and accents are lost

RECIPES: dict[str, Recipe] = {
    module.RECIPE.name: module.RECIPE for module in (glyphs, textures, shapes, sketches, digits, photographs, signs)
}

# The libraries whose fonts, photographs, scans, random streams and rasterisers end up in the pixels.
_SHAPING = ("matplotlib", "numpy", "pillow", "scikit-learn", "scipy")


def preparation(name: str, image_size: int) -> Preparation:
    """How a dataset of the miniature is made.

    Raises:
        DatasetError: there is no such dataset, or the images would be too small.
    """
    if name not in RECIPES:
        raise DatasetError(f"The miniature has no dataset '{name}'; it has: {', '.join(RECIPES)}.")
    if image_size < MINIMUM_SIZE:
        raise DatasetError(
            f"{name}: the miniature is drawn at {MINIMUM_SIZE} pixels or more, not {image_size}; raise image_size."
        )
    recipe = RECIPES[name]
    return Preparation(name, image_size, _provenance(recipe), partial(plan_of, recipe, image_size))


def plan_of(recipe: Recipe, image_size: int) -> Plan:
    """What a recipe draws, one chunk per class. It depends on the class alone, not on the number of processes."""
    layouts, chunks = {}, []
    for split in recipe.splits:
        classes = recipe.plan(split)
        chunks += [Chunk(split, k, plan.n_images, plan) for k, plan in enumerate(classes)]
        names, sizes = tuple(plan.name for plan in classes), tuple(plan.n_images for plan in classes)
        above = tuple(plan.superclass for plan in classes if plan.superclass is not None)
        layouts[split] = SplitLayout(names, sizes, above or None)
    return Plan(layouts, chunks, partial(_drawn, image_size=image_size), None if recipe.parallel else 1)


def _drawn(plan: ClassPlan, image_size: int) -> tuple[np.ndarray, dict[int, str]]:
    return RECIPES[plan.dataset].render(plan, image_size), {}


def _provenance(recipe: Recipe) -> dict[str, str]:
    """What shapes a recipe's pixels: code and libraries; a change makes prepared files stale."""
    module = sys.modules[recipe.render.__module__].__file__
    # The module with its brushes, but not the packages around it: they hold the other recipes.
    code = code_fingerprint([module], without=("tcnaps.datasets", "tcnaps.datasets.miniature"))
    return {"code": code, **{package: version(package) for package in _SHAPING}}
