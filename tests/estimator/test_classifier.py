"""The estimator against a plain loop, against `tcnaps.method.clustering`, and against scikit-learn's own checks."""

import numpy as np
import pandas as pd
import pytest
import torch
from oracles import naive_statistics
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import tcnaps
from tcnaps import LabelledKFold, TransductiveMahalanobisClassifier
from tcnaps.estimator.class_shares import EQUAL
from tcnaps.method.clustering import cluster
from tcnaps.method.fast import strategies
from tcnaps.method.head import Head

AS_GIVEN = {"class_prior": None, "normalise": False}  # the paper's clustering of X as it is
TRAINS_WITH_MINUS_1 = {"check_classifiers_classes": "trains with −1 as a class, which means unlabelled here"}


@parametrize_with_checks([TransductiveMahalanobisClassifier()], expected_failed_checks=lambda _: TRAINS_WITH_MINUS_1)
@pytest.mark.filterwarnings("ignore:y contains no|y has one class", "ignore::sklearn.exceptions.SkipTestWarning")
def test_scikit_learn_accepts_it(estimator, check):
    check(estimator)


def planted(way=4, d=6, n=60, noise=0.6, shots=2):
    """Rows around distant means, their classes, and the labels of which all but `shots` per class are missing."""
    rng = np.random.default_rng(0)
    truth = np.arange(n) % way
    X = 2 * rng.standard_normal((way, d))[truth] + noise * rng.standard_normal((n, d))
    y = np.where(np.arange(n) < shots * way, truth, -1)
    order = rng.permutation(n)
    return X[order], truth[order], y[order]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("limits", [(0, 0), (2, 10)])
@pytest.mark.parametrize(
    "options",
    [
        {"scale": 1.0, "identity_weight": 2.0},
        {"scale": 0.5, "identity_weight": 1.0, "log_determinant": True},
        {"scale": "auto", "identity_weight": 1.0, "class_prior": (0.3, 0.3, 0.2, 0.1, 0.1)},
        {"scale": "auto", "identity_weight": 1.0, "class_prior": np.full(5, 0.2)},
        {"scale": "auto", "identity_weight": 0.5, "class_prior": "estimated"},
        {"scale": "auto", "identity_weight": 0.5, "class_prior": "balancing"},
    ],
)
def test_it_stops_where_the_method_stops_with_the_same_probabilities(options, limits, dtype):
    X, _, y = planted(way=5, d=40, n=100, noise=2.5)
    X, labelled = X.astype(dtype), y != -1
    steps = dict(zip(("minimum_steps", "maximum_steps"), limits))
    fitted = TransductiveMahalanobisClassifier(**AS_GIVEN | steps | options).fit(X, y)
    prior = options.get("class_prior")
    for_head = {"class_prior": tuple(prior)} if isinstance(prior, np.ndarray) else {}
    head = Head(**options | (EQUAL if isinstance(prior, str) and prior == "balancing" else for_head))
    step = cluster(X[labelled], y[labelled], X[~labelled], None, head, *limits)
    assert (fitted.n_iter_, fitted.scale_) == (step.number, pytest.approx(float(step.scale), rel=1e-5))
    probabilities = fitted.label_distributions_
    tolerance = 1e-5 if dtype == np.float32 else 1e-9
    np.testing.assert_allclose(probabilities[~labelled], step.responsibilities, atol=tolerance)
    np.testing.assert_array_equal(probabilities[labelled], y[labelled, None] == np.arange(5))


def test_known_equal_classes_take_ten_steps_unless_told_otherwise():
    X, _, y = planted(way=5, d=40, n=100, noise=2.5)
    for options, steps in (({}, {10}), ({"maximum_steps": 3}, {3}), ({"class_prior": None}, {2, 3, 4})):
        assert TransductiveMahalanobisClassifier(**{"class_prior": "balancing"} | options).fit(X, y).n_iter_ in steps


@pytest.mark.parametrize("length", [1e-3, 1e3])
def test_planted_clusters_are_found_whatever_the_length_of_the_embeddings(length):
    X, truth, y = planted(way=8, d=64, n=400, noise=1.5, shots=1)
    X *= length / np.linalg.norm(X, axis=1, keepdims=True)
    fitted = TransductiveMahalanobisClassifier().fit(X, y)
    assert (fitted.transduction_ == truth).mean() > 0.98
    assert fitted.n_iter_ >= 2
    in_length_1 = TransductiveMahalanobisClassifier().fit(X / length, y)
    np.testing.assert_allclose(fitted.label_distributions_, in_length_1.label_distributions_, atol=1e-6)


def test_new_rows_get_what_the_same_rows_got_as_unlabelled_ones():
    X, _, y = planted(noise=2.0)
    priors = ({"log_determinant": True, "class_prior": [0.7, 0.1, 0.1, 0.1]}, {"class_prior": "estimated"})
    for options in ({}, *priors, {"maximum_steps": 0}):
        fitted = TransductiveMahalanobisClassifier(**options).fit(X, y)
        np.testing.assert_allclose(fitted.predict_proba(X[y == -1]), fitted.label_distributions_[y == -1], atol=1e-9)
        np.testing.assert_array_equal(fitted.predict(X[y == -1]), fitted.transduction_[y == -1])
        np.testing.assert_allclose(fitted.predict_proba(X[::-1][:7]), fitted.predict_proba(X)[::-1][:7], atol=1e-12)


def test_statistics_are_those_of_the_equations():
    X, _, y = planted(noise=2.0)
    before, fitted = (
        TransductiveMahalanobisClassifier(1.0, False, 0.5, steps, steps, None, False).fit(X, y) for steps in (1, 2)
    )
    means, covariances = naive_statistics(*map(torch.from_numpy, (X, before.label_distributions_)), 0.5)
    np.testing.assert_allclose(fitted.means_, means, atol=1e-9)
    np.testing.assert_allclose(fitted.covariances_, covariances, atol=1e-9)


def test_classes_in_blocks_change_nothing(monkeypatch):
    X, _, y = planted(way=7, n=240, noise=2.0)
    whole = TransductiveMahalanobisClassifier().fit(X, y)
    monkeypatch.setattr(strategies, "AT_ONCE", 2 * 226 * 6)  # two classes
    blocks = TransductiveMahalanobisClassifier().fit(X, y)
    np.testing.assert_allclose(blocks.label_distributions_, whole.label_distributions_, atol=1e-12)


@pytest.mark.parametrize(
    "names, missing, kind",
    [
        (["ash", "beech", "cedar", "dogwood"], None, list),
        (["ash", "beech", "cedar", "dogwood"], float("nan"), pd.Series),
        (["ash", "beech", "cedar", "dogwood"], float("nan"), list),
        (["ash", "beech", "cedar", "dogwood"], -1, lambda y: np.array(y, dtype=object)),
        ([0, 1, 2, 3], None, list),
    ],
)
def test_names_and_numbers_beside_missing_labels(names, missing, kind):
    X, _, y = planted()
    expected = TransductiveMahalanobisClassifier().fit_predict(X, y)
    fitted = TransductiveMahalanobisClassifier().fit(X, kind([names[k] if k >= 0 else missing for k in y]))
    assert fitted.classes_.tolist() == names
    assert fitted.transduction_.tolist() == [names[k] for k in expected]
    assert set(fitted.predict(X)) == set(names)


X, TRUTH, Y = planted()


def test_it_warns_where_nothing_is_unlabelled_and_where_unlabelled_rows_are_not_scored():
    with pytest.warns(UserWarning, match="unlabelled"):
        fitted = TransductiveMahalanobisClassifier().fit(X, TRUTH)
    assert fitted.n_iter_ == 0 and fitted.score(X, TRUTH) > 0.9
    fitted, labelled = TransductiveMahalanobisClassifier().fit(X, Y), Y != -1
    with pytest.warns(UserWarning, match="52 rows of y have no label and are not scored. .*LabelledKFold"):
        assert fitted.score(X, Y) == fitted.score(X[labelled], Y[labelled])


@pytest.mark.parametrize(
    "X, y, options, message",
    [
        (X, np.where(Y == 0, np.nan, Y), {}, "Input y contains NaN. Write -1 or None"),
        (X, np.full(len(X), -1), {}, "labelled rows"),
        (X, np.where(Y == -1, -1, Y + 0.5), {}, "label type"),
        (X, Y.astype(str), {}, "dtype string"),
        (X, np.array([str(label) if label >= 0 else np.nan for label in Y]), {}, "-1 or nan as text"),
        (X, Y, {"scale": 0}, "scale"),
        (X, Y, {"identity_weight": "automatic"}, "identity_weight"),
        (X, Y, {"identity_weight": -1.0}, "identity_weight"),
        (X, Y, {"maximum_steps": -1}, "maximum"),
        (X, Y, {"maximum_steps": "4"}, "The 'maximum_steps' parameter .* must be an int"),
        (X, Y, {"minimum_steps": 1.5}, "The 'minimum_steps' parameter .* must be an int"),
        (X, Y, {"scale": None}, "The 'scale' parameter .* must be a float"),
        (X, Y, {"identity_weight": None}, "The 'identity_weight' parameter .* must be a float"),
        (X, Y, {"log_determinant": "yes"}, "The 'log_determinant' parameter .* must be an instance of 'bool'"),
        (X, Y, {"class_prior": [0.5, 0.5]}, "class_prior"),
        (X, Y, {"class_prior": [1.0, 0, 0, 0]}, "class_prior"),
    ],
)
def test_bad_input_is_named(X, y, options, message):
    with pytest.raises(ValueError, match=message):
        TransductiveMahalanobisClassifier(**options).fit(X, y)


def test_neither_a_column_in_other_units_nor_an_outlying_row_matters():
    X, truth, y = planted(d=64, n=400, noise=1.5)
    expected = TransductiveMahalanobisClassifier().fit_predict(X, y)
    column, row = X.copy(), X.copy()
    column[:, 5] = 1000 * np.random.default_rng(0).standard_normal(len(X))
    row[np.flatnonzero(y == -1)[0]] *= 1000
    assert (TransductiveMahalanobisClassifier().fit_predict(row, y) == expected).mean() > 0.98
    for normalise in (True, False):
        with pytest.warns(UserWarning, match=r"columns of X \(1\) vary more than 100 times as much"):
            found = TransductiveMahalanobisClassifier(normalise=normalise).fit_predict(column, y)
        assert (found == expected).mean() > 0.98 if normalise else (found == truth).mean() < 0.5


def test_heavy_tails_hide_no_class_and_a_rare_class_far_away_is_no_outlier():
    generator, rows = np.random.default_rng(0), np.arange(600)
    truth = rows % 6
    heavy = 2 * generator.normal(size=(6, 64))[truth] + generator.standard_t(1, (600, 64))
    rare = np.where((rows < 15)[:, None], [10.0, 0.0], 0) + generator.normal(size=(600, 2))
    few = TransductiveMahalanobisClassifier().fit(rare[:6], [0, 1, -1, -1, -1, -1])  # in two dimensions
    assert few.identity_weight_ < np.square(rare[:6] - rare[:6].mean(0)).sum() / 6  # more would warn: it refines little
    for X, classes, labelled in ((heavy, truth, rows < 30), (rare, rows < 15, (rows < 3) | (rows > 596))):
        first, refined = (
            TransductiveMahalanobisClassifier(maximum_steps=steps).fit_predict(X, np.where(labelled, classes, -1))
            for steps in (0, "auto")
        )
        assert (refined == classes).mean() > 0.9 and (refined == classes).mean() >= (first == classes).mean() - 0.01


def test_rows_that_are_all_the_same_and_a_single_class():
    same = TransductiveMahalanobisClassifier().fit(np.ones((6, 3)), [0, 1, -1, -1, -1, -1])
    np.testing.assert_allclose(same.label_distributions_[2:], 0.5)
    with pytest.warns(UserWarning, match="y has one class, '7'"):
        assert TransductiveMahalanobisClassifier().fit_predict(X, np.where(Y == 0, 7, -1)).tolist() == [7] * len(X)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_on_the_border_of_two_classes_stay_undecided(dtype):
    X = np.array([[-1, 0], [1, 0], [0, 1], [0, -1], [0, 2], [0.9, 0]], dtype)  # three of four unlabelled rows tie
    fitted = TransductiveMahalanobisClassifier(**AS_GIVEN, maximum_steps=0).fit(X, [0, 1, -1, -1, -1, -1])
    np.testing.assert_allclose(fitted.label_distributions_[2:5], 0.5, atol=1e-3)
    assert fitted.transduction_[5] == 1 and fitted.label_distributions_[5, 1] > 0.9
    assert 0 < fitted.scale_ < 1e6
    moved = X[:5] + dtype(0.1)  # no tie is exact in float32
    assert TransductiveMahalanobisClassifier(maximum_steps=0).fit(moved, [0, 1, -1, -1, -1]).scale_ < 1e6


def test_folds_keep_unlabelled_rows_in_training_and_out_of_scoring():
    y = np.array(["a", "b", None] * 8, dtype=object)
    tested = []
    for train, test in LabelledKFold(4).split(np.zeros((24, 1)), y, groups=np.arange(24)):
        assert set(train) | set(test) == set(range(24)) and not set(train) & set(test)
        assert all(label is not None for label in y[test])
        tested += test.tolist()
    assert sorted(tested) == [row for row in range(24) if y[row] is not None]


@pytest.mark.parametrize("name", [None, int, "class {}".format])
def test_a_pipeline_in_a_grid_search(name):
    X, truth, y = planted(n=200, noise=1.5, shots=6)
    labels = np.array([name(label) if label >= 0 else None for label in y], object) if name else y
    pipeline = make_pipeline(StandardScaler(), TransductiveMahalanobisClassifier())
    grid = {"transductivemahalanobisclassifier__identity_weight": [1e-3, "auto"]}
    search = GridSearchCV(pipeline, grid, cv=LabelledKFold(3, shuffle=True, random_state=0)).fit(X, labels)
    assert search.best_score_ > 0.5 and search.score(X, [*map(name, truth)] if name else truth) > 0.8
    scores = cross_val_score(search.best_estimator_, X, labels, cv=LabelledKFold(3, shuffle=True, random_state=0))
    assert scores.mean() == pytest.approx(search.best_score_)


def test_settings_from_an_array_mean_what_python_s_own_do():
    for normalise, same in ((True, np.True_), (False, np.False_), ("whitening", np.str_("whitening"))):
        expected, found = (TransductiveMahalanobisClassifier(normalise=n).fit(X, Y) for n in (normalise, same))
        np.testing.assert_array_equal(found.label_distributions_, expected.label_distributions_)


def test_the_package_shows_its_public_names():
    assert dir(tcnaps) == ["LabelledKFold", "TransductiveMahalanobisClassifier", "__version__", "load"]
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        tcnaps.Nothing  # noqa: B018
