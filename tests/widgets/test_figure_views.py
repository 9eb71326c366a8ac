"""The views' widgets without a browser: what controls do, in any order; loading, failing, saving, being kept."""

import random
import threading
from io import BytesIO

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from PIL import Image
from small_study import small_study
from synthetic_rows import synthetic_rows

from tcnaps.evaluation import result_files
from tcnaps.evaluation.result_files import rows_file
from tcnaps.figures.style import VARIANT_STYLES
from tcnaps.widgets import figure_views as views, query_count_view, recall_view, refinement_view, view_data as viewing
from tcnaps.widgets.base_view import NO_POINT
from tcnaps.widgets.choices import Choices

FIXED = {"kind": "fixed", "way": 5, "shot": 1}
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
    variable = small_study().evaluations["variable"].model_dump()
    one_shot = {"datasets": BOTH, "trainings": ["support_and_query"], "episodes": 6}
    return small_study(
        name=name,
        evaluations={
            "variable": variable | {"episodes": 6},
            "5-way-1-shot": one_shot | {"protocol": FIXED | {"queries_per_class": 2}},
            "5-way-1-shot-4-queries": one_shot | {"protocol": FIXED | {"queries_per_class": 4}, "datasets": ["blobs"]},
            "5-way-1-shot-6-queries": one_shot | {"protocol": FIXED | {"queries_per_class": 6}, "datasets": ["blobs"]},
        },
    )


def write_rows(study, seed=0):
    for name, evaluation in study.evaluations.items():
        queries = 4 if name == "variable" else evaluation.protocol.queries_per_class
        domains = {dataset: study.datasets[dataset].domain for dataset in evaluation.datasets}
        rows = synthetic_rows(
            evaluation.trainings, 6, 4, queries_per_class=queries, evaluation=name, datasets=domains, seed=seed
        )
        for (training, dataset), own in rows.groupby(["training", "dataset"]):
            path = rows_file(study, training, name, dataset)
            result_files.write_rows(path, own.reset_index(drop=True), "key")


def tick(control, *names):
    """Presses the boxes of these names, as a user would."""
    for name in names:
        control._boxes[name].value = not control._boxes[name].value


def faded(view):
    return 'class="tcnaps-plot stale"' in view.plot.spots.value


def expected_recall(view):
    """What the library says of the controls' choices."""
    chosen = {name: control.value for name, control in view.chosen.items()}
    found = {}
    loading = viewing.load_recalls(view.study, chosen["evaluation"], chosen["variants"], {})
    try:
        while True:
            next(loading)
    except StopIteration as end:
        found = end.value
    recalls = [found[chosen["evaluation"], name] for name in chosen["variants"]]
    return viewing.recall_seen(
        recalls, chosen["datasets"], chosen["domains"], chosen["shots"], chosen["value"] or None, chosen["apart"]
    )


def same(seen, expected):
    assert list(seen.points["text"]) == list(expected.points["text"]) and seen.title == expected.title


# Class recall.


def test_the_first_display_is_complete(study):
    view = recall_view(study)
    assert view.notice.error is None and not view.work.busy
    same(view.seen, expected_recall(view))
    assert view.status.value == view.seen.title and "2 datasets" in view.status.value
    assert view.points.options == (NO_POINT, *view.seen.points["name"]) and view.point is None
    assert view.chosen["shots"].value == (1, 14) and view.chosen["variants"].value == ("Simple", "Transductive")
    assert {"tcnaps-view", "tcnaps-class-recall"} <= set(view._dom_classes)
    assert all(f"tcnaps-filter-{name}" in control._dom_classes for name, control in view.chosen.items())


def test_each_control_changes_what_is_seen(study):
    view = recall_view(study)
    acts = [
        lambda: tick(view.chosen["datasets"], "others"),
        lambda: tick(view.chosen["domains"], "out"),
        lambda: setattr(view.chosen["shots"], "value", (2, 14)),
        lambda: tick(view.chosen["variants"], "FEOT"),
        lambda: setattr(view.chosen["value"], "value", "Simple"),
        lambda: setattr(view.chosen["apart"], "value", True),
    ]
    for act in acts:
        picture = view.plot.image.value
        act()
        view.work.wait()
        assert view.notice.error is None and view.plot.image.value != picture
        same(view.seen, expected_recall(view))


def test_another_evaluation_is_loaded_and_offers_its_own(study):
    view = recall_view(study)
    view.chosen["evaluation"].value = "5-way-1-shot"
    view.work.wait()
    assert view.chosen["variants"].options == ("FEOT", "Transductive")
    assert view.chosen["variants"].value == ("Transductive",)  # what was chosen and is still there
    assert view.chosen["value"].options == (("recall", ""),)  # nothing to compare with
    same(view.seen, expected_recall(view))


def test_a_gain_follows_the_variants(study):
    view = recall_view(study)
    view.chosen["value"].value = "Simple"
    assert view.status.value.startswith("Gain in class recall over Simple: Transductive")
    tick(view.chosen["variants"], "Simple")  # nothing left to compare with
    assert view.chosen["value"].value == "" and view.status.value.startswith("Class recall: Transductive")


def test_no_choice_shows_in_the_notice_and_is_got_over(study):
    view = recall_view(study)
    tick(view.chosen["datasets"], "blobs", "others")
    assert "tick at least one" in str(view.notice.error) and "tick at least one" in view.notice.value
    assert view.seen is None and "Nothing is shown" in view.status.value and faded(view)
    assert "tick at least one" in view.answer()
    view.save_button.click()
    assert "Nothing is shown that could be saved" in view.notice.value
    tick(view.chosen["datasets"], "others")
    assert view.notice.error is None and "1 dataset ·" in view.status.value and not faded(view)


def test_a_chosen_point_is_written_out_marked_and_stays_chosen(study):
    view = recall_view(study)
    point = view.seen.points.iloc[4]
    picture = view.plot.image.value
    view.points.value = point["name"]
    assert point["text"] in view.readout.value and view.plot.spots.value.count("chosen") == 3  # two rules of style
    assert view.plot.image.value == picture  # nothing is drawn anew
    tick(view.chosen["datasets"], "others")
    assert view.point == point["name"] and "<b>Chosen:</b> Simple, " in view.readout.value
    tick(view.chosen["variants"], "Simple")
    assert view.point is None and view.readout.value == ""


@pytest.mark.parametrize("seed", [0, 1])
def test_driven_fast_and_in_odd_orders_it_ends_with_the_last_choices(study, seed):
    view, dice = recall_view(study), random.Random(seed)
    for _ in range(15):
        name = dice.choice(list(view.chosen))
        control = view.chosen[name]
        if isinstance(control, Choices):
            tick(control, dice.choice(control.options))
        elif name == "shots":
            low = dice.randint(1, control.max)
            control.value = (low, dice.randint(low, control.max))
        elif name == "apart":
            control.value = not control.value
        else:
            options = [option[1] if isinstance(option, tuple) else option for option in control.options]
            control.value = dice.choice(options)
        if dice.random() < 0.3 and view.seen is not None:
            view.points.value = dice.choice(view.points.options)
    view.work.wait()
    try:
        expected = expected_recall(view)
    except ValueError as error:
        assert str(view.notice.error) == str(error) and view.seen is None
    else:
        assert view.notice.error is None
        same(view.seen, expected)
        assert view.status.value == expected.title


def test_a_failure_names_the_remedy_and_the_controls_go_back(study, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    partial = made_study("partial")
    write_rows(partial)
    rows_file(partial, "support_and_query", "5-way-1-shot", "others").unlink()
    view = recall_view(partial)
    before = view.status.value
    view.chosen["evaluation"].value = "5-way-1-shot"
    view.work.wait()
    assert isinstance(view.notice.error, FileNotFoundError) and "make figures" in view.notice.value
    assert view.chosen["evaluation"].value == "variable" and view.status.value == before
    assert view.chosen["variants"].value == ("Simple", "Transductive") and not faded(view)
    tick(view.chosen["datasets"], "others")
    assert view.notice.error is None and view.status.value != before


def test_without_results_the_widget_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for made in (recall_view, refinement_view, query_count_view):
        view = made(made_study("empty"))
        assert isinstance(view.notice.error, FileNotFoundError) and "make figures" in view.notice.value
        assert view.seen is None and "Nothing is shown" in view.answer()


@pytest.fixture
def slow(monkeypatch):
    """Reading waits for the gate."""
    gate, load = threading.Event(), viewing.load_rows

    def load_rows(*arguments):
        assert gate.wait(20)
        return load(*arguments)

    yield gate, lambda: monkeypatch.setattr(viewing, "load_rows", load_rows)
    gate.set()


def test_loading_can_be_cancelled(study, slow):
    gate, begin = slow
    view = recall_view(study)
    begin()
    view.chosen["evaluation"].value = "5-way-1-shot"
    assert view.work.busy and view.work.layout.display == ""
    view.work._cancel.click()
    assert not view.work.busy and view.chosen["evaluation"].value == "variable" and view.notice.error is None
    gate.set()
    view.work.wait()
    assert view.chosen["evaluation"].value == "variable" and "Simple, Transductive" in view.status.value
    same(view.seen, expected_recall(view))


def test_back_and_forth_while_loading_shows_the_last_choice(study, slow):
    gate, begin = slow
    view = refinement_view(study)
    first = view.status.value
    begin()
    view.chosen["evaluation"].value = "5-way-1-shot"
    view.chosen["evaluation"].value = "variable"  # is known already
    assert not view.work.busy and view.status.value == first
    gate.set()
    view.work.wait()
    assert view.chosen["evaluation"].value == "variable" and view.status.value == first
    assert view.notice.error is None
    tick(view.chosen["datasets"], "others")
    assert "1 dataset" in view.status.value


# Refinement steps.


def test_the_sliders_choose_a_cell_without_a_new_picture(study):
    view = refinement_view(study)
    assert view.point == "minimum 2, maximum 3"  # the study's rule
    picture = view.plot.image.value
    view.chosen["maximum"].value = 4
    assert view.point == "minimum 2, maximum 4" and "</b> minimum 2, maximum 4: accuracy" in view.readout.value
    view.chosen["minimum"].value = 4
    view.chosen["maximum"].value = 1
    assert view.point == "minimum 1, maximum 1" and view.chosen["minimum"].value == 1  # never above the maximum
    view.points.value = "minimum 3, maximum 4"
    assert (view.chosen["minimum"].value, view.chosen["maximum"].value) == (3, 4)
    assert view.plot.image.value == picture
    view.points.value = "exactly 2 steps"
    assert "exactly 2 steps:" in view.readout.value
    view.chosen["value"].value = "accuracy"
    assert view.plot.image.value != picture and view.point == "exactly 2 steps"


def test_domain_and_variant_reach_the_library(study):
    view = refinement_view(study)
    assert view.chosen["training"].options == (("Transductive", "support_and_query"), ("COT", "support"))
    view.chosen["training"].value = "support"
    view.work.wait()
    view.chosen["domain"].value = "out"
    rows = viewing.load_rows(study, "variable", ["support"])
    same(view.seen, viewing.refinement_seen(rows, "support", 4, BOTH, "out"))
    view.chosen["evaluation"].value = "5-way-1-shot"  # has no training "support"
    view.work.wait()
    assert view.chosen["training"].value == "support_and_query" and view.notice.error is None
    tick(view.chosen["datasets"], "others")
    assert "None of the chosen datasets (blobs) is out-of-domain" in view.notice.value.replace("&#x27;", "'")


# Numbers of queries.


def test_query_counts(study):
    view = query_count_view(study)
    assert view.chosen["variants"].options == ("FEOT", "Transductive")
    assert view.chosen["datasets"].options == ("blobs",) and view.chosen["settings"].value == ("5-way 1-shot",)
    assert set(view.seen.frame["queries_per_class"]) == {2, 4, 6}
    tick(view.chosen["variants"], "FEOT")
    view.work.wait()
    assert view.status.value == "Transductive · 1 dataset · 3 points"
    tick(view.chosen["variants"], "Transductive")
    view.work.wait()
    assert "No variant is chosen" in view.notice.value


def test_a_study_without_query_counts_says_so(root, monkeypatch):
    monkeypatch.chdir(root)
    view = query_count_view(small_study(name="single"))
    assert "queries_per_class only: add some" in view.notice.value and view.seen is None
    view.save_button.click()
    assert "Nothing is shown that could be saved" in view.notice.value


# What all share.


def test_spots_lie_on_the_markers_of_the_picture(study):
    """The middle of each spot has its variant's colour in the picture as it is shown."""
    view = query_count_view(study)
    pixels = np.asarray(Image.open(BytesIO(view.plot.image.value)).convert("RGB")) / 255
    for (point, left, top, *_), _ in view.plot._places:
        colour = pixels[round(top / 100 * len(pixels)), round(left / 100 * pixels.shape[1])]
        assert np.abs(colour - to_rgb(VARIANT_STYLES[point.name.split(",")[0]][0])).max() < 0.05, point.name


def test_points_that_hide_each_other_are_read_together(study):
    view = recall_view(study)
    tick(view.chosen["variants"], "Transductive", "FEOT", "COT")
    view.work.wait()
    places = [place for place, texts in view.plot._places]
    for place, texts in view.plot._places:
        assert place[0].text in texts
        for other in places:
            if place[1:3] == other[1:3]:
                assert other[0].text in texts


@pytest.mark.parametrize("made", [recall_view, refinement_view, query_count_view])
def test_saving_writes_what_is_seen(study, made):
    view = made(study)
    view.points.value = view.points.options[1]
    view.file_name.value = f"saved {made.__name__}"
    view.save_button.click()
    folder = study.figures_folder / "views"
    png, pdf = (folder / f"saved {made.__name__}.{kind}" for kind in ("png", "pdf"))
    with Image.open(png) as image:
        assert image.size[0] == 1380
    assert pdf.read_bytes().startswith(b"%PDF")
    assert view.notice.error is None
    assert f"Saved {png.name} and {pdf.name} in figures/small/views" in view.saved.value
    assert view.saved.value.count("download=") == 2
    marked = png.read_bytes()
    view.points.value = view.points.options[2]
    assert view.saved.value == ""  # it is no longer what is seen
    view.save_button.click()
    assert png.read_bytes() != marked


@pytest.mark.parametrize("name", ["", "../up", "a/b", ".hidden"])
def test_a_bad_file_name_is_refused(study, name):
    view = query_count_view(study)
    view.file_name.value = name
    view.save_button.click()
    assert "is no name of a file" in view.notice.value


def test_served_to_colleagues_it_writes_nothing(study, monkeypatch):
    monkeypatch.setenv("TCNAPS_READ_ONLY", "1")
    view = query_count_view(study)
    view.file_name.value = "unwritten"
    view.save_button.click()
    assert not list(study.figures_folder.rglob("unwritten*"))
    assert "Saved" not in view.saved.value and view.saved.value.count("download=") == 2


def test_running_a_cell_again_keeps_the_choices_unless_results_changed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tcnaps.widgets.widget_base._KEPT", {})
    study = made_study("kept")
    write_rows(study)
    view = recall_view(study)
    tick(view.chosen["datasets"], "others")
    assert recall_view(made_study("kept")) is view
    assert refinement_view(study) is not view
    write_rows(study, seed=1)
    assert recall_view(study) is not view


def test_no_figure_stays_open(study):
    before = plt.get_fignums()
    view = recall_view(study)
    view.save_button.click()
    assert plt.get_fignums() == before


def test_choices():
    seen = []
    choices = Choices("Datasets", ("a", "b", "c"), ("c", "a"), {"a": "a (in)"})
    choices.observe(lambda change: seen.append(change["new"]), "value")
    assert choices.value == ("a", "c") and [box.description for box in choices._boxes.values()] == ["a (in)", "b", "c"]
    tick(choices, "b", "a")
    assert choices.value == ("b", "c") and seen == [("a", "b", "c"), ("b", "c")]
    choices.offer_more(("b", "c", "d"))
    assert choices.value == ("b", "c", "d") and choices._boxes["d"].value
    tick(choices, "c")
    choices.offer_more(("c", "d"))
    assert choices.value == ("d",) and not choices._boxes["c"].value
    choices.offer(("x",), ())
    assert choices.value == () and list(choices._boxes) == ["x"]


def test_every_view_has_a_name_of_its_own():
    kinds = [view.kind for view in (views.RecallView, views.RefinementView, views.QueryCountView)]
    assert len(set(kinds)) == 3
