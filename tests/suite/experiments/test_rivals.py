"""Rival classifiers against planted answers, their equations and the packages they come from."""

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from tcnaps.method.head import Head
from tcnaps_suite.experiments.rivals import cnaps, gaussian_discriminant, of_estimator, paddle, rivals

ESTIMATORS = {"Estimator, no prior": of_estimator(class_prior=None), "Estimator": of_estimator()}
CLASSIFIERS = rivals() | cnaps(Head()) | ESTIMATORS


def clusters(shots, queries, spread=0.3, d=12, seed=0):
    """Support features, labels, query features and labels of classes far apart, in the positive orthant."""
    generator = torch.Generator().manual_seed(seed)
    centres = 3 + 2 * torch.randn(len(shots), d, generator=generator)

    def draw(counts):
        labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
        return centres[labels] + spread * torch.randn(len(labels), d, generator=generator), labels

    return *draw(shots), *draw(queries)


@pytest.mark.parametrize("name", CLASSIFIERS)
@pytest.mark.parametrize("shots, queries", [([1, 1, 1], [8, 8, 8]), ([2, 3, 2], [6, 9, 7])])
def test_classes_that_lie_apart_are_told_apart(name, shots, queries):
    support, labels, query, truth = clusters(shots, queries)
    assert torch.equal(CLASSIFIERS[name](support, labels, query), truth)


def test_the_gaussian_discriminant_is_that_of_its_equation():
    support, labels, query, _ = clusters([4, 3, 5], [10, 10, 10], spread=2.0, seed=1)
    x, z = (normalize(part.double()).numpy() for part in (support, query))
    y = labels.numpy()
    means = np.stack([x[y == k].mean(0) for k in range(3)])
    covariance = sum(np.outer(v, v) for v in x - means[y]) / len(x)
    precision = np.linalg.inv((len(x) - 1) * covariance + np.trace(covariance) * np.eye(12))
    expected = [np.argmin([(q - m) @ precision @ (q - m) for m in means]) for q in z]
    assert gaussian_discriminant(support, labels, query).tolist() == expected


def test_paddle_lets_a_class_without_queries_vanish_which_soft_k_means_does_not():
    support, labels, query, truth = clusters([1, 1, 1], [30, 30, 0], spread=1.4, seed=5)
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
        support, labels, query, _ = clusters([1, 1, 1], [60, 0, 0], spread=1.4, seed=seed)
        strays += [(classify(support, labels, query) != 0).sum().item() for classify in (plain, with_prior)]
    assert strays[1] < 0.8 * strays[0]
