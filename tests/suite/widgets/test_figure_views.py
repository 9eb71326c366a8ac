"""The views without a browser: their numbers against naive loops; what controls do, in any order; failing, saving."""

from io import BytesIO

import numpy as np
import pytest
from driving import set_to, tick
from matplotlib.colors import to_rgb
from PIL import Image
from small_study import small_study
from synthetic_rows import synthetic_rows

from tcnaps.evaluation import result_files
from tcnaps.evaluation.result_files import load_rows, rows_file
from tcnaps.figures.style import VARIANT_STYLES
from tcnaps.method.stopping import stopping_step
from tcnaps_suite.widgets import query_count_view, recall_view, refinement_view, widget_base
from tcnaps_suite.widgets.base_view import NO_POINT

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
    monkeypatch.setattr(widget_base, "_KEPT", {})
    return made_study()


def made_study(name="small", **changes):
    evaluations = {"variable": small_study().evaluations["variable"].model_dump() | {"episodes": 6}}
    for queries, ending, datasets in ((2, "", BOTH), (4, "-4-queries", ["blobs"]), (6, "-6-queries", ["blobs"])):
        protocol = {"kind": "fixed", "way": 5, "shot": 1, "queries_per_class": queries}
        made = {"protocol": protocol, "datasets": datasets, "trainings": ["support_and_query"], "episodes": 6}
        evaluations[f"5-way-1-shot{ending}"] = made
    return small_study(name=name, evaluations=evaluations, **changes)


def write_rows(study, seed=0):
    for name, evaluation in study.evaluations.items():
        queries = 4 if name == "variable" else evaluation.protocol.queries_per_class
        domains = {dataset: study.datasets[dataset].domain for dataset in evaluation.datasets}
        rows = synthetic_rows(evaluation.trainings, 6, 4, (3, 4, 5), queries, name, domains, seed=seed)
        for (training, dataset), own in rows.groupby(["training", "dataset"]):
            own = own.assign(replicate=study.replicate).reset_index(drop=True)
            result_files.write_rows(rows_file(study, training, name, dataset), own, "key")


def faded(view):
    return 'class="tcnaps-plot stale"' in view.spots.value


def point(view, name):
    assert view.error is None and view.seen.points["name"].is_unique
    return view.seen.points.set_index("name").loc[name]


# Class recall.


def naive_recalls(rows, column, datasets, low, high):
    """Recall of every class of every episode whose shot lies between two, by dataset, episode and label."""
    found = {}
    for (dataset, episode, label), own in rows.groupby(["dataset", "episode", "label"]):
        if dataset in datasets and low <= own["shot"].iloc[0] <= high:
            found[dataset, episode, label] = np.mean([a == b for a, b in zip(own["label"], own[column])])
    return found


def test_the_first_display_is_complete(study):
    view = recall_view(study)
    assert view.error is None and view._status.value == view.seen.title and "2 datasets" in view.seen.title
    assert view.controls["points"].options == (NO_POINT, *view.seen.points["name"]) and view.point is None
    assert view.choice.shots == (1, 14) and view.choice.variants == ("Simple", "Transductive")
    for panel, name in enumerate(("in-domain", "out-of-domain", "all datasets")):
        assert all(f", {name}, " in text for text in view.seen.points.loc[view.seen.points["panel"] == panel, "text"])
    assert list(view.seen.frame["variant"].unique()) == ["Simple", "Transductive"]


def test_recall_of_the_chosen_datasets_and_shots(study):
    view, rows = recall_view(study), load_rows(study, "variable", ["support"])
    set_to(view, shots=(12, 14))
    naive = naive_recalls(rows, "prediction_0", BOTH, 12, 14).values()
    found = point(view, "Simple, all datasets, shot 11 to 15")
    assert found["y"] == pytest.approx(100 * np.mean(list(naive))) and 12 <= found["x"] <= 14 and found["panel"] == 2
    assert f"recall {found['y']:.1f}±{found['interval']:.1f}%, n = {len(naive)} classes of " in found["text"]
    assert view.seen.title == "Class recall: Simple, Transductive · 2 datasets · shots 12 to 14 · 6 points"
    tick(view, datasets=["others"], domains=["in", "out"])
    naive = naive_recalls(rows, "prediction_0", ["blobs"], 12, 14).values()
    found = point(view, "Simple, all datasets, shot 11 to 15")
    assert found["y"] == pytest.approx(100 * np.mean(list(naive))) and found["panel"] == 0
    set_to(view, shots=(1, 14), apart=True)
    assert all(int(shot) == shot for shot in view.seen.frame["shot"]) and max(view.seen.frame["shot"]) == 14


def test_a_gain_is_paired(study):
    view = recall_view(study)
    set_to(view, value="Simple", apart=True)
    simple = naive_recalls(load_rows(study, "variable", ["support"]), "prediction_0", BOTH, 2, 2)
    rows = load_rows(study, "variable", ["support_and_query"])
    stops = rows.groupby(["dataset", "episode"])[[f"prediction_{t}" for t in range(5)]].apply(
        lambda own: stopping_step(own.to_numpy().T, 2, 3)
    )
    stopped = [row[f"prediction_{stops[row['dataset'], row['episode']]}"] for _, row in rows.iterrows()]
    refined = naive_recalls(rows.assign(stopped=stopped), "stopped", BOTH, 2, 2)
    gain = 100 * np.mean([refined[key] - simple[key] for key in simple])
    found = point(view, "Transductive, all datasets, shot 2")
    assert found["y"] == pytest.approx(gain) and set(view.seen.frame["variant"]) == {"Transductive"}
    assert f"gain over Simple {gain:+.2f}±".replace("-", "−") in found["text"]
    assert view._status.value.startswith("Gain in class recall over Simple: Transductive · 2 datasets · ")


def test_of_what_is_ticked_only_what_the_evaluation_has_is_shown(study):
    view = recall_view(study)
    set_to(view, evaluation="5-way-1-shot")
    assert view._status.value.startswith("Class recall: Transductive · 2 datasets ·")
    set_to(view, evaluation="5-way-1-shot-4-queries")
    assert view._status.value.startswith("Class recall: Transductive · 1 dataset ·")
    set_to(view, value="FEOT")  # which is not ticked
    assert view._status.value.startswith("Gain in class recall over FEOT: Transductive ·")
    for value in ("Transductive", "Simple"):
        set_to(view, value=value)
        assert "serves FEOT, Transductive: tick some of them, and show recall or the gain over an" in str(view.error)


def test_what_is_refused_shows_in_the_notice_and_is_got_over(study):
    view = recall_view(study)
    for presses, message in (
        ({"variants": ["Simple", "Transductive"]}, "No variant is chosen: tick at least one"),
        ({"domains": ["out", "all"], "datasets": ["blobs"]}, "Nothing of others fits these choices: widen them"),
    ):
        before = view.image.value
        tick(view, **presses)
        assert message in str(view.error) and message in view.notice.value and message in view.answer()
        assert view.seen is None and "Nothing is shown" in view._status.value and faded(view)
        view.controls["save"].click()
        assert "Nothing is shown that could be saved" in view.notice.value
        tick(view, **presses)
        assert view.error is None and view.image.value == before and not faded(view)


def test_a_replicate_is_shown_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    study = made_study(replicates=2)
    for number in (0, 1):
        write_rows(study.of_replicate(number), seed=number)
    view = query_count_view(study.of_replicate(1))
    rows = load_rows(study, "5-way-1-shot-4-queries", replicates=[1])
    accuracy = 100 * rows.groupby("episode").apply(lambda own: (own["prediction_0"] == own["label"]).mean()).mean()
    found = point(view, "FEOT, 5-way 1-shot, 4 queries per class")
    assert found["y"] == pytest.approx(accuracy) and found["text"].endswith("n = 6 episodes of 1 dataset")


# Refinement steps.


def test_a_cell_of_the_heatmap_is_the_rule_applied_to_each_episode(study):
    view, rows = refinement_view(study), load_rows(study, "variable", ["support_and_query"])
    accuracies, gains = {name: [] for name in BOTH}, {name: [] for name in BOTH}
    for (dataset, _), own in rows.groupby(["dataset", "episode"]):
        predictions, label = own[[f"prediction_{t}" for t in range(5)]].to_numpy(), own["label"].to_numpy()
        accuracies[dataset].append((predictions[:, stopping_step(predictions.T, 2, 4)] == label).mean())
        gains[dataset].append(accuracies[dataset][-1] - (predictions[:, 0] == label).mean())
    accuracy, gain = (100 * np.mean([np.mean(own) for own in found.values()]) for found in (accuracies, gains))
    cell = point(view, "minimum 2, maximum 4")
    assert cell["cell"] and (cell["x"], cell["y"], cell["panel"]) == (3.5, 1.5, 0)
    assert f"accuracy {accuracy:.1f}±" in cell["text"] and cell["text"].endswith("n = 12 episodes of 2 datasets")
    assert f"gain over no refinement {gain:+.2f}±".replace("-", "−") in cell["text"]
    dots = view.seen.points[~view.seen.points["cell"]]
    assert list(dots["x"]) == list(range(5)) and set(dots["panel"]) == {1} and dots["y"].iloc[0] == 0
    assert dots["y"].to_numpy() == pytest.approx(100 * view.steps["gain"].to_numpy())
    assert len(view.seen.points) - len(dots) == 4 * 5 // 2


def test_the_slider_chooses_a_cell_without_a_new_picture(study):
    view = refinement_view(study)
    assert view.choice.points == "minimum 2, maximum 3"  # the study's rule
    picture = view.image.value
    set_to(view, rule=(2, 4))
    assert view.choice.points == "minimum 2, maximum 4" and "minimum 2, maximum 4: accuracy" in view._readout.value
    set_to(view, points="minimum 3, maximum 4")
    assert view.choice.rule == (3, 4) and view.image.value == picture
    set_to(view, points="exactly 2 steps")
    assert "exactly 2 steps:" in view._readout.value
    set_to(view, value="accuracy")
    assert view.image.value != picture and view.choice.points == "exactly 2 steps"


@pytest.mark.parametrize(
    ("recorded", "minimum", "maximum", "opens"), [(4, 4, 2, "minimum 2, maximum 2"), (1, 1, 1, "minimum 1, maximum 1")]
)
def test_rules_at_the_edge_open_on_what_they_mean(study, recorded, minimum, maximum, opens):
    rule = {"recorded_steps": recorded, "minimum_steps": minimum, "maximum_steps": maximum}
    view = refinement_view(made_study(refinement=rule))
    assert view.error is None and view.choice.points == opens
    set_to(view, rule=(1, 1))
    set_to(view, rule=(2, 2))
    assert view.error is None and view.choice.points == opens


def test_domain_and_variant_choose_the_rows(study):
    view = refinement_view(study)
    assert view.controls["training"].options == (("Transductive", "support_and_query"), ("COT", "support"))
    set_to(view, training="support", domain="out")
    own = load_rows(study, "variable", ["support"])
    own = own[own["dataset"] == "others"].groupby("episode")
    accuracy = own.apply(lambda g: (g["prediction_1"] == g["label"]).mean()).mean()
    assert f"accuracy {100 * accuracy:.1f}±" in point(view, "exactly 1 step")["text"]
    assert view.seen.title == "Out-of-domain: 1 dataset · 6 episodes"
    tick(view, datasets=["others"])
    assert "Nothing of blobs fits these choices" in str(view.error)
    set_to(view, evaluation="5-way-1-shot")
    assert "does not name training 'support'" in str(view.error)


# Numbers of queries.


def test_query_counts(study, monkeypatch):
    view = query_count_view(study)
    assert list(view.controls["variants"].boxes) == ["FEOT", "Transductive"]
    assert view.choice.settings == ("5-way 1-shot",)
    assert view.seen.points["x"].is_unique and set(view.seen.points["x"].round()) == {2, 4, 6}
    title, highest, lowest = view.answer().splitlines()
    assert title == "FEOT, Transductive · 1 dataset · 6 points" == view._status.value
    assert highest == "  highest: " + view.seen.points.loc[view.seen.points["y"].idxmax(), "text"]
    assert lowest == "  lowest: " + view.seen.points.loc[view.seen.points["y"].idxmin(), "text"]
    tick(view, variants=["FEOT"])
    assert view._status.value == "Transductive · 1 dataset · 3 points"
    tick(view, settings=["5-way 1-shot"])
    assert "No way and shot is chosen" in str(view.error)
    monkeypatch.setattr(type(study), "results_folder", study.results_folder)  # which holds rows
    view = query_count_view(small_study(name="single"))
    assert "queries_per_class only: add some" in view.notice.value and view.seen is None


# What all share.


def test_a_chosen_point_is_written_out_marked_and_stays_chosen(study):
    view = recall_view(study)
    chosen, picture = view.seen.points.iloc[4], view.image.value
    set_to(view, points=chosen["name"])
    assert chosen["text"] in view._readout.value and view.image.value == picture  # nothing is drawn anew
    assert view.spots.value.count(" chosen") == 1
    tick(view, datasets=["others"])
    assert view.choice.points == chosen["name"] and "<b>Chosen:</b> Simple, " in view._readout.value
    tick(view, variants=["Simple"])
    assert view.point is None and "Chosen" not in view._readout.value


def test_spots_lie_on_the_markers_of_the_picture(study):
    """The middle of each spot has its variant's colour in the picture as it is shown."""
    view = query_count_view(study)
    pixels = np.asarray(Image.open(BytesIO(view.image.value)).convert("RGB")) / 255
    for spot in view._places.itertuples():
        colour = pixels[round(spot.top / 100 * len(pixels)), round(spot.left / 100 * pixels.shape[1])]
        assert np.abs(colour - to_rgb(VARIANT_STYLES[spot.text.split(",")[0]][0])).max() < 0.05, spot.text


def test_points_that_hide_each_other_are_read_together(study):
    view = recall_view(study)
    tick(view, variants=["Transductive", "FEOT", "COT"])
    for spot in view._places.itertuples():
        there = view._places[(view._places["left"] == spot.left) & (view._places["top"] == spot.top)]
        assert all(text in spot.says for text in there["text"]) and spot.text in spot.says


@pytest.mark.parametrize("made", [recall_view, refinement_view, query_count_view])
def test_saving_writes_what_is_seen_unless_it_is_served_to_colleagues(study, made, monkeypatch):
    view, name = made(study), f"saved {made.__name__}"
    view.controls["points"].index = 1
    set_to(view, save_name=name)
    monkeypatch.setenv("TCNAPS_READ_ONLY", "1")
    view.controls["save"].click()
    assert not list(study.figures_folder.rglob(f"{name}*"))
    assert "Saved" not in view._saved.value and view._saved.value.count("download=") == 2
    monkeypatch.delenv("TCNAPS_READ_ONLY")
    view.controls["save"].click()
    png, pdf = (study.figures_folder / "views" / f"{name}.{kind}" for kind in ("png", "pdf"))
    with Image.open(png) as image:
        assert image.size[0] == 1380
    assert pdf.read_bytes().startswith(b"%PDF") and "Saved in figures/small/views" in view._saved.value
    marked = png.read_bytes()
    view.controls["points"].index = 2
    assert view._saved.value == ""  # it is no longer what is seen
    view.controls["save"].click()
    assert png.read_bytes() != marked
    for wrong in ("", "../up", "a/b", ".hidden"):
        set_to(view, save_name=wrong)
        view.controls["save"].click()
        assert "is no name of a file" in view.notice.value


def test_running_a_cell_again_keeps_the_choices_unless_results_changed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(widget_base, "_KEPT", {})
    study = made_study("kept")
    write_rows(study)
    view = recall_view(study)
    tick(view, datasets=["others"])
    assert recall_view(made_study("kept")) is view and view.choice.datasets == ("blobs",)
    assert refinement_view(study) is not view
    write_rows(study, seed=1)
    assert recall_view(study) is not view
