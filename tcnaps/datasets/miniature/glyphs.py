"""glyphs: an Omniglot of print.

A class is a character of matplotlib's fonts, a superclass its script, a split whole scripts.
"""

import unicodedata
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tcnaps.datasets.miniature import painting
from tcnaps.datasets.miniature.plan import ClassPlan, Recipe
from tcnaps.datasets.miniature.typefaces import FORM, bitmap, faces_of, form

IMAGES_PER_CLASS = 20  # as in Omniglot

# How much the images of one character differ: change this if glyphs are too easy or too hard.
STRENGTH = {
    "angle": 0.35,  # radians of rotation, either way
    "log_scale": 0.18,  # of the size
    "stretch": 0.30,  # of width over height
    "shear": 0.30,
    "shift": 0.13,  # half sides
    "bend": 0.085,  # half sides, standard deviation of the elastic displacement
    "weight": (0.28, 0.54),  # level at which blurred strokes are cut: below 0.5 thickens, above thins
    "contrast": (0.30, 0.85),  # lightness between ink and paper
    "chroma": 0.30,
    "relief": 0.06,  # clouds and ramps behind the character
    "clutter": 5,  # at most so many other strokes and shapes behind it
    "noise": 0.10,
}


@dataclass(frozen=True)
class Script:
    """Letters whose Unicode name begins with `prefix`, or symbols in `blocks`; the `limit` that most faces hold."""

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
ALIKE = 0.92  # cosine between two characters' forms, blurred and of one size, from which they count as one


def _candidates(script: Script) -> list[str]:
    """A script's characters, without those that Unicode composes of others (accented letters, ligatures)."""
    chosen = []
    for character in faces_of():
        category = unicodedata.category(character)
        inside = category in ("Sm", "So") and any(first <= ord(character) <= last for first, last in script.blocks)
        letter = category in ("Lu", "Ll", "Lo") and script.prefix
        named = letter and unicodedata.name(character, "").startswith(script.prefix)
        if (inside or named) and not unicodedata.decomposition(character):
            chosen.append(character)
    return sorted(chosen, key=lambda character: (-len(faces_of()[character]), character))


@lru_cache(maxsize=1)
def characters() -> dict[str, tuple[str, ...]]:
    """The characters of each script that are classes: no two of them alike, in whichever scripts."""
    forms, kept = np.zeros((0, FORM * FORM), np.float32), {}
    for name, script in SCRIPTS.items():
        distinct = []
        for character in _candidates(script):
            drawn = form(character, faces_of()[character][0])
            if drawn is not None and (forms @ drawn.ravel()).max(initial=0) < ALIKE:
                distinct.append(character)
                forms = np.concatenate([forms, drawn.reshape(1, -1)])
            if len(distinct) == script.limit:
                break
        kept[name] = tuple(sorted(distinct))
    return kept


def _plan(split: str) -> list[ClassPlan]:
    return [
        ClassPlan(
            "glyphs",
            f"U+{ord(character):04X} {unicodedata.name(character)}",
            IMAGES_PER_CLASS,
            name,
            {"character": character, "faces": faces_of()[character]},
        )
        for name, script in SCRIPTS.items()
        if script.split == split
        for character in characters()[name]
    ]


def _render(plan: ClassPlan, image_size: int) -> np.ndarray:
    rng = painting.generator("glyphs", plan.name)
    n, size = plan.n_images, 2 * image_size
    faces = rng.permutation(plan.parameters["faces"])
    matrices = 0.72 * painting.affine(rng, n, *(STRENGTH[key] for key in ("angle", "log_scale", "stretch", "shear")))
    shifts = rng.uniform(-STRENGTH["shift"], STRENGTH["shift"], (n, 2))
    bends = STRENGTH["bend"] * painting.smooth_noise(rng, (n, 2), size, 3)
    bitmaps = [bitmap(plan.parameters["character"], str(faces[k % len(faces)])) for k in range(n)]
    masks = np.stack([painting.warp(bitmaps[k], size, matrices[k], shifts[k], bends[k]) for k in range(n)])
    soft = painting.blur(masks, np.full(n, size / 40))
    level = rng.uniform(*STRENGTH["weight"], (n, 1, 1)) * soft.max(axis=(1, 2), keepdims=True)  # thin strokes survive
    masks = painting.reduce(np.clip((soft - level) * 8 + 0.5, 0, 1).astype(np.float32))
    ink, paper = painting.ink_and_paper(rng, n, STRENGTH["contrast"], STRENGTH["chroma"])
    scene = painting.backgrounds(rng, paper, image_size, STRENGTH["relief"], 0.3, STRENGTH["clutter"])
    ramp = painting.gradient(rng, n, image_size, 0.15)[:, None]
    scene = painting.compose(scene, ink[:, :, None, None] + ramp, masks)
    return painting.camera(rng, scene, 0.15, 0.1, 0.05, 0.7, STRENGTH["noise"])


RECIPE = Recipe("glyphs", ("train", "valid", "test"), _plan, _render)
