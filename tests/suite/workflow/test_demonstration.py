"""How the demonstration is made: by its rules, from a study of random networks."""

import demonstration
import numpy as np
import pandas as pd
import pytest
import yaml
from small_study import blobs, small_study
from stepper_study import write_networks

from tcnaps.config import load_study
from tcnaps.evaluation import evaluate
from tcnaps.evaluation.result_files import load_rows
from tcnaps_suite import episodes
from tcnaps_suite.experiments.study_episodes import features_of
from tcnaps_suite.widgets import episode_table


def test_points_in_their_span_keep_their_distances():
    points = np.random.default_rng(0).normal(3, 2, (9, 40)).astype(np.float32)
    fewer = demonstration.in_span(points)
    assert fewer.shape == (9, 8)
    for a, b in zip(points, fewer):
        np.testing.assert_allclose(
            np.linalg.norm(points - a, axis=1), np.linalg.norm(fewer - b, axis=1), rtol=1e-5, atol=1e-5
        )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The features' total variance")
def test_it_holds_the_chosen_episodes_and_the_same_predictions(root, monkeypatch):
    for module in (evaluate, episodes):
        monkeypatch.setattr(module, "open_split", lambda study, name, split: blobs(name, split))
    monkeypatch.setattr(demonstration, "EVALUATIONS", ("variable",))
    content = small_study(trainings=["support", "support_and_query"]).model_dump(mode="json")
    for own in content["evaluations"].values():
        own |= {"trainings": ["support", "support_and_query"], "datasets": ["others"], "episodes": 4}
    (root / "mine.yaml").write_text(yaml.safe_dump(content))
    study = load_study("mine.yaml")
    write_networks(study)
    for training in study.trainings:
        evaluate.evaluate(study, training)
    demonstration.make("mine.yaml")
    chosen = demonstration.chosen_episodes(study)
    assert list(chosen) == [("variable", "others")]
    made = load_study("results/demonstration/study.yaml")
    for (name, dataset), numbers in chosen.items():
        assert len(set(numbers)) == 3
        before, after = (load_rows(own, name) for own in (study, made))
        gains = gains_of(study, before, dataset)
        assert gains[numbers[0]] == gains.max() and gains[numbers[1]] == gains.drop(numbers[0]).min()
        for variant in ("COT", "Transductive"):
            for new, number in enumerate(numbers):
                old = episode_table.rows_of_episode(before, variant, dataset, number)
                kept = episode_table.rows_of_episode(after, variant, dataset, new)
                pd.testing.assert_frame_equal(old.assign(episode=new), kept, check_dtype=False, atol=1e-3)
                features = features_of(study, variant, name, dataset, number)
                recorded = features_of(made, variant, name, dataset, new)
                assert features.class_names == recorded.class_names and features.head == recorded.head
                difference = of_patches(features.query_images) - of_patches(recorded.query_images)
                assert abs(difference).mean() < 15  # compressed; patterns of two classes differ by some 80


def of_patches(images):
    """The means of patches, in which noise evens out."""
    return images.reshape(-1, 4, 8, 4, 8, 3).mean((2, 4))


def gains_of(study, rows, dataset):
    """By hand: what refinement gains in each episode, where nothing stops it before the maximum of 3 steps or at 2."""
    gains = {}
    for number in range(4):
        own = episode_table.rows_of_episode(rows, "Transductive", dataset, number)
        stop = 2 if (own["prediction_2"] == own["prediction_1"]).all() else 3
        right = [(own[f"prediction_{step}"] == own["label"]).mean() for step in (0, stop)]
        gains[number] = right[1] - right[0]
    return pd.Series(gains)
