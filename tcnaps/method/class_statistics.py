"""Class means and regularised covariances from weighted images, and the logits they give (sections 3.1 and 3.3).

The plain reading of the equations, with every class covariance as a matrix. `tcnaps.method.fast.strategies` reaches the
same logits with far fewer operations.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import threshold

from tcnaps.method.distances import dense_squared_distances, squared_euclidean
from tcnaps.method.head import Head, Number

MEDIAN_GAP = 2.0  # of squared distances, after scaling; see `scale_of`


@dataclass(frozen=True)
class ClassStatistics:
    """Means and regularised covariances of every class, in the coordinates of the features they came from."""

    means: Float[Tensor, "way d"]
    covariances: Float[Tensor, "way d d"]  # Q_k
    counts: Float[Tensor, "way"]  # n_k


class Regulariser(NamedTuple):
    """Q_k = class_weights_k · Σ_k + task_weights_k · Σ + identity_weight · I (equation 2).

    Attributes:
        image_weights: of an image that counts fully in class k, in class_weights_k · Σ_k.
    """

    class_weights: Float[Tensor, "way"]  # λ_k, times the head's class_covariance_weight
    image_weights: Float[Tensor, "way"]  # the same / n_k
    task_weights: Float[Tensor, "way"]  # 1 − λ_k, times the head's task_covariance_weight
    identity_weight: Number  # β


@dataclass(frozen=True)
class Samples:
    """An episode's images as points, in the feature dimensions or in other coordinates.

    Attributes:
        features: those of the support set, then the points to classify: query images, then unlabelled ones.
        one_hot: responsibilities of the support images.
        refining: which of the points refine the classes.
        shots: support images of each class; known to the host, so that a GPU need not be asked.
        spread: the features' total variance.
    """

    features: Float[Tensor, "n d"]
    one_hot: Float[Tensor, "n_support way"]
    refining: slice
    shots: Sequence[int]
    spread: float

    @cached_property
    def support(self) -> Float[Tensor, "n_support d"]:
        return self.features[: self.one_hot.shape[0]]

    @cached_property
    def points(self) -> Float[Tensor, "n_points d"]:
        return self.features[self.one_hot.shape[0] :]

    @cached_property
    def members(self) -> Float[Tensor, "m d"]:
        """The images that make up the classes from step 1 on."""
        refining = self.points[self.refining]
        if len(refining) == 0:
            return self.support
        return self.features if len(refining) == len(self.points) else torch.cat([self.support, refining])

    def weights(self, responsibilities: Float[Tensor, "n_refining way"]) -> Float[Tensor, "m way"]:
        """The members' responsibilities, those of the support set being fixed (equation 8).

        Some are so small that numbers made of them would slow a processor down (denormal numbers). As 0 they change no
        Q_k beyond rounding, since each image has a share of 1 / N in Σ.
        """
        negligible = torch.finfo(responsibilities.dtype).eps ** 2
        return torch.cat([self.one_hot, threshold(responsibilities, negligible, 0)])


def one_hot(labels: Int[Tensor, "n"], way: int, like: Tensor) -> Float[Tensor, "n way"]:
    """Responsibilities of labelled images: 1 for the label's class, 0 elsewhere (equation 8)."""
    return torch.nn.functional.one_hot(labels, way).to(like.dtype)


def regulariser(counts: Float[Tensor, "way"], head: Head) -> Regulariser:
    """How Q_k is made of Σ_k, Σ and I: the one place that says so (equation 2).

    λ_k = n_k / (n_k + 1): the more images a class has, the more its own covariance counts. The head's weights of the
    covariances, 1 in the paper, are factors on λ_k and on 1 − λ_k.
    """
    task_shares = (counts + 1).reciprocal()
    class_weights = counts * task_shares * head.class_covariance_weight
    images = divisor(counts, head.class_covariance_divisor)
    if head.class_covariance_divisor == "n-1":
        images = images.clamp_min(1)  # a class of one image has no scatter: any divisor will do
    task_weights = task_shares * head.task_covariance_weight
    return Regulariser(class_weights, class_weights / images, task_weights, head.identity_weight)


def divisor(count: Tensor | int, rule: str) -> Tensor | int:
    """n, or n − 1 where the rule says so."""
    return count - 1 if rule == "n-1" else count


def class_statistics(
    features: Float[Tensor, "n d"], responsibilities: Float[Tensor, "n way"], head: Head = Head()
) -> ClassStatistics:
    """Class means and covariances from weighted images (equations 9-12; with one-hot rows, equations 1-4).

    Σ is the weighted task covariance and Σ_k the weighted class covariance, about the means μ and μ_k; `regulariser`
    combines them. With the class divisor n_k − 1, responsibilities must be one-hot and features not rotated (`Head`).
    """
    counts, means = responsibilities.sum(0), class_means(features, responsibilities)
    if head.metric == "euclidean":
        identity = torch.eye(features.shape[1], dtype=features.dtype, device=features.device)
        return ClassStatistics(means, identity.expand(len(counts), -1, -1), counts)
    mix = regulariser(counts, head)
    covariances = mix.task_weights[:, None, None] * covariance(features, head)
    covariances.diagonal(dim1=1, dim2=2).add_(mix.identity_weight)
    if head.class_covariance_divisor == "n-1":
        alone = torch.where(counts == 1, responsibilities.T @ features.var(1), 0)
        covariances = covariances + (mix.class_weights * alone)[:, None, None]
    weights = responsibilities * mix.image_weights
    of_classes = []
    for others, mean, own in zip(covariances, means, weights.T):
        deviations = features - mean
        of_classes.append(torch.addmm(others, deviations.T * own, deviations))  # λ_k Σ_k and the others
    return ClassStatistics(means, torch.stack(of_classes), counts)


def class_means(features: Float[Tensor, "n d"], responsibilities: Float[Tensor, "n way"]) -> Float[Tensor, "way d"]:
    """μ_k (equation 10)."""
    return responsibilities.T @ features / responsibilities.sum(0)[:, None]


def covariance(features: Float[Tensor, "n d"], head: Head) -> Float[Tensor, "d d"]:
    """Σ of equations 2 and 11. Rows of responsibilities sum to 1, so that it depends on the images alone."""
    centred = features - features.mean(0)
    return centred.T @ centred / divisor(len(features), head.task_covariance_divisor)


def class_logits(
    features: Float[Tensor, "n d"], statistics: ClassStatistics, head: Head = Head()
) -> Float[Tensor, "n way"]:
    """Logits of images under given class statistics (equation 5, or the mixture equation with `log_determinant`)."""
    distances, log_determinants = class_distances(features, statistics, head)
    return logits_of(distances, log_determinants, scale_of(distances, head), head)


def class_distances(
    features: Float[Tensor, "n d"], statistics: ClassStatistics, head: Head
) -> tuple[Float[Tensor, "n way"], Float[Tensor, "way"]]:
    """Squared distances of images from every class, and log|Q_k|."""
    if head.metric == "mahalanobis":
        return dense_squared_distances(features, statistics.means, statistics.covariances)
    centre = statistics.means.mean(0)
    distances = squared_euclidean(features - centre, statistics.means - centre)
    return distances, torch.zeros_like(statistics.counts)


def logits_of(
    distances: Float[Tensor, "n way"],
    log_determinants: Float[Tensor, "way"] | None,
    scale: float | int | Float[Tensor, ""],
    head: Head,
) -> Float[Tensor, "n way"]:
    """−scale · d², less ½ log|Q_k| where the head has the log-determinant."""
    logits = -scale * distances
    return logits - log_determinants / 2 if head.log_determinant else logits


def log_prior(
    head: Head, logits: Float[Tensor, "n way"], responsibilities: Float[Tensor, "n_refining way"] | None = None
) -> Float[Tensor, "way"]:
    """log π_k, for the logits: 0 where the head has no class prior.

    An estimated one is π_k = w / way + (1 − w) · (mean over i of r_ik), with w `uniform_weight` and r the refining
    images' responsibilities: the M-step of a mixture whose π has a Dirichlet prior worth n_refining · w / (1 − w)
    images, evenly spread. So many, rather than a fixed number, since what r gets wrong does not shrink with their
    number. Support images don't count, as somebody chose their numbers. At step 0 there is no r yet, and π is uniform.

    Raises:
        ValueError: the head has a prior for another number of classes.
    """
    prior, way = head.class_prior, logits.shape[1]
    if isinstance(prior, tuple):
        if len(prior) != way:
            raise ValueError(f"class_prior has {len(prior)} probabilities for {way} classes; it needs one for each")
        return logits.new_tensor(prior).log()
    if prior is None:
        return logits.new_zeros(way)
    shares = logits.new_full((way,), 1 / way) if responsibilities is None else responsibilities.mean(0)
    return (head.uniform_weight / way + (1 - head.uniform_weight) * shares).log()


def scale_of(distances: Float[Tensor, "n way"], head: Head) -> float | int | Float[Tensor, ""]:
    """The factor on squared distances: the head's own, or under `auto` one that makes the median gap between an
    image's two nearest classes 2, so that half of the images have odds above e² for the nearest class.

    It is 1 where there is no image or a single class.
    """
    if head.scale != "auto":
        return head.scale
    if len(distances) == 0 or distances.shape[1] == 1:
        return 1.0
    nearest, second = distances.topk(2, dim=1, largest=False).values.T
    gap = (second - nearest).median()
    return MEDIAN_GAP / gap.clamp_min(torch.finfo(gap.dtype).eps)  # at a gap of 0, most images lie on a border
