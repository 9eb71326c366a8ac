"""The views' widgets without a browser: what controls do, in any order; loading, failing, saving, being kept."""

import random
from io import BytesIO

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from PIL import Image
from small_study import small_study
from synthetic_rows import synthetic_rows

from tcnaps.config import UserError
from tcnaps.evaluation import result_files
from tcnaps.evaluation.result_files import rows_file
from tcnaps.figures.style import VARIANT_STYLES
from tcnaps.widgets import figure_views, query_count_view, recall_view, refinement_view, view_data
from tcnaps.widgets.figure_views import NO_POINT
from tcnaps.widgets.widget_base import Choices

BOTH = ["blobs", "others"]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A project's root with rows for every evaluation of the study below."""
    folder = tmp_path_factory.mktemp("root")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_rows(made_study())
    return folder


@pytest.fixture
def study(root, monkeypatch):
    monkeypatch.chdir(root)
    monkeypatch.setattr("tcnaps.widgets.widget_base._KEPT", {})
    return made_study()


def made_study(name="small"):
    evaluations = {"variable": small_study().evaluations["variable"].model_dump() | {"episodes": 6}}
    for queries, ending, datasets in ((2, "", BOTH), (4, "-4-queries", ["blobs"]), (6, "-6-queries", ["blobs"])):
        protocol = {"kind": "fixed", "way": 5, "shot": 1, "queries_per_class": queries}
        made = {"protocol": protocol, "datasets": datasets, "trainings": ["support_and_query"], "episodes": 6}
        evaluations[f"5-way-1-shot{ending}"] = made
    return small_study(name=name, evaluations=evaluations)


def write_rows(study, seed=0):
    for name, evaluation in study.evaluations.items():
        queries = 4 if name == "variable" else evaluation.protocol.queries_per_class
        domains = {dataset: study.datasets[dataset].domain for dataset in evaluation.datasets}
        rows = synthetic_rows(evaluation.trainings, 6, 4, (3, 4, 5), queries, name, domains, seed=seed)
        for (training, dataset), own in rows.groupby(["training", "dataset"]):
            file = rows_file(study, training, name, dataset)
            result_files.write_rows(file, own.reset_index(drop=True), "key")


def tick(control, *names):
    """Presses the boxes of these names, as a user would."""
    for name in names:
        control.boxes[name].value = not control.boxes[name].value


def set_to(view, **values):
    """Changes controls."""
    for name, value in values.items():
        view.controls[name].value = value


def faded(view):
    return 'class="tcnaps-plot stale"' in view.picture.spots.value


def expected_recall(view):
    """What the library says of the controls' choices."""
    chosen = view.values()
    recalls = [view_data.recalls_of(view.study, chosen["evaluation"], name) for name in chosen["variants"]]
    return view_data.recall_seen(
        recalls, chosen["datasets"], chosen["domains"], chosen["shots"], chosen["value"] or None, chosen["apart"]
    )


def same(seen, expected):
    assert list(seen.points["text"]) == list(expected.points["text"]) and seen.title == expected.title


# Class recall.


def test_the_first_display_is_complete(study):
    view = recall_view(study)
    assert view.notice.error is None
    same(view.seen, expected_recall(view))
    assert view._status.value == view.seen.title and "2 datasets" in view._status.value
    assert view.controls["points"].options == (NO_POINT, *view.seen.points["name"]) and view.point is None
    assert view.values()["shots"] == (1, 14) and view.values()["variants"] == ("Simple", "Transductive")


def test_each_control_changes_what_is_seen(study):
    view = recall_view(study)
    for act in (
        lambda: tick(view.controls["datasets"], "others"),
        lambda: tick(view.controls["domains"], "out"),
        lambda: set_to(view, shots=(2, 14)),
        lambda: tick(view.controls["variants"], "FEOT"),
        lambda: set_to(view, value="Simple"),
        lambda: set_to(view, apart=True),
    ):
        picture = view.picture.image.value
        act()
        assert view.notice.error is None and view.picture.image.value != picture
        same(view.seen, expected_recall(view))


def test_another_evaluation_offers_its_own_and_a_gain_follows_the_variants(study):
    view = recall_view(study)
    set_to(view, value="Simple")
    assert view._status.value.startswith("Gain in class recall over Simple: Transductive")
    tick(view.controls["variants"], "Simple")  # nothing left to compare with
    assert view.values()["value"] == "" and view._status.value.startswith("Class recall: Transductive")
    set_to(view, evaluation="5-way-1-shot")
    assert view.controls["variants"].options == ("FEOT", "Transductive")
    assert view.controls["variants"].value == ("Transductive",)  # what was chosen and is still there
    assert view.controls["value"].options == (("recall", ""),)  # nothing to compare with
    same(view.seen, expected_recall(view))


def test_no_choice_shows_in_the_notice_and_is_got_over(study):
    view = recall_view(study)
    tick(view.controls["datasets"], "blobs", "others")
    assert "tick at least one" in str(view.notice.error) and "tick at least one" in view.notice.value
    assert view.seen is None and "Nothing is shown" in view._status.value and faded(view)
    assert "tick at least one" in view.answer()
    view.controls["save"].click()
    assert "Nothing is shown that could be saved" in view.notice.value
    tick(view.controls["datasets"], "others")
    assert view.notice.error is None and "1 dataset ·" in view._status.value and not faded(view)


def test_a_chosen_point_is_written_out_marked_and_stays_chosen(study):
    view = recall_view(study)
    point = view.seen.points.iloc[4]
    picture = view.picture.image.value
    view.controls["points"].value = point["name"]
    assert point["text"] in view._readout.value and view.picture.spots.value.count("chosen") == 3  # two rules of style
    assert view.picture.image.value == picture  # nothing is drawn anew
    tick(view.controls["datasets"], "others")
    assert view.point == point["name"] and "<b>Chosen:</b> Simple, " in view._readout.value
    tick(view.controls["variants"], "Simple")
    assert view.point is None and view._readout.value == ""


@pytest.mark.parametrize("seed", [0, 1])
def test_driven_fast_and_in_odd_orders_it_ends_with_the_last_choices(study, seed):
    view, dice = recall_view(study), random.Random(seed)
    for _ in range(15):
        name = dice.choice(view.filters)
        control = view.controls[name]
        if isinstance(control, Choices):
            tick(control, dice.choice(control.options))
        elif name == "shots":
            control.value = tuple(sorted(dice.choices(range(1, control.max + 1), k=2)))
        elif name == "apart":
            control.value = not control.value
        else:
            control.index = dice.randrange(len(control.options))
        if dice.random() < 0.3 and view.seen is not None:
            view.controls["points"].value = dice.choice(view.controls["points"].options)
    try:
        same(view.seen, expected_recall(view))
        assert view.notice.error is None and view._status.value == view.seen.title
    except ValueError as error:
        assert str(view.notice.error) == str(error) and view.seen is None


def test_a_failure_names_the_remedy_and_another_choice_works(study, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    partial = made_study("partial")
    write_rows(partial)
    rows_file(partial, "support_and_query", "5-way-1-shot", "others").unlink()
    view = recall_view(partial)
    view.controls["evaluation"].value = "5-way-1-shot"
    assert isinstance(view.notice.error, FileNotFoundError) and "make figures" in view.notice.value
    assert view.seen is None and faded(view)
    view.controls["evaluation"].value = "variable"
    assert view.notice.error is None and view._status.value.startswith("Class recall") and not faded(view)


def test_without_results_the_widget_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for made in (recall_view, refinement_view, query_count_view):
        view = made(made_study("empty"))
        assert isinstance(view.notice.error, UserError) and "has no rows yet" in view.notice.value
        assert view.seen is None and "Nothing is shown" in view.answer()


# Refinement steps.


def test_the_sliders_choose_a_cell_without_a_new_picture(study):
    view = refinement_view(study)
    assert view.point == "minimum 2, maximum 3"  # the study's rule
    picture = view.picture.image.value
    view.controls["maximum"].value = 4
    assert view.point == "minimum 2, maximum 4" and "</b> minimum 2, maximum 4: accuracy" in view._readout.value
    view.controls["minimum"].value = 4
    view.controls["maximum"].value = 1
    assert view.point == "minimum 1, maximum 1" and view.controls["minimum"].value == 1  # never above the maximum
    view.controls["points"].value = "minimum 3, maximum 4"
    assert (view.controls["minimum"].value, view.controls["maximum"].value) == (3, 4)
    assert view.picture.image.value == picture
    view.controls["points"].value = "exactly 2 steps"
    assert "exactly 2 steps:" in view._readout.value
    view.controls["value"].value = "accuracy"
    assert view.picture.image.value != picture and view.point == "exactly 2 steps"


def test_domain_and_variant_reach_the_library(study):
    view = refinement_view(study)
    assert view.controls["training"].options == (("Transductive", "support_and_query"), ("COT", "support"))
    view.controls["training"].value = "support"
    view.controls["domain"].value = "out"
    rows = figure_views.load_rows(study, "variable", ["support"])
    same(view.seen, view_data.refinement_seen(rows, "support", 4, BOTH, "out"))
    view.controls["evaluation"].value = "5-way-1-shot"  # has no training "support"
    assert view.controls["training"].value == "support_and_query" and view.notice.error is None
    tick(view.controls["datasets"], "others")
    assert "None of the chosen datasets (blobs) is out-of-domain" in view.notice.value.replace("&#x27;", "'")


# Numbers of queries.


def test_query_counts(study, monkeypatch):
    view = query_count_view(study)
    assert view.controls["variants"].options == ("FEOT", "Transductive")
    assert view.controls["datasets"].options == ("blobs",) and view.controls["settings"].value == ("5-way 1-shot",)
    assert set(view.seen.frame["queries_per_class"]) == {2, 4, 6}
    tick(view.controls["variants"], "FEOT")
    assert view._status.value == "Transductive · 1 dataset · 3 points"
    monkeypatch.setattr(type(study), "results_folder", study.results_folder)  # which holds rows
    view = query_count_view(small_study(name="single"))
    assert "only in queries_per_class: add some" in view.notice.value and view.seen is None


# What all share.


def test_spots_lie_on_the_markers_of_the_picture(study):
    """The middle of each spot has its variant's colour in the picture as it is shown."""
    view = query_count_view(study)
    pixels = np.asarray(Image.open(BytesIO(view.picture.image.value)).convert("RGB")) / 255
    for (point, left, top, *_), _ in view.picture._places:
        colour = pixels[round(top / 100 * len(pixels)), round(left / 100 * pixels.shape[1])]
        assert np.abs(colour - to_rgb(VARIANT_STYLES[point.name.split(",")[0]][0])).max() < 0.05, point.name


def test_points_that_hide_each_other_are_read_together(study):
    view = recall_view(study)
    tick(view.controls["variants"], "Transductive", "FEOT", "COT")
    places = [place for place, texts in view.picture._places]
    for place, texts in view.picture._places:
        assert place[0].text in texts
        for other in places:
            if place[1:3] == other[1:3]:
                assert other[0].text in texts


@pytest.mark.parametrize("made", [recall_view, refinement_view, query_count_view])
def test_saving_writes_what_is_seen_unless_it_is_served_to_colleagues(study, made, monkeypatch):
    view, name = made(study), f"saved {made.__name__}"
    view.controls["points"].value = view.controls["points"].options[1]
    view.controls["save_name"].value = name
    monkeypatch.setenv("TCNAPS_READ_ONLY", "1")
    view.controls["save"].click()
    assert not list(study.figures_folder.rglob(f"{name}*"))
    assert "Saved" not in view._saved.value and view._saved.value.count("download=") == 2
    monkeypatch.delenv("TCNAPS_READ_ONLY")
    view.controls["save"].click()
    png, pdf = (study.figures_folder / "views" / f"{name}.{kind}" for kind in ("png", "pdf"))
    with Image.open(png) as image:
        assert image.size[0] == 1380
    assert pdf.read_bytes().startswith(b"%PDF") and view.notice.error is None
    assert "Saved in figures/small/views" in view._saved.value
    marked = png.read_bytes()
    view.controls["points"].value = view.controls["points"].options[2]
    assert view._saved.value == ""  # it is no longer what is seen
    view.controls["save"].click()
    assert png.read_bytes() != marked


@pytest.mark.parametrize("name", ["", "../up", "a/b", ".hidden"])
def test_a_bad_file_name_is_refused(study, name):
    view = query_count_view(study)
    view.controls["save_name"].value = name
    view.controls["save"].click()
    assert "is no name of a file" in view.notice.value


def test_running_a_cell_again_keeps_the_choices_unless_results_changed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tcnaps.widgets.widget_base._KEPT", {})
    study = made_study("kept")
    write_rows(study)
    view = recall_view(study)
    tick(view.controls["datasets"], "others")
    assert recall_view(made_study("kept")) is view
    assert refinement_view(study) is not view
    write_rows(study, seed=1)
    assert recall_view(study) is not view
