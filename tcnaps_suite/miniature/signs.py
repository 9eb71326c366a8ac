"""signs: roadside plates of eight designs with five pictograms each, as seen by the camera of a passing car."""

import numpy as np
from PIL import Image, ImageDraw

from tcnaps_suite.miniature import painting
from tcnaps_suite.miniature.plan import ClassPlan, Recipe, sized
from tcnaps_suite.miniature.typefaces import bitmap

RED, BLUE, YELLOW, GREEN = (190, 25, 35), (20, 75, 165), (245, 195, 30), (15, 115, 70)
BROWN, WHITE, BLACK = (110, 65, 30), (245, 245, 245), (20, 20, 20)
# Design -> corners (0 = a circle), turn in degrees, colours of border, field and pictogram, size of the pictogram,
# and the pictograms: characters of DejaVu Sans that are not in glyphs.
DESIGNS = {
    "prohibition": (0, 0, RED, WHITE, BLACK, 0.62, "✈☎✂♫⚓"),
    "warning": (3, -90, RED, WHITE, BLACK, 0.48, "☃☂⚡☠☢"),
    "mandate": (0, 0, WHITE, BLUE, WHITE, 0.66, "♞♿☕✉☼"),
    "caution": (4, -90, BLACK, YELLOW, BLACK, 0.56, "☣⚒♨♻❄"),
    "place": (4, 45, WHITE, BLUE, WHITE, 0.72, "☏✇⚖♣✿"),
    "exit": (4, 45, WHITE, GREEN, WHITE, 0.72, "☘☮⚙⚛✎"),
    "halt": (8, 22.5, WHITE, RED, WHITE, 0.66, "⚔✌☹♠✗"),
    "heritage": (5, -90, WHITE, BROWN, WHITE, 0.58, "♜♚⚘♛☯"),
}
_PLATE = 160  # side in pixels of a plate before it is transformed


def plate(design: str, pictogram: str) -> Image.Image:
    """A plate seen straight on: RGBA, transparent around it."""
    corners, turn, border, field, ink, scale, _ = DESIGNS[design]
    picture = Image.new("RGBA", (_PLATE, _PLATE), (*border, 0))
    draw = ImageDraw.Draw(picture)
    rim = painting.circle(np.deg2rad(turn) + np.arange(corners or 48) * 2 * np.pi / (corners or 48))
    rim = rim / np.ptp(rim, axis=0).max() * 2
    rim -= (rim.max(0) + rim.min(0)) / 2
    centroid = rim.mean(0)
    for inset, colour in ((1.0, border), (0.84 if corners != 3 else 0.68, field)):
        corners_at = (((rim - centroid) * inset + centroid) * 0.97 + 1) * _PLATE / 2
        draw.polygon(corners_at.ravel().tolist(), (*colour, 255))
    mask = Image.fromarray((bitmap(pictogram, "DejaVuSans.ttf") * 255).astype(np.uint8))
    ratio = scale * _PLATE / max(mask.size)
    mask = mask.resize([max(1, round(side * ratio)) for side in mask.size], Image.Resampling.BILINEAR)
    middle = (centroid + 1) * _PLATE / 2
    picture.paste((*ink, 255), [round(middle[k] - mask.size[k] / 2) for k in (0, 1)], mask)
    return picture


def _plan(split: str) -> list[ClassPlan]:
    return [
        sized("signs", f"{design} U+{ord(pictogram):04X}", split, (design, pictogram))
        for design, (*_, pictograms) in DESIGNS.items()
        for pictogram in pictograms
    ]


def _view(picture: Image.Image, matrix: np.ndarray, shift: np.ndarray, tilt: np.ndarray, size: int) -> Image.Image:
    """A plate as the camera sees it, by the homography from the image's pixels to the plate's."""
    forth = np.eye(3)
    forth[:2, :2], forth[:2, 2], forth[2, :2] = matrix, shift, tilt
    forth[:2] += np.outer(shift, forth[2] - [0, 0, 1])
    to_view = np.array([[2 / size, 0, -1], [0, 2 / size, -1], [0, 0, 1]])
    to_plate = np.array([[_PLATE / 2, 0, _PLATE / 2], [0, _PLATE / 2, _PLATE / 2], [0, 0, 1]])
    back = to_plate @ np.linalg.inv(forth) @ to_view
    coefficients = (back / back[2, 2]).ravel()[:8].tolist()
    return picture.transform((size, size), Image.Transform.PERSPECTIVE, coefficients, Image.Resampling.BILINEAR)


def _render(plan: ClassPlan, image_size: int) -> np.ndarray:
    rng = painting.generator("signs", plan.name)
    n, size = plan.n_images, 2 * image_size
    picture = plate(*plan.parameters)
    side = painting.log_uniform(rng, 0.7, 1.0, n)  # of the image's side
    matrices = side[:, None, None] * painting.affine(rng, n, angle=0.15, log_scale=0.0, stretch=0.2, shear=0.15)
    shifts = rng.uniform(-1, 1, (n, 2)) * (0.9 * (1 - side))[:, None]
    tilts = rng.uniform(-0.2, 0.2, (n, 2))  # perspective: relative change of size from the middle to the rim
    seen = np.empty((n, size, size, 4), np.uint8)
    for k in range(n):
        view = _view(picture, matrices[k], shifts[k], tilts[k], size)
        if rng.random() < 0.25:  # a sticker covers part of it
            x, y, reach = *rng.uniform(0.1, 0.9, 2) * size, rng.uniform(0.06, 0.16) * size
            colour = tuple(rng.integers(0, 256, 3).tolist())
            ImageDraw.Draw(view).ellipse([x - reach, y - reach, x + reach, y + reach], (*colour, 255))
        seen[k] = np.asarray(view)
    seen = painting.reduce(seen.transpose(0, 3, 1, 2).astype(np.float32)) / 255
    colour, mask = seen[:, :3], seen[:, 3]
    fading = rng.uniform(0, 0.25, (n, 1, 1, 1)).astype(np.float32)  # of the paint, to grey
    colour = colour * (1 - fading) + 0.6 * fading
    hue = rng.choice([0.08, 0.3, 0.58], n) + rng.uniform(-0.07, 0.07, n)
    street = painting.hsv(hue, rng.uniform(0, 0.6, n), rng.uniform(0.2, 0.95, n))
    scene = painting.backgrounds(rng, street, image_size, relief=0.08, spread=0.3, pieces=4)
    shadows = painting.smooth_noise(rng, (n, 1), image_size, 2)
    shade = 0.25 * (shadows + painting.gradient(rng, n, image_size, 1.0)[:, None])
    scene = painting.compose(scene, colour, mask) * np.exp(shade)
    return painting.camera(rng, scene, exposure=0.6, contrast=0.2, cast=0.12, softness=0.8, noise=0.08)


RECIPE = Recipe("signs", ("test",), _plan, _render)
