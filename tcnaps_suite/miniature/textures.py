"""textures: procedural surfaces. A class has a structure and a palette; images turn, zoom, bend and relight it.

A family draws a class's parameters and returns a function that paints images. It takes a generator, coordinates along
and across the texture's axis, and each image's angle and zoom, and returns a field (n, size, size) from 0 to 1.
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from tcnaps_suite.miniature import painting
from tcnaps_suite.miniature.painting import log_uniform
from tcnaps_suite.miniature.plan import ClassPlan, Recipe, procedural

LOG_SCALE = 0.35  # largest logarithm of the zoom, in and out


def _filtered(noise: np.ndarray, angle: np.ndarray, zoom: np.ndarray, response: Callable) -> np.ndarray:
    """Filters noise (n, size, size) by a response to frequencies along and across the texture, in cycles per side."""
    size = noise.shape[1]
    fx, fy = np.fft.rfftfreq(size) * size, np.fft.fftfreq(size)[:, None] * size
    c, s, z = np.cos(angle)[:, None, None], np.sin(angle)[:, None, None], zoom[:, None, None]
    along, across = z * (c * fx + s * fy), z * (-s * fx + c * fy)
    return np.fft.irfft2(np.fft.rfft2(noise) * response(along, across), s=(size, size))


def _noise(rng: np.random.Generator) -> Callable:
    """Gabor noise, spots, labyrinths, fractals: white noise that is filtered and cut in different ways."""
    slope = rng.uniform(1.0, 2.2) if rng.random() < 0.35 else 0.0  # of a fractal
    frequency, bandwidth = log_uniform(rng, 3.0, 11.0), rng.uniform(0.5, 1.8)
    anisotropy = log_uniform(rng, 1.0, 4.0) if rng.random() < 0.6 else 1.0
    cut, bias = str(rng.choice(["soft", "hard", "ridges"])), rng.uniform(-0.6, 0.6)

    def response(along: np.ndarray, across: np.ndarray) -> np.ndarray:
        radius = np.hypot(along, across * anisotropy) + 1e-3
        if slope:
            return np.where(radius < 1, 0, radius**-slope)
        return np.exp(-0.5 * ((radius - frequency) / bandwidth) ** 2)

    def paint(rng, u, v, angle, zoom):
        field = _filtered(rng.standard_normal(u.shape, dtype=np.float32), angle, zoom, response)
        field = (field / field.std(axis=(1, 2), keepdims=True)).astype(np.float32)
        if cut == "ridges":
            return 1 - np.minimum(np.abs(field) / 1.5, 1)
        return 0.5 + 0.5 * np.tanh(4 * (field - bias)) if cut == "hard" else 0.5 + field / 5

    return paint


def _stripes(rng: np.random.Generator) -> Callable:
    """Bars across, plain or in two directions (checks, tartans)."""
    frequency, ratio = log_uniform(rng, 2.5, 9.0), log_uniform(rng, 0.5, 2.0)
    wobble, wobble_frequency = rng.uniform(0, 1.8) * (rng.random() < 0.6), rng.uniform(1, 4)
    cross = str(rng.choice(["", "product", "sum"]))
    sharpness, bias = log_uniform(rng, 0.6, 6.0), rng.uniform(-0.4, 0.4)

    def paint(rng, u, v, angle, zoom):
        phase = rng.uniform(0, 2 * np.pi, (2, len(u), 1, 1))
        wave = np.sin(np.pi * frequency * u + phase[0] + wobble * np.sin(np.pi * wobble_frequency * v + phase[1]))
        if cross:
            other = np.sin(np.pi * frequency * ratio * v + phase[1])
            wave = wave * other if cross == "product" else (wave + other) / 2
        return 0.5 + 0.5 * np.tanh(sharpness * (wave - bias)) / np.tanh(sharpness)

    return paint


def _lattice(rng: np.random.Generator) -> Callable:
    """Dots, rings, tiles, bricks or scales on a lattice."""
    frequency, ratio = log_uniform(rng, 2.5, 8.0), log_uniform(rng, 0.6, 1.8)
    brick = float(rng.choice([0, 0.5, 0.33]))
    mark, radius = str(rng.choice(["dot", "ring", "tile", "diamond", "scale"])), rng.uniform(0.2, 0.42)

    def paint(rng, u, v, angle, zoom):
        offset = rng.uniform(0, 1, (2, len(u), 1, 1))
        row = v * frequency / 2 * ratio + offset[0]
        column = u * frequency / 2 + offset[1] + brick * (np.floor(row) % 2)
        x, y = column % 1 - 0.5, row % 1 - 0.5
        if mark == "scale":
            return np.clip(np.hypot(x, y + 0.5) * (1 + radius), 0, 1)
        if mark == "tile":
            distance = np.maximum(np.abs(x), np.abs(y)) * 1.2
        elif mark == "diamond":
            distance = (np.abs(x) + np.abs(y)) * 0.9
        else:
            distance = np.hypot(x, y)
        if mark == "ring":
            distance = np.abs(distance - radius) + radius * 0.6
        return 1 / (1 + np.exp((distance - radius) * 30))

    return paint


def _cells(rng: np.random.Generator) -> Callable:
    """Voronoi cells: their distance fields, walls or flat tones."""
    frequency, ratio = log_uniform(rng, 4.0, 10.0), log_uniform(rng, 0.5, 1.5)
    disorder, show = rng.uniform(0.4, 1), str(rng.choice(["tones", "walls", "distance"]))
    sharpness, per_side = log_uniform(rng, 1.2, 8.0), frequency / 2
    side = int(np.ceil(per_side * np.exp(LOG_SCALE) * 1.35))  # enough for a view that is turned and zoomed out

    def paint(rng, u, v, angle, zoom):
        corners = np.stack(np.meshgrid(np.arange(side), np.arange(side)), -1).reshape(1, -1, 2)
        places = corners + 0.5 + disorder * rng.uniform(-0.5, 0.5, (len(u), side * side, 2))
        places = (2 * places - side) / per_side  # one place per cell; cells have side 2 / per_side
        tones = rng.uniform(0, 1, (len(u), side * side)).astype(np.float32)
        first, second = np.full(u.shape, 9.0, np.float32), np.full(u.shape, 9.0, np.float32)
        tone = np.zeros(u.shape, np.float32)
        u, v = u.astype(np.float32), v.astype(np.float32) * np.float32(ratio)
        for k in range(side * side):
            x, y = places[:, k, :, None, None].astype(np.float32).swapaxes(0, 1)
            distance = (u - x) ** 2 + (v - y) ** 2
            nearer = distance < first
            second = np.where(nearer, first, np.minimum(second, distance))
            tone = np.where(nearer, tones[:, k, None, None], tone)
            first = np.where(nearer, distance, first)
        first, second = np.sqrt(first) * per_side, np.sqrt(second) * per_side
        if show == "tones":
            return tone * np.clip((second - first) * 6, 0.2, 1)
        return np.clip((second - first) * sharpness if show == "walls" else first * 1.1, 0, 1)

    return paint


def _needles(rng: np.random.Generator) -> Callable:
    """Scattered strokes, like fur, straw or rain: sparse impulses smeared along the texture's axis."""
    length, width, density = rng.uniform(0.15, 0.5), rng.uniform(0.03, 0.09), log_uniform(rng, 0.008, 0.05)

    def response(along: np.ndarray, across: np.ndarray) -> np.ndarray:
        return np.exp(-0.5 * (along * length) ** 2 - 0.5 * (across * width) ** 2)

    def paint(rng, u, v, angle, zoom):
        impulses = rng.random(u.shape, dtype=np.float32) < density * (64 / u.shape[1]) ** 2
        field = _filtered(impulses.astype(np.float32), angle, zoom, response).astype(np.float32)
        return np.clip(field / np.quantile(field[:, ::3, ::3], 0.97, axis=(1, 2), keepdims=True), 0, 1)

    return paint


_ORDER = (_noise, _stripes, _lattice, _cells, _noise, _lattice, _needles, _stripes, _cells, _noise)


def _palette(rng: np.random.Generator) -> np.ndarray:
    """Three colours (hue, saturation, value) that differ in lightness, so that they differ in grey too."""
    hue = rng.uniform(0, 1) + rng.uniform(-0.2, 0.2, 3)
    saturation = rng.uniform(0.1, 0.8, 3)
    value = rng.uniform(0.1, 1, 3)
    low, high = value.min(), value.max()
    palette = np.stack([hue, saturation, np.linspace(low, max(high, low + 0.5), 3)], 1)
    return palette[::-1] if rng.random() < 0.5 else palette


def _render(plan: ClassPlan, image_size: int) -> np.ndarray:
    numbers = painting.generator("textures", plan.name)
    own_palette, own_angle = _palette(numbers), numbers.uniform(0, np.pi)
    paint = _ORDER[plan.parameters % len(_ORDER)](numbers)
    rng = painting.generator("textures", plan.name)
    n, size = plan.n_images, 2 * image_size
    angle = own_angle + rng.uniform(-0.5, 0.5, n)
    zoom = np.exp(rng.uniform(-LOG_SCALE, LOG_SCALE, n))
    x, y = painting.grid(size)
    bend = 0.06 * painting.smooth_noise(rng, (2, n), size, 3)
    x, y = (x + bend[0]) / zoom[:, None, None], (y + bend[1]) / zoom[:, None, None]
    c, s = np.cos(angle)[:, None, None], np.sin(angle)[:, None, None]
    field = paint(rng, c * x + s * y, -s * x + c * y, angle, zoom)
    field = np.clip(painting.reduce(field.astype(np.float32)), 0, 1)
    palette = own_palette + np.zeros((n, 1, 1))
    palette[..., 0] += rng.uniform(-0.25, 0.25, (n, 1)) + rng.uniform(-1, 1, (n, 3)) * 0.08
    palette[..., 1:] += rng.uniform(-0.18, 0.18, (n, 3, 2))
    colours = painting.hsv(palette[..., 0], *np.clip(palette[..., 1:], 0, 1).transpose(2, 0, 1))
    low, middle, high = colours.transpose(1, 0, 2)[..., None, None]
    field = field[:, None]
    scene = np.where(field < 0.5, low + 2 * field * (middle - low), middle + (2 * field - 1) * (high - middle))
    shadows = painting.smooth_noise(rng, (n, 1), image_size, 2)
    shade = 0.18 * (shadows + painting.gradient(rng, n, image_size, 1.5)[:, None])
    scene = scene.astype(np.float32) * np.exp(shade)
    return painting.camera(rng, scene, exposure=0.25, contrast=0.25, cast=0.08, softness=0.8, noise=0.08)


RECIPE = Recipe("textures", ("train", "valid", "test"), partial(procedural, "textures", "texture"), _render)
