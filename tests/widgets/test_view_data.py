"""What the views show: the numbers recomputed in naive loops, the words, and what is refused."""

import numpy as np
import pandas as pd
import pytest
from small_study import small_study
from synthetic_rows import synthetic_rows

from tcnaps.evaluation.recall import class_recall
from tcnaps.evaluation.statistics import episode_accuracies
from tcnaps.evaluation.stopped_rows import variant_predictions
from tcnaps.method.stopping import stopping_step
from tcnaps.widgets import view_data

ALL = ("letters", "textures", "digits")
DOMAINS = ("in", "out", "all")


@pytest.fixture(scope="module")
def rows():
    return synthetic_rows(n_episodes=8)


@pytest.fixture(scope="module")
def recalls(rows):
    return [class_recall(variant_predictions(rows, name, 2, 4)) for name in ("Simple", "Transductive")]


def naive_recalls(rows, training, column, datasets, low, high):
    """Recall of each class of each episode, in the order dataset, episode, class."""
    found = []
    for dataset in datasets:
        own = rows[(rows["training"] == training) & (rows["dataset"] == dataset)]
        for episode in sorted(own["episode"].unique()):
            of_episode = own[own["episode"] == episode]
            for label in sorted(of_episode["label"].unique()):
                of_class = of_episode[of_episode["label"] == label]
                if low <= of_class["shot"].iloc[0] <= high:
                    found.append(np.mean([a == b for a, b in zip(of_class["label"], of_class[column])]))
    return found


def test_recall_of_the_chosen_datasets_and_shots(rows, recalls):
    seen = view_data.recall_seen(recalls[:1], ("letters", "digits"), ("all",), (12, 14))
    point = seen.points.iloc[0]
    naive = naive_recalls(rows, "support", "prediction_0", ("letters", "digits"), 12, 14)
    assert len(seen.points) == 1 and point["y"] == pytest.approx(100 * np.mean(naive))
    assert point["value"] == pytest.approx(np.mean(naive)) and 12 <= point["x"] <= 14 and point["panel"] == 0
    assert f"recall {100 * np.mean(naive):.1f} ± {point['interval']:.1f}%, n = {len(naive)} classes of" in point["text"]
    assert point["text"].startswith("Simple, all datasets, shot 11 to 15: ")
    assert seen.title == "Class recall: Simple · 2 datasets · shots 12 to 14 · 1 point"


def test_panels_hold_their_domains_only_and_variants_keep_their_order(recalls):
    for chosen in (recalls, recalls[::-1]):
        seen = view_data.recall_seen(chosen, ALL, ("out", "in"), (1, 14))
        names = [frame["variant"].iloc[0] for frame in chosen]
        assert list(seen.frame["variant"].unique()) == names and seen.points["name"].is_unique
        assert set(seen.frame["domain"]) == {"in", "out"}
        for panel, name in enumerate(("out-of-domain", "in-domain")):
            assert all(f", {name}," in text for text in seen.points.loc[seen.points["panel"] == panel, "text"])


def test_every_shot_by_itself_or_in_bins(recalls):
    binned, apart = (view_data.recall_seen(recalls, ALL, ("all",), (1, 14), every_shot=by) for by in (False, True))
    assert "shot 11 to 15" in " ".join(binned.points["name"]) and len(apart.points) > len(binned.points)
    assert set(apart.frame["shot"]) == set(range(1, 15))


def test_a_gain_is_paired(recalls):
    seen = view_data.recall_seen(recalls, ALL, ("all",), (1, 14), against="Simple")
    assert set(seen.frame["variant"]) == {"Transductive"}
    simple, transductive = (frame.set_index(["dataset", "episode", "label"])["recall"] for frame in recalls)
    shot = recalls[0].set_index(["dataset", "episode", "label"])["shot"]
    gain = (transductive - simple)[shot == 2]
    point = seen.points[seen.points["name"] == "Transductive, all datasets, shot 2"].iloc[0]
    assert point["y"] == pytest.approx(100 * gain.mean())
    assert f"gain over Simple {100 * gain.mean():+.2f} ± " in point["text"]
    assert seen.title.startswith("Gain in class recall over Simple: Transductive ·")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"recalls": []}, "No variant is chosen: tick at least one"),
        ({"datasets": ()}, "No dataset is chosen"),
        ({"domains": ()}, "No domain is chosen"),
        ({"shots": (90, 100)}, "has 90 to 100 support images: widen"),
        ({"datasets": ("digits",), "domains": ("in",)}, "No class of the chosen datasets and domains"),
        ({"against": "COT"}, "A gain over COT needs COT and another variant"),
    ],
)
def test_what_recall_refuses(recalls, changes, message):
    arguments = {"recalls": recalls, "datasets": ALL, "domains": DOMAINS, "shots": (1, 14)} | changes
    with pytest.raises(ValueError, match=message):
        view_data.recall_seen(**arguments)


def test_a_cell_of_the_heatmap_is_the_rule_applied_to_each_episode(rows):
    seen = view_data.refinement_seen(rows, "support_and_query", 6, ("letters", "digits"), "all")
    own = rows[rows["training"] == "support_and_query"]
    means, gains = [], []
    for dataset in ("letters", "digits"):
        accuracies, befores = [], []
        for _, episode in own[own["dataset"] == dataset].groupby("episode"):
            predictions = episode[[f"prediction_{t}" for t in range(7)]].to_numpy()
            label = episode["label"].to_numpy()
            accuracies.append((predictions[:, stopping_step(predictions.T, 2, 4)] == label).mean())
            befores.append((predictions[:, 0] == label).mean())
        means.append(np.mean(accuracies))
        gains.append(np.mean(accuracies) - np.mean(befores))
    point = seen.points[seen.points["name"] == "minimum 2, maximum 4"].iloc[0]
    assert point["cell"] and (point["x"], point["y"]) == (3.5, 1.5)
    assert f"accuracy {100 * np.mean(means):.1f} ± " in point["text"]
    assert f"gain over no refinement {100 * np.mean(gains):+.2f} ± " in point["text"]
    assert point["text"].endswith("n = 16 episodes of 2 datasets")
    assert seen.title == "All datasets: 2 datasets · 16 episodes"


def test_steps_are_dots_beside_the_cells(rows):
    seen = view_data.refinement_seen(rows, "support_and_query", 6, ALL, "in")
    dots = seen.points[~seen.points["cell"]]
    assert list(dots["x"]) == list(range(7)) and set(dots["panel"]) == {1}
    assert dots["y"].to_numpy() == pytest.approx(100 * seen.steps["gain"].to_numpy())
    assert dots["name"].iloc[1] == "exactly 1 step" and dots["y"].iloc[0] == 0
    assert len(seen.points) - len(dots) == 6 * 7 // 2
    assert "n = 16 episodes of 2 datasets" in dots["text"].iloc[0]


def test_a_domain_without_datasets_is_refused(rows):
    with pytest.raises(ValueError, match=r"None of the chosen datasets \(digits\) is in-domain: choose another"):
        view_data.refinement_seen(rows, "support_and_query", 6, ("digits",), "in")
    with pytest.raises(ValueError, match="No dataset is chosen"):
        view_data.refinement_seen(rows, "support_and_query", 6, (), "all")


@pytest.fixture(scope="module")
def query_episodes():
    counts = [
        synthetic_rows(("support_and_query",), 6, queries_per_class=n, evaluation="5-way 1-shot", seed=n)
        for n in (4, 8)
    ]
    return episode_accuracies(variant_predictions(pd.concat(counts, ignore_index=True), ("FEOT", "Transductive"), 2, 4))


def test_accuracy_by_number_of_queries(query_episodes):
    seen = view_data.query_count_seen(query_episodes, ("letters", "digits"), "all", ("5-way 1-shot",))
    own = query_episodes[(query_episodes["variant"] == "FEOT") & (query_episodes["queries_per_class"] == 8)]
    expected = np.mean([own.loc[own["dataset"] == name, "accuracy"].mean() for name in ("letters", "digits")])
    point = seen.points.set_index("name").loc["FEOT, 5-way 1-shot, 8 queries per class"]
    assert point["y"] == pytest.approx(100 * expected) and abs(point["x"] - 8) < 0.2
    assert point["text"].endswith("n = 12 episodes of 2 datasets")
    assert len(seen.points) == 4 and seen.points["x"].is_unique
    seen = view_data.query_count_seen(query_episodes, ALL, "out", ("5-way 1-shot",))
    assert seen.title == "FEOT, Transductive · 1 dataset · 4 points"


def test_what_query_counts_refuse(query_episodes):
    for settings, message in (((), "No way and shot is chosen"), (("10-way 1-shot",), "no episodes of 10-way 1-shot")):
        with pytest.raises(ValueError, match=message):
            view_data.query_count_seen(query_episodes, ALL, "all", settings)
    assert view_data.query_count_variants(small_study()) == []
    with pytest.raises(ValueError, match="only in queries_per_class: add some to its YAML"):
        view_data.query_episodes(small_study(), ())


def test_the_answer_names_the_ends(query_episodes):
    seen = view_data.query_count_seen(query_episodes, ALL, "all", ("5-way 1-shot",))
    title, highest, lowest = seen.answer().splitlines()
    assert title == seen.title
    assert highest == "  highest: " + seen.points.loc[seen.points["y"].idxmax(), "text"]
    assert lowest == "  lowest: " + seen.points.loc[seen.points["y"].idxmin(), "text"]


def test_one_episode_has_no_interval(rows):
    single = class_recall(variant_predictions(rows[rows["episode"] == 0], "Simple", 2, 4))
    seen = view_data.recall_seen([single], ("letters",), ("in",), (1, 14))
    assert not any("±" in text or "nan" in text for text in seen.points["text"])
    assert "of 1 episode" in seen.points["text"].iloc[0] and not seen.points["text"].iloc[0].endswith("episodes")
