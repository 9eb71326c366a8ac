"""glyphs: an Omniglot of print. A class is a character of matplotlib's fonts, a superclass its script, a split whole scripts."""

import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.ft2font import FT2Font
from PIL import Image, ImageFont
from scipy.ndimage import gaussian_filter

from tcnaps.datasets.miniature import painting
from tcnaps.datasets.miniature.plan import ClassPlan, Recipe

IMAGES_PER_CLASS = 20   # as in Omniglot
MINIMUM_FACES = 4       # a character that fewer faces hold varies too little

# How much the images of one character differ: what to turn when glyphs are too easy or too hard.
STRENGTH = {
    "angle": 0.30,             # radians of rotation, either way
    "log_scale": 0.18,         # of the size
    "stretch": 0.30,           # of width over height
    "shear": 0.30,
    "shift": 0.13,             # half sides
    "bend": 0.075,             # half sides, standard deviation of the elastic displacement
    "weight": (0.28, 0.54),    # level at which blurred strokes are cut: below 0.5 thickens, above thins
    "contrast": (0.30, 0.85),  # lightness between ink and paper
    "chroma": 0.30,
    "relief": 0.06,            # clouds and ramps behind the character
    "clutter": 5,              # at most so many other strokes and shapes behind it
    "noise": 0.10,
}

# Faces by family; the classic TeX faces hold letters at their Unicode places only within ASCII.
_FAMILIES = {
    "DejaVuSans": ("", "-Bold", "-Oblique", "-BoldOblique"),
    "DejaVuSansMono": ("", "-Bold", "-Oblique", "-BoldOblique"),
    "DejaVuSerif": ("", "-Bold", "-Italic", "-BoldItalic"),
    "STIXGeneral": ("", "Bol", "Italic", "BolIta"),
}
FACES = tuple(f"{family}{style}.ttf" for family, styles in _FAMILIES.items() for style in styles)
_ASCII_FACES = ("cmr10.ttf", "cmb10.ttf", "cmss10.ttf", "cmti10.ttf", "cmtt10.ttf")


@dataclass(frozen=True)
class Script:
    """A superclass: letters whose Unicode name begins with `prefix`, or symbols that lie in `blocks`.

    `limit` bounds the number of classes; those that most faces hold come first.
    """

    split: str
    limit: int
    prefix: str = ""
    blocks: tuple[tuple[int, int], ...] = ()


# Earlier scripts keep a form that several share (Latin, Greek and Cyrillic A), later ones go without it.
# No digits here: the digits dataset is out-of-domain.
SCRIPTS = {
    "Latin": Script("train", 110, "LATIN "),
    "Cyrillic": Script("train", 70, "CYRILLIC "),
    "Canadian syllabics": Script("train", 90, "CANADIAN SYLLABICS "),
    "Arabic": Script("train", 40, "ARABIC LETTER "),
    "mathematics": Script("train", 60, blocks=((0x2200, 0x22FF), (0x2A00, 0x2AFF))),
    "Armenian": Script("valid", 50, "ARMENIAN "),
    "Lao": Script("valid", 40, "LAO LETTER "),
    "Greek": Script("test", 50, "GREEK "),
    "Georgian": Script("test", 50, "GEORGIAN "),
    "Hebrew": Script("test", 30, "HEBREW LETTER "),
    "arrows": Script("test", 40, blocks=((0x2190, 0x21FF), (0x2900, 0x297F))),
}
ALIKE = 0.92    # cosine between two characters' forms, blurred and of one size, from which they count as one
_FORM = 24      # side of those forms, pixels
_EM = 80        # size in pixels at which characters are drawn before they are warped


def _font_folder() -> Path:
    return Path(matplotlib.get_data_path()) / "fonts" / "ttf"


@lru_cache(maxsize=None)
def _font(face: str) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(str(_font_folder() / face), _EM, layout_engine=ImageFont.Layout.BASIC)


@lru_cache(maxsize=4096)
def bitmap(character: str, face: str) -> np.ndarray:
    """A character's ink in a face, float32 (height, width) in [0, 1], cut to its bounding box; empty if it leaves none."""
    mask = _font(face).getmask(character, mode="L")
    ink = np.asarray(mask, np.float32).reshape(mask.size[::-1]) / 255
    rows, columns = np.flatnonzero(ink.any(axis=1)), np.flatnonzero(ink.any(axis=0))
    return ink[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1] if len(rows) else ink[:0, :0]


def form(character: str, face: str) -> np.ndarray | None:
    """A character's form (24, 24) whatever its size and place, for comparing; None if it is blank, a dot or a plain bar."""
    ink = bitmap(character, face)
    if ink.sum() < 60 or ink.mean() > 0.8:   # pixels of an 80-pixel em, or of its bounding box
        return None
    scale = _FORM / max(ink.shape)
    size = [max(1, round(side * scale)) for side in ink.shape[::-1]]
    small = np.asarray(Image.fromarray((ink * 255).astype(np.uint8)).resize(size, Image.Resampling.BOX), np.float32)
    canvas = np.zeros((_FORM, _FORM), np.float32)
    top, left = (_FORM - small.shape[0]) // 2, (_FORM - small.shape[1]) // 2
    canvas[top : top + small.shape[0], left : left + small.shape[1]] = small
    canvas = gaussian_filter(canvas, 1.0)
    return canvas / np.linalg.norm(canvas)


@lru_cache(maxsize=1)
def _faces_of() -> dict[str, tuple[str, ...]]:
    """The faces that hold each character."""
    faces: dict[str, list[str]] = {}
    for face in FACES:
        for code in FT2Font(str(_font_folder() / face)).get_charmap():
            faces.setdefault(chr(code), []).append(face)
    for character in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz":
        faces[character].extend(_ASCII_FACES)
    return {character: tuple(held) for character, held in sorted(faces.items()) if len(held) >= MINIMUM_FACES}


def _candidates(script: Script) -> list[str]:
    """A script's characters, without those that Unicode composes of others (accented letters, ligatures)."""
    chosen = []
    for character in _faces_of():
        category = unicodedata.category(character)
        inside = category in ("Sm", "So") and any(first <= ord(character) <= last for first, last in script.blocks)
        named = category in ("Lu", "Ll", "Lo") and script.prefix and unicodedata.name(character, "").startswith(script.prefix)
        if (inside or named) and not unicodedata.decomposition(character):
            chosen.append(character)
    return sorted(chosen, key=lambda character: (-len(_faces_of()[character]), character))


@lru_cache(maxsize=1)
def characters() -> dict[str, tuple[str, ...]]:
    """The characters of each script that are classes: no two of them alike, in whichever scripts."""
    kept_forms = np.zeros((0, _FORM * _FORM), np.float32)
    kept = {}
    for name, script in SCRIPTS.items():
        distinct, forms = [], []
        for character in _candidates(script):
            drawn = form(character, _faces_of()[character][0])
            if drawn is None:
                continue
            drawn = drawn.ravel()
            if (kept_forms @ drawn).max(initial=0) < ALIKE and all(f @ drawn < ALIKE for f in forms):
                distinct.append(character)
                forms.append(drawn)
            if len(distinct) == script.limit:
                break
        kept[name] = tuple(sorted(distinct))
        kept_forms = np.concatenate([kept_forms, np.stack(forms)])
    return kept


def _plan(split: str) -> list[ClassPlan]:
    return [
        ClassPlan("glyphs", f"U+{ord(character):04X} {unicodedata.name(character)}", IMAGES_PER_CLASS, name,
                  {"character": character, "faces": _faces_of()[character]})
        for name, script in SCRIPTS.items() if script.split == split for character in characters()[name]
    ]


def _render(plan: ClassPlan, image_size: int) -> np.ndarray:
    rng = painting.generator("glyphs", plan.name)
    n, size = plan.n_images, 2 * image_size
    faces = rng.permutation(plan.parameters["faces"])
    matrices = 0.72 * painting.affine(rng, n, *(STRENGTH[key] for key in ("angle", "log_scale", "stretch", "shear")))
    shifts = rng.uniform(-STRENGTH["shift"], STRENGTH["shift"], (n, 2))
    bends = STRENGTH["bend"] * painting.smooth_noise(rng, (n, 2), size, 3)
    masks = np.stack([
        painting.warp(bitmap(plan.parameters["character"], str(faces[k % len(faces)])), size, matrices[k], shifts[k], bends[k])
        for k in range(n)
    ])
    soft = painting.blur(masks, np.full(n, size / 40))
    level = rng.uniform(*STRENGTH["weight"], (n, 1, 1)) * soft.max(axis=(1, 2), keepdims=True)   # thin strokes survive
    masks = painting.reduce(np.clip((soft - level) * 8 + 0.5, 0, 1).astype(np.float32))
    ink, paper = painting.ink_and_paper(rng, n, STRENGTH["contrast"], STRENGTH["chroma"])
    scene = painting.backgrounds(rng, paper, image_size, STRENGTH["relief"], 0.3, STRENGTH["clutter"])
    ramp = painting.gradient(rng, n, image_size, 0.15)[:, None]
    scene = painting.compose(scene, ink[:, :, None, None] + ramp, masks)
    return painting.camera(rng, scene, 0.15, 0.1, 0.05, 0.7, STRENGTH["noise"])


RECIPE = Recipe("glyphs", ("train", "valid", "test"), _plan, _render)
