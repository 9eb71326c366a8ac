"""Rival classifiers against planted answers, their equations and packages; their comparison; queries out of balance."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from clusters import clusters
from small_study import blobs, sized, small_study
from torch.nn.functional import normalize
from untrained import untrained

from tcnaps.config import FixedProtocol
from tcnaps.episodes.sampling import draw_episode
from tcnaps.method.head import Head
from tcnaps_suite.experiments.balance import unbalanced
from tcnaps_suite.experiments.comparison import compare_classifiers, draws, episode_features
from tcnaps_suite.experiments.rivals import cnaps, gaussian_discriminant, head_classifier, of_estimator, paddle, rivals

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


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_many_features_are_no_harder(name):
    support, labels, query, truth = clusters([1, 1, 1], [8, 8, 8], 2000, 2, 2.0, 0, offset=3, dtype=torch.float32)
    assert (CLASSIFIERS[name](support, labels, query) == truth).double().mean() > 0.9


@pytest.mark.parametrize("names", [("Transductive CNAPS", "Transductive with prior"), tuple(ESTIMATORS)])
def test_an_estimated_prior_keeps_queries_out_of_classes_that_have_none(names):
    strays = np.zeros(2)
    for seed in range(10):
        support, labels, query, _ = episode([1, 1, 1], [60, 0, 0], 1.4, seed)
        strays += [(CLASSIFIERS[name](support, labels, query) != 0).sum().item() for name in names]
    assert strays[1] < 0.8 * strays[0]


def test_classifiers_are_compared_with_one_of_them_in_every_episode():
    sources = [blobs(name, "test") for name in ("blobs", "others")]
    drawn = draws(small_study(), sources, FixedProtocol(way=3, shot=1, queries_per_class=3), 2)
    episodes = list(episode_features(drawn, untrained("support")))
    answers = iter([episode.query_labels for episode in episodes])
    classifiers = {"Simple": head_classifier(Head(), 0, 0), 0.25: head_classifier(Head(scale=0.25), 0, 0)}
    classifiers |= {"Prototypes": CLASSIFIERS["Prototypes"], "perfect": lambda *_: next(answers)}
    frame = compare_classifiers(episodes, classifiers, "Simple")
    assert len(frame) == 4 * 4 and (frame["seconds"] > 0).all()
    assert set(frame["domain"]) == {"in", "out"}
    wide = frame.pivot(index=["dataset", "episode"], columns="classifier", values="accuracy")
    gain = frame.pivot(index=["dataset", "episode"], columns="classifier", values="difference")
    assert (wide["perfect"] == 1).all() and (gain["Simple"] == 0).all()
    assert (gain[0.25] == 0).all(), "the scale changes no label of step 0"
    assert (gain["Prototypes"] == wide["Prototypes"] - wide["Simple"]).all()


@pytest.mark.parametrize("share", [{}, {"concentration": 1}, {"present": 2}, {"present": 1}])
def test_an_episode_keeps_its_support_set_and_as_many_queries_as_a_class_had(share):
    source, protocol = blobs("blobs", "test"), FixedProtocol(way=5, shot=2, queries_per_class=12)
    for index in range(3):
        draw = draw_episode(source, protocol, 0, index)
        uneven, again = (unbalanced(draw, 0, **share) for _ in range(2))
        assert (uneven.support_images == draw.support_images).all() and len(uneven.query_images) == 12
        pairs = set(zip(uneven.query_images.tolist(), uneven.query_labels.tolist()))
        assert pairs <= set(zip(draw.query_images.tolist(), draw.query_labels.tolist())) and len(pairs) == 12
        assert (uneven.query_images == again.query_images).all()
        sizes = np.unique(uneven.query_labels, return_counts=True)[1]
        assert "concentration" in share or (len(sizes) == share.get("present", 5) and np.ptp(sizes) <= 1)


def test_dirichlet_proportions_have_the_moments_of_their_distribution():
    draw = draw_episode(sized(*[500] * 4), FixedProtocol(way=4, shot=1, queries_per_class=400), 0, 0)
    draws = [unbalanced(replace(draw, index=index), 0, concentration=2) for index in range(4000)]
    shares = np.array([np.bincount(uneven.query_labels, minlength=4) for uneven in draws]) / 400
    np.testing.assert_allclose(shares.mean(0), 0.25, atol=0.01)
    np.testing.assert_allclose(shares.var(0), 0.25 * 0.75 / 9 + 0.25 * 0.75 / 400, rtol=0.1)  # α₀ + 1 = 9
