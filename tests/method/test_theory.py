"""What the method reduces to, what it maximises, and what it cannot see: its theory as tests, in float64.

"The paper" is Bateni et al. 2022, whose equations are counted through section 3. Where the likelihood of the support
images is needed, they come in as extra images that refine nothing: `unlabelled_logits` are then their logits.
"""

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch
from clusters import clusters
from hypothesis import example, given, settings, strategies as st
from oracles import naive_logits, naive_statistics
from scipy.special import softmax
from sklearn.mixture import GaussianMixture

from tcnaps.method.class_statistics import class_statistics, one_hot
from tcnaps.method.clustering import refinement_steps, trajectory
from tcnaps.method.head import Head

EPISODES = {  # shots of every class, queries a class, features
    "1-shot, d > N": ((1, 1, 1, 1, 1), 3, 40),
    "imbalanced, d > N": ((1, 7, 2, 4), 3, 50),
    "imbalanced, d < N": ((1, 7, 2, 4), 5, 9),
    "5-shot, d < N": ((5, 5, 5), 6, 12),
}
MIXTURE = Head(log_determinant=True, scale=0.5, identity_weight=0.7)
HEADS = {"Mahalanobis": Head(), "mixture": MIXTURE, "means": Head(update="means"), "Euclidean": Head("euclidean")}
HEADS |= {"estimated prior": Head(class_prior="estimated")}
pytestmark = pytest.mark.usefixtures("each_strategy")
every_episode = pytest.mark.parametrize("sizes", EPISODES.values(), ids=list(EPISODES))
every_head = pytest.mark.parametrize("head", HEADS.values(), ids=list(HEADS))
any_sizes = st.tuples(st.lists(st.integers(1, 6), min_size=2, max_size=5), st.integers(1, 4), st.integers(1, 40))


def normal(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def orthogonal(d, seed):
    return torch.linalg.qr(normal(d, d, seed=seed)).Q


def make_episode(shots, queries, d, seed=0):
    """Support features, labels and query features of overlapping classes with unequal variances."""
    return clusters(shots, [queries] * len(shots), d, 2 / d**0.5, torch.logspace(0.3, -0.5, d), seed)[:3]


def on_many_episodes(test):
    """Those above and five more."""
    for sizes in EPISODES.values():
        test = example(sizes=sizes, seed=0)(test)
    return settings(max_examples=2)(given(sizes=any_sizes, seed=st.integers(0, 10_000))(test))


def first_steps(support, labels, query, head, steps, extra=None):
    return list(islice(refinement_steps(support, labels, query, extra, head), steps + 1))


def assert_equal_logits(ours, theirs, tolerance=1e-9):
    """Equal to `tolerance` of the largest logit."""
    ours, theirs = torch.as_tensor(ours), torch.as_tensor(theirs)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=tolerance * theirs.abs().max().item())


# What it reduces to
@every_episode
@pytest.mark.parametrize("gradients", [False, True])
def test_without_unlabelled_images_it_is_simple_cnaps_for_ever(sizes, gradients):
    """The paper after equation 12: the updates "reduce to them exactly in the case of an empty query set"."""
    support, labels, points = make_episode(*sizes)
    simple = naive_logits(points, *naive_statistics(support, one_hot(labels, len(sizes[0]), support)))
    support.requires_grad_(gradients)
    no_extra = first_steps(support, labels, points, Head(unlabelled="extra"), 4)
    no_query = first_steps(support, labels, points[:0], Head(), 4, extra=points)
    for run in ([step.logits for step in no_extra], [step.unlabelled_logits for step in no_query]):
        assert all(torch.equal(logits, run[0]) for logits in run)
        assert_equal_logits(run[0].detach(), simple, 1e-10)


def bregman_soft_clustering(phi, gradient, support, labels, query, steps):
    """Banerjee et al. 2005, algorithm 3, with uniform fixed weights and labelled points; −divergences of each step."""
    divergence = lambda x, mu: phi(x) - phi(mu) - gradient(mu) @ (x - mu)  # noqa: E731  (equation 13)
    clamped = np.eye(labels.max() + 1)[labels]
    members, weights, record = support, clamped, []
    for _ in range(steps + 1):
        means = [sum(w * x for w, x in zip(column, members)) / column.sum() for column in weights.T]
        record.append([[-divergence(x, mu) for mu in means] for x in query])
        members, weights = np.concatenate([support, query]), np.concatenate([clamped, softmax(record[-1], axis=1)])
    return np.array(record)


def shared_covariance_episode(case, d):
    """An episode of which the classes share one covariance, the head that keeps it, and scale · its inverse."""
    support, labels, query = make_episode((1, 1, 1, 1), 4, d, seed=3)
    identity, big = np.eye(d), 1e12
    if case == "1-shot":  # a class of one image has no scatter of its own, and shrinkage 1/2
        task = np.cov(support.numpy().T, bias=True)
        return support, labels, query, Head(update="means"), np.linalg.inv(task / 2 + identity)
    if case == "equal scatter":  # three images a class, in the same places about their mean; shrinkage 3/4
        offsets = normal(3, d, seed=4)
        support, labels = (support[:, None] + offsets).flatten(0, 1), labels.repeat_interleave(3)
        task, sigma = (np.cov(x.numpy().T, bias=True) for x in (support, offsets))
        head = Head(update="means", identity_weight=0.3, scale=0.5)
        return support, labels, query, head, 0.5 * np.linalg.inv(0.75 * sigma + 0.25 * task + 0.3 * identity)
    if case == "Euclidean":
        return support, labels, query, Head("euclidean", scale=0.2), 0.2 * identity
    return support, labels, query, Head(identity_weight=big, scale=big), identity  # covariances vanish beside big · I


@pytest.mark.parametrize("case", ["1-shot", "equal scatter", "Euclidean", "huge identity_weight"])
@pytest.mark.parametrize("d", [6, 35])
def test_with_one_fixed_covariance_it_is_bregman_soft_clustering(case, d):
    """The paper, section 3.4: with a known covariance shared by the classes it is EM for F(z) = zᵀ Q⁻¹ z."""
    support, labels, query, head, a = shared_covariance_episode(case, d)
    ours = trajectory(support, labels, query, head=head, steps=6)
    episode = (x.numpy() for x in (support, labels, query))
    theirs = bregman_soft_clustering(lambda x: x @ a @ x, lambda x: 2 * a @ x, *episode, steps=6)
    assert_equal_logits(ours, theirs, 1e-10)
    responsibilities = ours[0].softmax(1)
    assert ((responsibilities > 0.01) & (responsibilities < 0.99)).any(), "hard assignments would test too little"


def test_one_euclidean_step_is_that_of_ren_et_al():
    """Ren et al. 2018, section 3.1.1: prototypes refined once by soft assignments of the unlabelled images."""
    support, labels, query = make_episode((2, 5, 1), 4, 8)
    unlabelled = normal(20, 8, seed=9)
    z = one_hot(labels, 3, support)
    prototypes = torch.stack([support[labels == c].mean(0) for c in range(3)])
    soft = (-(unlabelled[:, None] - prototypes).square().sum(2)).softmax(1)
    refined = (z.T @ support + soft.T @ unlabelled) / (z.sum(0) + soft.sum(0))[:, None]
    step = first_steps(support, labels, query, Head(metric="euclidean", unlabelled="extra"), 1, unlabelled)[1]
    assert_equal_logits(step.logits, -(query[:, None] - refined).square().sum(2), 1e-12)


@every_episode
@pytest.mark.parametrize("uniform_weight", [None, 0.3])
def test_the_mixture_head_is_the_e_step_of_a_gaussian_mixture(sizes, uniform_weight):
    """The paper, section 3.4, the last equation, against scikit-learn in all d dimensions."""
    support, labels, query = make_episode(*sizes)
    way, d = len(sizes[0]), support.shape[1]
    members, weights = support, one_hot(labels, way, support)
    prior, head, left_out = np.full(way, 1 / way), MIXTURE, np.log(way)
    if uniform_weight:
        head, left_out = replace(MIXTURE, class_prior="estimated", uniform_weight=uniform_weight), 0
    for step in first_steps(support, labels, query, head, 5):
        statistics = class_statistics(members, weights, MIXTURE)
        mixture = GaussianMixture(way)
        mixture.weights_, mixture.means_ = prior, statistics.means.numpy()
        mixture.covariances_ = statistics.covariances.numpy()
        mixture.precisions_cholesky_ = np.linalg.inv(np.linalg.cholesky(mixture.covariances_)).transpose(0, 2, 1)
        np.testing.assert_allclose(step.responsibilities, mixture.predict_proba(query.numpy()), rtol=1e-9, atol=1e-200)
        log_density = step.logits.logsumexp(1) - left_out - d / 2 * np.log(2 * np.pi)
        np.testing.assert_allclose(log_density, mixture.score_samples(query.numpy()), rtol=1e-10)
        members = torch.cat([support, query])
        weights = torch.cat([one_hot(labels, way, support), step.responsibilities])
        if uniform_weight:
            prior = uniform_weight / way + (1 - uniform_weight) * step.responsibilities.numpy().mean(0)


# What it maximises
def log_likelihood(step, labels):
    """Σ log Σ_k exp(logit) over the queries, and the own class's logit over the support images (the extra ones)."""
    return step.logits.logsumexp(1).sum() + step.unlabelled_logits.gather(1, labels[:, None]).sum()


@every_episode
@pytest.mark.parametrize("options", [{}, {"scale": 0.5, "log_determinant": True}, {"metric": "euclidean"}], ids=str)
def test_moving_the_means_alone_never_lowers_the_likelihood(sizes, options):
    """EM (Dempster, Laird & Rubin 1977, theorem 1), with the M-step's own gain (Banerjee et al. 2005, proposition 1).

    Moving a mean from μ to the weighted mean μ' lifts the lower bound by n_k · scale · D(μ', μ), and the E-step can
    only lift it further. This holds for any fixed covariances, one a class or one for all.
    """
    support, labels, query = make_episode(*sizes)
    head = Head(update="means", **options)
    clamped = one_hot(labels, len(sizes[0]), support)
    statistics = class_statistics(support, clamped, head)
    precisions, means = torch.linalg.inv(statistics.covariances), statistics.means
    steps, gains = first_steps(support, labels, query, head, 12, extra=support), []
    for step, following in zip(steps, steps[1:]):
        weights = torch.cat([clamped, step.responsibilities])
        moved = weights.T @ torch.cat([support, query]) / weights.sum(0)[:, None]
        change = moved - means
        gains.append(head.scale * torch.einsum("k,kd,kde,ke->", weights.sum(0), change, precisions, change))
        before, after = log_likelihood(step, labels), log_likelihood(following, labels)
        assert after >= before + gains[-1] - 1e-12 * before.abs()
        means = moved
    assert gains[0] > 0.1, "hard assignments would test too little"


def test_the_refined_mixture_climbs_to_a_penalised_maximum_as_the_identity_vanishes():
    """The paper, section 3.4: the updates are "equivalent to those in a GMM that incorporates regularization".

    (n_k Σ_k + Σ) / (n_k + 1) is the M-step under the prior exp(−½ log|Q_k| − ½ tr(Q_k⁻¹ Σ)), an improper
    inverse Wishart density (Fraley & Raftery 2007), and Σ no longer changes after step 0. So this is EM: the penalised
    likelihood never falls, and its gradient vanishes where the refinement comes to rest.
    """
    support, labels, query = make_episode((6, 4, 8), 8, 4, seed=2)
    features, clamped = torch.cat([support, query]), one_hot(labels, 3, support)
    head = replace(MIXTURE, identity_weight=1e-14)
    task = torch.cov(features.T, correction=0)

    def penalty(covariances):
        return (torch.logdet(covariances) + torch.einsum("kde,ed->k", torch.linalg.inv(covariances), task)).sum() / 2

    statistics, objective = class_statistics(support, clamped, head), []
    for step in first_steps(support, labels, query, head, 400, extra=support):
        objective.append((log_likelihood(step, labels) - penalty(statistics.covariances)).item())
        statistics = class_statistics(features, torch.cat([clamped, step.responsibilities]), head)
    assert np.diff(objective).min() > -1e-10 and objective[-1] > objective[0] + 1
    means, covariances = (x.detach().requires_grad_() for x in (statistics.means, statistics.covariances))
    mixture = torch.distributions.MultivariateNormal(means, covariances, validate_args=False)
    density = mixture.log_prob(features[:, None])
    likelihood = density[: len(support)].gather(1, labels[:, None]).sum() + density[len(support) :].logsumexp(1).sum()
    for slope in torch.autograd.grad(likelihood - penalty(covariances), [means, covariances]):
        assert slope.abs().max() < 1e-8


# What it cannot see: each change of an episode returns the new one, its head, and the way back for the logits
def moved(support, labels, query, head, seed):
    """Any rotation, reflection and translation of the features."""
    d = support.shape[1]
    rotation, shift = orthogonal(d, seed), 5 * normal(d, seed=seed + 1)
    return (support @ rotation + shift, labels, query @ rotation + shift, head), lambda logits: logits


def reordered(support, labels, query, head, seed):
    """Support images and queries in another order, classes under other numbers."""
    sizes = len(support), len(query), int(labels.max()) + 1
    images, queries, names = (normal(n, seed=seed + i).argsort() for i, n in enumerate(sizes))
    episode = support[images], names[labels][images], query[queries]
    return (*episode, head), lambda logits: logits[:, queries.argsort()][:, :, names]


def embedded(support, labels, query, head, seed):
    """Thirty more dimensions, in which no image differs: log|Q_k| grows by 30 log identity_weight, for every class."""
    rotation = orthogonal(support.shape[1] + 30, seed)[: support.shape[1]]
    shift = 15 * np.log(head.identity_weight) if head.log_determinant else 0
    return (support @ rotation, labels, query @ rotation, head), lambda logits: logits + shift


def units_changed(support, labels, query, head, seed):
    """identity_weight is in squared feature units, as are Euclidean distances; log|Q_k| grows by 2 d log 7."""
    if head.metric == "euclidean":
        head, shift = replace(head, scale=head.scale / 49), 0
    else:
        head = replace(head, identity_weight=head.identity_weight * 49)
        shift = support.shape[1] * np.log(7) if head.log_determinant else 0
    return (7 * support, labels, 7 * query, head), lambda logits: logits + shift


@pytest.mark.parametrize("change", [moved, reordered, embedded, units_changed])
@every_head
@on_many_episodes
def test_symmetries_of_the_whole_trajectory(change, head, sizes, seed):
    """Equations 1-12 have only differences of features within Q_k⁻¹, and sums over images and over classes."""
    support, labels, query = make_episode(*sizes, seed=seed)
    (*other, other_head), back = change(support, labels, query, head, seed + 2)
    theirs = trajectory(support, labels, query, head=head, steps=5)
    assert_equal_logits(back(trajectory(*other, head=other_head, steps=5)), theirs)


@pytest.mark.parametrize("seed", range(2))
def test_without_the_identity_no_linear_map_matters(seed):
    """Mahalanobis distances are affine invariant (Mahalanobis 1936); only identity_weight · I ties them to the axes."""
    support, labels, query = make_episode((12, 9, 10), 5, 4, seed)
    stretch = orthogonal(4, seed) * torch.linspace(0.5, 2, 4, dtype=torch.float64) @ orthogonal(4, seed + 1)
    plain, stretched = (
        [trajectory(support @ a, labels, query @ a, head=Head(identity_weight=w), steps=5) for w in (1e-14, 1.0)]
        for a in (torch.eye(4, dtype=torch.float64), stretch)
    )
    assert_equal_logits(stretched[0], plain[0])
    assert (stretched[1] - plain[1]).abs().max() > 1e-3


@every_head
@every_episode
def test_it_does_not_matter_which_unlabelled_image_is_a_query(sizes, head):
    """Equations 8-12 know support and unlabelled images only; a copy of the queries refines as they would."""
    support, labels, query = make_episode(*sizes)
    expected = trajectory(support, labels, query, head=head, steps=4)
    for parts in (5, len(query) - 1):
        split = first_steps(support, labels, query[:parts], replace(head, unlabelled="both"), 4, query[parts:])
        assert_equal_logits(torch.stack([torch.cat([s.logits, s.unlabelled_logits]) for s in split]), expected)
    extra = replace(head, unlabelled="extra")
    assert_equal_logits(trajectory(support, labels, query, query, extra, 4), expected)
    alone = [trajectory(support, labels, query[i : i + 1], query, extra, 4) for i in (0, 3)]
    assert_equal_logits(torch.cat(alone, dim=1), expected[:, [0, 3]])
