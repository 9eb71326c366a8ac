"""Whitening, by its formula and as part of the estimator."""

import numpy as np
import pytest
import torch
from clusters import clusters

from tcnaps import TransductiveMahalanobisClassifier
from tcnaps.estimator.whitening import TYPICAL, whitening


@pytest.mark.parametrize("shape", [(30, 8), (12, 40)])
def test_variance_along_each_direction_is_divided_by_one_plus_its_ratio_to_the_limit(shape):
    rows = np.random.default_rng(0).normal(size=shape) * np.geomspace(0.1, 10, shape[1]) + 3
    covariance = np.cov(rows.T, bias=True)
    values, vectors = np.linalg.eigh(covariance)
    limit = TYPICAL / 4 * covariance.trace()
    shortened = (rows - rows.mean(0)) @ vectors / np.sqrt(1 + values / limit) @ vectors.T
    found, whiten = whitening(torch.from_numpy(rows), 4)
    np.testing.assert_allclose(found, whiten(torch.from_numpy(rows)), atol=1e-9)
    found = found.numpy()
    directions = shortened / np.linalg.norm(shortened, axis=1, keepdims=True)
    np.testing.assert_allclose(found, directions * np.linalg.norm(found[0]), atol=1e-9)
    assert np.var(found, axis=0).sum() == pytest.approx(covariance.trace())


def test_rows_that_are_all_the_same_stay_finite():
    assert torch.isfinite(whitening(torch.ones(5, 3), 2)[0]).all()


@pytest.mark.parametrize("prior", ["auto", "balancing"])
def test_it_tells_equal_classes_apart_that_a_few_directions_hide(prior, monkeypatch):
    support, codes, query, truth = (part.numpy() for part in clusters([1] * 5, [20] * 5, 120, 0.8, 1.0, 0))
    X, y = np.concatenate([support, query]), np.concatenate([codes, np.full(100, -1)])
    X[:, :2] += 8 * np.random.default_rng(0).normal(size=(105, 2))

    def fitted():
        return TransductiveMahalanobisClassifier(class_prior=prior).fit(X, y)

    model = fitted()
    np.testing.assert_allclose(model.predict_proba(X)[5:], model.label_distributions_[5:], atol=1e-9)
    monkeypatch.setattr("tcnaps.estimator.whitening.TYPICAL", 1e9)
    whitened, plain = ((m.transduction_[5:] == truth).mean() for m in (model, fitted()))
    assert whitened > plain + 0.1
