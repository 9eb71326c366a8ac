"""textures: procedural surfaces.

A class is a structure with its numbers and a palette; images turn, zoom, bend and relight it.
"""

from collections.abc import Callable

import numpy as np

from tcnaps.datasets.miniature import painting
from tcnaps.datasets.miniature.plan import ClassPlan, Recipe, procedural

LOG_SCALE = 0.35  # of the zoom, either way


def _frequencies(size: int, angle: np.ndarray, zoom: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Frequencies in cycles per side along and across the texture's own axis, each (n, size, size // 2 + 1)."""
    fx, fy = np.fft.rfftfreq(size) * size, np.fft.fftfreq(size)[:, None] * size
    c, s, z = np.cos(angle)[:, None, None], np.sin(angle)[:, None, None], zoom[:, None, None]
    return z * (c * fx + s * fy), z * (-s * fx + c * fy)


def _noise(rng, p, u, v, angle, zoom):
    """Gabor noise, spots, labyrinths, fractals: white noise, told apart by how it is filtered and cut."""
    n, size = u.shape[:2]
    along, across = _frequencies(size, angle, zoom)
    radius = np.hypot(along, across * p["anisotropy"]) + 1e-3
    if p["slope"]:
        response = np.where(radius < 1, 0, radius ** -p["slope"])
    else:
        response = np.exp(-0.5 * ((radius - p["frequency"]) / p["bandwidth"]) ** 2)
    noise = rng.standard_normal((n, size, size), dtype=np.float32)
    field = np.fft.irfft2(np.fft.rfft2(noise) * response, s=(size, size))
    field = (field / field.std(axis=(1, 2), keepdims=True)).astype(np.float32)
    if p["cut"] == "ridges":
        return 1 - np.minimum(np.abs(field) / 1.5, 1)
    if p["cut"] == "hard":
        return 0.5 + 0.5 * np.tanh(4 * (field - p["bias"]))
    return 0.5 + field / 5


def _stripes(rng, p, u, v, angle, zoom):
    """Bars across, plain or in two directions (checks, tartans)."""
    phase = rng.uniform(0, 2 * np.pi, (2, len(u), 1, 1))
    wobble = p["wobble"] * np.sin(np.pi * p["wobble_frequency"] * v + phase[1])
    wave = np.sin(np.pi * p["frequency"] * u + phase[0] + wobble)
    if p["cross"]:
        other = np.sin(np.pi * p["frequency"] * p["ratio"] * v + phase[1])
        wave = wave * other if p["cross"] == "product" else (wave + other) / 2
    return 0.5 + 0.5 * np.tanh(p["sharpness"] * (wave - p["bias"])) / np.tanh(p["sharpness"])


def _lattice(rng, p, u, v, angle, zoom):
    """Dots, rings, tiles, bricks or scales at the places of a lattice."""
    offset = rng.uniform(0, 1, (2, len(u), 1, 1))
    row = v * p["frequency"] / 2 * p["ratio"] + offset[0]
    column = u * p["frequency"] / 2 + offset[1] + p["brick"] * (np.floor(row) % 2)
    x, y = column % 1 - 0.5, row % 1 - 0.5
    if p["mark"] == "tile":
        distance = np.maximum(np.abs(x), np.abs(y)) * 1.2
    elif p["mark"] == "diamond":
        distance = (np.abs(x) + np.abs(y)) * 0.9
    elif p["mark"] == "scale":
        return np.clip(np.hypot(x, y + 0.5) * (1 + p["radius"]), 0, 1)
    else:
        distance = np.hypot(x, y)
    if p["mark"] == "ring":
        distance = np.abs(distance - p["radius"]) + p["radius"] * 0.6
    return 1 / (1 + np.exp((distance - p["radius"]) * 30))


def _cells(rng, p, u, v, angle, zoom):
    """Voronoi cells: their distance fields, walls or flat tones."""
    n, size = u.shape[:2]
    per_side = p["frequency"] / 2
    # Cells enough for a view that is turned and zoomed out.
    side = int(np.ceil(per_side * np.exp(LOG_SCALE) * 1.35))
    corners = np.stack(np.meshgrid(np.arange(side), np.arange(side)), -1).reshape(1, -1, 2)
    places = corners + 0.5 + p["disorder"] * rng.uniform(-0.5, 0.5, (n, side * side, 2))
    places = (2 * places - side) / per_side  # one place per cell, cells of side 2 / per_side around the middle
    tones = rng.uniform(0, 1, (n, side * side))
    first, second = np.full(u.shape, 9.0, np.float32), np.full(u.shape, 9.0, np.float32)
    tone = np.zeros(u.shape, np.float32)
    u, v = u.astype(np.float32), v.astype(np.float32) * np.float32(p["ratio"])
    for k in range(side * side):
        x, y = places[:, k, :, None, None].astype(np.float32).swapaxes(0, 1)
        distance = (u - x) ** 2 + (v - y) ** 2
        nearer = distance < first
        second = np.where(nearer, first, np.minimum(second, distance))
        tone = np.where(nearer, tones[:, k, None, None].astype(np.float32), tone)
        first = np.where(nearer, distance, first)
    first, second = np.sqrt(first) * per_side, np.sqrt(second) * per_side
    if p["show"] == "tones":
        return tone * np.clip((second - first) * 6, 0.2, 1)
    if p["show"] == "walls":
        return np.clip((second - first) * p["sharpness"], 0, 1)
    return np.clip(first * 1.1, 0, 1)


def _needles(rng, p, u, v, angle, zoom):
    """Scattered strokes: sparse impulses drawn out along the texture's axis, as fur, straw or rain."""
    n, size = u.shape[:2]
    along, across = _frequencies(size, angle, zoom)
    response = np.exp(-0.5 * (along * p["length"]) ** 2 - 0.5 * (across * p["width"]) ** 2)
    impulses = (rng.random((n, size, size), dtype=np.float32) < p["density"] * (64 / size) ** 2).astype(np.float32)
    field = np.fft.irfft2(np.fft.rfft2(impulses) * response, s=(size, size)).astype(np.float32)
    return np.clip(field / np.quantile(field[:, ::3, ::3], 0.97, axis=(1, 2), keepdims=True), 0, 1)


# What draws a class's numbers, and what paints them.
FAMILIES: dict[str, tuple[Callable[[np.random.Generator], dict], Callable[..., np.ndarray]]] = {
    "noise": (
        lambda rng: {
            "slope": rng.uniform(1.0, 2.2) if rng.random() < 0.35 else 0.0,  # of a fractal
            "frequency": painting.log_uniform(rng, 3.0, 11.0),
            "bandwidth": rng.uniform(0.5, 1.8),
            "anisotropy": painting.log_uniform(rng, 1.0, 4.0) if rng.random() < 0.6 else 1.0,
            "cut": str(rng.choice(["soft", "hard", "ridges"])),
            "bias": rng.uniform(-0.6, 0.6),
        },
        _noise,
    ),
    "stripes": (
        lambda rng: {
            "frequency": painting.log_uniform(rng, 2.5, 9.0),
            "ratio": painting.log_uniform(rng, 0.5, 2.0),
            "wobble": rng.uniform(0, 1.8) * (rng.random() < 0.6),
            "wobble_frequency": rng.uniform(1, 4),
            "cross": str(rng.choice(["", "product", "sum"])),
            "sharpness": painting.log_uniform(rng, 0.6, 6.0),
            "bias": rng.uniform(-0.4, 0.4),
        },
        _stripes,
    ),
    "lattice": (
        lambda rng: {
            "frequency": painting.log_uniform(rng, 2.5, 8.0),
            "ratio": painting.log_uniform(rng, 0.6, 1.8),
            "brick": float(rng.choice([0, 0.5, 0.33])),
            "mark": str(rng.choice(["dot", "ring", "tile", "diamond", "scale"])),
            "radius": rng.uniform(0.2, 0.42),
        },
        _lattice,
    ),
    "cells": (
        lambda rng: {
            "frequency": painting.log_uniform(rng, 4.0, 10.0),
            "ratio": painting.log_uniform(rng, 0.5, 1.5),
            "disorder": rng.uniform(0.4, 1),
            "show": str(rng.choice(["tones", "walls", "distance"])),
            "sharpness": painting.log_uniform(rng, 1.2, 8.0),
        },
        _cells,
    ),
    "needles": (
        lambda rng: {
            "length": rng.uniform(0.15, 0.5),
            "width": rng.uniform(0.03, 0.09),
            "density": painting.log_uniform(rng, 0.008, 0.05),
        },
        _needles,
    ),
}
_ORDER = ("noise", "stripes", "lattice", "cells", "noise", "lattice", "needles", "stripes", "cells", "noise")


def _parameters(rng: np.random.Generator, number: int) -> dict:
    family = _ORDER[number % len(_ORDER)]
    palette = np.stack(
        [rng.uniform(0, 1) + rng.uniform(-0.2, 0.2, 3), rng.uniform(0.1, 0.8, 3), np.sort(rng.uniform(0.1, 1, 3))], 1
    )
    # Light enough apart to be seen in grey, too.
    palette[:, 2] = np.linspace(palette[0, 2], max(palette[2, 2], palette[0, 2] + 0.5), 3)
    if rng.random() < 0.5:
        palette = palette[::-1]
    return {"family": family, "angle": rng.uniform(0, np.pi), "palette": palette.tolist(), **FAMILIES[family][0](rng)}


def _render(plan: ClassPlan, image_size: int) -> np.ndarray:
    rng = painting.generator("textures", plan.name)
    n, size, p = plan.n_images, 2 * image_size, plan.parameters
    angle = p["angle"] + rng.uniform(-0.5, 0.5, n)
    zoom = np.exp(rng.uniform(-LOG_SCALE, LOG_SCALE, n))
    x, y = painting.grid(size)
    bend = 0.06 * painting.smooth_noise(rng, (2, n), size, 3)
    x, y = (x + bend[0]) / zoom[:, None, None], (y + bend[1]) / zoom[:, None, None]
    c, s = np.cos(angle)[:, None, None], np.sin(angle)[:, None, None]
    field = FAMILIES[p["family"]][1](rng, p, c * x + s * y, -s * x + c * y, angle, zoom)
    field = np.clip(painting.reduce(field.astype(np.float32)), 0, 1)
    palette = np.array(p["palette"])[None] + np.zeros((n, 1, 1))
    hue = rng.uniform(-0.25, 0.25, (n, 1))
    palette[..., 0] += hue + rng.uniform(-1, 1, (n, 3)) * 0.08
    palette[..., 1:] += rng.uniform(-0.18, 0.18, (n, 3, 2))
    colours = painting.hsv(palette[..., 0], *np.clip(palette[..., 1:], 0, 1).transpose(2, 0, 1))
    low, middle, high = colours.transpose(1, 0, 2)[..., None, None]
    field = field[:, None]
    scene = np.where(field < 0.5, low + 2 * field * (middle - low), middle + (2 * field - 1) * (high - middle))
    shadows = painting.smooth_noise(rng, (n, 1), image_size, 2)
    shade = 0.18 * (shadows + painting.gradient(rng, n, image_size, 1.5)[:, None])
    scene = scene.astype(np.float32) * np.exp(shade)
    return painting.camera(rng, scene, exposure=0.25, contrast=0.25, cast=0.08, softness=0.8, noise=0.08)


RECIPE = Recipe("textures", ("train", "valid", "test"), procedural("textures", _parameters), _render)
