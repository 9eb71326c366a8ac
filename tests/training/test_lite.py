"""Sampled back-propagation: the loss is exact, and the mean over all samples is the gradient."""

from dataclasses import replace
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from tcnaps.method.backbone import Backbone
from tcnaps.method.clustering import cluster
from tcnaps.method.episode import Episode
from tcnaps.method.model import ModelSettings, TransductiveCNAPS
from tcnaps.training.lite import sampled_features, sampled_support


@pytest.fixture(scope="module")
def episode():
    """2-way: three images of one class and one of the other, three queries."""
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(7, 3, 32, 32, generator=generator, dtype=torch.float64) * 2 - 1
    images[[1, 4, 6]] *= 0.5
    return Episode(images[:4], [0, 1, 0, 0], images[4:], [1, 0, 1])


def new_model(training):
    torch.manual_seed(0)
    settings = ModelSettings(clustering_dtype=torch.float64)
    model = TransductiveCNAPS(training, Backbone(), settings).train().double()
    with torch.no_grad():
        for parameter in model.film_generator.parameters():  # far from gamma 1 and beta 0
            parameter.normal_(0, 0.05)
    model.first_head = replace(model.first_head, identity_weight=0.01)
    return model


def loss_and_gradients(model, episode, sample):
    model.zero_grad(set_to_none=True)
    features = sampled_features(model, episode, None if sample is None else np.array(sample))
    steps = 3 if "refined" in model.training_name else 0
    loss = F.cross_entropy(cluster(*features, model.head, steps, steps).logits, episode.query_labels)
    loss.backward()
    return loss.item(), {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("training", ["support", "support_and_query_log_determinant_refined"])
def test_the_loss_is_exact_and_the_mean_over_all_samples_is_the_gradient(training, episode):
    model = new_model(training)
    loss, whole = loss_and_gradients(model, episode, None)
    sampled = [loss_and_gradients(model, episode, sample) for sample in combinations(range(4), 2)]
    assert [sampled_loss for sampled_loss, _ in sampled] == pytest.approx([loss] * 6, rel=1e-9)
    spread = 0.0
    for name, gradient in whole.items():
        estimates = torch.stack([gradients[name] for _, gradients in sampled])
        size = float(gradient.abs().max())
        torch.testing.assert_close(estimates.mean(0), gradient, rtol=1e-6, atol=1e-8 * size + 1e-12, msg=name)
        spread = max(spread, float((estimates - gradient).abs().max()) / (size + 1e-12))
    assert spread > 0.1  # or there would be nothing to average


def test_only_the_sample_and_the_queries_are_kept_for_backpropagation(episode):
    model, seen = new_model("support_and_query"), []
    model.backbone.register_forward_pre_hook(lambda _, given: seen.append((len(given[0]), torch.is_grad_enabled())))
    loss_and_gradients(model, episode, [2])
    assert sum(n for n, kept in seen if kept) == 1 + 3 and sum(n for n, kept in seen if not kept) == 3


def test_a_sample_is_a_function_of_the_seed_and_the_episode():
    def sample(index, size, seed=0):
        images, draw = torch.zeros(6, 3, 32, 32), SimpleNamespace(index=index)
        labels = torch.zeros(len(images), dtype=torch.int64)
        episode = Episode.unchecked(1, support_images=images, support_labels=labels, query_images=images, draw=draw)
        return sampled_support(episode, size, seed)

    assert sample(0, None) is None and sample(0, 6) is None and sample(0, 9) is None
    drawn = np.array([sample(index, 2) for index in range(600)])
    assert np.array_equal(drawn, [sample(index, 2) for index in range(600)])
    assert not np.array_equal(drawn, [sample(index, 2, seed=1) for index in range(600)])
    assert (drawn[:, 0] != drawn[:, 1]).all()
    np.testing.assert_allclose(np.bincount(drawn.flatten()) / 600, 2 / 6, atol=0.08)
