"""What is said of labels, and what a person is asked to label next, on planted classes and classes without examples."""

import sys

import label_next as bench_of_next
import numpy as np
import pandas as pd
import pytest
import trust as bench
from planted_folders import planted

from tcnaps_suite.labelling.classify import expected, new_estimator, points_of
from tcnaps_suite.labelling.label_next import NUMBER, label_next
from tcnaps_suite.labelling.trust import _limit, calibrated, distance_to_classes, trust_of


@pytest.mark.slow
def test_sets_hold_the_truth_and_intervals_the_accuracy_as_often_as_they_say():
    judged = pd.DataFrame([bench.judged(*planted(seed, foreign=10, noise=2.0)) for seed in range(60)])
    assert 0.87 <= judged["in_set"].mean() <= 0.93
    assert judged["in_interval"].mean() >= 0.9
    assert abs((judged["expected"] - judged["accuracy"]).mean()) < 0.03
    error = judged["calibrated_confidence"] - judged["accuracy"]
    assert abs(error.mean()) < 0.03 and error.abs().mean() < (judged["confidence"] - judged["accuracy"]).abs().mean()
    own, further = judged["own_flagged"].mean(), judged["further_class_flagged"].mean()
    assert own <= 0.1 and further > 1.5 * own


def test_a_class_with_one_example_is_too_few_to_say():
    features, given, _ = planted(0)
    given[1:4] = -1
    trust = trust_of(points_of(features, given), given, new_estimator())
    assert trust is None and "Too few examples to say how many labels are right" in expected(trust)


def test_fewer_than_nine_examples_allow_every_label_and_flag_nothing():
    features, given, _ = planted(0, way=2, shot=4)
    trust = trust_of(points_of(features, given), given, new_estimator())
    assert trust.rarest == 0 and trust.farthest == np.inf


def test_a_limit_is_the_conformal_rank():
    scores = np.array([0.5, 0.1, 0.4, 0.2, 0.3, 0.6, 0.9, 0.8, 0.7])
    assert _limit(scores, 0.85, 1.0) == pytest.approx(0.85)  # between the eighth and the ninth
    assert _limit(scores[:8], 0.9, 1.0) == 1


def test_temperature_keeps_the_order_and_flattens_or_sharpens():
    rows = np.array([[0.7, 0.2, 0.1], [0.0, 0.5, 0.5]])
    assert calibrated(rows, 1.0) == pytest.approx(rows, abs=1e-9)
    assert calibrated(rows, 2.0)[0].max() < 0.7 < calibrated(rows, 0.5)[0].max()


def test_distances_are_to_the_nearest_class_of_labelled_images_and_less_of_what_all_unlabelled_have_in_common():
    features, given, true = planted(0, noise=0.01, foreign=1)
    points, others = points_of(features, given), given < 0
    right = np.eye(given.max() + 1)[true[others]]
    distances = distance_to_classes(points, given, right)
    assert distances[-2:].min() > 10 * distances[:-2].max()
    shifted = distance_to_classes(np.column_stack([points, 5.0 * others]), given, right)
    assert shifted == pytest.approx(np.hypot(distances, 3.0))


def test_the_bench_writes_a_row_per_folder_and_means(tmp_path, monkeypatch, capsys):
    features, _, labels = planted(0, way=12, shot=20)
    np.savez(tmp_path / "blobs.npz", features=features, labels=labels)
    files, options = [str(tmp_path / "blobs.npz")], ["--out", str(tmp_path), "--folders", "3"]
    monkeypatch.setattr(sys, "argv", ["bench", *files, *options])
    with pytest.raises(SystemExit, match="second file"):
        bench.main()
    monkeypatch.setattr(sys, "argv", ["bench", *files, *files, *options])
    bench.main()
    folders, means = (pd.read_csv(tmp_path / f"{name}.csv") for name in ("trust-folders", "trust"))
    assert means["folders"].to_list() == [4, 2, 6] and "in_set" in capsys.readouterr().out
    assert means["accuracy"].iloc[-1] == pytest.approx(folders["accuracy"].mean(), rel=1e-4)


@pytest.mark.parametrize(("others", "number"), [(20, NUMBER), (1, 5)])
def test_ten_different_images_are_asked_for_or_all_there_are(others, number):
    features, given, _ = planted(0, others=others)
    points = points_of(features, given)
    asked = label_next(points[given < 0], new_estimator().fit(points, given).label_distributions_[given < 0])
    assert len(set(asked)) == len(asked) == number


def test_a_group_in_doubt_is_asked_about_rather_than_a_lone_outlier():
    rng = np.random.default_rng(0)
    groups = np.repeat([[6.0, 0.0], [0.0, 6.0], [3.0, 3.0]], 20, axis=0) + rng.normal(0, 0.3, (60, 2))
    features = np.r_[groups, [[40.0, 40.0]]].astype(np.float32)  # the last lies alone, between the classes
    given = np.full(61, -1)
    given[[0, 20]] = 0, 1
    unlabelled = np.flatnonzero(given < 0)
    probabilities = np.full((59, 2), 0.5)
    probabilities[unlabelled < 40] = 0.99, 0.01
    assert 40 <= unlabelled[label_next(points_of(features, given)[unlabelled], probabilities)][0] < 60


@pytest.mark.slow
def test_ten_images_asked_for_are_worth_more_than_ten_random_ones():
    rows = pd.DataFrame([bench_of_next.compared(*planted(seed, shot=1, others=30, noise=1.0)) for seed in range(12)])
    assert rows["asked_for"].mean() > rows["random_10"].mean() > rows["before"].mean()
