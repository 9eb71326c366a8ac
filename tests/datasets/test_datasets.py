"""The built-in data: deterministic, disjoint, complete; prepared files survive whatever happens to them."""

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from matplotlib.ft2font import FT2Font

from tcnaps.config.settings import Miniature
from tcnaps.datasets import DatasetError, __main__, miniature, open_source, source, verify
from tcnaps.datasets.miniature import RECIPES, drawing, glyphs, painting, photographs, signs, typefaces
from tcnaps.datasets.miniature.plan import ClassPlan, Recipe
from tcnaps.datasets.source import Preparation, SplitLayout

SIZE = 32
MINIATURE = Miniature(source="miniature", domain="in")
ROOT = Path(__file__).resolve().parents[2]


def few(recipe: Recipe, split: str, classes: int = 2, images: int = 5) -> list[ClassPlan]:
    """The first classes of a split, cut to a few images."""
    return [
        ClassPlan(p.dataset, p.name, min(images, p.n_images), p.superclass, p.parameters)
        for p in recipe.plan(split)[:classes]
    ]


@pytest.fixture
def toy() -> Preparation:
    """Two splits whose images of class k are grey of level k; `toy.made` counts its preparations."""
    layouts = {"train": SplitLayout(("a", "b"), (3, 2), ("x", "y")), "test": SplitLayout(("c", "d", "e"), (1, 2, 3))}
    made = []

    def fill(files):
        made.append(None)
        for split, layout in layouts.items():
            array = np.load(files[split], mmap_mode="r+")
            array[:] = np.repeat(np.arange(len(layout.class_sizes)), layout.class_sizes)[:, None, None, None]
            array.flush()

    toy = Preparation("toy", 8, tuple(layouts), {"version": 1}, lambda: layouts, fill)
    object.__setattr__(toy, "made", made)
    return toy


# What the recipes draw


@pytest.mark.parametrize("name", RECIPES)
def test_render_is_deterministic_uint8_and_not_blank(name):
    for plan in few(RECIPES[name], RECIPES[name].splits[-1]):
        images = RECIPES[name].render(plan, SIZE)
        assert images.shape == (plan.n_images, SIZE, SIZE, 3) and images.dtype == np.uint8
        np.testing.assert_array_equal(images, RECIPES[name].render(plan, SIZE))
        assert (images.reshape(len(images), -1).std(axis=1) > 3).all(), f"a blank image of {plan.name}"
        assert len(np.unique(images.reshape(len(images), -1), axis=0)) == len(images), (
            f"two equal images of {plan.name}"
        )


@pytest.mark.parametrize("name", RECIPES)
def test_render_at_other_sizes(name):
    for size in (28, 50):
        plan = few(RECIPES[name], "test", classes=1, images=2)[0]
        assert RECIPES[name].render(plan, size).shape == (2, size, size, 3)


def test_rendering_does_not_touch_global_random_state():
    state = np.random.get_state()[1].copy()
    for recipe in RECIPES.values():
        recipe.render(few(recipe, "test", classes=1, images=2)[0], SIZE)
    np.testing.assert_array_equal(state, np.random.get_state()[1])


@pytest.mark.parametrize("name", RECIPES)
def test_classes_are_enough_and_disjoint_across_splits(name):
    recipe, seen = RECIPES[name], set()
    for split in recipe.splits:
        plans = recipe.plan(split)
        names = {plan.name for plan in plans}
        assert len(names) == len(plans) >= 10
        assert not names & seen
        seen |= names
        assert min(plan.n_images for plan in plans) >= 20
        assert all(plan.dataset == name for plan in plans)


def test_four_in_domain_and_three_out_of_domain_datasets_of_30_000_images_at_most():
    splits = [recipe.splits for recipe in RECIPES.values()]
    assert splits.count(("train", "valid", "test")) == 4 and splits.count(("test",)) == 3
    total = sum(plan.n_images for recipe in RECIPES.values() for split in recipe.splits for plan in recipe.plan(split))
    assert 25_000 <= total <= 31_000


@pytest.mark.parametrize("name", ["textures", "shapes", "sketches", "photographs", "signs"])
def test_test_classes_allow_fifty_queries_beside_a_support_image_and_differ_in_size(name):
    sizes = [plan.n_images for plan in RECIPES[name].plan("test")]
    assert min(sizes) >= 51 and len(set(sizes)) >= 5


def test_glyphs_have_hundreds_of_classes_in_scripts_of_one_split_each():
    scripts = {
        split: {plan.superclass for plan in RECIPES["glyphs"].plan(split)} for split in ("train", "valid", "test")
    }
    assert sum(len(RECIPES["glyphs"].plan(split)) for split in scripts) >= 500
    assert sum(map(len, scripts.values())) == len(set.union(*scripts.values())) >= 10
    for split in scripts:
        for script in scripts[split]:
            assert sum(plan.superclass == script for plan in RECIPES["glyphs"].plan(split)) >= 10


def test_no_two_glyphs_are_alike_and_none_is_blank():
    chosen = [character for script in glyphs.characters().values() for character in script]
    forms = np.stack([typefaces.form(c, typefaces.faces_of()[c][0]).ravel() for c in chosen])
    alike = forms @ forms.T - 2 * np.eye(len(forms))
    assert alike.max() < glyphs.ALIKE
    assert typefaces.form(" ", "DejaVuSans.ttf") is None and typefaces.form("|", "DejaVuSans.ttf") is None


def test_lookalikes_of_other_scripts_are_dropped():
    characters = glyphs.characters()
    assert "A" in characters["Latin"] and "Α" not in characters["Greek"] and "А" not in characters["Cyrillic"]
    assert not set("0123456789") & {c for script in characters.values() for c in script}


def test_every_glyph_is_held_by_each_of_its_faces():
    for plan in RECIPES["glyphs"].plan("valid")[::9]:
        assert len(plan.parameters["faces"]) >= typefaces.MINIMUM_FACES
        assert all(typefaces.bitmap(plan.parameters["character"], face).any() for face in plan.parameters["faces"])


def test_signs_use_no_character_of_glyphs():
    used = {character for script in glyphs.characters().values() for character in script}
    pictograms = [pictogram for *_, row in signs.DESIGNS.values() for pictogram in row]
    assert len(set(pictograms)) == len(pictograms) and not used & set(pictograms)
    held = FT2Font(str(typefaces.font_folder() / "DejaVuSans.ttf")).get_charmap()
    assert all(ord(pictogram) in held for pictogram in pictograms)


def test_places_in_photographs_do_not_overlap():
    places = photographs.places()
    assert len(places) >= 30
    for k, (name, x, y) in enumerate(places):
        for other, x2, y2 in places[:k]:
            assert name != other or max(abs(x - x2), abs(y - y2)) >= photographs.PLACE


def test_crops_stay_inside_their_own_place(monkeypatch):
    name, x, y = photographs.places()[0]
    white = {other: np.full_like(image, 255) for other, image in photographs._photographs().items()}
    white[name] = white[name].copy()
    white[name][y : y + photographs.PLACE, x : x + photographs.PLACE] = 0  # the place is black, all else is white
    monkeypatch.setattr(photographs, "_photographs", lambda: white)
    for key in ("exposure", "contrast", "cast", "softness", "shade", "noise"):
        monkeypatch.setitem(photographs.STRENGTH, key, 0.0)
    plan = ClassPlan("photographs", "any", 200, parameters={"place": (name, x, y)})
    assert photographs.RECIPE.render(plan, SIZE).max() == 0


def test_digits_are_the_scans_enlarged():
    from sklearn.datasets import load_digits

    data = load_digits()
    images = RECIPES["digits"].render(RECIPES["digits"].plan("test")[3], SIZE)
    assert len(images) == (data.target == 3).sum()
    blocks = images[..., 0].reshape(len(images), 8, 4, 8, 4).mean(axis=(2, 4)) * 16 / 255
    assert np.corrcoef(blocks.ravel(), data.images[data.target == 3].ravel())[0, 1] > 0.97


# The brushes


def test_smooth_noise_has_unit_variance_and_is_smooth():
    noise = painting.smooth_noise(np.random.default_rng(0), (400,), 32, 3)
    assert noise.std() == pytest.approx(1, abs=0.1)
    assert np.abs(np.diff(noise, axis=2)).mean() < 0.2


def test_blur_keeps_constants_and_grey_and_blurs_each_image_by_its_own():
    images = np.random.default_rng(0).random((2, 3, 16, 16)).astype(np.float32)
    blurred = painting.blur(images, np.array([0.0, 3.0]))
    np.testing.assert_allclose(blurred[0], images[0], atol=1e-6)
    assert blurred[1].std() < 0.5 * images[1].std()
    np.testing.assert_allclose(painting.blur(np.ones((1, 16, 16), np.float32), np.array([2.0])), 1, rtol=1e-5)


def test_warp_by_the_identity_draws_the_bitmap():
    bitmap = np.random.default_rng(0).random((16, 16)).astype(np.float32)
    np.testing.assert_allclose(
        painting.warp(bitmap, 16, np.eye(2), np.zeros(2), np.zeros((2, 16, 16))), bitmap, atol=1e-5
    )


def test_hsv_agrees_with_colorsys():
    import colorsys

    for hue, saturation, value in np.random.default_rng(0).random((20, 3)):
        np.testing.assert_allclose(
            painting.hsv(hue, saturation, value), colorsys.hsv_to_rgb(hue, saturation, value), atol=1e-6
        )


def test_ink_differs_from_paper():
    ink, paper = painting.ink_and_paper(np.random.default_rng(0), 500, (0.4, 0.8), 0.0)
    gap = np.abs(ink - paper).mean(axis=1)
    assert gap.min() >= 0.4 - 1e-6 and gap.max() <= 0.8 + 1e-6


# Drawing with workers


def test_one_and_two_workers_draw_the_same_bytes(tmp_path):
    recipe = RECIPES["shapes"]
    plans = {split: few(recipe, split, classes=3, images=4) for split in ("train", "test")}
    for workers in (1, 2):
        files = {split: tmp_path / f"{split}-{workers}.npy" for split in plans}
        for file in files.values():
            np.lib.format.open_memmap(file, mode="w+", dtype=np.uint8, shape=(12, SIZE, SIZE, 3)).flush()
        drawing.draw(plans, files, SIZE, workers)
    for split in plans:
        drawn = np.load(tmp_path / f"{split}-1.npy")
        np.testing.assert_array_equal(drawn, np.load(tmp_path / f"{split}-2.npy"))
        np.testing.assert_array_equal(drawn[4:8], recipe.render(plans[split][1], SIZE))


def test_a_failing_worker_is_an_error_with_what_it_said(tmp_path):
    np.lib.format.open_memmap(tmp_path / "a.npy", mode="w+", dtype=np.uint8, shape=(2, SIZE, SIZE, 3)).flush()
    plans = {"test": [ClassPlan("nowhere", "a", 1), ClassPlan("nowhere", "b", 1)]}
    with pytest.raises(RuntimeError, match="(?s)nowhere failed in a worker.*KeyError: 'nowhere'"):
        drawing.draw(plans, {"test": tmp_path / "a.npy"}, SIZE, workers=2)


# Prepared files


def test_source_indexes_images_by_class(toy, tmp_path):
    opened = source.open_prepared(toy, tmp_path, "test")
    assert (opened.dataset, opened.split, opened.n_classes, opened.superclasses) == ("toy", "test", 3, None)
    np.testing.assert_array_equal(opened.class_sizes, [1, 2, 3])
    for k in range(3):
        assert (opened.images_of(k) == k).all() and len(opened.images_of(k)) == k + 1
    assert (opened.image(2, 1) == 2).all()
    assert source.open_prepared(toy, tmp_path, "train").superclasses == ("x", "y")
    with pytest.raises(ValueError, match="read-only"):
        opened.images[0] = 1


def test_no_such_class_or_image(toy, tmp_path):
    opened = source.open_prepared(toy, tmp_path, "test")
    with pytest.raises(IndexError, match="toy, test: there is no class 3; classes are 0 to 2"):
        opened.images_of(3)
    with pytest.raises(IndexError, match="class d: there is no image 2; images are 0 to 1"):
        opened.image(1, 2)
    with pytest.raises(IndexError, match="there is no class -1"):
        opened.image(-1, 0)


def test_prepared_once_and_opened_afterwards(toy, tmp_path):
    for split in ("train", "test", "train"):
        source.open_prepared(toy, tmp_path, split)
    assert len(toy.made) == 1
    assert {file.name for file in (tmp_path / "toy-8").iterdir()} == {"train.npy", "test.npy", "index.json", ".lock"}


def test_another_recipe_makes_files_stale(toy, tmp_path):
    source.open_prepared(toy, tmp_path, "test")
    newer = Preparation("toy", 8, toy.splits, {"version": 2}, toy.layouts, toy.fill)
    source.open_prepared(newer, tmp_path, "test")
    assert len(toy.made) == 2


@pytest.mark.parametrize(
    "damage", ["truncate array", "delete array", "truncate index", "delete index", "foreign index", "left over"]
)
def test_damaged_files_are_made_anew(toy, tmp_path, damage):
    source.open_prepared(toy, tmp_path, "test")
    array, index = tmp_path / "toy-8" / "test.npy", tmp_path / "toy-8" / "index.json"
    match damage:
        case "truncate array":
            array.write_bytes(array.read_bytes()[:-1])
        case "delete array":
            array.unlink()
        case "truncate index":
            index.write_text(index.read_text()[:50])
        case "delete index":
            index.unlink()
        case "foreign index":
            index.write_text("[]")
        case "left over":
            index.unlink()
            (tmp_path / "toy-8" / "old.npy.partial").write_text("")
    opened = source.open_prepared(toy, tmp_path, "test")
    assert len(toy.made) == 2
    assert (opened.images_of(2) == 2).all()
    assert not list((tmp_path / "toy-8").glob("*.partial"))


def test_an_overwritten_array_of_the_same_size_is_an_error(toy, tmp_path):
    source.open_prepared(toy, tmp_path, "test")
    array = tmp_path / "toy-8" / "test.npy"
    array.write_bytes(bytes(array.stat().st_size))
    with pytest.raises(DatasetError, match="test.npy can't be read .*; delete"):
        source.open_prepared(toy, tmp_path, "test")


def test_recipes_differ_by_their_code_and_share_nothing_else():
    codes = {name: miniature.preparation(name, SIZE).recipe["code"] for name in RECIPES}
    assert len(set(codes.values())) == len(RECIPES)
    assert codes == {name: miniature.preparation(name, 84).recipe["code"] for name in RECIPES}


def test_a_failed_preparation_leaves_nothing_that_looks_complete(toy, tmp_path):
    def fail(files):
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        source.open_prepared(Preparation("toy", 8, toy.splits, {"version": 1}, toy.layouts, fail), tmp_path, "test")
    assert not (tmp_path / "toy-8" / "index.json").exists()
    assert (source.open_prepared(toy, tmp_path, "test").images_of(2) == 2).all()


def test_verify_finds_a_changed_byte(toy, tmp_path):
    with pytest.raises(DatasetError, match="holds no complete dataset 'toy'"):
        source.verify(toy, tmp_path)
    source.open_prepared(toy, tmp_path, "test")
    source.verify(toy, tmp_path)
    array = tmp_path / "toy-8" / "test.npy"
    content = bytearray(array.read_bytes())
    content[-1] ^= 1
    array.write_bytes(content)
    with pytest.raises(DatasetError, match="test.npy has changed since it was made; delete"):
        source.verify(toy, tmp_path)


def test_jobs_that_ask_at_once_prepare_once(toy, tmp_path):
    def slow(files):
        time.sleep(0.3)
        toy.fill(files)

    preparation = Preparation("toy", 8, toy.splits, {"version": 1}, toy.layouts, slow)
    opened = []
    threads = [
        threading.Thread(target=lambda: opened.append(source.open_prepared(preparation, tmp_path, "test")))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(opened) == 4 and len(toy.made) == 1


def test_two_processes_that_ask_at_once_both_succeed(tmp_path):
    code = (
        "import sys\n"
        "from tcnaps.config.settings import Miniature\n"
        "from tcnaps.datasets import open_source\n"
        "dataset = Miniature(source='miniature', domain='out')\n"
        "digits = open_source('digits', dataset, 'test', 28, sys.argv[1])\n"
        "print(len(digits.images))"
    )
    jobs = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert [job.communicate(timeout=60)[0].strip() for job in jobs] == ["1797", "1797"]


# From a study


def test_open_source_prepares_a_dataset_of_the_miniature(tmp_path):
    opened = open_source("digits", MINIATURE, "test", SIZE, tmp_path)
    assert (
        opened.class_names == tuple("0123456789")
        and len(opened.images) == 1797
        and opened.images.shape[1:] == (SIZE, SIZE, 3)
    )
    plan = RECIPES["digits"].plan("test")[7]
    np.testing.assert_array_equal(opened.images_of(7), RECIPES["digits"].render(plan, SIZE))
    index = json.loads((tmp_path / f"digits-{SIZE}" / "index.json").read_text())
    assert {"code", "pillow", "matplotlib"} <= set(index["recipe"])
    verify("digits", MINIATURE, SIZE, tmp_path)


def test_unknown_dataset_split_and_size(tmp_path):
    with pytest.raises(DatasetError, match="no dataset 'glyph'; it has: glyphs, textures.*Did you mean 'glyphs'"):
        open_source("glyph", MINIATURE, "test", SIZE, tmp_path)
    with pytest.raises(DatasetError, match="'digits' has no split 'train'; it has: test"):
        open_source("digits", MINIATURE, "train", SIZE, tmp_path)
    with pytest.raises(DatasetError, match="drawn at 28 pixels or more, not 20"):
        open_source("digits", MINIATURE, "test", 20, tmp_path)
    assert not list(tmp_path.iterdir())


def test_command_line_prepares_a_study_and_reports_errors(tmp_path, capsys):
    study = tmp_path / "study.yaml"
    study.write_text(f"""
name: tiny
image_size: {SIZE}
data_folder: {tmp_path}
datasets: {{digits: {{source: miniature, domain: in}}}}
trainings: [support]
imported: {{backbone: backbone.pt, support: simple.pt}}
pretraining: {{datasets: [digits]}}
meta_training: {{datasets: [digits], protocol: {{kind: variable}}, validation_datasets: [digits]}}
evaluations: {{main: {{protocol: {{kind: variable}}, datasets: [digits], trainings: [support]}}}}
""")
    assert __main__.main([str(study), "--verify"]) == 0
    assert (
        "digits test: 10 classes, 1,797 images, sha256 " in (printed := capsys.readouterr().out)
        and "checksums agree" in printed
    )
    array = tmp_path / f"digits-{SIZE}" / "test.npy"
    array.write_bytes(array.read_bytes()[:-1] + b"\xff")
    assert __main__.main([str(study), "--verify"]) == 1
    assert "has changed" in capsys.readouterr().err
    assert __main__.main([str(tmp_path / "missing.yaml")]) == 1
    assert "No study at" in capsys.readouterr().err


def test_importing_the_datasets_does_not_import_torch():
    code = "import sys, tcnaps.datasets.miniature; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)
