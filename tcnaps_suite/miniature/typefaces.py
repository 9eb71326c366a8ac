"""The characters of matplotlib's fonts: the faces that have them, their ink, and their forms for comparisons."""

from functools import cache, lru_cache
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.ft2font import FT2Font
from PIL import Image, ImageFont
from scipy.ndimage import gaussian_filter

_FONTS = Path(matplotlib.get_data_path(), "fonts", "ttf")
MINIMUM_FACES = 4  # a character in fewer faces varies too little
FORM = 24  # side of a character's form in pixels
_EM = 80  # size in pixels at which characters are drawn before they are warped

# Faces by family. The classic TeX faces have only ASCII letters at their Unicode code points.
_FAMILIES = {
    "DejaVuSans": ("", "-Bold", "-Oblique", "-BoldOblique"),
    "DejaVuSansMono": ("", "-Bold", "-Oblique", "-BoldOblique"),
    "DejaVuSerif": ("", "-Bold", "-Italic", "-BoldItalic"),
    "STIXGeneral": ("", "Bol", "Italic", "BolIta"),
}
FACES = tuple(f"{family}{style}.ttf" for family, styles in _FAMILIES.items() for style in styles)
_ASCII_FACES = ("cmr10.ttf", "cmb10.ttf", "cmss10.ttf", "cmti10.ttf", "cmtt10.ttf")


@cache
def _font(face: str) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(str(_FONTS / face), _EM, layout_engine=ImageFont.Layout.BASIC)


@lru_cache(maxsize=4096)
def bitmap(character: str, face: str) -> np.ndarray:
    """A character's ink, float32 (height, width) in [0, 1], cut to its bounding box; empty for a blank."""
    mask = _font(face).getmask(character, mode="L")
    ink = np.asarray(mask, np.float32).reshape(mask.size[::-1]) / 255
    rows, columns = np.flatnonzero(ink.any(axis=1)), np.flatnonzero(ink.any(axis=0))
    return ink[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1] if len(rows) else ink[:0, :0]


def form(character: str, face: str) -> np.ndarray | None:
    """A character's form (24, 24), independent of its size and place; None for blanks, dots and plain bars."""
    ink = bitmap(character, face)
    if ink.sum() < 60 or ink.mean() > 0.8:  # pixels of an 80-pixel em, or of its bounding box
        return None
    scale = FORM / max(ink.shape)
    size = [max(1, round(side * scale)) for side in ink.shape[::-1]]
    small = np.asarray(Image.fromarray((ink * 255).astype(np.uint8)).resize(size, Image.Resampling.BOX), np.float32)
    canvas = np.zeros((FORM, FORM), np.float32)
    top, left = (FORM - small.shape[0]) // 2, (FORM - small.shape[1]) // 2
    canvas[top : top + small.shape[0], left : left + small.shape[1]] = small
    canvas = gaussian_filter(canvas, 1.0)
    return canvas / np.linalg.norm(canvas)


@lru_cache(maxsize=1)
def faces_of() -> dict[str, tuple[str, ...]]:
    """The faces that have each character, for characters in at least MINIMUM_FACES faces."""
    faces: dict[str, list[str]] = {}
    for face in FACES:
        for code in FT2Font(str(_FONTS / face)).get_charmap():
            faces.setdefault(chr(code), []).append(face)
    for character in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz":
        faces[character].extend(_ASCII_FACES)
    return {character: tuple(held) for character, held in sorted(faces.items()) if len(held) >= MINIMUM_FACES}
