"""The views without a browser: their numbers against naive loops, choices in any order, failures, saving."""

import numpy as np
import pytest
from driving import click, set_to, words
from PIL import Image
from small_study import small_study
from synthetic_rows import synthetic_rows

from tcnaps.evaluation import result_files
from tcnaps.evaluation.result_files import load_query_counts, load_rows, rows_file
from tcnaps.evaluation.stopped_rows import stopping_step
from tcnaps_suite.widgets.figure_views import query_count_view, recall_view, refinement_view

BOTH = ("blobs", "others")


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
    return made_study()


def made_study(name="small", **changes):
    evaluations = {"variable": small_study().evaluations["variable"].model_dump() | {"episodes": 6}}
    for queries, ending, datasets in ((2, "", BOTH), (4, "-4-queries", ["blobs"]), (6, "-6-queries", ["blobs"])):
        protocol = {"kind": "fixed", "way": 5, "shot": 1, "queries_per_class": queries}
        made = {"protocol": protocol, "datasets": list(datasets), "trainings": ["support_and_query"], "episodes": 6}
        evaluations[f"5-way-1-shot{ending}"] = made
    return small_study(name=name, evaluations=evaluations, **changes)


def write_rows(study, seed=0):
    for name, evaluation in study.evaluations.items():
        queries = 4 if name == "variable" else evaluation.protocol.queries_per_class
        domains = {dataset: study.datasets[dataset].domain for dataset in evaluation.datasets}
        rows = synthetic_rows(evaluation.trainings, 6, 4, (3, 4, 5), queries, name, domains, seed=seed)
        for (training, dataset), of_training in rows.groupby(["training", "dataset"]):
            of_training = of_training.assign(replicate=study.replicate).reset_index(drop=True)
            result_files.write_rows(rows_file(study, training, name, dataset), of_training, "key")


def shown(view, **values):
    """The row of the view's numbers with these values."""
    assert view.error is None, view.notice.value
    frame = view.frame
    for name, value in values.items():
        frame = frame[frame[name] == value]
    assert len(frame) == 1
    return frame.iloc[0]


def naive_recalls(rows, column, low, high):
    """Recall of every class of every episode whose shot lies between two, by dataset, episode and label."""
    found = {}
    for key, members in rows.groupby(["dataset", "episode", "label"]):
        if low <= members["shot"].iloc[0] <= high:
            found[key] = np.mean([a == b for a, b in zip(members["label"], members[column])])
    return found


def test_recall_of_the_chosen_datasets_and_shots(study):
    view, rows = recall_view(study), load_rows(study, "variable", ["support"])
    assert list(view.frame["variant"].unique()) == ["Simple", "Transductive"]
    assert "<img " in view._picture.value and words(view._status) == view.title
    recalls = list(naive_recalls(rows, "prediction_0", 1, 1).values())
    row = shown(view, variant="Simple", domain="all", shot_high=1)
    assert row["recall"] == pytest.approx(np.mean(recalls)) and row["n_classes"] == len(recalls)
    assert f"{np.mean(recalls):.4f}" in view._numbers.value
    set_to(view, datasets=("blobs",))
    recalls = list(naive_recalls(rows[rows["dataset"] == "blobs"], "prediction_0", 1, 1).values())
    assert shown(view, variant="Simple", domain="in", shot_high=1)["recall"] == pytest.approx(np.mean(recalls))


def test_a_gain_is_paired(study):
    view = recall_view(study)
    set_to(view, over="Simple")
    simple = naive_recalls(load_rows(study, "variable", ["support"]), "prediction_0", 1, 1)
    rows = load_rows(study, "variable", ["support_and_query"])
    stops = rows.groupby(["dataset", "episode"])[[f"prediction_{t}" for t in range(5)]].apply(
        lambda own: stopping_step(own.to_numpy().T, 2, 3)
    )
    stopped = [row[f"prediction_{stops[row['dataset'], row['episode']]}"] for _, row in rows.iterrows()]
    refined = naive_recalls(rows.assign(stopped=stopped), "stopped", 1, 1)
    gain = np.mean([refined[key] - simple[key] for key in simple])
    assert shown(view, domain="all", shot_high=1)["difference"] == pytest.approx(gain)
    assert set(view.frame["variant"]) == {"Transductive"}


def test_only_chosen_variants_of_the_evaluation_are_shown_and_errors_are_got_over(study):
    view = recall_view(study)
    set_to(view, evaluation="5-way-1-shot-4-queries")
    assert set(view.frame["variant"]) == {"Transductive"}
    set_to(view, over="Simple")
    assert "serves FEOT, Transductive" in str(view.error)
    set_to(view, over="", evaluation="variable")
    before = view._picture.value
    for name, value, again in (("variants", (), ("Simple", "Transductive")), ("datasets", (), BOTH)):
        set_to(view, **{name: value})
        assert "choose at least one" in view.notice.value and view.title.startswith("Nothing is shown")
        assert view.frame is None and view._picture.value == ""
        click(view, "save")
        assert "Nothing is shown that could be saved" in view.notice.value
        set_to(view, **{name: again})
        assert view.error is None and view._picture.value == before


def test_a_cell_of_the_heatmap_is_the_rule_applied_to_each_episode(study):
    view, rows = refinement_view(study), load_rows(study, "variable", ["support_and_query"])
    assert "minimum 2, maximum 3: accuracy" in view.title  # the study's rule
    accuracies, gains = {name: [] for name in BOTH}, {name: [] for name in BOTH}
    for (dataset, _), members in rows.groupby(["dataset", "episode"]):
        predictions, label = members[[f"prediction_{t}" for t in range(5)]].to_numpy(), members["label"].to_numpy()
        accuracies[dataset].append((predictions[:, stopping_step(predictions.T, 2, 4)] == label).mean())
        gains[dataset].append(accuracies[dataset][-1] - (predictions[:, 0] == label).mean())
    accuracy, gain = (
        np.mean([np.mean(values) for values in by_dataset.values()]) for by_dataset in (accuracies, gains)
    )
    row = shown(view, minimum=2, maximum=4)
    assert (row["accuracy"], row["gain"]) == pytest.approx((accuracy, gain)) and len(view.frame) == 4 * 5 // 2
    picture = view._picture.value
    set_to(view, rule=(2, 4))
    assert f"minimum 2, maximum 4: accuracy {100 * accuracy:.1f}±" in words(view._status)
    assert view._picture.value != picture


@pytest.mark.parametrize(("recorded", "minimum", "maximum", "shows"), [(4, 4, 2, (2, 2)), (1, 1, 1, (1, 1))])
def test_stopping_rules_at_the_edge(study, recorded, minimum, maximum, shows):
    rule = {"recorded_steps": recorded, "minimum_steps": minimum, "maximum_steps": maximum}
    view = refinement_view(made_study(refinement=rule))
    assert view.error is None and view.rule() == shows


def test_datasets_and_variant_choose_the_rows(study):
    view = refinement_view(study)
    assert view.controls["training"].options == (("Transductive", "support_and_query"), ("COT", "support"))
    set_to(view, training="support", datasets=("others",))
    rows = load_rows(study, "variable", ["support"])
    episodes = rows[rows["dataset"] == "others"].groupby("episode")
    accuracy = episodes.apply(lambda members: (members["prediction_1"] == members["label"]).mean()).mean()
    assert view.steps["accuracy"][1] == pytest.approx(accuracy)
    assert view.title.startswith("1 dataset · 6 episodes")
    set_to(view, evaluation="5-way-1-shot")
    assert "does not name training 'support'" in str(view.error)


def test_query_counts_of_one_replicate(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    study = made_study(replicates=2)
    for number in (0, 1):
        write_rows(study.of_replicate(number), seed=number)
    view = query_count_view(study.of_replicate(1))
    assert view.choice.variants == ("FEOT", "Transductive")
    row = shown(view, variant="FEOT", queries_per_class=4)
    rows = load_query_counts(study, ["support_and_query"], replicates=[1])
    right = (rows["prediction_0"] == rows["label"]).groupby([rows["queries_per_class"], rows["episode"]]).mean()
    means = right.groupby("queries_per_class").mean()
    assert row["difference"] == pytest.approx(means[4] - means.iloc[0])
    set_to(view, variants=("Transductive",))
    assert set(view.frame["variant"]) == {"Transductive"}


def test_a_study_with_one_number_of_queries_says_what_it_lacks():
    view = query_count_view(small_study(name="single"))
    assert "queries_per_class" in view.notice.value and view.frame is None


def test_saving_writes_the_picture_unless_it_is_served_to_colleagues(study, monkeypatch):
    view, name = query_count_view(study), "of mine"
    set_to(view, save_name=name)
    monkeypatch.setenv("TCNAPS_READ_ONLY", "1")
    click(view, "save")
    assert not list(study.figures_folder.rglob(f"{name}*"))
    assert "Saved" not in view._saved.value and view._saved.value.count("download=") == 2
    monkeypatch.delenv("TCNAPS_READ_ONLY")
    click(view, "save")
    png, pdf = (study.figures_folder / "views" / f"{name}.{kind}" for kind in ("png", "pdf"))
    with Image.open(png) as image:
        assert image.size[0] == 1380
    assert pdf.read_bytes().startswith(b"%PDF") and "figures/small/views" in view._saved.value
    for wrong in ("", "../up", "a/b", ".hidden"):
        set_to(view, save_name=wrong)
        click(view, "save")
        assert f"'{wrong}'" in str(view.error)
