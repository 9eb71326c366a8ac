"""The built-in data: deterministic, disjoint, complete."""

import dataclasses
from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

import tcnaps_suite.miniature as miniature
from tcnaps.config.settings import Miniature
from tcnaps.data import DatasetError, preparation, preparing
from tcnaps.data.preparing import ensure_prepared
from tcnaps_suite.miniature import RECIPES, glyphs, photographs, typefaces
from tcnaps_suite.miniature.plan import ClassPlan, Recipe

SIZE = 32
MINIATURE = Miniature(source="miniature", domain="in")


def few(recipe: Recipe, split: str, classes: int = 2, images: int = 5) -> list[ClassPlan]:
    """The first classes of a split, cut to a few images."""
    return [plan._replace(n_images=min(images, plan.n_images)) for plan in recipe.plan(split)[:classes]]


@pytest.mark.parametrize("name", RECIPES)
def test_render_is_deterministic_uint8_and_not_blank(name):
    for plan in few(RECIPES[name], RECIPES[name].splits[-1]):
        images = RECIPES[name].render(plan, SIZE)
        assert images.shape == (plan.n_images, SIZE, SIZE, 3) and images.dtype == np.uint8
        np.testing.assert_array_equal(images, RECIPES[name].render(plan, SIZE))
        flat = images.reshape(len(images), -1)
        assert (flat.std(axis=1) > 3).all() and len(np.unique(flat, axis=0)) == len(flat)


@pytest.mark.parametrize("name", RECIPES)
def test_classes_are_enough_and_disjoint_across_splits(name):
    splits = [RECIPES[name].plan(split) for split in RECIPES[name].splits]
    plans = sum(splits, [])
    assert min(map(len, splits)) >= 10 and len({plan.name for plan in plans}) == len(plans)
    assert min(plan.n_images for plan in plans) >= 20 and all(plan.dataset == name for plan in plans)


@pytest.mark.parametrize("name", ["textures", "sketches", "photographs"])
def test_test_classes_allow_fifty_queries_beside_a_support_image_and_differ_in_size(name):
    sizes = [plan.n_images for plan in RECIPES[name].plan("test")]
    assert min(sizes) >= 51 and len(set(sizes)) >= 5


def test_glyphs_have_hundreds_of_classes_in_scripts_of_one_split_each():
    splits = [Counter(plan.superclass for plan in RECIPES["glyphs"].plan(s)) for s in ("train", "valid", "test")]
    assert sum(scripts.total() for scripts in splits) >= 500
    assert sum(map(len, splits)) == len(set().union(*splits)) >= 10
    assert min(min(scripts.values()) for scripts in splits) >= 10


def test_no_two_glyphs_are_alike_and_none_is_blank():
    chosen = [character for script in glyphs.characters().values() for character in script]
    forms = np.stack([typefaces.form(c, typefaces.faces_of()[c][0]).ravel() for c in chosen])
    assert (forms @ forms.T - 2 * np.eye(len(forms))).max() < glyphs.ALIKE
    assert typefaces.form(" ", "DejaVuSans.ttf") is None and typefaces.form("|", "DejaVuSans.ttf") is None


def test_lookalikes_of_other_scripts_and_digits_are_no_glyphs():
    characters = glyphs.characters()
    assert "A" in characters["Latin"] and "Α" not in characters["Greek"] and "А" not in characters["Cyrillic"]
    assert not {character for script in characters.values() for character in script} & {*"0123456789"}


def test_places_in_photographs_do_not_overlap():
    places = photographs.places()
    assert len(places) >= 30
    for (name, x, y), (other, x2, y2) in combinations(places, 2):
        assert name != other or max(abs(x - x2), abs(y - y2)) >= photographs.PLACE


def test_crops_stay_inside_their_own_place():
    inside = np.full((200, 200, 3), 255, np.uint8)
    inside[50 : 50 + photographs.PLACE, 30 : 30 + photographs.PLACE] = 0  # the place is black, all else is white
    assert photographs.crops(np.random.default_rng(0), Image.fromarray(inside), 30, 50, 200, SIZE).max() == 0


def test_digits_are_prepared_as_the_scans_enlarged(tmp_path):
    splits, notes = ensure_prepared(preparation("digits", MINIATURE, SIZE), tmp_path)
    assert list(splits) == ["test"] and notes == [] and splits["test"].class_names == tuple("0123456789")
    data, images = load_digits(), splits["test"].images_of(3)
    assert images.shape == ((data.target == 3).sum(), SIZE, SIZE, 3)
    blocks = images[..., 0].reshape(len(images), 8, 4, 8, 4).mean(axis=(2, 4)) * 16 / 255
    assert np.corrcoef(blocks.ravel(), data.images[data.target == 3].ravel())[0, 1] > 0.97


def test_one_and_two_processes_draw_the_same_bytes(tmp_path, monkeypatch):
    sketches = RECIPES["sketches"]
    recipe = sketches._replace(plan=lambda split: few(sketches, split, classes=3, images=4))
    made = preparation("sketches", MINIATURE, SIZE)
    made = dataclasses.replace(made, listing=lambda: miniature.listing_of(recipe))
    one = ensure_prepared(made, tmp_path / "one").splits
    monkeypatch.setattr(preparing, "IMAGES_PER_PROCESS", 5)
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "2")
    two = ensure_prepared(made, tmp_path / "two").splits
    for split in sketches.splits:
        np.testing.assert_array_equal(one[split].images, two[split].images)
        np.testing.assert_array_equal(one[split].images_of(1), sketches.render(recipe.plan(split)[1], SIZE))


def test_an_unknown_dataset_is_an_error():
    with pytest.raises(DatasetError, match="no dataset 'glyph'; it has: glyphs, textures"):
        preparation("glyph", MINIATURE, SIZE)
