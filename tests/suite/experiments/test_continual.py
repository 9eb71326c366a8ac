"""Continual learning: what is kept is enough, one head against several, and how FiLM follows the arrivals."""

import numpy as np
import pytest
import torch
from clusters import clusters
from small_study import blobs, small_study
from untrained import untrained

from tcnaps.config import FixedProtocol
from tcnaps.episodes.loading import load_episode
from tcnaps.episodes.sampling import draw_episode
from tcnaps.method.class_statistics import class_distances, class_statistics, logits_of, one_hot, scale_of
from tcnaps.method.clustering import cluster, trajectory
from tcnaps.method.head import Head
from tcnaps_suite.experiments.comparison import LoadedVariant
from tcnaps_suite.experiments.continual import (
    ALL_KEPT,
    FILM,
    accuracy_by_arrival,
    class_sums,
    classify,
    continual_learning,
    in_span,
    statistics_from,
)

HEADS = [
    Head(),
    Head(task_covariance_divisor="n-1", class_covariance_divisor="n-1"),
    Head(log_determinant=True, scale=0.5),
    Head(identity_weight=0.3, scale="auto"),
    Head(metric="euclidean"),
]
PROTOCOL = FixedProtocol(way=4, shot=2, queries_per_class=3)


def features(shots=(3, 2, 4, 2), d=7, seed=0):
    return clusters(shots, [6] * len(shots), d, 2, 1.5, seed, offset=20)


def accumulated(support, labels, way, batches):
    """Sums of images that come in batches: no batch sees another."""
    return sum(class_sums(support[batch], one_hot(labels[batch], way, support)) for batch in batches)


@pytest.mark.parametrize("head", HEADS, ids=str)
@pytest.mark.parametrize("order", ["by class", "image by image", "shuffled"])
def test_the_head_from_accumulated_sums_is_that_of_all_images_at_once(head, order):
    support, labels, query, _ = features()
    numbers = torch.arange(len(labels))
    if order == "shuffled":
        numbers = torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))
    batches = [numbers[labels == k] for k in range(4)] if order == "by class" else numbers.split(1)
    kept = accumulated(support, labels, 4, batches)
    expected = class_statistics(support, one_hot(labels, 4, support), head)
    statistics = statistics_from(kept, head)
    torch.testing.assert_close(statistics.means, expected.means)
    if head.metric == "mahalanobis":
        torch.testing.assert_close(statistics.covariances, expected.covariances, rtol=1e-9, atol=1e-9)
    distances, log_determinants = class_distances(query, statistics, head)
    logits = logits_of(distances, log_determinants, scale_of(distances, head), head)
    torch.testing.assert_close(logits, trajectory(support, labels, query, head=head, steps=0)[0], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("head", HEADS, ids=str)
@pytest.mark.parametrize("limits", [(0, 0), (2, 4)])
@pytest.mark.parametrize("d", [7, 300])
def test_queries_are_classified_as_by_the_images(head, limits, d):
    support, labels, query, _ = features(d=d, seed=3)
    kept = accumulated(support, labels, 4, [labels == k for k in range(4)])
    expected = cluster(support, labels, query, None, head, *limits).labels
    everything = torch.ones(len(query), 4, dtype=torch.bool)
    for contents in ((kept, query), in_span(kept, query)):
        assert torch.equal(classify(*contents, head, limits, everything), expected)


def test_a_class_that_does_not_compete_is_never_found():
    support, labels, query, truth = features(seed=5)
    kept = class_sums(support, one_hot(labels, 4, support))
    same_arrival = truth[:, None] // 2 == torch.arange(4) // 2
    for limits in ((0, 0), (2, 4)):
        assert torch.equal(classify(kept, query, Head(), limits, same_arrival) // 2, truth // 2)


def test_one_image_has_no_variance():
    support, labels, _, _ = features(shots=(1, 2))
    with pytest.raises(ValueError, match="n − 1"):
        statistics_from(class_sums(support, one_hot(labels, 2, support)), Head(class_covariance_divisor="n-1"))


@pytest.fixture(scope="module")
def variants():
    models = untrained("support"), untrained("support_and_query")
    for model in models:  # an untrained generator hardly adapts: FiLM would be the same for all arrivals
        for parameter in model.film_generator.parameters():
            torch.nn.init.normal_(parameter, std=0.15)
    return dict(zip(("Simple", "Transductive"), map(LoadedVariant, models, [(0, 0), (2, 3)])))


@pytest.fixture(scope="module")
def episode():
    source = blobs("blobs", "test")
    return load_episode(source, draw_episode(source, PROTOCOL, 0, 0))


def test_with_all_images_kept_the_last_arrival_is_an_ordinary_episode(variants, episode):
    for variant in variants.values():
        accuracies = {head: x for seen, head, x in accuracy_by_arrival(variant, episode, 2, ALL_KEPT) if seen == 4}
        with torch.no_grad():
            labels = variant.model.classify(episode, *variant.limits).labels
        assert accuracies["one head"] == pytest.approx((labels == episode.query_labels).double().mean().item())


@pytest.mark.slow
def test_one_head_of_simple_cnaps_is_never_better_than_several(variants):
    rows = continual_learning(small_study(), [blobs("blobs", "test")], variants, PROTOCOL, 2, episodes=2)
    assert len(rows) == 2 * 2 * len(FILM) * 2 * 2
    keys = ["variant", "dataset", "episode", "film", "classes"]
    wide = rows.pivot(index=keys, columns="head", values="accuracy")
    assert (wide["one head"] <= wide["several heads"])["Simple"].all()
    first = wide.xs(2, level="classes")
    assert (first["one head"] == first["several heads"]).all()  # one arrival: there is one head
    first = first["one head"].unstack("film")
    assert first.nunique(axis=1).eq(1).all()
    assert (rows.loc[rows["film"] == ALL_KEPT, "difference"] == 0).all()


def embeddings(model, episode, film, monkeypatch):
    """The task embeddings that FiLM is made of, one per arrival."""
    used, generator = [], model.film_generator.forward
    monkeypatch.setattr(model.film_generator, "forward", lambda x: (used.append(x), generator(x))[1])
    list(accuracy_by_arrival(LoadedVariant(model, (0, 0)), episode, 2, film))
    return torch.stack(used)


def test_film_follows_the_arrivals_as_its_name_says(variants, episode, monkeypatch):
    model = variants["Simple"].model
    latest = embeddings(model, episode, "latest", monkeypatch)
    assert len(latest) == 2 and not torch.allclose(latest[0], latest[1])
    torch.testing.assert_close(embeddings(model, episode, "first", monkeypatch), latest[:1].expand(2, -1))
    running = latest.cumsum(0) / torch.tensor([[1.0], [2.0]])
    torch.testing.assert_close(embeddings(model, episode, "average", monkeypatch), running)
    kept = embeddings(model, episode, ALL_KEPT, monkeypatch)
    with torch.no_grad():
        torch.testing.assert_close(kept[-1], model.embed(episode))


def test_under_one_film_nothing_is_forgotten(variants, episode, monkeypatch):
    """With FiLM fixed, keeping sums alone costs nothing."""
    model, limits = variants["Transductive"]
    fixed = model.film_generator(torch.zeros(64))
    monkeypatch.setattr(model.film_generator, "forward", lambda _: fixed)
    curves = {film: list(accuracy_by_arrival(LoadedVariant(model, limits), episode, 2, film)) for film in FILM}
    assert all(np.allclose([a for *_, a in curve], [a for *_, a in curves[ALL_KEPT]]) for curve in curves.values())


def test_arrivals_must_come_out_even(variants, episode):
    with pytest.raises(ValueError, match="4 classes"):
        next(accuracy_by_arrival(variants["Simple"], episode, 3, "first"))
