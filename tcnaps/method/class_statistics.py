"""Class means and regularised covariances from weighted images, and the logits they give (sections 3.1 and 3.3).

`Dense` forms every class covariance as a matrix. It is the plain reading of the equations, works under gradients, and
serves every option of `Head`; `tcnaps.method.low_rank` reaches the same logits with far fewer operations.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tcnaps.method.distances import dense_squared_distances, squared_euclidean
from tcnaps.method.head import Head

MEDIAN_GAP = 2.0  # of squared distances, after scaling; see `scale_of`


@dataclass(frozen=True)
class ClassStatistics:
    """Means and regularised covariances of every class, in the coordinates of the features they came from."""

    means: Float[Tensor, "way d"]
    covariances: Float[Tensor, "way d d"]  # Q_k
    counts: Float[Tensor, "way"]  # n_k


class Regulariser(NamedTuple):
    """Q_k = class_weights_k · Σ_k + task_weights_k · Σ + identity_weight · I (equation 2)."""

    class_weights: Float[Tensor, "way"]  # λ_k
    task_weights: Float[Tensor, "way"]  # 1 − λ_k
    identity_weight: float | int  # β


@dataclass(frozen=True)
class Samples:
    """An episode's images as points, in the feature dimensions or in other coordinates.

    Attributes:
        one_hot: responsibilities of the support images.
        points: the images to classify: query images, then unlabelled ones.
        refining: which of `points` refine the classes.
        shots: support images of each class; known to the host, so that a GPU need not be asked.
    """

    support: Float[Tensor, "n_support d"]
    one_hot: Float[Tensor, "n_support way"]
    points: Float[Tensor, "n_points d"]
    refining: slice
    shots: Sequence[int]

    @property
    def features(self) -> Float[Tensor, "n d"]:
        """All images, those of the support set first."""
        return torch.cat([self.support, self.points])

    @property
    def members(self) -> Float[Tensor, "m d"]:
        """The images that make up the classes from step 1 on."""
        return torch.cat([self.support, self.points[self.refining]])

    def weights(self, responsibilities: Float[Tensor, "n_refining way"]) -> Float[Tensor, "m way"]:
        """The members' responsibilities, those of the support set being fixed (equation 8)."""
        return torch.cat([self.one_hot, responsibilities])

    def at(self, coordinates: Float[Tensor, "n r"]) -> "Samples":
        """The same images at other coordinates."""
        return replace(self, support=coordinates[: len(self.support)], points=coordinates[len(self.support) :])


class Dense:
    """A strategy for the refinement loop: class covariances as matrices, one Cholesky factor per class.

    Args:
        outside: see `class_logits`.
    """

    def __init__(self, samples: Samples, head: Head, outside: int = 0):
        self.samples, self.head, self.outside = samples, head, outside

    def from_support(self) -> Float[Tensor, "n_points way"]:
        """Logits under the support set's statistics alone: step 0, which is Simple CNAPS."""
        self.first = class_statistics(self.samples.support, self.samples.one_hot, self.head)
        return class_logits(self.samples.points, self.first, self.head, self.outside)

    def refined(self, responsibilities: Float[Tensor, "n_refining way"]) -> Float[Tensor, "n_points way"]:
        """Logits under the statistics of support and refining images, weighted by responsibilities."""
        head = replace(self.head, class_covariance_divisor="n")
        statistics = class_statistics(self.samples.members, self.samples.weights(responsibilities), head)
        if head.update == "means":
            statistics = replace(statistics, covariances=self.first.covariances)
        return class_logits(self.samples.points, statistics, head, self.outside)


def one_hot(labels: Int[Tensor, "n"], way: int, like: Tensor) -> Float[Tensor, "n way"]:
    """Responsibilities of labelled images: 1 for the label's class, 0 elsewhere (equation 8)."""
    return torch.nn.functional.one_hot(labels, way).to(like.dtype)


def regulariser(counts: Float[Tensor, "way"], head: Head) -> Regulariser:
    """How Q_k is made of Σ_k, Σ and I: the one place that says so (equation 2).

    λ_k = n_k / (n_k + 1): the more images a class has, the more its own covariance counts.
    """
    shrinkage = counts / (counts + 1)
    return Regulariser(shrinkage, 1 - shrinkage, head.identity_weight)


def class_statistics(
    features: Float[Tensor, "n d"], responsibilities: Float[Tensor, "n way"], head: Head = Head()
) -> ClassStatistics:
    """Class means and covariances from weighted images (equations 9-12; with one-hot rows, equations 1-4).

    Σ is the weighted task covariance and Σ_k the weighted class covariance, about the means μ and μ_k; `regulariser`
    combines them. With the class divisor n_k − 1, responsibilities must be one-hot and features not rotated (`Head`).
    """
    d = features.shape[1]
    counts = responsibilities.sum(0)
    means = responsibilities.T @ features / counts[:, None]
    identity = torch.eye(d, dtype=features.dtype, device=features.device)
    if head.metric == "euclidean":
        return ClassStatistics(means, identity.expand(len(counts), d, d), counts)
    mix = regulariser(counts, head)
    centred = features - features.mean(0)  # rows of responsibilities sum to 1: Σ is the plain covariance
    task_covariance = centred.T @ centred / divisor(len(features), head.task_covariance_divisor)
    weights = member_weights(responsibilities, counts, head)
    covariances = []
    for k in range(len(counts)):
        if head.class_covariance_divisor == "n-1" and counts[k] == 1:
            own = mix.class_weights[k] * features[responsibilities[:, k].argmax()].var()
        else:
            deviations = features - means[k]
            own = (deviations * weights[:, k : k + 1]).T @ deviations  # λ_k Σ_k
        covariances.append(own + mix.task_weights[k] * task_covariance + mix.identity_weight * identity)
    return ClassStatistics(means, torch.stack(covariances), counts)


def class_logits(
    features: Float[Tensor, "n d"], statistics: ClassStatistics, head: Head = Head(), outside: int = 0
) -> Float[Tensor, "n way"]:
    """Logits of images under given class statistics (equation 5, or the mixture equation with `log_determinant`).

    Args:
        outside: feature dimensions beyond d in which every covariance is identity_weight · I and no image differs
            from a mean; they count in the log-determinant only.
    """
    if head.metric == "euclidean":
        centre = statistics.means.mean(0)
        distances = squared_euclidean(features - centre, statistics.means - centre)
        return -scale_of(distances, head) * distances
    distances, log_determinants = dense_squared_distances(features, statistics.means, statistics.covariances)
    return logits_of(distances, log_determinants, scale_of(distances, head), head, outside)


def logits_of(
    distances: Float[Tensor, "n way"],
    log_determinants: Float[Tensor, "way"],
    scale: float | int | Float[Tensor, ""],
    head: Head,
    outside: int = 0,
) -> Float[Tensor, "n way"]:
    """−scale · d², less ½ log|Q_k| where the head has the log-determinant; for `outside` see `class_logits`."""
    logits = -scale * distances
    if head.log_determinant:
        logits = logits - (log_determinants + outside * math.log(head.identity_weight)) / 2
    return logits


def scale_of(distances: Float[Tensor, "n way"], head: Head) -> float | int | Float[Tensor, ""]:
    """The factor on squared distances: the head's own, or under `auto` one that makes the median gap between an
    image's two nearest classes 2, so that half of the images have odds above e² for the nearest class.

    It is chosen from the images to be classified alone, and is 1 where there is no image or a single class.
    """
    if head.scale != "auto":
        return head.scale
    if len(distances) == 0 or distances.shape[1] == 1:
        return 1.0
    nearest, second = distances.topk(2, dim=1, largest=False).values.T
    gap = (second - nearest).median()
    return MEDIAN_GAP / gap.clamp_min(torch.finfo(gap.dtype).eps)  # at a gap of 0, most images lie on a border


def member_weights(
    responsibilities: Float[Tensor, "m way"], counts: Float[Tensor, "way"], head: Head
) -> Float[Tensor, "m way"]:
    """λ_k w_jk / n_k, the weight of image j in λ_k Σ_k."""
    share = regulariser(counts, head).class_weights / divisor(counts, head.class_covariance_divisor)
    return responsibilities * share


def divisor(count: Tensor | int, rule: str) -> Tensor | int:
    """n, or n − 1 where the rule says so."""
    return count - 1 if rule == "n-1" else count
