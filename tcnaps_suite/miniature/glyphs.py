"""glyphs: an Omniglot of characters of matplotlib's fonts. Superclasses are scripts, and each split has whole ones."""

import unicodedata
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from tcnaps_suite.miniature import painting
from tcnaps_suite.miniature.plan import ClassPlan, Recipe
from tcnaps_suite.miniature.typefaces import FORM, bitmap, faces_of, form

IMAGES_PER_CLASS = 20  # as in Omniglot


class Script(NamedTuple):
    """Letters whose Unicode name begins with `prefix`, or symbols in `blocks`; the `limit` found in most faces."""

    split: str
    limit: int
    prefix: str = ""
    blocks: tuple[tuple[int, int], ...] = ()


# The first script keeps a form that several scripts share (the A of Latin, Greek and Cyrillic).
# There are no digits: the dataset `digits` is out-of-domain.
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
ALIKE = 0.92  # two characters count as one if the cosine between their forms, blurred and of one size, is larger


def _candidates(script: Script) -> list[str]:
    """A script's characters, without those that Unicode composes from others (accented letters, ligatures)."""
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
    """The characters of each script that become classes. No two of them look alike, within or across scripts."""
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
    scripts = [name for name, script in SCRIPTS.items() if script.split == split]
    return [
        ClassPlan("glyphs", f"U+{ord(c):04X} {unicodedata.name(c)}", IMAGES_PER_CLASS, (c, faces_of()[c]), name)
        for name in scripts
        for c in characters()[name]
    ]


def _render(plan: ClassPlan, image_size: int) -> np.ndarray:
    rng = painting.generator("glyphs", plan.name)
    n, size, (character, held) = plan.n_images, 2 * image_size, plan.parameters
    faces = rng.permutation(held)
    matrices = 0.72 * painting.affine(rng, n, angle=0.35, log_scale=0.18, stretch=0.30, shear=0.30)
    shifts = rng.uniform(-0.13, 0.13, (n, 2))
    bends = 0.085 * painting.smooth_noise(rng, (n, 2), size, 3)
    bitmaps = [bitmap(character, str(faces[k % len(faces)])) for k in range(n)]
    masks = np.stack([painting.warp(bitmaps[k], size, matrices[k], shifts[k], bends[k]) for k in range(n)])
    soft = painting.blur(masks, np.full(n, size / 40))
    # The level at which blurred strokes are cut: below 0.5 thickens them, above thins them; thin strokes survive.
    level = rng.uniform(0.28, 0.54, (n, 1, 1)) * soft.max(axis=(1, 2), keepdims=True)
    masks = painting.reduce(np.clip((soft - level) * 8 + 0.5, 0, 1).astype(np.float32))
    ink, paper = painting.ink_and_paper(rng, n, contrast=(0.30, 0.85), chroma=0.30)
    scene = painting.backgrounds(rng, paper, image_size, relief=0.06, spread=0.3, pieces=5)
    ramp = painting.gradient(rng, n, image_size, 0.15)[:, None]
    scene = painting.compose(scene, ink[:, :, None, None] + ramp, masks)
    return painting.camera(rng, scene, exposure=0.15, contrast=0.1, cast=0.05, softness=0.7, noise=0.10)


RECIPE = Recipe("glyphs", ("train", "valid", "test"), _plan, _render)
