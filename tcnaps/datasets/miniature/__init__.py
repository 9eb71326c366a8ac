"""The miniature: a small Meta-Dataset made from what the dependencies carry.

Seven recipes, each one dataset.
"""

import sys
from importlib.metadata import version

from tcnaps.config.fingerprint import code_fingerprint
from tcnaps.datasets.miniature import digits, drawing, glyphs, photographs, shapes, signs, sketches, textures
from tcnaps.datasets.miniature.plan import ClassPlan, Recipe
from tcnaps.datasets.source import DatasetError, Preparation, SplitLayout

MINIMUM_SIZE = 28  # pixels, below which pictograms and accents are lost

RECIPES: dict[str, Recipe] = {
    module.RECIPE.name: module.RECIPE for module in (glyphs, textures, shapes, sketches, digits, photographs, signs)
}

# The libraries whose fonts, photographs, scans, random streams and rasterisers end up in the pixels.
_SHAPING = ("matplotlib", "numpy", "pillow", "scikit-learn", "scipy")


def preparation(name: str, image_size: int) -> Preparation:
    """How a dataset of the miniature is made.

    Args:
        name: a key of RECIPES.
        image_size: side in pixels.

    Raises:
        DatasetError: the images would be too small.
    """
    if image_size < MINIMUM_SIZE:
        raise DatasetError(
            f"{name}: the miniature is drawn at {MINIMUM_SIZE} pixels or more, not {image_size}; raise image_size."
        )
    recipe = RECIPES[name]

    def plans() -> dict[str, list[ClassPlan]]:
        return {split: recipe.plan(split) for split in recipe.splits}

    def layouts() -> dict[str, SplitLayout]:
        return {split: _layout(classes) for split, classes in plans().items()}

    return Preparation(
        name,
        image_size,
        recipe.splits,
        _provenance(recipe),
        layouts,
        lambda files: drawing.draw(plans(), files, image_size, None if recipe.parallel else 1),
    )


def _provenance(recipe: Recipe) -> dict[str, str]:
    """What shapes a recipe's pixels: code and libraries; a change makes prepared files stale."""
    module = sys.modules[recipe.render.__module__].__file__
    # The module with its brushes, but not the packages around it: they hold the other recipes.
    code = code_fingerprint([module], without=("tcnaps.datasets", "tcnaps.datasets.miniature"))
    return {"code": code, **{package: version(package) for package in _SHAPING}}


def _layout(classes: list[ClassPlan]) -> SplitLayout:
    superclasses = tuple(c.superclass for c in classes if c.superclass is not None)
    return SplitLayout(tuple(c.name for c in classes), tuple(c.n_images for c in classes), superclasses or None)
