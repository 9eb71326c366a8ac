"""What a person is asked to label next, on planted classes."""

import label_next as bench
import numpy as np
import pandas as pd
import pytest
from planted_folders import planted

from tcnaps_suite.labelling.classify import new_estimator, points_of
from tcnaps_suite.labelling.label_next import NUMBER, label_next


def asked(features, given):
    points = points_of(features, given)
    return label_next(points[given < 0], new_estimator().fit(points, given).label_distributions_[given < 0])


def test_ten_different_images_are_asked_for_or_all_there_are():
    features, given, _ = planted(0)
    assert len(set(asked(features, given))) == NUMBER
    assert sorted(asked(features[:24], given[:24])) == [0, 1, 2, 3]


def test_a_group_in_doubt_is_asked_about_rather_than_a_lone_outlier():
    rng = np.random.default_rng(0)
    groups = np.repeat([[6.0, 0.0], [0.0, 6.0], [3.0, 3.0]], 20, axis=0) + rng.normal(0, 0.3, (60, 2))
    features = np.r_[groups, [[40.0, 40.0]]].astype(np.float32)  # the last lies alone, between the classes
    given = np.full(61, -1)
    given[[0, 20]] = 0, 1
    unlabelled = np.flatnonzero(given < 0)
    probabilities = np.full((59, 2), 0.5)
    probabilities[unlabelled < 40] = 0.99, 0.01
    first = unlabelled[label_next(points_of(features, given)[unlabelled], probabilities)]
    assert 40 <= first[0] < 60


@pytest.mark.slow
def test_ten_images_asked_for_are_worth_more_than_ten_random_ones():
    rows = pd.DataFrame([bench.compared(*planted(seed, shot=1, others=30, noise=0.8)) for seed in range(12)])
    assert rows["asked_for"].mean() > rows["random_10"].mean() > rows["before"].mean()
