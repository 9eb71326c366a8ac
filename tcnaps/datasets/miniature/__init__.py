"""The miniature: a small Meta-Dataset made from what the dependencies carry. Seven recipes, each one dataset."""

from importlib.metadata import version

from tcnaps.datasets.miniature import digits, drawing, glyphs, photographs, shapes, signs, sketches, textures
from tcnaps.datasets.miniature.plan import ClassPlan, Recipe
from tcnaps.datasets.source import DatasetError, Preparation, SplitLayout

RECIPE_VERSION = 1   # raise it whenever a recipe draws other pixels, classes or sizes: prepared files are then made anew
MINIMUM_SIZE = 28    # pixels, below which pictograms and accents are lost

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
        raise DatasetError(f"{name}: the miniature is drawn at {MINIMUM_SIZE} pixels or more, not {image_size}; raise image_size.")
    recipe = RECIPES[name]

    def plans() -> dict[str, list[ClassPlan]]:
        return {split: recipe.plan(split) for split in recipe.splits}

    def layouts() -> dict[str, SplitLayout]:
        return {split: _layout(classes) for split, classes in plans().items()}

    versions = {package: version(package) for package in _SHAPING}
    return Preparation(name, image_size, recipe.splits, {"version": RECIPE_VERSION, **versions}, layouts,
                       lambda files: drawing.draw(plans(), files, image_size, None if recipe.parallel else 1))


def _layout(classes: list[ClassPlan]) -> SplitLayout:
    superclasses = tuple(plan.superclass for plan in classes if plan.superclass is not None)
    return SplitLayout(tuple(plan.name for plan in classes), tuple(plan.n_images for plan in classes), superclasses or None)
