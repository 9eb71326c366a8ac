"""shapes: coloured outlines with parts and holes. Images vary in pose, colour, light, surroundings and occlusion."""

import numpy as np
from PIL import Image, ImageDraw

from tcnaps_suite.miniature import painting
from tcnaps_suite.miniature.painting import circle
from tcnaps_suite.miniature.plan import ClassPlan, Recipe, procedural

_SUPERSAMPLING = 4
_TURN = np.linspace(0, 2 * np.pi, 64, endpoint=False)
_PARTS = {  # corners of each part, pointing to the right
    "disc": circle(_TURN[::4]) * 0.8,
    "bar": np.array([[-0.9, -0.22], [1.3, -0.22], [1.3, 0.22], [-0.9, 0.22]]),
    "wedge": np.array([[-0.6, -0.8], [1.3, 0], [-0.6, 0.8]]),
    "box": np.array([[-0.7, -0.7], [0.7, -0.7], [0.7, 0.7], [-0.7, 0.7]]),
}


def _outline(rng: np.random.Generator) -> np.ndarray:
    """Corners (points, 2) of a wavy outline, a polygon or a star."""
    if rng.random() < 0.5:
        harmonics = np.arange(2, 7)
        waves = rng.standard_normal((2, 5)) * 0.34 / (harmonics - 0.6)
        outline = 1 + waves[0] @ np.cos(np.outer(harmonics, _TURN)) + waves[1] @ np.sin(np.outer(harmonics, _TURN))
        return np.clip(outline, 0.3, 1.8)[:, None] * circle(_TURN)
    corners = int(rng.integers(3, 8))
    turn = (np.arange(corners) + rng.uniform(-0.3, 0.3, corners)) * 2 * np.pi / corners + rng.uniform(0, 7)
    radius = rng.uniform(0.75, 1.1, corners)
    if rng.random() < 0.45:  # a star: a dent after each corner
        turn = np.stack([turn, turn + np.pi / corners], 1).ravel()
        radius = np.stack([radius, radius * rng.uniform(0.35, 0.65)], 1).ravel()
    return radius[:, None] * circle(turn)


def _thing(rng: np.random.Generator) -> dict:
    """An object: outline, parts (kind, turn, size, reach), holes (turn, reach, size, corners) and colours."""
    drawn: dict = {"points": _outline(rng), "parts": [], "holes": []}
    for _ in range(int(rng.integers(1, 4))):
        kind = str(rng.choice(list(_PARTS)))
        drawn["parts"].append((kind, rng.uniform(0, 2 * np.pi), rng.uniform(0.25, 0.6), rng.uniform(0.5, 1.05)))
    for _ in range(int(rng.integers(0, 3))):
        turn, reach, size = rng.uniform(0, 2 * np.pi), rng.uniform(0, 0.45), rng.uniform(0.18, 0.36)
        drawn["holes"].append((turn, reach, size, int(rng.choice([3, 4, 24]))))
    hue = rng.uniform()
    drawn |= {"stretch": painting.log_uniform(rng, 0.6, 1.6), "hues": [hue, hue + rng.uniform(0.2, 0.8)]}
    return drawn | {"saturation": rng.uniform(0.3, 0.9), "value": rng.uniform(0.4, 0.9)}


def _pieces(rng: np.random.Generator, p: dict) -> list[tuple[int, np.ndarray]]:
    """Polygons (label, corners) to draw in order: 1 = body, 2 = parts, 0 = holes. Each varies a little."""
    points = p["points"]
    if len(points) < 20:
        change = 0.05 * rng.standard_normal((len(points), 1))
    else:
        wave = np.sin(_TURN[:, None] * rng.integers(2, 5) + rng.uniform(0, 7))
        change = 0.05 * 2 * wave * rng.standard_normal()
    pieces = [(1, points * (1 + change))]
    for kind, turn, size, reach in p["parts"]:
        turn = turn + 0.16 * rng.standard_normal()
        centre, size = reach * np.array([np.cos(turn), np.sin(turn)]), size * np.exp(0.16 * rng.standard_normal())
        rotation = np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]])
        pieces.append((2, centre + size * _PARTS[kind] @ rotation))
    for turn, reach, size, corners in p["holes"]:
        turn = turn + 0.16 * rng.standard_normal()
        rim = circle(np.linspace(0, 2 * np.pi, corners, endpoint=False) + turn)
        size = size * np.exp(0.16 * rng.standard_normal())
        pieces.append((0, reach * np.array([np.cos(turn), np.sin(turn)]) + size * rim))
    return [(label, corners * [p["stretch"] ** 0.5, p["stretch"] ** -0.5]) for label, corners in pieces]


def _colours(rng: np.random.Generator, p: dict, n: int) -> np.ndarray:
    """Colours (2, n, 3) of body and parts. In 12% of the images the hue is random."""
    hue = rng.uniform(-0.12, 0.12, (2, n)) + np.array(p["hues"])[:, None]
    hue = np.where(rng.random(n) < 0.12, rng.uniform(0, 1, (2, n)), hue)
    saturation = np.clip(p["saturation"] + rng.uniform(-0.2, 0.2, (2, n)), 0, 1)
    value = np.clip(p["value"] + rng.uniform(-0.2, 0.2, (2, n)) + [[0.0], [0.15]], 0.15, 1)
    return painting.hsv(hue, saturation, value)


def _cover(rng: np.random.Generator, image_size: int) -> np.ndarray:
    """Mask (image_size, image_size) of a strip that hides one side of the image."""
    turn, depth = rng.uniform(0, 2 * np.pi), rng.uniform(0.25, 0.8)
    outwards, along = np.array([np.cos(turn), np.sin(turn)]), np.array([-np.sin(turn), np.cos(turn)])
    width = rng.uniform(0.2, 0.6)
    sides = ((depth, -2), (depth, 2), (depth + width, 2), (depth + width, -2))
    strip = np.stack([outwards * out + side * along for out, side in sides])
    cover = Image.new("L", (2 * image_size, 2 * image_size))
    ImageDraw.Draw(cover).polygon(((strip + 1) * image_size).ravel().tolist(), fill=255)
    return np.asarray(cover.reduce(2), np.float32) / 255


def _light(rng: np.random.Generator, masks: np.ndarray) -> np.ndarray:
    """Brightness (n, 1, size, size) of objects (n, size, size): grain, light from one side, bright rims."""
    n, size = masks.shape[:2]
    grain = 0.06 * painting.smooth_noise(rng, (n, 1), size, 6)
    light = painting.gradient(rng, n, size, 0.35)[:, None] + grain
    # Objects look round: the rim that faces the light is bright.
    slope_y, slope_x = np.gradient(painting.blur(masks, np.full(n, size / 20)), axis=(1, 2))
    sun = rng.uniform(0, 2 * np.pi, (n, 1, 1))
    rim = rng.uniform(0, 2.5, (n, 1, 1)) * size / 32 * (np.cos(sun) * slope_x + np.sin(sun) * slope_y)
    return np.exp(light + rim[:, None]).astype(np.float32)


def _render(plan: ClassPlan, image_size: int) -> np.ndarray:
    rng = painting.generator("shapes", plan.name)
    n, size, p = plan.n_images, _SUPERSAMPLING * image_size, _thing(painting.generator("shapes", plan.name))
    matrices = 0.56 * painting.affine(rng, n, angle=0.35, log_scale=0.22, stretch=0.25, shear=0.2)
    shifts = rng.uniform(-0.15, 0.15, (n, 2))
    tilts = rng.uniform(-0.2, 0.2, (n, 2))  # perspective: relative change of size from the middle to the rim
    labels = np.empty((2, n, image_size, image_size), np.float32)
    covers = np.zeros((n, image_size, image_size), np.float32)
    for k in range(n):
        picture = Image.new("L", (size, size))
        draw = ImageDraw.Draw(picture)
        for label, corners in _pieces(rng, p):
            placed = corners @ matrices[k].T
            placed = placed / (1 + placed @ tilts[k])[:, None] + shifts[k]
            draw.polygon(((placed + 1) * size / 2).ravel().tolist(), fill=label)
        drawn = np.asarray(picture)
        for number in (0, 1):
            labels[number, k] = painting.reduce(drawn == number + 1, _SUPERSAMPLING)
        if rng.random() < 0.35:
            covers[k] = _cover(rng, image_size)
    colours = _colours(rng, p, n)
    hue, saturation = rng.uniform(0, 1, n), rng.uniform(0, 0.6, n)
    value = 0.1 + 0.85 * ((colours[0].max(axis=1) + rng.uniform(0.35, 0.65, n)) % 1)
    behind = painting.hsv(hue, saturation, value)
    scene = painting.backgrounds(rng, behind, image_size, relief=0.06, spread=0.25, pieces=4)
    light = _light(rng, labels.sum(0))
    for colour, mask in zip(colours, labels, strict=True):
        scene = painting.compose(scene, colour[:, :, None, None] * light, mask)
    cover = painting.hsv(rng.uniform(0, 1, n), rng.uniform(0, 0.7, n), rng.uniform(0.1, 0.9, n))
    scene = painting.compose(scene, cover, covers)
    return painting.camera(
        rng, scene.astype(np.float32), exposure=0.25, contrast=0.2, cast=0.08, softness=0.8, noise=0.06
    )


RECIPE = Recipe("shapes", ("train", "valid", "test"), procedural("shapes"), _render)
