"""The clustering against naive loops written from the equations, planted answers, invariants and limits."""

from itertools import islice
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from oracles import naive_logits, naive_statistics, naive_trajectory

from tcnaps.method import low_rank
from tcnaps.method.clustering import class_logits, class_statistics, cluster, one_hot, refinement_steps, trajectory
from tcnaps.method.head import Head

OPTIONS = [
    {},
    {"log_determinant": True, "scale": 0.5},
    {"scale": 0.25},
    {"update": "means"},
    {"metric": "euclidean"},
    {"metric": "euclidean", "update": "means", "scale": 0.5},
    {"identity_weight": 0.1},
    {"task_covariance_divisor": "n-1"},
    {"update": "means", "log_determinant": True},
    {"identity_weight": 3.0, "log_determinant": True},
]
EPISODES = {  # way, shots, queries a class, features, separation of the classes (small = diffuse responsibilities)
    "1-shot, N < d": (5, 1, 3, 40, 1.0),
    "1-shot, diffuse": (5, 1, 3, 40, 0.05),
    "5-shot, N > d": (4, 5, 4, 12, 0.4),
    "confident": (3, 4, 4, 20, 6.0),
    "two ways": (2, 3, 5, 6, 0.3),
    "imbalanced": (4, (1, 7, 2, 4), 3, 15, 0.5),
    "single query": (3, 2, (1, 0, 0), 8, 0.5),
    "diffuse, N > d": (3, 6, 8, 5, 0.05),
    "20 ways": (20, 2, 2, 30, 0.7),
}


def make_episode(way, shots, queries, d, separation, seed=0, dtype=torch.float64):
    """Support features, labels, query features of Gaussian classes with unequal variances."""
    generator = torch.Generator().manual_seed(seed)
    spread = torch.logspace(0.3, -0.5, d, dtype=dtype)
    centres = separation * torch.randn(way, d, generator=generator, dtype=dtype)
    shots = [shots] * way if isinstance(shots, int) else list(shots)
    queries = [queries] * way if isinstance(queries, int) else list(queries)

    def draw(counts):
        return torch.cat(
            [c + spread * torch.randn(n, d, generator=generator, dtype=dtype) for c, n in zip(centres, counts)]
        )

    order = torch.randperm(sum(shots), generator=generator)
    labels = torch.arange(way).repeat_interleave(torch.tensor(shots))
    return draw(shots)[order], labels[order], draw(queries)


def relative_difference(ours, theirs):
    """Largest difference at each step, relative to the step's largest logit."""
    theirs = theirs.double()
    return ((ours.double() - theirs).abs().amax((1, 2)) / theirs.abs().amax((1, 2))).max().item()


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("name", EPISODES)
def test_every_step_equals_the_naive_loop(name, options):
    support, labels, query = make_episode(*EPISODES[name])
    ours = trajectory(support, labels, query, head=Head(**options), steps=4)
    naive = naive_trajectory(support, labels, query, 4, **_oracle_options(options))
    assert relative_difference(ours, naive) < 1e-10


@pytest.mark.parametrize(
    "episode", [(5, 1, 3, 40, 1.0), (4, 5, 4, 12, 0.4), (3, 4, 4, 20, 6.0), (4, (1, 7, 2, 4), 3, 15, 1.5)], ids=str
)
def test_float32_at_step_0_and_at_convergence(episode):
    support, labels, query = make_episode(*episode)
    ours = trajectory(support.float(), labels, query.float(), steps=10)
    naive = naive_trajectory(support, labels, query, 10)
    assert torch.equal(naive[-1].argmax(1), naive[-2].argmax(1)), "the planted episode should converge"
    assert relative_difference(ours[[0, -1]], naive[[0, -1]]) < 1e-4


@pytest.mark.parametrize("update", ["means and covariances", "means"])
@pytest.mark.parametrize("shots", [3, 1, (1, 4, 2)])
def test_class_covariance_with_n_minus_1(shots, update):
    """At step 0 only; a 1-shot class's covariance is then the variance of its image's features, in every entry."""
    support, labels, query = make_episode(3, shots, 2, 7, 0.5)
    options = {"class_divisor": "n-1", "update": update}
    for rotated in (support + 0.3, support @ torch.linalg.qr(support.T @ support + 1).Q):
        ours = trajectory(rotated, labels, query, head=Head(class_covariance_divisor="n-1", update=update), steps=2)
        assert relative_difference(ours, naive_trajectory(rotated, labels, query, 2, **options)) < 1e-10
    with_gradients = rotated.clone().requires_grad_()
    head = Head(class_covariance_divisor="n-1", update=update)
    assert relative_difference(trajectory(with_gradients, labels, query, head=head, steps=2).detach(), ours) < 1e-10


@pytest.mark.parametrize("unlabelled", ["query", "extra", "both"])
def test_extra_images_refine_where_the_head_says_so(unlabelled):
    support, labels, query = make_episode(4, 2, 3, 20, 0.6)
    extra = make_episode(4, 2, 5, 20, 0.6, seed=1)[2]
    ours = trajectory(support, labels, query, extra, Head(unlabelled=unlabelled), steps=3)
    naive = naive_trajectory(support, labels, query, 3, extra=extra, unlabelled=unlabelled)
    assert relative_difference(ours, naive) < 1e-10


@pytest.mark.parametrize("d", [6, 60])
def test_statistics_and_logits_equal_the_naive_ones(d):
    support, labels, query = make_episode(3, (2, 5, 3), 3, d, 0.5)
    features, soft = (
        torch.cat([support, query]),
        torch.rand(19, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1)),
    )
    weights = soft / soft.sum(1, keepdim=True)
    statistics = class_statistics(features, weights)
    means, covariances = naive_statistics(features, weights)
    torch.testing.assert_close(statistics.means, means, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(statistics.covariances, covariances, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(
        class_logits(query, statistics), naive_logits(query, means, covariances), rtol=1e-10, atol=1e-10
    )


def test_gradients_equal_those_in_all_dimensions():
    """The loop under gradients works in the span; its gradients must be the naive loop's, for every image."""
    support, labels, query = make_episode(3, 2, 2, 12, 0.5)
    gradients = []
    for function in (lambda s, q: trajectory(s, labels, q, steps=2), lambda s, q: naive_trajectory(s, labels, q, 2)):
        s, q = support.clone().requires_grad_(), query.clone().requires_grad_()
        logits = function(s, q)
        (logits * torch.linspace(-1, 1, logits.numel(), dtype=logits.dtype).view_as(logits)).sum().backward()
        gradients.append(torch.cat([s.grad, q.grad]))
    torch.testing.assert_close(*gradients, rtol=1e-8, atol=1e-8)


def test_under_gradients_the_logits_are_the_same():
    support, labels, query = make_episode(4, 3, 3, 30, 0.5)
    plain = trajectory(support, labels, query, steps=3)
    with_gradient = trajectory(support.clone().requires_grad_(), labels, query, steps=3)
    torch.testing.assert_close(with_gradient.detach(), plain, rtol=1e-10, atol=1e-10)


def test_support_labels_pull_a_planted_cluster_into_place():
    """One support image off-centre, many queries around the centre: refinement must move it and fix the labels."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.tensor([[0.0, 0.0], [6.0, 0.0]], dtype=torch.float64)
    query = torch.cat([c + 0.5 * torch.randn(40, 2, generator=generator, dtype=torch.float64) for c in centres])
    support = torch.tensor([[-4.0, 0.0], [4.5, 0.0]], dtype=torch.float64)
    truth = torch.arange(2).repeat_interleave(40)
    record = trajectory(support, torch.tensor([0, 1]), query, steps=6).argmax(2)
    assert (record[0] == truth).float().mean() < 0.95
    assert (record[-1] == truth).all()


@given(st.integers(0, 10_000), st.integers(2, 6), st.integers(1, 4), st.integers(1, 4), st.integers(2, 40))
def test_symmetries(seed, way, shot, queries, d):
    """Queries may be permuted, classes renamed, features rotated and shifted: only the order of the logits follows."""
    support, labels, query = make_episode(way, shot, queries, d, 0.7, seed)
    logits = trajectory(support, labels, query, steps=3)
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(query), generator=generator)
    torch.testing.assert_close(
        trajectory(support, labels, query[order], steps=3), logits[:, order], rtol=1e-6, atol=1e-6
    )
    names = torch.randperm(way, generator=generator)
    torch.testing.assert_close(
        trajectory(support, names[labels], query, steps=3)[:, :, names], logits, rtol=1e-6, atol=1e-6
    )
    rotation = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64)).Q
    shift = 5 * torch.randn(d, generator=generator, dtype=torch.float64)
    moved = trajectory(support @ rotation + shift, labels, query @ rotation + shift, steps=3)
    torch.testing.assert_close(moved, logits, rtol=1e-6, atol=1e-6)


def test_responsibilities_sum_to_1_and_support_stays_one_hot():
    support, labels, query = make_episode(4, 2, 3, 10, 0.3)
    for step in islice(refinement_steps(support, labels, query), 4):
        torch.testing.assert_close(step.responsibilities.sum(1), torch.ones(12, dtype=torch.float64))
    assert torch.equal(one_hot(labels, 4, support).argmax(1), labels)
    assert torch.equal(one_hot(labels, 4, support).sum(1), torch.ones(8, dtype=torch.float64))


@pytest.mark.parametrize("head", [Head(), Head(log_determinant=True), Head(update="means"), Head(metric="euclidean")])
def test_nothing_to_refine_with_is_simple_cnaps_at_every_step(head):
    """The paper's equations "reduce to them exactly in the case of an empty query set"."""
    support, labels, query = make_episode(3, (1, 4, 2), 3, 10, 0.5)
    simple = trajectory(support, labels, query, head=head, steps=0)[0]
    no_extra = trajectory(support, labels, query, head=Head(**{**vars(head), "unlabelled": "extra"}), steps=3)
    assert all(torch.equal(step, no_extra[0]) for step in no_extra)
    torch.testing.assert_close(no_extra[0], simple, rtol=1e-12, atol=1e-12)
    assert trajectory(support, labels, query[:0], head=head, steps=3).shape == (4, 0, 3)


def test_a_huge_identity_weight_is_nearest_mean():
    support, labels, query = make_episode(5, 3, 4, 16, 0.4)
    means = torch.stack([support[labels == k].mean(0) for k in range(5)])
    nearest = torch.cdist(query, means).argmin(1)
    assert torch.equal(
        trajectory(support, labels, query, head=Head(identity_weight=1e9), steps=0)[0].argmax(1), nearest
    )


def test_scale_multiplies_the_logits_of_step_0_and_softens_what_follows():
    support, labels, query = make_episode(4, 1, 4, 10, 0.5)
    sharp, soft = (trajectory(support, labels, query, head=Head(scale=s), steps=1) for s in (1.0, 0.25))
    torch.testing.assert_close(soft[0], sharp[0] / 4)
    assert not torch.allclose(soft[1] * 4, sharp[1])


@pytest.mark.parametrize(
    "options", [{}, {"metric": "euclidean"}, {"update": "means"}, {"class_covariance_divisor": "n-1"}]
)
@pytest.mark.parametrize("shots", [2, (1, 3, 2, 5)])
def test_scale_auto_makes_the_median_gap_of_every_step_2(options, shots):
    episode = make_episode(4, shots, 5, 12, 0.4)
    logits = trajectory(*episode, head=Head(scale="auto", **options), steps=3)
    nearest, second = logits.topk(2, dim=2).values.unbind(2)
    torch.testing.assert_close((nearest - second).median(1).values, torch.full((4,), 2.0, dtype=logits.dtype))
    fixed = trajectory(*episode, head=Head(**options), steps=0)[0]
    torch.testing.assert_close(logits[0], fixed * (logits[0, 0, 0] / fixed[0, 0]))


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


@pytest.mark.parametrize("limits", [(0, 0), (2, 4), (0, 10), (1, 1), (4, 4), (7, 3)])
def test_cluster_stops_where_the_rule_on_the_record_does(limits):
    from tcnaps.method.stopping import stopping_step

    for seed in range(8):
        support, labels, query = make_episode(5, 1, 5, 10, 0.4, seed)
        step = cluster(support, labels, query, None, Head(), *limits)
        record = trajectory(support, labels, query, steps=10)
        assert step.number == stopping_step(record.argmax(2).numpy(), *limits)
        torch.testing.assert_close(step.logits, record[step.number])


@pytest.mark.parametrize("n", [4, 10, 30])
def test_span_coordinates_keep_every_distance(n):
    features = torch.randn(n, 10, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    features[-1] = features[0]  # repeated images must not trouble the basis
    coordinates = low_rank.span_coordinates(features)
    assert coordinates.shape == (n, min(n, 10))
    torch.testing.assert_close(
        torch.cdist(coordinates, coordinates), torch.cdist(features, features), rtol=1e-10, atol=1e-7
    )


def test_bad_input_is_refused_with_the_class_named():
    support, labels, query = make_episode(3, 2, 2, 6, 0.5)
    run = lambda *a, **k: trajectory(*a, steps=1, **k)  # noqa: E731
    with pytest.raises(ValueError, match="labels start at 1"):
        run(support, labels + 1, query)
    with pytest.raises(ValueError, match="class 1 has no support image"):
        run(support, torch.where(labels == 1, 2, labels), query)
    with pytest.raises(ValueError, match="support set is empty"):
        run(support[:0], labels[:0], query)
    with pytest.raises(ValueError, match="query features of image"):
        run(support, labels, query.clone().index_fill_(0, torch.tensor([2]), float("nan")))
    with pytest.raises(ValueError, match="same backbone"):
        run(support, labels, query.float())
    for labels_as_given, reason in (
        (labels.float(), "must be integers .* not torch.float32"),
        (["a", "a", "b", "b", "c", "c"], "must be integers .* str; number them"),
        (labels[:4], r"6 support images and support labels of shape \(4,\)"),
    ):
        with pytest.raises(ValueError, match=reason):
            run(support, labels_as_given, query)
    with pytest.raises(ValueError, match=r"support features have the shape \(6,\)"):
        run(support[:, 0], labels, query)
    with pytest.raises(ValueError, match="query features are torch.int64; they must be floating-point"):
        run(support, labels, query.long())
    with pytest.raises(ValueError, match="support features can't be read as numbers"):
        run([["a", "b"]] * 6, labels, query)
    with pytest.raises(ValueError, match="counted from 0, not minimum 2, maximum -4"):
        cluster(support, labels, query, maximum=-4)
    with pytest.raises(ValueError, match="singular in torch.float64: raise identity_weight"):
        run(*make_episode(2, (1, 3), 3, 300, 1.0), head=Head(identity_weight=5e-324))
    with pytest.raises(ValueError, match="one support image in all"):
        run(*make_episode(1, 1, 2, 6, 0.5), head=Head(task_covariance_divisor="n-1"))
    with pytest.raises(ValueError, match="identity_weight"):
        Head(identity_weight=0)
    with pytest.raises(ValueError, match="tolerance is -0.1; it must be between 0 and 1"):
        Head(tolerance=-0.1)
    for scale in (-1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="scale"):
            Head(scale=scale)
    with pytest.raises(ValueError, match="metric is 'cosine'; it must be one of 'mahalanobis', 'euclidean'"):
        Head.__post_init__(
            SimpleNamespace(**vars(Head()) | {"metric": "cosine"}, __dataclass_fields__=Head.__dataclass_fields__)
        )


def _oracle_options(options):
    return {
        name.removesuffix("_covariance_divisor") + "_divisor" if name.endswith("divisor") else name: value
        for name, value in options.items()
    }


@pytest.mark.parametrize("kind", [np.asarray, torch.Tensor.tolist, torch.Tensor.half, lambda x: x.numpy()[::-1][::-1]])
@pytest.mark.parametrize("integers", [torch.int8, torch.int32, torch.uint8])
def test_arrays_lists_and_labels_of_any_width_will_do(kind, integers):
    support, labels, query = make_episode(3, 2, 2, 6, 2.0)
    given = trajectory(kind(support), labels.to(integers).numpy(), kind(query), steps=2)
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
    with pytest.warns(UserWarning, match="total variance, 0.891, is below identity_weight, 1: .*a tenth of that"):
        trajectory(short[0], labels, short[1], steps=1)
    trajectory(short[0], labels, short[1], head=Head(identity_weight=0.1), steps=1)
    trajectory(short[0], labels, short[1], head=Head(metric="euclidean"), steps=1)
