"""Normalisation of embeddings and tables, by hand and by what must not matter."""

import numpy as np
import pytest

from tcnaps.estimator.normalisation import COLUMN, KEPT, POWER, column_divisors, effective_dimensions, normalised


def rows(n=200, d=30, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d)), np.arange(n) < 6, np.arange(6) // 2


@pytest.mark.parametrize("offset", [0, 0.5, 1e3])
def test_rows_have_length_1_about_a_part_of_the_mean_of_the_labelled_classes(offset):
    X, labelled, codes = rows()
    X += offset * np.resize([1, -1], X.shape[1])
    centre = np.mean([X[:2].mean(0), X[2:4].mean(0), X[4:6].mean(0)], axis=0)
    deviation, length = np.sqrt(np.square(X - centre).sum(1).mean()), np.linalg.norm(centre)
    centred = X - centre + KEPT * min(1, deviation / length) * centre
    expected = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    found, normalisation = normalised(X, labelled, codes)
    for rows_of_length_1 in (found, normalisation(X)):
        np.testing.assert_allclose(rows_of_length_1, expected, atol=1e-12 * max(1, offset))


def test_what_is_never_negative_is_raised_to_a_power_first(monkeypatch):
    monkeypatch.setattr("tcnaps.estimator.normalisation.KEPT", 0)
    X, labelled, codes = rows()
    X = np.random.default_rng(0).uniform(0, 9, X.shape)
    expected = normalised(X**POWER - 5, labelled, codes)[0]  # −5: below zero, and centred away
    found, normalisation = normalised(X, labelled, codes)
    np.testing.assert_allclose(found, expected, atol=1e-9)
    assert np.isinf(normalisation.limits).all()  # a long tail is theirs by nature


def test_few_dimensions_keep_their_lengths():
    X, labelled, codes = rows(d=2)
    found, _ = normalised(X, labelled, codes)
    np.testing.assert_allclose(np.diff(found, axis=0) * np.abs(X).max(), np.diff(X, axis=0), atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.filterwarnings("ignore:columns of X")
def test_length_of_all_units_of_one_column_and_outlying_rows_change_little(dtype):
    X, labelled, codes = rows()
    expected = normalised(X, labelled, codes)[0]
    other_units, outlier = X.copy(), X.copy()
    other_units[:, 3] *= 1000 * COLUMN
    outlier[100] *= 1e6
    for changed in (X * 1e-3, X * 1e3, other_units, outlier):
        changed = changed.astype(dtype)
        found, _ = normalised(changed, labelled, codes)
        assert found.dtype == dtype
        assert (np.delete(found * expected, 100, axis=0).sum(1) > 0.97).all()  # cosines


def test_rows_of_which_most_are_zero_keep_their_directions():
    X, labelled, codes = rows()
    X[50:] = 0
    np.testing.assert_allclose(np.linalg.norm(normalised(X, labelled, codes)[0], axis=1), 1, atol=1e-12)


def test_the_order_of_many_rows_does_not_matter(monkeypatch):
    monkeypatch.setattr("tcnaps.estimator.normalisation.LOOKED_AT", 20)
    X, order = np.random.default_rng(0).standard_cauchy((90, 5)), np.random.default_rng(1).permutation(90)
    labelled, codes = np.arange(90) < 4, np.arange(90) // 2
    expected, found = (normalised(X[n], labelled[n], codes[n][labelled[n]])[0] for n in (np.arange(90), order))
    np.testing.assert_allclose(found, expected[order], atol=1e-12)


def test_constant_columns_put_no_other_in_other_units():
    X, *_ = rows(d=5)
    constant = np.full((200, 7), 0.1)
    assert constant.std(0).any()
    np.testing.assert_array_equal(column_divisors(np.hstack([constant, X])), 1)


def test_columns_that_are_idle_in_most_rows_put_no_other_in_other_units():
    X = np.maximum(np.random.default_rng(0).normal(size=(60, 200)), 0)
    X[:, :150] *= np.random.default_rng(1).random((60, 150)) < 0.05  # as behind a ReLU
    X[:, :150] *= 0.1
    np.testing.assert_array_equal(column_divisors(X), 1)
    X[:, 199] *= 50
    assert (column_divisors(X) > 1).tolist() == [False] * 199 + [True]


def test_effective_dimensions():
    assert effective_dimensions(np.eye(5) - np.eye(5).mean(0)) == pytest.approx(4)
    assert effective_dimensions(np.outer(np.arange(9.0), np.ones(4))) == pytest.approx(1)
    assert effective_dimensions(np.ones((3, 2))) == 0
