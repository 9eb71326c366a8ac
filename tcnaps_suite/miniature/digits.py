"""digits: scikit-learn's handwritten digits, real scans of 8 x 8 pixels, enlarged and otherwise unchanged."""

from functools import lru_cache

import numpy as np
from PIL import Image

from tcnaps_suite.miniature.plan import ClassPlan, Recipe


@lru_cache(maxsize=1)
def _scans() -> tuple[np.ndarray, np.ndarray]:
    """Grey levels 0 to 255, uint8 (1797, 8, 8), and digits (1797,)."""
    from sklearn.datasets import load_digits  # takes a second to import, for this dataset alone

    data = load_digits()
    return np.round(data.images * (255 / 16)).astype(np.uint8), data.target


def _plan(split: str) -> list[ClassPlan]:
    return [ClassPlan("digits", str(digit), int(n)) for digit, n in enumerate(np.bincount(_scans()[1]))]


def _render(plan: ClassPlan, image_size: int) -> np.ndarray:
    images, target = _scans()
    scans = [Image.fromarray(scan) for scan in images[target == int(plan.name)][: plan.n_images]]
    resized = [np.asarray(scan.resize((image_size, image_size), Image.Resampling.BICUBIC)) for scan in scans]
    return np.repeat(np.stack(resized)[..., None], 3, axis=3)


RECIPE = Recipe("digits", ("test",), _plan, _render)
