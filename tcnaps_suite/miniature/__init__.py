"""The miniature: a small Meta-Dataset of five datasets, drawn from files that the dependencies contain."""

import sys
from functools import partial
from importlib.metadata import version

import numpy as np

from tcnaps.config.fingerprint import code_digest
from tcnaps.data.image_source import DatasetError
from tcnaps.data.listing import Listing
from tcnaps.data.preparing import Preparation
from tcnaps_suite.miniature import digits, glyphs, photographs, sketches, textures
from tcnaps_suite.miniature.plan import ClassPlan, Recipe

RECIPES = {module.RECIPE.name: module.RECIPE for module in (glyphs, textures, sketches, digits, photographs)}

# The pixels depend on these libraries' fonts, photographs, scans, random streams and rasterisers.
_LIBRARIES = ("matplotlib", "numpy", "pillow", "scikit-learn", "scipy")


def preparation(name: str, image_size: int) -> Preparation:
    """How a dataset of the miniature is made. Prepared files become stale when its code or the libraries change."""
    if name not in RECIPES:
        raise DatasetError(f"The miniature has no dataset '{name}'; it has: {', '.join(RECIPES)}.")
    versions = {"code": code_digest("tcnaps_suite/miniature")} | {package: version(package) for package in _LIBRARIES}
    work = partial(_draw_class, image_size=image_size)
    # Each class is drawn at once, so its images do not depend on the number of processes.
    return Preparation(name, image_size, versions, partial(listing_of, RECIPES[name]), work, at_once=sys.maxsize)


def listing_of(recipe: Recipe) -> Listing:
    splits, superclasses = {}, {}
    for split in recipe.splits:
        plans = recipe.plan(split)
        splits[split] = {plan.name: [plan] * plan.n_images for plan in plans}
        superclasses |= {plan.name: plan.superclass for plan in plans if plan.superclass}
    return Listing(splits, superclasses)


def _draw_class(plans: list[ClassPlan], image_size: int) -> tuple[np.ndarray, dict[int, str]]:
    return RECIPES[plans[0].dataset].render(plans[0], image_size), {}
