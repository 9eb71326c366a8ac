"""The miniature: a small Meta-Dataset made from what the dependencies bring along.

Seven recipes, each one dataset.
"""

import sys
from functools import partial
from importlib.metadata import version

import numpy as np

from tcnaps.config.fingerprint import code_digest
from tcnaps.data.image_source import DatasetError
from tcnaps.data.listing import Listing, Source
from tcnaps.data.preparing import Preparation
from tcnaps_suite.miniature import digits, glyphs, photographs, shapes, signs, sketches, textures
from tcnaps_suite.miniature.plan import ClassPlan, Recipe

RECIPES: dict[str, Recipe] = {
    module.RECIPE.name: module.RECIPE for module in (glyphs, textures, shapes, sketches, digits, photographs, signs)
}

# The libraries whose fonts, photographs, scans, random streams and rasterisers end up in the pixels.
_SHAPING = ("matplotlib", "numpy", "pillow", "scikit-learn", "scipy")


def preparation(name: str, image_size: int) -> Preparation:
    """How a dataset of the miniature is made. Other code or libraries make prepared files stale.

    Raises:
        DatasetError: there is no such dataset.
    """
    if name not in RECIPES:
        raise DatasetError(f"The miniature has no dataset '{name}'; it has: {', '.join(RECIPES)}.")
    shaping = {"code": code_digest("tcnaps_suite/miniature")} | {package: version(package) for package in _SHAPING}
    return Preparation(name, image_size, shaping, Source(partial(listing_of, RECIPES[name], image_size)))


def listing_of(recipe: Recipe, image_size: int) -> Listing:
    """What a recipe draws, a class at a time: it depends on the class alone, not on the number of processes."""
    plans = {split: recipe.plan(split) for split in recipe.splits}
    return Listing(
        {split: {plan.name: [plan] * plan.n_images for plan in of_split} for split, of_split in plans.items()},
        {plan.name: plan.superclass for of_split in plans.values() for plan in of_split if plan.superclass},
        work=partial(_drawn, image_size=image_size),
        images_at_once=sys.maxsize,
    )


def _drawn(plans: list[ClassPlan], image_size: int) -> tuple[np.ndarray, dict[int, str]]:
    return RECIPES[plans[0].dataset].render(plans[0], image_size), {}
