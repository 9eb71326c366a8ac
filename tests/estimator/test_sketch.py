"""Class covariances of few directions: equal to the exact ones where there are no more, and near them otherwise."""

import numpy as np
import pytest
import torch
from clusters import clusters

from tcnaps import TransductiveMahalanobisClassifier
from tcnaps.estimator import sketch
from tcnaps.estimator.sketch import refinement
from tcnaps.method.clustering import refinement_steps
from tcnaps.method.head import Head

HEAD = Head(scale="auto", identity_weight=5.0, log_determinant=True)


def second_step(steps, support, labels, query):
    steps = steps(support, labels, query, support, HEAD)
    return [next(steps) for _ in range(3)][-1]


def episode(d, hidden, seed=0):
    """Features of six classes, of which each varies most along `hidden` directions of its own."""
    support, labels, query, truth = clusters([3] * 6, [40] * 6, d, 0.7, 0.5, seed)
    generator = torch.Generator().manual_seed(seed)
    own = torch.randn(6, hidden, d, generator=generator, dtype=support.dtype) / 2
    for features, codes in ((support, labels), (query, truth)):
        factors = torch.randn(len(codes), 1, hidden, generator=generator, dtype=support.dtype)
        features += (factors @ own[codes])[:, 0]
    return support, labels, query, truth


@pytest.fixture
def small(monkeypatch):
    """Small problems count as large."""
    monkeypatch.setattr(sketch, "LARGE", 0)
    monkeypatch.setattr(sketch, "MANY", 0)


def test_it_is_exact_with_as_many_directions_as_features(small, monkeypatch):
    *features, _ = episode(24, 4)
    exact = second_step(refinement_steps, *features)
    monkeypatch.setattr(sketch, "DIRECTIONS", 24)
    found = second_step(refinement, *features)
    np.testing.assert_allclose(found.responsibilities, exact.responsibilities, atol=1e-3)
    np.testing.assert_allclose(found.unlabelled_logits, exact.unlabelled_logits, rtol=1e-3, atol=1e-2)
    np.testing.assert_allclose(found.scale, exact.scale, rtol=1e-3)


@pytest.mark.parametrize("at_once", [1, 2**26])
def test_it_nears_the_exact_refinement_with_more_directions(at_once, small, monkeypatch):
    *features, _ = episode(150, 8)
    exact, same = second_step(refinement_steps, *features).labels, {}
    monkeypatch.setattr(sketch, "AT_ONCE", at_once)
    for directions in (1, 8, 64):
        monkeypatch.setattr(sketch, "DIRECTIONS", directions)
        same[directions] = (second_step(refinement, *features).labels == exact).double().mean()
    assert same[1] + 0.1 < same[8] < same[64] - 0.02 and same[64] > 0.99


def test_a_class_that_gets_no_rows_stays_finite(small):
    support, labels, query, _ = clusters([1, 1, 1], [30, 30, 0], 40, 30.0, 0.1)
    assert torch.isfinite(second_step(refinement, support, labels, query).logits).all()


@pytest.mark.parametrize("rank", [2, 3, 6])
@pytest.mark.parametrize("prior", ["auto", "balancing"])
def test_classes_that_are_points_in_few_directions_are_told_apart(prior, rank, small):
    generator, truth = np.random.default_rng(0), np.arange(900) % 6
    X = (generator.normal(size=(6, rank)) @ generator.normal(size=(rank, 310))).astype(np.float32)[truth]
    y = np.where(np.arange(900) < 6, truth, -1)
    assert (TransductiveMahalanobisClassifier(class_prior=prior).fit_predict(X, y) == truth).all()


@pytest.mark.parametrize("prior, refinements", [("auto", True), ("balancing", True), (None, False)])
def test_large_problems_are_sketched_where_the_estimator_refines_as_it_likes(prior, refinements, monkeypatch, request):
    support, labels, query, _ = episode(120, 8)
    X, y = np.concatenate([support, query]), np.concatenate([labels, np.full(240, -1)])
    calls, own = [], sketch.sketched_distances
    monkeypatch.setattr(sketch, "sketched_distances", lambda *args: calls.append(1) or own(*args))
    model = TransductiveMahalanobisClassifier(class_prior=prior)
    exact = model.fit_predict(X, y)
    assert not calls
    request.getfixturevalue("small")
    assert (model.fit_predict(X, y) == exact).mean() > 0.95
    assert bool(calls) == refinements
