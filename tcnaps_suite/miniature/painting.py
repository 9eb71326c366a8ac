"""Helpers of the recipes: seeds, noise, warps, colours, backgrounds and a camera. Arrays are float32 in [0, 1]."""

import zlib
from functools import lru_cache

import numpy as np
from PIL import Image, ImageDraw
from scipy.ndimage import map_coordinates


def generator(*key: str) -> np.random.Generator:
    """A random generator that depends on `key` alone, not on the process, the order or other classes."""
    return np.random.Generator(np.random.PCG64(zlib.crc32("/".join(key).encode())))


def log_uniform(rng: np.random.Generator, low: float, high: float, size: int | None = None) -> float | np.ndarray:
    """Draws between `low` and `high`, uniformly in the logarithm."""
    return np.exp(rng.uniform(np.log(low), np.log(high), size))


@lru_cache(maxsize=64)
def _spline(size: int, cells: int) -> np.ndarray:
    """Uniform cubic B-spline weights (size, cells + 3) from control points to pixels."""
    position = (np.arange(size) + 0.5) / size * cells
    first = np.minimum(position.astype(int), cells - 1)
    t = position - first
    weights = np.zeros((size, cells + 3), np.float32)
    for k, w in enumerate(((1 - t) ** 3, 3 * t**3 - 6 * t**2 + 4, -3 * t**3 + 3 * t**2 + 3 * t + 1, t**3)):
        weights[np.arange(size), first + k] = w / 6
    return weights


def smooth_noise(rng: np.random.Generator, shape: tuple[int, ...], size: int, cells: int) -> np.ndarray:
    """Smooth noise (*shape, size, size) of standard deviation about 1, with `cells` bumps along a side."""
    weights = _spline(size, cells)
    control = rng.standard_normal((*shape, cells + 3, cells + 3), dtype=np.float32)
    return (weights @ control @ weights.T) * np.float32(2.1)  # a B-spline averages about 4.4 independent values


def grid(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Pixel centres in [-1, 1]: x to the right and y down, each (size, size)."""
    axis = ((np.arange(size) + 0.5) / size * 2 - 1).astype(np.float32)
    return np.broadcast_to(axis, (size, size)), np.broadcast_to(axis[:, None], (size, size))


def circle(angle: np.ndarray) -> np.ndarray:
    """Points (n, 2) of the unit circle at angles (n,) in radians."""
    return np.stack([np.cos(angle), np.sin(angle)], 1)


def affine(
    rng: np.random.Generator, n: int, angle: float, log_scale: float, stretch: float, shear: float
) -> np.ndarray:
    """Random matrices (n, 2, 2) around the identity.

    Bounds: `angle` in radians, logarithms of the size and of width over height (`stretch`), the slant's tangent.
    """
    a, s = rng.uniform(-angle, angle, n), np.exp(rng.uniform(-log_scale, log_scale, n))
    q, h = np.exp(rng.uniform(-stretch, stretch, n) / 2), rng.uniform(-shear, shear, n)
    rotation = np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]]).transpose(2, 0, 1)
    shape = np.array([[s * q, s * q * h], [np.zeros(n), s / q]]).transpose(2, 0, 1)
    return rotation @ shape


def warp(bitmap: np.ndarray, size: int, matrix: np.ndarray, shift: np.ndarray, bend: np.ndarray) -> np.ndarray:
    """Draws a bitmap (height, width) in a square (size, size) whose half side is 1, float32.

    It is transformed by an affine map, `matrix` (2, 2) and `shift` (2,), and displaced by `bend` (2, size, size).
    """
    x, y = grid(size)
    p, q = x - shift[0] + bend[0], y - shift[1] + bend[1]
    inverse = np.linalg.inv(matrix).astype(np.float32)
    half = max(bitmap.shape) / 2
    column = (inverse[0, 0] * p + inverse[0, 1] * q) * half + (bitmap.shape[1] - 1) / 2
    row = (inverse[1, 0] * p + inverse[1, 1] * q) * half + (bitmap.shape[0] - 1) / 2
    return map_coordinates(bitmap, (row, column), np.float32, order=1, mode="constant")


def blur(images: np.ndarray, sigma: np.ndarray) -> np.ndarray:
    """Gaussian blur of (n, size, size) or (n, channels, size, size) by (n,) standard deviations in pixels."""
    size = images.shape[-1]
    distance = np.arange(size, dtype=np.float32)[:, None] - np.arange(size, dtype=np.float32)
    kernel = np.exp(-0.5 * (distance / np.maximum(sigma, 0.05).astype(np.float32)[:, None, None]) ** 2)
    kernel /= kernel.sum(axis=2, keepdims=True)
    if images.ndim == 4:
        kernel = kernel[:, None]
    return kernel @ images @ kernel.swapaxes(-1, -2)


def reduce(images: np.ndarray) -> np.ndarray:
    """Halves the last two axes by averaging over blocks of 2 x 2."""
    size = images.shape[-1] // 2
    return images.reshape(*images.shape[:-2], size, 2, size, 2).mean(axis=(-3, -1), dtype=np.float32)


def hsv(hue: np.ndarray, saturation: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Red, green, blue (..., 3) from a hue in turns, and saturation and value in [0, 1], of one shape."""
    k = (np.array([5.0, 3.0, 1.0]) + 6 * hue[..., None]) % 6
    value, saturation = value[..., None], saturation[..., None]
    return (value - value * saturation * np.clip(np.minimum(k, 4 - k), 0, 1)).astype(np.float32)


def ink_and_paper(rng: np.random.Generator, n: int, contrast: tuple[float, float], chroma: float):
    """Two colours per image, each (n, 3). `contrast` bounds their difference in lightness; either may be darker."""
    gap = rng.uniform(*contrast, n)
    low = rng.uniform(0.03, 0.97 - gap)
    swap = rng.random(n) < 0.5
    colours = []
    for lightness in (np.where(swap, low, low + gap), np.where(swap, low + gap, low)):
        tint = rng.uniform(-chroma, chroma, (n, 3))
        colours.append(np.clip(lightness[:, None] + tint - tint.mean(axis=1, keepdims=True), 0, 1).astype(np.float32))
    return colours[0], colours[1]


def gradient(rng: np.random.Generator, n: int, size: int, strength: float) -> np.ndarray:
    """Linear ramps (n, size, size) in random directions, of random heights below `strength`."""
    x, y = grid(size)
    angle = rng.uniform(0, 2 * np.pi, (n, 1, 1)).astype(np.float32)
    return (rng.uniform(0, strength, (n, 1, 1)) * (np.cos(angle) * x + np.sin(angle) * y)).astype(np.float32)


def backgrounds(
    rng: np.random.Generator, colours: np.ndarray, size: int, relief: float, spread: float, pieces: int
) -> np.ndarray:
    """Backgrounds (n, 3, size, size) of mean colours (n, 3): clouds and ramps with scattered bars, discs and triangles.

    `relief` is the standard deviation of clouds and ramps, `spread` the pieces' largest difference in colour.
    """
    n = len(colours)
    canvas = np.empty((n, size, size, 3), np.uint8)
    for k in range(n):
        picture = Image.new("RGB", (2 * size, 2 * size), tuple((255 * colours[k]).astype(int).tolist()))
        draw = ImageDraw.Draw(picture)
        for _ in range(rng.integers(0, pieces + 1)):
            colour = tuple((255 * np.clip(colours[k] + rng.uniform(-spread, spread, 3), 0, 1)).astype(int).tolist())
            centre, reach, angle = (rng.uniform(0, 2 * size, 2), rng.uniform(0.1, 0.7) * size, rng.uniform(0, 7))
            kind = rng.integers(3)
            if kind == 0:
                end = centre + reach * np.array([np.cos(angle), np.sin(angle)])
                draw.line([*centre, *end], colour, width=int(rng.integers(1, max(3, size // 5))))
            elif kind == 1:
                draw.ellipse([*(centre - reach / 2), *(centre + reach / 2)], colour)
            else:
                corners = centre + reach / 2 * circle(angle + np.arange(3) * 2)
                draw.polygon(corners.ravel().tolist(), colour)
        canvas[k] = picture.reduce(2)
    clouds = smooth_noise(rng, (n, 3), size, 3) * 0.4 + smooth_noise(rng, (n, 1), size, 4)
    clouds = clouds + gradient(rng, n, size, 1.5)[:, None]
    return canvas.transpose(0, 3, 1, 2).astype(np.float32) / 255 + np.float32(relief) * clouds


def compose(background: np.ndarray, colour: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Lays colours (n, 3[, size, size]) over backgrounds (n, 3, size, size), weighted by masks (n, size, size)."""
    colour = colour[:, :, None, None] if colour.ndim == 2 else colour
    return background + mask[:, None] * (colour - background)


def camera(
    rng: np.random.Generator,
    images: np.ndarray,
    exposure: float,
    contrast: float,
    cast: float,
    softness: float,
    noise: float,
) -> np.ndarray:
    """Photographs scenes (n, 3, size, size) as uint8 (n, size, size, 3), each with its own light, lens and grain.

    Three arguments bound the logarithm of a gain: `exposure` of brightness (half as far upwards, because white
    saturates), `contrast` around mid-grey, `cast` of each channel. `softness` of the blur is in 32nds of the side.
    """
    n, size = len(images), images.shape[-1]
    sigma = rng.uniform(0, softness, n) * size / 32
    images = blur(images, sigma)
    gain = np.exp(rng.uniform(-exposure, exposure / 2, (n, 1)) + rng.uniform(-cast, cast, (n, 3))).astype(np.float32)
    slope = np.exp(rng.uniform(-contrast, contrast, (n, 1, 1, 1))).astype(np.float32)
    images = ((images - 0.5) * slope + 0.5) * gain[:, :, None, None]
    grain = rng.uniform(0, noise, (n, 1, 1, 1)).astype(np.float32)
    images = images + grain * rng.standard_normal(images.shape, dtype=np.float32)
    return (np.clip(images, 0, 1) * 255 + 0.5).astype(np.uint8).transpose(0, 2, 3, 1)
