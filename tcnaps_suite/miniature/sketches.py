"""sketches: drawings like QuickDraw's. A class is a programme of strokes, each image drawn by an unsteady hand."""

from functools import partial

import numpy as np
from PIL import Image, ImageDraw

from tcnaps_suite.miniature import painting
from tcnaps_suite.miniature.plan import ClassPlan, Recipe, procedural

_SUPERSAMPLING = 4
_STEPS = np.linspace(0, 1, 17)
_KINDS = ("line", "arc", "arc", "loop", "zigzag", "wave", "spiral", "box", "line")


def _curve(kind: str, bow: float, repeats: int) -> np.ndarray:
    """A stroke of length 1 from the origin along x, (points, 2). `bow` is the turn of an arc, or else the height."""
    t = _STEPS
    if kind in ("line", "arc"):
        turn = np.pi * (bow if kind == "arc" else 0.25 * bow)
        heading = turn * (t - 0.5)
        steps = painting.circle(heading)[:-1] / (len(t) - 1)
        return np.concatenate([np.zeros((1, 2)), steps.cumsum(0)])
    if kind == "loop":
        height = 0.5 * np.clip(abs(bow), 0.4, 1.2)
        return np.stack([0.5 - 0.5 * np.cos(2 * np.pi * t), height * np.sin(2 * np.pi * t)], 1)
    if kind == "box":
        width = np.clip(abs(bow), 0.4, 1.2)
        return np.array([[0, 0], [0, -0.5], [1, -0.5], [1, 0.5], [0, 0.5], [0, 0]]) * [1, width]
    if kind == "spiral":
        radius = np.linspace(0.08, 0.5, 33)
        return radius[:, None] * painting.circle(2 * np.pi * 1.6 * np.linspace(0, 1, 33)) * [1, np.sign(bow)]
    height = 0.16 * np.sign(bow) * (0.7 + abs(bow))
    if kind == "zigzag":
        corners = 2 * repeats
        return np.stack([np.arange(corners + 1) / corners, height * (np.arange(corners + 1) % 2)], 1)
    t = np.linspace(0, 1, 33)
    return np.stack([t, height * np.sin(2 * np.pi * repeats * t)], 1)


def _draw_stroke(rng: np.random.Generator, earlier: int) -> dict:
    return {
        "kind": str(rng.choice(_KINDS)),
        "angle": rng.uniform(-np.pi, np.pi),
        "length": painting.log_uniform(rng, 0.5, 1.3),
        "bow": float(rng.choice([-1, 1]) * rng.uniform(0.4, 1.3)),
        "repeats": int(rng.integers(2, 4)),
        "on": int(rng.integers(earlier)) if earlier else -1,
        "at": float(rng.choice([0, 0.5, 1])),
        "start": rng.uniform(-0.3, 0.3, 2),
    }


def _strokes(rng: np.random.Generator, programme: list[dict], jitter: float) -> list[np.ndarray]:
    """Draws a programme's strokes once, each (points, 2). `jitter` scales their variation."""
    drawn: list[np.ndarray] = []
    for p in programme:
        bow = p["bow"] + jitter * 0.22 * rng.standard_normal()
        size = np.exp(jitter * 0.18 * rng.standard_normal())
        curve = _curve(p["kind"], bow, p["repeats"]) * p["length"] * size
        a = p["angle"] + jitter * 0.16 * rng.standard_normal()
        curve = curve @ np.array([[np.cos(a), np.sin(a)], [-np.sin(a), np.cos(a)]])
        host = drawn[p["on"]] if p["on"] >= 0 else np.array([p["start"]])
        start = host[round(p["at"] * (len(host) - 1))] + jitter * 0.06 * rng.standard_normal(2)
        drawn.append(curve + start)
    return drawn


def _programme(rng: np.random.Generator) -> list[dict]:
    """A programme whose drawing is neither a thin line nor a small scribble."""
    while True:
        programme = [_draw_stroke(rng, k) for k in range(int(rng.integers(3, 6)))]
        points = np.concatenate(_strokes(rng, programme, jitter=0.0))
        low, high = points.min(0), points.max(0)
        if (high - low).min() > 0.5 * (high - low).max():
            return programme


def _render(plan: ClassPlan, image_size: int) -> np.ndarray:
    rng = painting.generator("sketches", plan.name)
    n, size = plan.n_images, _SUPERSAMPLING * image_size
    programme = _programme(painting.generator("sketches", plan.name))
    matrices = 0.7 * painting.affine(rng, n, angle=0.25, log_scale=0.20, stretch=0.30, shear=0.15)
    shifts = rng.uniform(-0.12, 0.12, (n, 2))
    masks = np.empty((n, image_size, image_size), np.float32)
    for k in range(n):
        strokes = _strokes(rng, programme, jitter=1.0)
        missing = int(rng.integers(len(strokes))) if rng.random() < 0.05 * len(strokes) else -1
        strokes = [stroke for j, stroke in enumerate(strokes) if j != missing]
        extent = np.concatenate(strokes)
        centre, half = (extent.max(0) + extent.min(0)) / 2, np.ptp(extent, axis=0).max() / 2
        if rng.random() < 0.30:  # a stroke that does not belong
            extra = _draw_stroke(rng, len(strokes))
            extra |= {"length": 0.6 * half, "on": -1, "start": strokes[extra["on"]][-1]}
            strokes += _strokes(rng, [extra], 0.0)
        picture = Image.new("L", (size, size))
        draw = ImageDraw.Draw(picture)
        width = max(1, round(rng.uniform(0.035, 0.11) * size / 2))
        for stroke in strokes:
            tremor = 0.02 * rng.standard_normal(stroke.shape)
            pixels = ((stroke - centre) / half @ matrices[k].T + shifts[k] + tremor + 1) * size / 2
            draw.line(pixels.ravel().tolist(), 255, width, joint="curve")
            for x, y in pixels[[0, -1]]:
                draw.ellipse([x - width / 2, y - width / 2, x + width / 2, y + width / 2], 255)
        masks[k] = np.asarray(picture.reduce(_SUPERSAMPLING), np.float32) / 255
    paper = rng.uniform(0.78, 1, (n, 1)) * (1 - rng.uniform(0, 0.12, (n, 3)))
    ink = np.clip(rng.uniform(0, 0.35, (n, 1)) + rng.uniform(-0.12, 0.12, (n, 3)), 0, 1)
    scene = painting.backgrounds(rng, paper.astype(np.float32), image_size, relief=0.02, spread=0.08, pieces=1)
    scene = painting.compose(scene, ink.astype(np.float32), masks * rng.uniform(0.7, 1, (n, 1, 1)).astype(np.float32))
    return painting.camera(rng, scene, exposure=0.1, contrast=0.1, cast=0.03, softness=0.6, noise=0.05)


RECIPE = Recipe("sketches", ("train", "valid", "test"), partial(procedural, "sketches", "sketch"), _render)
