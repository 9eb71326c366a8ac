"""photographs: places in real photographs (of scikit-learn and matplotlib), seen anew each time."""

from functools import lru_cache

import numpy as np
from PIL import Image
from scipy.ndimage import uniform_filter

from tcnaps.datasets.miniature import painting
from tcnaps.datasets.miniature.plan import ClassPlan, Recipe, class_size

PLACE = 76  # side in pixels of the square that a class owns; every crop stays inside its own square
CONTRAST = 0.075  # least mean local contrast (deviation within 9 x 9 pixels): bland places make no class
# How much the images of one place differ: change this if photographs are too easy or too hard.
STRENGTH = {
    "side": (30.0, 62.0),  # pixels of the photograph that a crop shows
    "angle": 0.45,  # radians of rotation, either way
    "flip": 0.5,  # how often it is mirrored
    "exposure": 0.5,  # natural logarithm of the brightness, half as far upwards
    "contrast": 0.4,
    "cast": 0.18,  # of each colour channel's own brightness
    "softness": 1.1,  # largest blur, in 32nds of the image's side
    "shade": 0.2,  # standard deviation of shadows across the image
    "noise": 0.07,
}


@lru_cache(maxsize=1)
def _photographs() -> dict[str, np.ndarray]:
    """Name -> uint8 (height, width, 3)."""
    from matplotlib import cbook
    from sklearn.datasets import load_sample_images  # slow to import, and needed for this dataset only

    samples = load_sample_images()
    named = {name.removesuffix(".jpg"): image for name, image in zip(samples.filenames, samples.images, strict=True)}
    with cbook.get_sample_data("grace_hopper.jpg") as file:
        named["hopper"] = np.asarray(Image.open(file).convert("RGB"))
    return dict(sorted((name.rsplit("/")[-1], image) for name, image in named.items()))


@lru_cache(maxsize=1)
def places() -> tuple[tuple[str, int, int], ...]:
    """Places (photograph, x, y of the square's corner), squares disjoint, richest in contrast first taken."""
    chosen = []
    for name, image in _photographs().items():
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
    named = {f"{photograph} at {x}, {y}": (photograph, x, y) for photograph, x, y in places()}
    sizes = [class_size("photographs", name, split) for name in named]
    return [ClassPlan("photographs", n, size, parameters={"place": named[n]}) for n, size in zip(named, sizes)]


def _render(plan: ClassPlan, image_size: int) -> np.ndarray:
    rng = painting.generator("photographs", plan.name)
    n, (photograph, left, top) = plan.n_images, plan.parameters["place"]
    picture = Image.fromarray(_photographs()[photograph])
    side = painting.log_uniform(rng, *STRENGTH["side"], n)
    angle = rng.uniform(-STRENGTH["angle"], STRENGTH["angle"], n)
    reach = (np.abs(np.cos(angle)) + np.abs(np.sin(angle))) / 2  # of a turned square of side 1
    side = np.minimum(side, (PLACE - 2) / 2 / reach)
    centre = PLACE / 2 + rng.uniform(-1, 1, (n, 2)) * (PLACE / 2 - 1 - side * reach)[:, None]
    flip = np.where(rng.random(n) < STRENGTH["flip"], -1, 1)
    size = 2 * image_size
    crops = np.empty((n, size, size, 3), np.uint8)
    for k in range(n):
        c, s = np.cos(angle[k]) * side[k] / size, np.sin(angle[k]) * side[k] / size
        x, y = left + centre[k, 0], top + centre[k, 1]
        a, d = flip[k] * c, flip[k] * s
        coefficients = (a, -s, x - (a - s) * size / 2, d, c, y - (d + c) * size / 2)
        crops[k] = picture.transform((size, size), Image.Transform.AFFINE, coefficients, Image.Resampling.BILINEAR)
    scene = painting.reduce(crops.transpose(0, 3, 1, 2).astype(np.float32)) / 255
    shade = STRENGTH["shade"] * painting.smooth_noise(rng, (n, 1), image_size, 2)
    keys = ("exposure", "contrast", "cast", "softness", "noise")
    return painting.camera(rng, scene * np.exp(shade), *(STRENGTH[key] for key in keys))


RECIPE = Recipe("photographs", ("test",), _plan, _render, parallel=False)
