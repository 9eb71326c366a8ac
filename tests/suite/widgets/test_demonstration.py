"""The demonstration: as it comes with the project, when it is opened, and how it is made."""

import runpy
import sys
from itertools import product
from pathlib import Path

import demonstration as making
import numpy as np
import pandas as pd
import pytest
import yaml
from scipy.spatial.distance import pdist
from small_study import blobs, small_study
from untrained import write_networks

from tcnaps.config import UserError, load_study
from tcnaps.evaluation import evaluate
from tcnaps.evaluation.result_files import load_rows
from tcnaps.evaluation.statistics import episode_accuracies
from tcnaps.evaluation.stopped_rows import variant_predictions
from tcnaps_suite import episodes
from tcnaps_suite.episodes import FOLDER, open_study
from tcnaps_suite.experiments.study_episodes import features_of, first_episodes
from tcnaps_suite.widgets import episode_table, stepper_data
from tcnaps_suite.widgets.explorer_widget import explorer
from tcnaps_suite.widgets.stepper_widget import stepper

ROOT = Path(__file__).parents[3]


@pytest.fixture
def study(root):
    """What is opened in a project's root with the demonstration and no results."""
    (root / "results").mkdir()
    (root / "results" / "demonstration").symlink_to(ROOT / "results" / "demonstration")
    (root / "mine.yaml").write_text(yaml.safe_dump(small_study().model_dump(mode="json")))
    return open_study("mine.yaml")


def test_a_study_without_results_gives_way_to_the_demonstration_and_that_is_said(study, capsys):
    capsys.readouterr()
    assert open_study("mine.yaml").name == "demonstration"
    said = capsys.readouterr().out.strip()
    assert len(said.splitlines()) == 1 and "'small' has no results yet" in said and "minutes" in said
    made = Path("results/small/checkpoints/backbone.safetensors")
    made.parent.mkdir(parents=True)
    made.touch()
    assert open_study("mine.yaml").name == "small" and not capsys.readouterr().out
    made.unlink()
    Path("results/demonstration").unlink()
    assert open_study("mine.yaml").name == "small"


def test_a_study_without_rows_makes_none_and_the_file_that_is_missing_is_named(root, monkeypatch):
    (root / "mine.yaml").write_text(yaml.safe_dump(small_study().model_dump(mode="json")))
    monkeypatch.setattr(sys, "argv", ["demonstration.py", "mine.yaml"])
    with pytest.raises(SystemExit, match="There are no rows"):
        runpy.run_path(making.__file__, run_name="__main__")


def test_it_is_small_and_shows_gains_losses_and_episodes_of_every_kind(study):
    files = [file for file in (ROOT / FOLDER).rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) < 3_000_000
    gains, shots, last = [], set(), f"prediction_{study.refinement.maximum_steps}"
    for name in study.evaluations:
        rows = episode_table.rows_of_training(load_rows(study, name), "support_and_query")
        for _, own in rows.groupby(["dataset", "episode"]):
            gains.append((own[last] == own["label"]).mean() - (own["prediction_0"] == own["label"]).mean())
            shots.add(tuple(sorted(own["shot"].unique())))
    assert len(gains) == 3 * len(study.datasets) and min(gains) < -0.05 and max(gains) > 0.1
    assert (1,) in shots and (5,) in shots and max(map(len, shots)) > 2


@pytest.mark.parametrize("variant", ["COT", "Transductive"])
def test_the_features_lead_to_the_recorded_predictions(study, variant):
    """To all of them where the file was made; elsewhere rounding may turn a query that stands between two classes."""
    same = []
    for name, evaluation in study.evaluations.items():
        rows = load_rows(study, name)
        for dataset in evaluation.datasets:
            for number in range(evaluation.episodes):
                features = features_of(study, variant, name, dataset, number)
                found = stepper_data.run(features, steps=study.refinement.recorded_steps).rows
                own = episode_table.rows_of_episode(rows, variant, dataset, number)
                assert found["label"].tolist() == own["label"].tolist()
                assert found["class_name"].tolist() == own["class_name"].tolist()
                steps = [f"prediction_{step}" for step in range(study.refinement.recorded_steps + 1)]
                same.append((found[steps].to_numpy() == own[steps].to_numpy()).mean())
    assert np.mean(same) > 0.99


def test_the_widgets_open_on_it_with_its_pictures(study):
    assert stepper(study).shown()[1] is not None
    shown = explorer(study)
    assert shown.error is None and shown.problem is None
    assert len(shown.listed) == 3 * len(study.evaluations["5-way-1-shot"].datasets)
    images = episode_table.replay(study, shown.predictions["Transductive"])
    assert images.query_images.shape == (50, 32, 32, 3) and images.support_images.shape == (5, 32, 32, 3)
    assert all(image.std() > 5 for image in images.query_images)


def test_an_evaluations_first_episodes_are_no_more_than_it_has_and_others_are_refused(study):
    with pytest.raises(UserError, match="no episode 5-way-1-shot/glyphs/7. It has .*5-way-1-shot/glyphs/0, "):
        features_of(study, "Transductive", "5-way-1-shot", "glyphs", 7)
    datasets = study.evaluations["5-way-1-shot"].datasets
    found = list(first_episodes(study, "FEOT", "5-way-1-shot", datasets, 12))
    assert [tuple(own.facts.values()) for own in found] == [
        (name, study.datasets[name].domain, study.datasets[name].images, k) for name in datasets for k in range(3)
    ]


def test_points_in_their_span_keep_their_distances():
    points = np.random.default_rng(0).normal(3, 2, (9, 40)).astype(np.float32)
    fewer = making.in_span(points)
    assert fewer.shape == (9, 8)
    np.testing.assert_allclose(pdist(fewer), pdist(points), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_it_holds_the_chosen_episodes_and_the_same_predictions(root, monkeypatch):
    for module in (evaluate, episodes):
        monkeypatch.setattr(module, "open_split", lambda study, name, split: blobs(name, split))
    monkeypatch.setattr(making, "EVALUATIONS", ("variable",))
    content = small_study(trainings=["support", "support_and_query"]).model_dump(mode="json")
    for own in content["evaluations"].values():
        own |= {"trainings": ["support", "support_and_query"], "datasets": ["others"], "episodes": 4}
    (root / "mine.yaml").write_text(yaml.safe_dump(content))
    study = load_study("mine.yaml")
    write_networks(study)
    for training in study.trainings:
        evaluate.evaluate(study, training)
    making.make("mine.yaml")
    ((place, numbers),) = making.chosen_episodes(study).items()
    assert place == ("variable", "others") and len(set(numbers)) == 3
    made = load_study("results/demonstration/study.yaml")
    before, after = (load_rows(own, "variable") for own in (study, made))
    tables = (variant_predictions(before, name, *study.refinement.limits) for name in ("Transductive", "FEOT"))
    gains = np.subtract(*(episode_accuracies(table).set_index("episode")["accuracy"] for table in tables))
    assert gains[numbers[0]] == gains.max() and gains[numbers[1]] == gains.drop(numbers[0]).min()
    for variant, (new, number) in product(("COT", "Transductive"), enumerate(numbers)):
        old = episode_table.rows_of_episode(before, variant, "others", number)
        kept = episode_table.rows_of_episode(after, variant, "others", new)
        pd.testing.assert_frame_equal(old.assign(episode=new), kept, check_dtype=False, atol=1e-3)
        features, recorded = features_of(study, variant, *place, number), features_of(made, variant, *place, new)
        assert features.class_names == recorded.class_names and features.head == recorded.head
        difference = of_patches(features.query_images) - of_patches(recorded.query_images)
        assert abs(difference).mean() < 15  # compressed; patterns of two classes differ by some 80


def of_patches(images):
    """The means of patches, in which noise evens out."""
    return images.reshape(-1, 4, 8, 4, 8, 3).mean((2, 4))
