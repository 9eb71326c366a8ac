"""photographs: places in the photographs of scikit-learn and matplotlib; each image is another view of its place."""

from functools import lru_cache

import numpy as np
from PIL import Image
from scipy.ndimage import uniform_filter

from tcnaps_suite.miniature import painting
from tcnaps_suite.miniature.plan import ClassPlan, Recipe, sized

PLACE = 76  # side in pixels of the square of a class; every crop stays inside the square of its class
CONTRAST = 0.075  # smallest mean local contrast (deviation within 9 x 9 pixels) of a place


@lru_cache(maxsize=1)
def photographs() -> dict[str, np.ndarray]:
    """Name -> uint8 (height, width, 3)."""
    from matplotlib import cbook
    from sklearn.datasets import load_sample_images  # slow to import, for this dataset alone

    samples = load_sample_images()
    named = {name.removesuffix(".jpg"): image for name, image in zip(samples.filenames, samples.images, strict=True)}
    with cbook.get_sample_data("grace_hopper.jpg") as file:
        named["hopper"] = np.asarray(Image.open(file).convert("RGB"))
    return dict(sorted((name.rsplit("/")[-1], image) for name, image in named.items()))


@lru_cache(maxsize=1)
def places() -> tuple[tuple[str, int, int], ...]:
    """Places (photograph, x, y of the square's corner). Squares are disjoint; those richest in contrast come first."""
    chosen = []
    for name, image in photographs().items():
        grey = image.mean(axis=2, dtype=np.float32) / 255
        mean = uniform_filter(grey, 9)
        contrast = np.sqrt(np.maximum(uniform_filter(grey * grey, 9) - mean * mean, 0))
        score = uniform_filter(contrast, PLACE, mode="constant")
        half = PLACE // 2
        inside = np.full(score.shape, -1.0, np.float32)
        inside[half : score.shape[0] - half, half : score.shape[1] - half] = score[half:-half, half:-half]
        while inside.max() >= CONTRAST:
            row, column = np.unravel_index(inside.argmax(), inside.shape)
            chosen.append((name, int(column) - half, int(row) - half))
            inside[max(0, row - PLACE + 1) : row + PLACE, max(0, column - PLACE + 1) : column + PLACE] = -1
    return tuple(chosen)


def _plan(split: str) -> list[ClassPlan]:
    return [sized("photographs", f"{name} at {x}, {y}", split, (name, x, y)) for name, x, y in places()]


def crops(rng: np.random.Generator, picture: Image.Image, left: int, top: int, n: int, size: int) -> np.ndarray:
    """Turned, zoomed and mirrored views, uint8 (n, size, size, 3), of the place whose corner is (left, top)."""
    side = painting.log_uniform(rng, 30.0, 62.0, n)  # pixels of the photograph that a crop shows
    angle = rng.uniform(-0.45, 0.45, n)
    reach = (np.abs(np.cos(angle)) + np.abs(np.sin(angle))) / 2  # of a turned square of side 1
    side = np.minimum(side, (PLACE - 2) / 2 / reach)
    centre = PLACE / 2 + rng.uniform(-1, 1, (n, 2)) * (PLACE / 2 - 1 - side * reach)[:, None]
    flip = np.where(rng.random(n) < 0.5, -1, 1)
    seen = np.empty((n, size, size, 3), np.uint8)
    for k in range(n):
        c, s = np.cos(angle[k]) * side[k] / size, np.sin(angle[k]) * side[k] / size
        x, y = left + centre[k, 0], top + centre[k, 1]
        a, d = flip[k] * c, flip[k] * s
        coefficients = (a, -s, x - (a - s) * size / 2, d, c, y - (d + c) * size / 2)
        seen[k] = picture.transform((size, size), Image.Transform.AFFINE, coefficients, Image.Resampling.BILINEAR)
    return seen


def _render(plan: ClassPlan, image_size: int) -> np.ndarray:
    rng = painting.generator("photographs", plan.name)
    photograph, left, top = plan.parameters
    seen = crops(rng, Image.fromarray(photographs()[photograph]), left, top, plan.n_images, 2 * image_size)
    scene = painting.reduce(seen.transpose(0, 3, 1, 2).astype(np.float32)) / 255
    shade = 0.2 * painting.smooth_noise(rng, (len(scene), 1), image_size, 2)
    return painting.camera(rng, scene * np.exp(shade), exposure=0.5, contrast=0.4, cast=0.18, softness=1.1, noise=0.07)


RECIPE = Recipe("photographs", ("test",), _plan, _render)
