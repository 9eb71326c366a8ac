"""Active learning: scores, choices, curves. Continual learning: what is kept is enough, one head against several."""

import numpy as np
import pytest
import torch
from clusters import clusters
from small_study import blobs, small_study
from untrained import untrained

from tcnaps.config import FixedProtocol
from tcnaps.episodes.loading import load_episode
from tcnaps.episodes.sampling import draw_episode
from tcnaps.method.class_statistics import class_distances, logits_of, one_hot, scale_of
from tcnaps.method.clustering import cluster, trajectory
from tcnaps.method.episode import Episode
from tcnaps.method.head import Head
from tcnaps_suite.experiments import active, continual
from tcnaps_suite.experiments.active import Task, active_learning, predictive_entropy, task_of, variation_ratios
from tcnaps_suite.experiments.comparison import LoadedVariant, draws
from tcnaps_suite.experiments.continual import ALL_KEPT, FILM, accuracy_by_arrival, class_sums, classify


def points(*values):
    return torch.tensor(values, dtype=torch.float64)[:, None] * torch.ones(1, 4, dtype=torch.float64)


def line(pool, pool_labels):
    """Two classes at −5 and 5 on a line; those held out at −4 and 4."""
    classes = torch.arange(2)
    return Task(points(-5, 5), classes, points(*pool), torch.tensor(pool_labels), points(-4, 4), classes)


def chosen(task, acquisition, labels=1, seed=0):
    """The pool's points in the order in which they are labelled."""
    seen = []

    def watched(support, support_labels, query):
        seen.append(support)
        return cluster(support, support_labels, query, None, Head(), 0, 0).logits

    list(active.learning_curve(task, watched, acquisition, labels, np.random.default_rng(seed)))
    return [x[0].item() for x in seen[-1][2:]]


def test_the_scores_are_those_of_their_equations():
    logits = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
    p = np.exp(logits.double().numpy())
    p /= p.sum(1, keepdims=True)
    np.testing.assert_allclose(predictive_entropy(logits), [-sum(q * np.log(q) for q in row) for row in p])
    np.testing.assert_allclose(variation_ratios(logits), 1 - p.max(1))


@pytest.mark.parametrize("score", [predictive_entropy, variation_ratios])
def test_images_that_a_model_is_sure_of_are_still_told_apart(score):
    assert score(torch.tensor([[0.0, -400.0], [0.0, -300.0], [0.0, -500.0]])).argsort().tolist() == [2, 0, 1]


@pytest.mark.parametrize("acquisition", ["predictive entropy", "variation ratios"])
@pytest.mark.parametrize(("label", "then"), [(0, 1.5), (1, -1.5)])
def test_the_image_at_the_border_is_chosen_and_its_label_moves_the_border(acquisition, label, then):
    assert chosen(line([-1.5, 0.01, 1.5], [0, label, 1]), acquisition, 2) == pytest.approx([0.01, then])


def test_random_choice_is_seeded_and_buys_no_image_twice():
    task = line([-3.0, -2.0, -1.0, 1.0, 2.0, 3.0], [0, 0, 0, 1, 1, 1])
    orders = [chosen(task, "random", 6, seed) for seed in (0, 0, 1)]
    assert orders[0] == orders[1] != orders[2] and sorted(orders[0]) == sorted(orders[2]) == [-3, -2, -1, 1, 2, 3]
    with pytest.raises(ValueError, match="7 labels .* 6"):
        chosen(task, "random", 7)


def test_pool_and_held_out_images_are_drawn_from_every_class_and_shared_out():
    images = torch.arange(18.0)[:, None, None, None].expand(18, 3, 32, 32) / 18
    labels = torch.arange(3).repeat_interleave(6)
    task = task_of(Episode(images[:3], torch.arange(3), images, labels), 4, np.random.default_rng(0))
    assert task.pool_labels.bincount().tolist() == [4] * 3 and task.held_out_labels.bincount().tolist() == [2] * 3
    numbers = [(part[:, 0, 0, 0] * 18).round().long() for part in (task.pool, task.held_out)]
    assert sorted(torch.cat(numbers).tolist()) == list(range(18)) and not numbers[0].equal(numbers[0].sort().values)
    assert labels[numbers[0]].equal(task.pool_labels) and labels[numbers[1]].equal(task.held_out_labels)


def test_curves_begin_at_the_same_accuracy_and_are_paired(adapting):
    sources = [blobs("blobs", "test"), blobs("others", "test")]
    drawn = draws(study := small_study(), sources, FixedProtocol(way=3, shot=1, queries_per_class=6), 1)
    rows = active_learning(drawn, study.seed, adapting, 4, labels=2)
    assert len(rows) == 2 * 1 * 2 * 3 * 3 and set(rows["domain"]) == {"in", "out"}
    keys = ["dataset", "episode", "variant", "labels"]
    wide = rows.pivot(index=keys, columns="acquisition", values=["accuracy", "difference"])
    start = wide.xs(0, level="labels")
    assert start["accuracy"].nunique(axis=1).eq(1).all() and wide["accuracy"].stack().between(0, 1).all()
    assert np.allclose(wide["accuracy"].sub(wide["accuracy"]["random"], axis=0), wide["difference"])


HEADS = [Head(), Head("euclidean"), Head(log_determinant=True, scale=0.5), Head(identity_weight=0.3, scale="auto")]
HEADS += [Head(task_covariance_divisor="n-1", class_covariance_divisor="n-1")]
FOUR_WAY = FixedProtocol(way=4, shot=2, queries_per_class=3)


def features(shots=(3, 2, 4, 2), d=7, seed=0):
    return clusters(shots, [6] * len(shots), d, 2, 1.5, seed, offset=20)


@pytest.mark.parametrize("head", HEADS, ids=str)
def test_the_head_from_accumulated_sums_is_that_of_all_images_at_once(head):
    support, labels, query, _ = features()
    in_any_order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(1)).split(1)
    kept = sum(class_sums(support[one], one_hot(labels[one], 4, support)) for one in in_any_order)
    distances, log_determinants = class_distances(query, continual.statistics_from(kept, head), head)
    logits = logits_of(distances, log_determinants, scale_of(distances, head), head)
    torch.testing.assert_close(logits, trajectory(support, labels, query, head=head, steps=0)[0], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("head", HEADS, ids=str)
@pytest.mark.parametrize("limits", [(0, 0), (2, 4)])
@pytest.mark.parametrize("d", [7, 300])
def test_queries_are_classified_as_by_the_images(head, limits, d):
    support, labels, query, _ = features(d=d, seed=3)
    kept = class_sums(support, one_hot(labels, 4, support))
    expected = cluster(support, labels, query, None, head, *limits).labels
    everything = torch.ones(len(query), 4, dtype=torch.bool)
    for contents in ((kept, query), continual.in_span(kept, query)):
        assert torch.equal(classify(*contents, head, limits, everything), expected)


def test_a_class_that_does_not_compete_is_never_found():
    support, labels, query, truth = features(seed=5)
    kept = class_sums(support, one_hot(labels, 4, support))
    same_arrival = truth[:, None] // 2 == torch.arange(4) // 2
    for limits in ((0, 0), (2, 4)):
        assert torch.equal(classify(kept, query, Head(), limits, same_arrival) // 2, truth // 2)


def test_one_image_has_no_variance():
    support, labels, _, _ = features(shots=(1, 2))
    kept, head = class_sums(support, one_hot(labels, 2, support)), Head(class_covariance_divisor="n-1")
    with pytest.raises(ValueError, match="n − 1"):
        continual.statistics_from(kept, head)


@pytest.fixture(scope="module")
def adapting():
    models = untrained("support"), untrained("support_and_query")
    for model in models:  # an untrained generator hardly adapts: FiLM would be the same for all arrivals
        for parameter in model.film_generator.parameters():
            torch.nn.init.normal_(parameter, std=0.15)
    return dict(zip(("Simple", "Transductive"), map(LoadedVariant, models, [(0, 0), (2, 3)])))


@pytest.fixture(scope="module")
def episode():
    source = blobs("blobs", "test")
    return load_episode(source, draw_episode(source, FOUR_WAY, 0, 0))


def test_with_all_images_kept_the_last_arrival_is_an_ordinary_episode(adapting, episode):
    with pytest.raises(ValueError, match="4 classes can't arrive 3 at a time"):
        next(accuracy_by_arrival(adapting["Simple"], episode, 3, ALL_KEPT))
    for variant in adapting.values():
        accuracies = {head: x for seen, head, x in accuracy_by_arrival(variant, episode, 2, ALL_KEPT) if seen == 4}
        with torch.no_grad():
            labels = variant.model.classify(episode, *variant.limits).labels
        assert accuracies["one head"] == pytest.approx((labels == episode.query_labels).double().mean().item())


@pytest.mark.slow
def test_one_head_of_simple_cnaps_is_never_better_than_several(adapting):
    rows = continual.continual_learning(draws(small_study(), [blobs("blobs", "test")], FOUR_WAY, 2), adapting, 2)
    assert len(rows) == 2 * 2 * len(FILM) * 2 * 2
    wide = rows.pivot(index=["variant", "dataset", "episode", "film", "classes"], columns="head", values="accuracy")
    assert (wide["one head"] <= wide["several heads"])["Simple"].all()
    first = wide.xs(2, level="classes")
    assert (first["one head"] == first["several heads"]).all()  # one arrival: there is one head
    assert first["one head"].unstack("film").nunique(axis=1).eq(1).all()
    assert (rows.loc[rows["film"] == ALL_KEPT, "difference"] == 0).all()


def embeddings(model, episode, film, monkeypatch):
    """The task embeddings that FiLM is made of, one per arrival."""
    used, generator = [], model.film_generator.forward
    monkeypatch.setattr(model.film_generator, "forward", lambda x: (used.append(x), generator(x))[1])
    list(accuracy_by_arrival(LoadedVariant(model, (0, 0)), episode, 2, film))
    return torch.stack(used)


def test_film_follows_the_arrivals_as_its_name_says(adapting, episode, monkeypatch):
    model = adapting["Simple"].model
    latest = embeddings(model, episode, "latest", monkeypatch)
    assert len(latest) == 2 and not torch.allclose(latest[0], latest[1])
    torch.testing.assert_close(embeddings(model, episode, "first", monkeypatch), latest[:1].expand(2, -1))
    running = latest.cumsum(0) / torch.tensor([[1.0], [2.0]])
    torch.testing.assert_close(embeddings(model, episode, "average", monkeypatch), running)
    kept = embeddings(model, episode, ALL_KEPT, monkeypatch)
    with torch.no_grad():
        torch.testing.assert_close(kept[-1], model.embed(episode))


def test_under_one_film_nothing_is_forgotten(adapting, episode, monkeypatch):
    """With FiLM fixed, keeping sums alone costs nothing."""
    model, limits = adapting["Transductive"]
    fixed = model.film_generator(torch.zeros(64))
    monkeypatch.setattr(model.film_generator, "forward", lambda _: fixed)
    curves = {film: list(accuracy_by_arrival(LoadedVariant(model, limits), episode, 2, film)) for film in FILM}
    assert all(np.allclose([a for *_, a in curve], [a for *_, a in curves[ALL_KEPT]]) for curve in curves.values())
