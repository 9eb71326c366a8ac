"""The class prior: planted imbalance, and what it reduces to. The oracle of its equation is in test_clustering."""

import pytest
import torch
from clusters import clusters

from tcnaps.method.clustering import cluster, trajectory
from tcnaps.method.head import Head

pytestmark = pytest.mark.usefixtures("each_strategy")


def planted(queries, seed=0):
    """Overlapping classes of two support images each, with these numbers of queries."""
    return clusters([2] * len(queries), queries, 20, 0.6, 0.6, seed)


def accuracy(head, queries):
    accuracies = []
    for seed in range(8):
        *episode, truth = planted(queries, seed)
        accuracies.append((cluster(*episode, head=head).labels == truth).double().mean())
    return float(sum(accuracies)) / 8


@pytest.mark.parametrize("prior, queries", [("estimated", (36, 2, 2)), ("estimated", (40, 0, 0)), (0.8, (40, 5, 5))])
def test_planted_imbalance_is_found_or_told(prior, queries):
    head = Head(class_prior=prior if prior == "estimated" else (0.8, 0.1, 0.1))
    assert accuracy(head, queries) > accuracy(Head(), queries) + 0.02 * (prior == "estimated")


def test_shares_come_nearer_to_the_planted_ones():
    errors = []
    for head in (Head(class_prior="estimated", uniform_weight=0.1), Head()):
        shares = [cluster(*planted((60, 20, 10), seed)[:3], head=head).responsibilities.mean(0) for seed in range(5)]
        errors.append((torch.stack(shares).mean(0) - torch.tensor([60, 20, 10]) / 90).abs().max())
    assert errors[0] < errors[1] / 2


def test_at_full_uniform_weight_the_classes_are_equal_as_in_the_paper():
    *episode, _ = planted((30, 3, 3), seed=3)
    paper = trajectory(*episode, steps=5).softmax(2)
    little, full = (Head(class_prior="estimated", uniform_weight=weight) for weight in (0.1, 1))
    torch.testing.assert_close(trajectory(*episode, head=full, steps=5).softmax(2), paper)
    assert (trajectory(*episode, head=little, steps=5).softmax(2) - paper).abs().max() > 0.1
    given = Head(class_prior=(1 / 3,) * 3)
    torch.testing.assert_close(trajectory(*episode, head=given, steps=5).softmax(2), paper)
