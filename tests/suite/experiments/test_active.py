"""Active learning: the acquisition functions, what is chosen, and curves of a small model."""

import numpy as np
import pytest
import torch
from small_study import blobs, small_study
from untrained import untrained

from tcnaps.config import FixedProtocol
from tcnaps.method.clustering import cluster
from tcnaps.method.episode import Episode
from tcnaps.method.head import Head
from tcnaps_suite.experiments.active import (
    Task,
    active_learning,
    learning_curve,
    predictive_entropy,
    task_of,
    variation_ratios,
)
from tcnaps_suite.experiments.comparison import LoadedVariant

UNSURE = ("predictive entropy", "variation ratios")
PROTOCOL = FixedProtocol(way=3, shot=1, queries_per_class=6)


def nearest(support, labels, query):
    return cluster(support, labels, query, None, Head(), 0, 0).logits


def points(*values):
    return torch.tensor(values, dtype=torch.float64)[:, None] * torch.ones(1, 4, dtype=torch.float64)


def line(pool, pool_labels):
    """Two classes at −5 and 5 on a line; those held out at −4 and 4."""
    return Task(
        points(-5, 5), torch.arange(2), points(*pool), torch.tensor(pool_labels), points(-4, 4), torch.arange(2)
    )


def chosen(task, acquisition, labels=1, seed=0):
    """The pool's points in the order in which they are labelled."""
    seen = []

    def watched(support, support_labels, query):
        seen.append(support)
        return nearest(support, support_labels, query)

    list(learning_curve(task, watched, acquisition, labels, np.random.default_rng(seed)))
    return [x[0].item() for x in seen[-1][2:]]


def test_the_scores_are_those_of_their_equations():
    logits = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
    p = np.exp(logits.double().numpy())
    p /= p.sum(1, keepdims=True)
    np.testing.assert_allclose(predictive_entropy(logits), [-sum(q * np.log(q) for q in row) for row in p])
    np.testing.assert_allclose(variation_ratios(logits), 1 - p.max(1))


@pytest.mark.parametrize("score", [predictive_entropy, variation_ratios])
def test_images_that_a_model_is_sure_of_are_still_told_apart(score):
    scores = score(torch.tensor([[0.0, -400.0], [0.0, -300.0], [0.0, -500.0]]))
    assert scores.argsort().tolist() == [2, 0, 1]


@pytest.mark.parametrize("acquisition", UNSURE)
def test_the_image_between_the_classes_is_chosen_first(acquisition):
    pool = [-5.0, -3.0, 4.0, 0.1, 5.5, -4.0, 3.5]
    assert chosen(line(pool, [int(x > 0) for x in pool]), acquisition) == [pytest.approx(0.1)]


@pytest.mark.parametrize("acquisition", UNSURE)
@pytest.mark.parametrize(("label", "then"), [(0, 1.5), (1, -1.5)])
def test_a_label_moves_the_border_to_which_the_next_image_is_nearest(acquisition, label, then):
    task = line([-1.5, 0.01, 1.5], [0, label, 1])
    assert chosen(task, acquisition, 2) == pytest.approx([0.01, then])


def test_random_choice_is_seeded_and_buys_no_image_twice():
    task = line([-3.0, -2.0, -1.0, 1.0, 2.0, 3.0], [0, 0, 0, 1, 1, 1])
    orders = [chosen(task, "random", 6, seed) for seed in (0, 0, 1)]
    assert orders[0] == orders[1] != orders[2] and sorted(orders[0]) == sorted(orders[2]) == [-3, -2, -1, 1, 2, 3]
    with pytest.raises(ValueError, match="7 labels .* 6"):
        chosen(task, "random", 7)


def test_pool_and_held_out_images_are_drawn_from_every_class_and_shared_out():
    images = torch.arange(18.0)[:, None, None, None].expand(18, 3, 32, 32) / 18
    labels = torch.arange(3).repeat_interleave(6)
    episode = Episode(images[:3], torch.arange(3), images, labels)
    task = task_of(episode, 4, np.random.default_rng(0))
    assert task.pool_labels.bincount().tolist() == [4] * 3 and task.held_out_labels.bincount().tolist() == [2] * 3
    numbers = [(part[:, 0, 0, 0] * 18).round().long() for part in (task.pool, task.held_out)]
    assert sorted(torch.cat(numbers).tolist()) == list(range(18)) and not numbers[0].equal(numbers[0].sort().values)
    assert labels[numbers[0]].equal(task.pool_labels) and labels[numbers[1]].equal(task.held_out_labels)


@pytest.fixture(scope="module")
def variants():
    simple, transductive = untrained("support"), untrained("support_and_query")
    return {"Simple": LoadedVariant(simple, (0, 0)), "Transductive": LoadedVariant(transductive, (1, 2))}


def test_curves_begin_at_the_same_accuracy_and_are_paired(variants):
    sources = [blobs("blobs", "test"), blobs("others", "test")]
    rows = active_learning(small_study(), sources, variants, PROTOCOL, 4, labels=2, episodes=1)
    assert len(rows) == 2 * 1 * 2 * 3 * 3 and set(rows["domain"]) == {"in", "out"}
    keys = ["dataset", "episode", "variant", "labels"]
    wide = rows.pivot(index=keys, columns="acquisition", values=["accuracy", "difference"])
    start = wide.xs(0, level="labels")
    assert (start["difference"] == 0).all(axis=None) and start["accuracy"].nunique(axis=1).eq(1).all()
    assert wide["accuracy"].stack().between(0, 1).all() and (wide["difference"]["random"] == 0).all()
    gains = wide["accuracy"].sub(wide["accuracy"]["random"], axis=0)
    assert np.allclose(gains, wide["difference"])
