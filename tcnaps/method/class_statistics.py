"""Class means, covariances and logits of n images with d features as the paper writes them (equations 1-5 and 8-12).

Equations 9-12 are equations 1-4 with responsibilities in place of labels, which are one-hot for labelled images.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import one_hot as int_one_hot, threshold

from tcnaps.method.head import Head, at_step

MEDIAN_GAP = 2.0  # between an image's two smallest squared distances, after scaling; see `scale_of`
TIED = 1e-6  # gaps up to this share of the largest distance are rounding, also of features that were once float32

# Squared distances of n images from every class, and log|Q_k|, which may be missing where the head has no use for it.
Distances = tuple[Float[Tensor, "n way"], Float[Tensor, "way"] | None]


@dataclass(frozen=True)
class ClassStatistics:
    """Means and regularised covariances of every class."""

    means: Float[Tensor, "way d"]  # μ_k
    covariances: Float[Tensor, "way d d"]  # Q_k
    counts: Float[Tensor, "way"]  # n_k


def one_hot(labels: Int[Tensor, "n"], way: int, like: Tensor) -> Float[Tensor, "n way"]:
    """Responsibilities of labelled images: 1 for the label's class, 0 elsewhere (equation 8)."""
    return int_one_hot(labels, way).to(like.dtype)


def shrinkage(counts: Float[Tensor, "way"]) -> tuple[Float[Tensor, "way"], Float[Tensor, "way"]]:
    """λ_k = n_k / (n_k + 1), and 1 − λ_k: a large class relies on its own covariance."""
    rest = 1 / (counts + 1)
    return counts * rest, rest


def regularised_covariances(
    class_covariances: Float[Tensor, "way d d"],
    task_covariance: Float[Tensor, "d d"],
    counts: Float[Tensor, "way"],
    head: Head,
) -> Float[Tensor, "way d d"]:
    """Q_k = λ_k Σ_k + (1 − λ_k) Σ + β I (equations 2 and 10)."""
    of_class, of_task = (weights[:, None, None] for weights in shrinkage(counts))  # λ_k and 1 − λ_k
    identity = torch.eye(len(task_covariance), dtype=task_covariance.dtype, device=task_covariance.device)
    return of_class * class_covariances + of_task * task_covariance + head.identity_weight * identity


def class_statistics(
    features: Float[Tensor, "n d"], responsibilities: Float[Tensor, "n way"], head: Head = Head()
) -> ClassStatistics:
    """Class means and covariances (equations 9-12; with one-hot responsibilities, equations 1-4)."""
    counts = responsibilities.sum(0)  # n_k
    means = class_means(features, responsibilities)  # μ_k
    if head.metric == "euclidean":
        identity = torch.eye(features.shape[1], dtype=features.dtype, device=features.device)
        return ClassStatistics(means, identity.expand(len(counts), -1, -1), counts)
    of_classes = class_covariances(features, responsibilities, head)  # Σ_k
    of_task = covariance(features, head)  # Σ
    return ClassStatistics(means, regularised_covariances(of_classes, of_task, counts, head), counts)


def class_means(features: Float[Tensor, "n d"], responsibilities: Float[Tensor, "n way"]) -> Float[Tensor, "way d"]:
    """μ_k = 1/n_k Σ_j w_jk z_j (equations 1 and 9)."""
    return responsibilities.T @ features / responsibilities.sum(0)[:, None]


def covariance(features: Float[Tensor, "n d"], head: Head) -> Float[Tensor, "d d"]:
    """Σ = 1/n Σ_j (z_j − μ)(z_j − μ)ᵀ (equations 3 and 11, where an image's responsibilities sum to 1 and cancel)."""
    deviations = features - features.mean(0)
    return deviations.T @ deviations / divisor(len(features), head.task_covariance_divisor)


def class_covariances(
    features: Float[Tensor, "n d"], responsibilities: Float[Tensor, "n way"], head: Head
) -> Float[Tensor, "way d d"]:
    """Σ_k = 1/n_k Σ_j w_jk (z_j − μ_k)(z_j − μ_k)ᵀ (equations 4 and 12).

    The released Simple CNAPS divides by n_k − 1. Its Σ_k of a class with one image has the variance of that image's
    features in every entry. There, responsibilities must be one-hot and features not rotated.
    """
    counts = responsibilities.sum(0)
    scatters = []
    for weights, mean in zip(responsibilities.T, class_means(features, responsibilities)):
        deviations = features - mean
        scatters.append((weights * deviations.T) @ deviations)
    if head.class_covariance_divisor == "n":
        return torch.stack(scatters) / counts[:, None, None]
    several = torch.stack(scatters) / (counts - 1).clamp_min(1)[:, None, None]
    single = (responsibilities.T @ features.var(1))[:, None, None]
    return torch.where((counts == 1)[:, None, None], single, several)


def divisor(count: Tensor | int, rule: str) -> Tensor | int:
    """n, or n − 1 where the rule says so."""
    return count - 1 if rule == "n-1" else count


def class_distances(features: Float[Tensor, "n d"], statistics: ClassStatistics, head: Head) -> Distances:
    """Squared distances of images from every class, and log|Q_k|; differentiable.

    With the Cholesky factor Q_k = L_k L_kᵀ, (z − μ_k)ᵀ Q_k⁻¹ (z − μ_k) = |L_k⁻¹ (z − μ_k)|².
    """
    if head.metric == "euclidean":
        centre = statistics.means.mean(0)
        distances = squared_euclidean(features - centre, statistics.means - centre)
        return distances, torch.zeros_like(statistics.counts)
    factors = cholesky(statistics.covariances)
    distances = []
    for factor, mean in zip(factors, statistics.means):
        whitened = torch.linalg.solve_triangular(factor, (features - mean).T, upper=False)  # (d, n)
        distances.append(whitened.square().sum(0))
    return torch.stack(distances, dim=1), 2 * factors.diagonal(dim1=1, dim2=2).log().sum(1)


def squared_euclidean(points: Float[Tensor, "n r"], means: Float[Tensor, "way r"]) -> Float[Tensor, "n way"]:
    """|z_i − μ_k|² by matrix products."""
    squares = points.square().sum(1, keepdim=True)
    return (squares - 2 * points @ means.T + (means * means).sum(1)).clamp_min(0)


def cholesky(matrices: Float[Tensor, "*batch r r"]) -> Float[Tensor, "*batch r r"]:
    """Lower Cholesky factors; differentiable. A ValueError where a matrix is singular in this precision."""
    factors, failures = torch.linalg.cholesky_ex(matrices)
    if failures.any():
        raise singular(matrices.dtype)
    return factors


def singular(dtype: torch.dtype) -> ValueError:
    """The error for a covariance that cannot be inverted in this precision."""
    return ValueError(f"a class covariance is singular in {dtype}: raise identity_weight, or scale the features down")


def logits_of(
    distances: Float[Tensor, "n way"],
    log_determinants: Float[Tensor, "way"] | None,
    scale: float | int | Float[Tensor, ""],
    head: Head,
) -> Float[Tensor, "n way"]:
    """−scale · d² (equation 5); where the head has the log-determinant, −scale · d² − ½ log|Q_k|."""
    logits = -scale * distances
    return logits - log_determinants / 2 if head.log_determinant else logits


def scale_of(distances: Float[Tensor, "n way"], head: Head, step: int = 0) -> float | int | Float[Tensor, ""]:
    """The factor on squared distances: the head's number, or the one that `auto` chooses; 1 where there is no gap.

    `auto` makes the median gap between an image's two nearest classes 2, so that half of the images have odds above e²
    for the nearest class. Where most images lie on a border between classes, the mean gap takes the median's place.
    """
    if head.scale != "auto":
        return at_step(head.scale, step)
    if len(distances) == 0 or distances.shape[1] == 1:
        return 1.0
    nearest, second = distances.topk(2, dim=1, largest=False).values.T
    gaps, tied = second - nearest, TIED * second.detach().max()
    for gap in (gaps.median(), gaps.mean()):
        if gap > tied:
            return MEDIAN_GAP / gap
    return 1.0


def log_prior(
    head: Head,
    logits: Float[Tensor, "n way"],
    responsibilities: Float[Tensor, "n_refining way"] | None = None,
    step: int = 0,
) -> Float[Tensor, "way"]:
    """`prior_weight` · log π_k of the mixture equation; 0 where the head has no class prior.

    An estimated prior is π_k = w / way + (1 − w) · (mean over i of r_ik), with w = `uniform_weight` and r the refining
    images' responsibilities. Support images do not count, since somebody chose their numbers. At step 0, π is uniform.
    """
    prior, way, weight = head.class_prior, logits.shape[1], at_step(head.prior_weight, step)
    if prior is None:
        return logits.new_zeros(way)
    if isinstance(prior, tuple):
        if len(prior) != way:
            raise ValueError(f"class_prior has {len(prior)} probabilities for {way} classes; it needs one for each")
        return weight * logits.new_tensor(prior).log()
    shares = logits.new_full((way,), 1 / way) if responsibilities is None else responsibilities.mean(0)
    return weight * (head.uniform_weight / way + (1 - head.uniform_weight) * shares).log()


@dataclass(frozen=True)
class Samples:
    """An episode's images as points, in the feature dimensions or in other coordinates."""

    features: Float[Tensor, "n d"]  # of the support set, then the points: query images, then unlabelled ones
    one_hot: Float[Tensor, "n_support way"]  # responsibilities of the support images
    refining: slice  # the points that refine the classes
    shots: Sequence[int]  # support images of each class
    spread: float  # the features' total variance

    @cached_property
    def support(self) -> Float[Tensor, "n_support d"]:
        return self.features[: self.one_hot.shape[0]]

    @cached_property
    def points(self) -> Float[Tensor, "n_points d"]:
        return self.features[self.one_hot.shape[0] :]

    @cached_property
    def members(self) -> Float[Tensor, "m d"]:
        """The images that make up the classes from step 1 on: the support set and the refining images."""
        rows, n_support = self.points[self.refining], len(self.one_hot)
        return torch.cat([self.support, rows]) if self.refining.start else self.features[: n_support + len(rows)]


def member_weights(
    one_hot: Float[Tensor, "n_support way"], responsibilities: Float[Tensor, "n_refining way"]
) -> Float[Tensor, "m way"]:
    """Responsibilities of support and refining images; those of the support set are fixed (equation 8).

    Responsibilities below eps² change no Q_k beyond rounding. They become 0, for denormal numbers are slow.
    """
    negligible = torch.finfo(responsibilities.dtype).eps ** 2
    return torch.cat([one_hot, threshold(responsibilities, negligible, 0)])


def plain_distances(samples: Samples, head: Head) -> Callable[[Tensor | None], Distances]:
    """Squared distances by the equations, with every Q_k as a matrix. Serves every head; differentiable.

    The result takes the refining images' responsibilities; None is step 0, the support set alone.
    """
    support = class_statistics(samples.support, samples.one_hot, head)

    def distances(responsibilities: Float[Tensor, "n_refining way"] | None) -> Distances:
        if responsibilities is None:
            return class_distances(samples.points, support, head)
        members, weights = samples.members, member_weights(samples.one_hot, responsibilities)
        if head.update == "means":
            refined = replace(support, means=class_means(members, weights))
        else:
            refined = class_statistics(members, weights, replace(head, class_covariance_divisor="n"))
        return class_distances(samples.points, refined, head)

    return distances
