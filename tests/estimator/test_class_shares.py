"""Refinement by the classes' shares, on episodes whose shares are known."""

import warnings

import numpy as np
import pytest
import torch
from clusters import clusters
from sklearn.datasets import load_digits, make_circles

from tcnaps import TransductiveMahalanobisClassifier
from tcnaps.estimator.class_shares import REFINEMENTS, cluster_by_shares, evenness, head_for
from tcnaps.method.clustering import cluster, trajectory
from tcnaps.method.head import Head

HEAD = Head(scale="auto", identity_weight=30.0)


def episode(counts, seed=0):
    """One support image of each class, and these numbers of query images."""
    return clusters([1] * len(counts), counts, 40, 1.2, 1.2, seed)


def test_evenness_is_the_share_of_the_largest_entropy():
    assert evenness(torch.eye(4)) == pytest.approx(1)
    assert evenness(torch.tensor([[1.0, 0, 0, 0], [0, 1.0, 0, 0]])) == pytest.approx(0.5)
    assert evenness(torch.tensor([[1.0, 0]])) == 0 and evenness(torch.ones(3, 1)) == 1


@pytest.mark.parametrize("even, row", [(1.0, 0), (0.97, 1), (0.95, 2), (0.91, 3), (0.78, 3), (0.76, 4), (0.0, 4)])
def test_the_refinement_goes_by_evenness(even, row):
    (head, labels), (_, settings, enough) = head_for(even, HEAD), REFINEMENTS[row]
    assert labels == enough
    assert {name: getattr(head, name) for name in settings} == settings
    assert head.identity_weight == HEAD.identity_weight


def accuracies(episodes, maximum):
    """Means over episodes: of step 0, after the paper's refinement, and after that by shares."""
    found = []
    for *features, truth in episodes:
        steps = [cluster(*features, None, HEAD, maximum=n) for n in (0, maximum)]
        steps.append(cluster_by_shares(*features, HEAD)[0])
        found.append([float((step.labels == truth).double().mean()) for step in steps])
    return np.mean(found, 0)


def test_classes_without_queries_cost_less_and_equal_ones_gain_more_than_by_the_paper():
    first, papers, own = accuracies((episode((12,) * 5, seed) for seed in range(10)), 10)
    assert own >= papers > first + 0.02
    first, papers, own = accuracies((episode((60, 0, 0, 0, 0), seed) for seed in range(10)), 10)
    assert own > first > papers + 0.1


@pytest.mark.parametrize("counts", [(450, 50), (450, 25, 25)])
def test_of_two_or_three_classes_all_but_one_may_be_rare(counts):
    first, papers, own = accuracies((clusters([5] * len(counts), counts, 20, 0.9, 1.0, seed) for seed in range(5)), 4)
    assert own > first - 0.01 and papers < first - 0.05


CASES = [
    (1, 40, {}, 10),
    (2, 40, {}, 10),
    (1, 40, {"maximum_steps": 3}, 3),
    (1, 40, {"normalise": False}, 2),
    (1, 2, {}, 2),
]


@pytest.mark.parametrize("shot, dimensions, options, steps", CASES)
def test_it_pushes_by_ten_steps_unless_it_may_not_or_rows_are_many(shot, dimensions, options, steps, monkeypatch):
    support, codes, query, _ = clusters([shot] * 5, [12] * 5, dimensions, 4.0, 1.0, 0)
    X, y = np.concatenate([support, query]), np.concatenate([codes, np.full(60, -1)])
    assert TransductiveMahalanobisClassifier(**options).fit(X, y).n_iter_ == steps
    monkeypatch.setattr("tcnaps.estimator.class_shares.PROBED", 59)
    assert TransductiveMahalanobisClassifier(**options).fit(X, y).n_iter_ == min(steps, 2)


def test_the_labels_of_step_0_bound_evenness(monkeypatch):
    known = []
    monkeypatch.setattr("tcnaps.estimator.class_shares.head_for", lambda even, head: known.append(even) or (head, 1))
    *features, _ = clusters([5, 5], [95, 5], 20, 0.9, 1.0, 0)  # a probe alone would share out the large class
    cluster_by_shares(*features, HEAD)
    first = cluster(*features, None, HEAD, 0, 0).labels
    assert known == [pytest.approx(evenness(torch.eye(2)[first]) + 2 / (50 * 5**0.5))]


def test_it_goes_back_where_classes_lose_their_labelled_rows(monkeypatch):
    rng, truth = np.random.default_rng(0), np.arange(1000) % 10
    noise = rng.normal(size=(1000, 64)) * np.exp(rng.normal(size=64))  # a few columns decide where clusters lie
    X, y = 0.5 * rng.normal(size=(10, 64))[truth] + noise, np.where(np.arange(1000) < 50, truth, -1)

    def right(**options):
        return (TransductiveMahalanobisClassifier(**options).fit_predict(X, y) == truth)[50:].mean()

    first, own = right(maximum_steps=0), right()
    monkeypatch.setattr("tcnaps.estimator.class_shares.STAYING", 0)
    assert own == first > right() + 0.03


def test_no_update_leaves_the_distances_of_step_0():
    features = episode((12,) * 5)[:3]
    logits = trajectory(*features, head=Head(scale=0.1, class_prior="estimated", update="none"), steps=3)
    differences = logits - logits[0]  # log π_k: the same for every query image
    np.testing.assert_allclose(differences, differences[:, :1].expand_as(differences), atol=1e-9)
    assert not torch.allclose(logits[1], logits[0])


def test_without_queries_or_refinement_it_is_step_0():
    support, labels, query, _ = episode((12,) * 5)
    assert cluster_by_shares(support, labels, query[:0], HEAD)[0].logits.shape == (0, 5)
    step, head, _ = cluster_by_shares(support, labels, query, HEAD, (0, 0))
    assert step.number == 0 and head == HEAD
    few = [cluster_by_shares(support, labels, query[:n], HEAD)[0].number for n in (14, 15)]
    assert few[0] == 0 < few[1]


@pytest.mark.parametrize("normalise", [True, False])
def test_the_order_of_rows_does_not_matter_where_a_column_is_constant(normalise):
    generator, truth = np.random.default_rng(0), np.arange(300) % 3
    X = generator.normal(size=(300, 8)) + np.eye(8)[truth]
    X[:, 0] = 5
    y = np.where(np.arange(300) < 60, truth, -1)
    expected = TransductiveMahalanobisClassifier(normalise=normalise).fit_predict(X, y)
    for order in map(generator.permutation, [300] * 4):
        found = TransductiveMahalanobisClassifier(normalise=normalise).fit_predict(X[order], y[order])
        assert (found == expected[order]).all()


def test_the_order_of_rows_does_not_matter(monkeypatch):
    monkeypatch.setattr("tcnaps.estimator.class_shares.PROBED", 50)
    support, labels, query, _ = clusters([12] * 3, [100, 60, 20], 20, 0.6, 1.0, 0)
    rows, points = torch.randperm(36), torch.randperm(180)
    step, head, _ = cluster_by_shares(support, labels, query, HEAD)
    other, same, _ = cluster_by_shares(support[rows], labels[rows], query[points], HEAD)
    assert head == same and (other.labels == step.labels[points]).all()


def test_only_a_weight_of_the_users_own_is_called_too_large(recwarn):
    warnings.simplefilter("always")
    X = np.array([[0, 0.1, -3, 3, 2, -2, 0.5, -0.5]]).T
    for weight in ("auto", 100.0):
        TransductiveMahalanobisClassifier(identity_weight=weight).fit(X, [0, 1, *[-1] * 6])
    (warning,) = recwarn
    assert "identity_weight, 100" in str(warning.message)


def test_with_many_labels_it_refines_only_where_left_out_labels_gain():
    X, truth = load_digits(return_X_y=True)
    rng = np.random.default_rng(1)
    rows = np.concatenate([rng.permutation(np.flatnonzero(truth == k))[:30] for k in range(10)])
    y = np.full(len(X), -1)
    y[rows] = truth[rows]
    variants = ({}, {"maximum_steps": 0}, {"class_prior": None})
    models = [TransductiveMahalanobisClassifier(**options).fit(X, y) for options in variants]
    right = [(model.transduction_ == truth)[y == -1].mean() for model in models]
    assert right[0] == right[1] > right[2] + 0.01  # classes of several shapes: clusters drift away from the labels


def test_the_identity_counts_less_the_more_labels_there_are_unless_labels_left_out_speak_for_it():
    truth, shares = np.arange(10).repeat(100), {}
    for kind, separation in (("near", 0.3), ("apart", 3.0)):
        rows = clusters([0] * 10, [100] * 10, 64, separation)[2].numpy()  # the same variance everywhere
        for shot in (1, 5, 20):
            labels = np.where(np.arange(1000) % 100 < shot, truth, -1)
            model = TransductiveMahalanobisClassifier(normalise=False).fit(rows, labels)
            shares[kind, shot] = model.identity_weight_ / np.var(rows, axis=0).sum()
    assert shares["near", 1] == pytest.approx(0.1) and shares["apart", 1] == pytest.approx(0.1)  # by the rows
    assert [shares[kind, 5] for kind in ("near", "apart")] == pytest.approx([0.3 / 5**0.75] * 2)
    assert shares["apart", 20] == pytest.approx(0.3 / 20**0.75) and shares["near", 20] == pytest.approx(0.1)


def test_in_few_dimensions_five_labels_tell_whether_refinement_gains():
    gains = []
    for seed in range(6):  # the inner circle is no cluster beside the outer one
        X, truth = make_circles(300, noise=0.1, factor=0.5, random_state=seed)
        y = np.full(300, -1)
        for k in (0, 1):
            y[np.flatnonzero(truth == k)[:5]] = k
        models = [TransductiveMahalanobisClassifier(maximum_steps=steps) for steps in (0, "auto")]
        first, refined = ((model.fit_predict(X, y) == truth).mean() for model in models)
        gains.append(refined - first)
    assert np.mean(gains) > -0.02
