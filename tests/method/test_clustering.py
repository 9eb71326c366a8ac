"""The clustering against naive loops written from the equations, planted answers, invariants and limits."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from clusters import clusters
from oracles import naive_trajectory, step_0_in_60_digits

from tcnaps.evaluation.stopped_rows import stopping_step
from tcnaps.method.clustering import LowVarianceWarning, cluster, trajectory
from tcnaps.method.head import Head

N_MINUS_1 = {"class_covariance_divisor": "n-1"}
OPTIONS = [
    {"log_determinant": True, "scale": 0.5},
    {"update": "means"},
    {"metric": "euclidean"},
    {"metric": "euclidean", "update": "means", "scale": 0.5},
    {"task_covariance_divisor": "n-1"},
    {"update": "means", "log_determinant": True},
    {"class_prior": "estimated", "uniform_weight": 0.1, "log_determinant": True, "scale": 0.5},
    {"class_prior": "estimated"} | N_MINUS_1,
    {"class_prior": "estimated", "uniform_weight": 1.0},
    {"class_prior": (0.4, 0.3, 0.2, 0.1)},
    N_MINUS_1,
    N_MINUS_1 | {"update": "means"},
    *({"scale": "auto"} | options for options in ({}, {"metric": "euclidean"}, {"update": "means"}, N_MINUS_1)),
    {"log_determinant": True, "identity_weight": 0.3},
]
EPISODES = {  # way, shots, queries a class, features, separation of the classes (small = diffuse responsibilities)
    "1-shot, N < d": (5, 1, 2, 24, 1.0),
    "1-shot, diffuse": (5, 1, 2, 24, 0.05),
    "5-shot, N > d": (4, 5, 4, 12, 0.4),
    "confident": (3, 4, 4, 20, 6.0),
    "two ways": (2, 3, 5, 6, 0.3),
    "imbalanced, N < d": (4, (1, 3, 2, 1), 2, 20, 0.5),
    "single query": (3, 2, (1, 0, 0), 8, 0.5),
    "10 ways": (10, 2, 1, 12, 0.7),
}


pytestmark = pytest.mark.usefixtures("each_strategy")


def make_episode(way, shots, queries, d, separation, seed=0, dtype=torch.float64):
    """Support features, labels, query features of Gaussian classes with unequal variances."""
    counts = [[n] * way if isinstance(n, int) else n for n in (shots, queries)]
    return clusters(*counts, d, separation, torch.logspace(0.3, -0.5, d), seed, dtype=dtype)[:3]


def relative_difference(ours, theirs):
    """Largest difference at each step, relative to the step's largest logit."""
    theirs = theirs.double()
    return ((ours.double() - theirs).abs().amax((1, 2)) / theirs.abs().amax((1, 2))).max().item()


def naive_options(options):
    return {setting.replace("_covariance_", "_"): value for setting, value in options.items()}


@cache
def naive(name, options):
    return naive_trajectory(*make_episode(*EPISODES[name]), 3, **naive_options(dict(options)))


CASES = [(name, {}) for name in EPISODES]
CASES += [(name, options) for options in OPTIONS for name in ("5-shot, N > d", "imbalanced, N < d")]


@pytest.mark.parametrize(("name", "options"), CASES, ids=str)
def test_every_step_equals_the_naive_loop_and_the_plain_reading(name, options):
    episode, head = make_episode(*EPISODES[name]), Head(**options)
    ours = trajectory(*episode, head=head, steps=3)
    assert relative_difference(ours, naive(name, tuple(options.items()))) < 1e-10
    assert relative_difference(ours, trajectory(*episode, head=replace(head, arithmetic="plain"), steps=3)) < 1e-10


@pytest.mark.parametrize("spectrum", ["large", "one huge direction", "repeated images"])
def test_accuracy_where_it_is_hardest(spectrum):
    """Variances of up to 10⁴ identity_weight: beyond, small distances would be lost beside large ones in any case."""
    support, labels, query = make_episode(4, 3, 5, 40, 0.7)
    if spectrum == "large":
        support, query = 20 * support, 20 * query
    elif spectrum == "one huge direction":
        support, query = (torch.cat([50 * x[:, :1], x[:, 1:]], dim=1) for x in (support, query))
    else:
        support[1], query[3:6] = support[0], query[2]
    ours = trajectory(support, labels, query, steps=3)
    assert relative_difference(ours, naive_trajectory(support, labels, query, 3)) < 1e-9


@pytest.mark.parametrize("episode", [(4, 5, 4, 12, 0.4), (4, (1, 7, 2, 4), 3, 15, 1.5)], ids=str)
def test_float32_at_step_0_and_at_convergence(episode):
    support, labels, query = make_episode(*episode)
    ours = trajectory(support.float(), labels, query.float(), steps=10)
    exact = naive_trajectory(support, labels, query, 10)
    assert torch.equal(exact[-1].argmax(1), exact[-2].argmax(1)), "the planted episode should converge"
    assert relative_difference(ours[[0, -1]], exact[[0, -1]]) < 1e-4


@pytest.mark.parametrize("unlabelled", ["query", "extra", "both"])
def test_extra_images_refine_where_the_head_says_so(unlabelled):
    support, labels, query = make_episode(4, 2, 3, 20, 0.6)
    extra = make_episode(4, 2, 5, 20, 0.6, seed=1)[2]
    for options in ({}, {"class_prior": "estimated"}):
        ours = trajectory(support, labels, query, extra, Head(unlabelled=unlabelled, **options), steps=3)
        expected = naive_trajectory(support, labels, query, 3, extra=extra, unlabelled=unlabelled, **options)
        assert relative_difference(ours, expected) < 1e-10
    head = Head(unlabelled=unlabelled, scale="auto")
    ours, alone = (trajectory(support, labels, query, *more, head=head) for more in ([extra], []))
    assert torch.allclose(ours, alone) == (unlabelled == "query")


@pytest.mark.parametrize("prior", [{}, {"class_prior": "estimated", "uniform_weight": 0.2}])
@pytest.mark.parametrize("options", [{}, N_MINUS_1, N_MINUS_1 | {"update": "means"}])
def test_gradients_equal_those_in_all_dimensions(options, prior):
    """The loop under gradients works in the span; its gradients must be the naive loop's, for every image."""
    options, (support, labels, query) = options | prior, make_episode(3, (1, 3, 2), 2, 12, 0.5)
    images = support.requires_grad_(), query.requires_grad_()
    ours = trajectory(support, labels, query, head=Head(**options), steps=2)
    naive = naive_trajectory(support, labels, query, 2, **naive_options(options))
    weights = torch.linspace(-1, 1, ours.numel(), dtype=ours.dtype).view_as(ours)
    gradients = [torch.autograd.grad((logits * weights).sum(), images) for logits in (ours, naive)]
    torch.testing.assert_close(*gradients, rtol=1e-8, atol=1e-8)


def test_scale_auto_needs_neither_a_second_class_nor_an_image_nor_different_ones():
    head = Head(scale="auto")
    for way, queries in ((1, 5), (4, 0)):
        episode = make_episode(way, 3, queries, 12, 0.4)
        torch.testing.assert_close(trajectory(*episode, head=head), trajectory(*episode, head=Head()))
    zeros = torch.zeros(3, 5)
    assert (cluster(zeros, [0, 1, 2], zeros, head=head).responsibilities == 1 / 3).all()


def test_gradients_pass_through_scale_auto():
    support, labels, query = make_episode(3, 2, 3, 4, 0.4)
    support = support.double().requires_grad_()

    def losses(support):
        return trajectory(support, labels, query.double(), head=Head(scale="auto"), steps=1).logsumexp(2)

    assert torch.autograd.gradcheck(losses, support)


@pytest.mark.parametrize("prior, queries", [("estimated", (36, 2, 2)), ("estimated", (40, 0, 0)), (0.8, (40, 5, 5))])
def test_planted_imbalance_is_found_or_told(prior, queries):
    head = Head(class_prior=prior if prior == "estimated" else (0.8, 0.1, 0.1))
    right = {Head(): [], head: []}
    for seed in range(8):
        *episode, truth = clusters([2, 2, 2], queries, 20, 0.6, 0.6, seed)
        for which, found in right.items():
            found += (cluster(*episode, head=which).labels == truth).tolist()
    assert np.mean(right[head]) > np.mean(right[Head()]) + 0.02 * (prior == "estimated")


@pytest.mark.parametrize("limits", [(0, 0), (2, 4), (0, 10), (7, 3)])
def test_cluster_stops_where_the_rule_on_the_record_does(limits):
    for seed in range(4):
        support, labels, query = make_episode(5, 1, 5, 10, 0.4, seed)
        step = cluster(support, labels, query, None, Head(), *limits)
        record = trajectory(support, labels, query, steps=10)
        assert step.number == stopping_step(record.argmax(2).numpy(), *limits)
        torch.testing.assert_close(step.logits, record[step.number])


PLACE, NAN = torch.tensor([12]), torch.tensor([float("nan")], dtype=torch.float64)
BAD_EPISODES = {  # what the error must name, and what is done to an episode of 3 classes, 6 support images, 6 queries
    "start at 1": lambda support, labels, query: (support, labels + 1, query),
    "class 1": lambda support, labels, query: (support, torch.where(labels == 1, 2, labels), query),
    "support set is empty": lambda support, labels, query: (support[:0], labels[:0], query),
    r"query features of image\(s\) \[2\]": lambda support, labels, query: (support, labels, query.put_(PLACE, NAN)),
    "torch.float32": lambda support, labels, query: (support, labels.float(), query),
    "numpy.unique": lambda support, labels, query: (support, list("aabbcc"), query),
    r"\(4,\)": lambda support, labels, query: (support, labels[:4], query),
    r"\(6,\)": lambda support, labels, query: (support[:, 0], labels, query),
    "torch.int64": lambda support, labels, query: (support, labels, query.long()),
    "support features": lambda support, labels, query: ([["a", "b"]] * 6, labels, query),
}


@pytest.mark.parametrize("message", BAD_EPISODES)
def test_bad_input_is_refused_with_the_class_or_image_named(message):
    with pytest.raises(ValueError, match=message):
        trajectory(*BAD_EPISODES[message](*make_episode(3, 2, 2, 6, 0.5)), steps=1)


def test_what_cannot_be_computed_is_refused():
    with pytest.raises(ValueError, match="maximum -4"):
        cluster(*make_episode(3, 2, 2, 6, 0.5), maximum=-4)
    with pytest.raises(ValueError, match="maximum -1"):
        trajectory(*make_episode(3, 2, 2, 6, 0.5), steps=-1)
    with pytest.raises(ValueError, match="identity_weight"):
        trajectory(*make_episode(2, (1, 3), 3, 300, 1.0), head=Head(identity_weight=5e-324))
    with pytest.raises(ValueError, match="singular"):
        trajectory(*make_episode(1, 1, 2, 6, 0.5), head=Head(task_covariance_divisor="n-1"))
    with pytest.raises(ValueError, match="class_prior"):
        trajectory(*make_episode(3, 2, 2, 6, 0.5), head=Head(class_prior=(0.5, 0.5)))


@pytest.mark.parametrize(
    ("setting", "value"),
    [("identity_weight", 0), ("uniform_weight", 0), ("uniform_weight", "1"), ("log_determinant", "yes")]
    + [("class_prior", value) for value in ((), (0.5, 0.6), (1.0, 0.0))]
    + [("scale", value) for value in (-1.0, float("inf"), float("nan"))],
)
def test_settings_of_a_wrong_type_or_out_of_range_are_refused(setting, value):
    head = Head()
    vars(head)[setting] = value  # past the tests' own check of types
    with pytest.raises(ValueError, match=setting):
        head.__post_init__()


@pytest.mark.parametrize("kind", [np.asarray, torch.Tensor.tolist, torch.Tensor.half, lambda x: x.numpy()[::-1][::-1]])
def test_arrays_lists_and_labels_of_any_width_will_do(kind):
    support, labels, query = make_episode(3, 2, 2, 6, 2.0)
    given = trajectory(kind(support), labels.to(torch.uint8).numpy(), kind(query), steps=2)
    assert torch.equal(given.argmax(2), trajectory(support, labels, query, steps=2).argmax(2))
    assert torch.equal(trajectory(kind(support), labels.tolist(), kind(query), steps=2), given)


@pytest.mark.parametrize(
    "case",
    [
        ((5, 3, 10, 64, 1.0), 1e4, {}),
        ((5, 2, 10, 64, 1.0), 1.0, {"identity_weight": 1e-8}),
        ((5, 20, 40, 300, 0.6), 1e3, {}),
        ((5, 20, 40, 300, 0.6), 1e4, {}),
        ((5, 3, 10, 64, 1.0), 1e19, {"metric": "euclidean"}),
        ((5, 20, 40, 300, 0.6), 1e19, {"metric": "euclidean"}),
    ],
    ids=str,
)
def test_labels_of_large_features_are_those_of_exact_arithmetic(case):
    """In float32 the logits themselves would tie or overflow: the common part of a row is large, the rest is not."""
    sizes, factor, options = case
    support, labels, query = make_episode(*sizes, dtype=torch.float32)
    support, query = support * factor, query * factor
    head = Head(**options)
    ours = trajectory(support, labels, query, head=head, steps=3)
    exact = Head(**options | {"identity_weight": head.identity_weight / factor**2, "scale": factor**2})
    exactly = trajectory(support.double() / factor, labels, query.double() / factor, head=exact, steps=3)
    assert ours.isfinite().any(2).all()
    assert (ours.argmax(2) == exactly.argmax(2)).float().mean() > 0.99


@pytest.mark.parametrize("identity_weight", [1.0, 1e-8, 1e-10])
def test_a_tiny_identity_weight_leaves_the_gaps_between_logits_right(identity_weight):
    """A row's logits are near −|z|² / identity_weight, 10¹¹ and more; classes differ by tens."""
    episode = make_episode(5, 2, 3, 20, 1.0)
    ours = trajectory(*episode, head=Head(identity_weight=identity_weight), steps=0)[0]
    exact = step_0_in_60_digits(*episode, identity_weight)
    torch.testing.assert_close(ours - ours.amax(1, keepdim=True), exact, rtol=0, atol=1e-3)


def test_far_rows_are_given_relative_to_their_largest_and_others_as_they_are():
    support, labels, query = make_episode(3, 2, 2, 6, 2.0, dtype=torch.float32)
    near = trajectory(support, labels, query, steps=0)
    torch.testing.assert_close(near.double(), trajectory(support.double(), labels, query.double(), steps=0))
    far = trajectory(support, labels, query, head=Head(scale=1e9), steps=0)
    assert torch.equal(far.amax(2), torch.zeros(1, len(query)))
    torch.testing.assert_close(far, 1e9 * (near - near.amax(2, keepdim=True)), rtol=1e-3, atol=1e3)


@pytest.mark.filterwarnings("error")
def test_features_too_short_for_identity_weight_give_a_warning():
    support, labels, query = make_episode(5, 2, 5, 30, 1.0)
    short = [torch.nn.functional.normalize(x, dim=1) for x in (support, query)]
    with pytest.warns(LowVarianceWarning, match="identity_weight"):
        trajectory(short[0], labels, short[1], steps=1)
    trajectory(short[0], labels, short[1], head=Head(identity_weight=0.1), steps=1)
    trajectory(short[0], labels, short[1], head=Head(metric="euclidean"), steps=1)
