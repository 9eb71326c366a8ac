"""Rival classifiers against planted answers, their equations and the packages they come from."""

import numpy as np
import pytest
import torch
from clusters import clusters
from torch.nn.functional import normalize

from tcnaps.method.head import Head
from tcnaps_suite.experiments.rivals import cnaps, gaussian_discriminant, of_estimator, paddle, rivals

ESTIMATORS = {"Estimator, no prior": of_estimator(class_prior=None), "Estimator": of_estimator()}
CLASSIFIERS = rivals() | cnaps(Head()) | ESTIMATORS


def episode(shots, queries, noise=0.3, seed=0):
    """Classes far apart, in the positive orthant."""
    return clusters(shots, queries, 12, 2, noise, seed, offset=3, dtype=torch.float32)


@pytest.mark.parametrize("name", CLASSIFIERS)
@pytest.mark.parametrize("shots, queries", [([1, 1, 1], [8, 8, 8]), ([2, 3, 2], [6, 9, 7])])
def test_classes_that_lie_apart_are_told_apart(name, shots, queries):
    support, labels, query, truth = episode(shots, queries)
    assert torch.equal(CLASSIFIERS[name](support, labels, query), truth)


def test_the_gaussian_discriminant_is_that_of_its_equation():
    support, labels, query, _ = episode([4, 3, 5], [10, 10, 10], 2.0, seed=1)
    x, z = (normalize(part.double()).numpy() for part in (support, query))
    y = labels.numpy()
    means = np.stack([x[y == k].mean(0) for k in range(3)])
    covariance = sum(np.outer(v, v) for v in x - means[y]) / len(x)
    precision = np.linalg.inv((len(x) - 1) * covariance + np.trace(covariance) * np.eye(12))
    expected = [np.argmin([(q - m) @ precision @ (q - m) for m in means]) for q in z]
    assert gaussian_discriminant(support, labels, query).tolist() == expected


def test_paddle_lets_a_class_without_queries_vanish_which_soft_k_means_does_not():
    support, labels, query, truth = episode([1, 1, 1], [30, 30, 0], 1.4, seed=5)
    estimated = paddle(support, labels, query)
    even = rivals()["PT-MAP"](support, labels, query)  # assumes that classes are equally frequent
    assert (estimated == truth).double().mean() > 0.8 > 0.7 > (even == truth).double().mean()


@pytest.mark.parametrize(
    "plain, with_prior",
    [(cnaps(Head())["Transductive CNAPS"], cnaps(Head())["Transductive with prior"]), tuple(ESTIMATORS.values())],
)
def test_an_estimated_prior_keeps_queries_out_of_classes_that_have_none(plain, with_prior):
    strays = np.zeros(2)
    for seed in range(10):
        support, labels, query, _ = episode([1, 1, 1], [60, 0, 0], 1.4, seed)
        strays += [(classify(support, labels, query) != 0).sum().item() for classify in (plain, with_prior)]
    assert strays[1] < 0.8 * strays[0]
