"""How the refinement loop computes its logits: three ways to the same numbers, chosen once per episode.

`Dense` reads the equations plainly. `FewImages` needs the images' inner products alone. `LowRank` is for many images:

1. All means and images lie in the affine span of the episode's N features, and every class covariance is
   identity_weight · I outside of it: r = min(N, d) coordinates give identical distances.
2. In the axes that diagonalise the task covariance Σ, the part of Q_k that all classes share up to a factor,
   D_k = (1 − λ_k) Σ + identity_weight · I, is diagonal.
3. The rest, λ_k Σ_k, has few rows, one for each image that counts in class k, or few axes that matter, since
   Σ_k ≼ (N / n_k) Σ: `tcnaps.method.distances` makes use of either.
"""

from dataclasses import replace
from functools import cached_property
from math import log

import torch
from jaxtyping import Float
from torch import Tensor

from tcnaps.method.class_statistics import (
    ClassStatistics,
    Samples,
    class_distances,
    class_means,
    class_statistics,
    covariance,
    divisor,
    logits_of,
    regulariser,
    scale_of,
)
from tcnaps.method.distances import cholesky, squared_distances
from tcnaps.method.head import Head

SMALL = 256  # up to so many images or features, float64 throughout costs little, and no rounding is amplified
SPREAD = 1e4  # total variance, in units of identity_weight, from which on rounding would hide small distances
FEW = 200  # images, up to which their inner products are all that is needed
AT_ONCE = 2**28  # classes × images × axes that are worked on at a time, so that they fit in memory


def total_variance(features: Float[Tensor, "n d"]) -> float:
    """The variance of features about their mean, summed over dimensions."""
    features = features.detach()
    return float((features - features.mean(0)).square().sum()) / len(features)


def in_working_precision(features: Float[Tensor, "n d"], spread: float, head: Head) -> Float[Tensor, "n d"]:
    """The features, in float64 where they are few or their total variance, `spread`, is large."""
    small = min(features.shape) <= SMALL
    return features.double() if small or not spread <= SPREAD * head.identity_weight else features


class Strategy:
    """One way to compute the logits of every step.

    Attributes:
        scale: the factor on the squared distances in the logits that were computed last.
    """

    def __init__(self, samples: Samples, head: Head, outside: int = 0):
        """`outside` counts the dimensions that the samples' coordinates leave out, as no image differs there."""
        self.samples, self.head, self.outside = samples, head, outside

    def from_support(self) -> Float[Tensor, "n_points way"]:
        """Logits under the support set's statistics alone: step 0, which is Simple CNAPS."""
        raise NotImplementedError

    def refined(self, responsibilities: Float[Tensor, "n_refining way"]) -> Float[Tensor, "n_points way"]:
        """Logits under the statistics of support and refining images, weighted by responsibilities."""
        raise NotImplementedError

    def logits(self, distances: Tensor, log_determinants: Tensor | None) -> Float[Tensor, "n_points way"]:
        self.scale = scale_of(distances, self.head)
        if self.head.log_determinant:  # outside, all covariances are identity_weight · I
            beta = self.head.identity_weight
            log_determinants = log_determinants + self.outside * (beta.log() if isinstance(beta, Tensor) else log(beta))
        return logits_of(distances, log_determinants, self.scale, self.head)


def strategy_for(samples: Samples, head: Head) -> Strategy:
    """The fastest strategy that serves the head and, where there are any, gradients."""
    learned = any(isinstance(value, Tensor) for value in vars(head).values())
    plain = head.update == "means" or samples.features.requires_grad or learned
    if head.metric == "euclidean" or plain and head.class_covariance_divisor == "n-1":
        return Dense(samples, head)
    if head.class_covariance_divisor == "n-1":
        return ReleasedStepZero(samples, head)
    n, d = samples.features.shape
    if not plain and n <= FEW and samples.spread <= SPREAD * head.identity_weight:
        return FewImages(samples, head)
    coordinates, support_axes = span_coordinates(samples.features, len(samples.one_hot))
    samples, outside = replace(samples, features=coordinates), d - coordinates.shape[1]
    return Dense(samples, head, outside) if plain else LowRank(samples, head, outside, support_axes)


class Dense(Strategy):
    """Class covariances as matrices, one Cholesky factor per class. Works under gradients and serves every head."""

    def from_support(self) -> Float[Tensor, "n_points way"]:
        self.first = class_statistics(self.samples.support, self.samples.one_hot, self.head)
        return self._logits(self.first)

    def refined(self, responsibilities: Float[Tensor, "n_refining way"]) -> Float[Tensor, "n_points way"]:
        members, weights = self.samples.members, self.samples.weights(responsibilities)
        if self.head.update == "means":
            return self._logits(replace(self.first, means=class_means(members, weights)))
        return self._logits(class_statistics(members, weights, replace(self.head, class_covariance_divisor="n")))

    def _logits(self, statistics: ClassStatistics) -> Float[Tensor, "n_points way"]:
        return self.logits(*class_distances(self.samples.points, statistics, self.head))


class ReleasedStepZero(Strategy):
    """Step 0 divides by n_k − 1, as the released Simple CNAPS does (`Head`); later steps divide by n_k.

    Its rule for 1-shot classes depends on the axes of the features, so that it needs them as they are.
    """

    def __init__(self, samples: Samples, head: Head):
        self.first = Dense(samples, head)
        self.later = strategy_for(samples, replace(head, class_covariance_divisor="n"))

    def from_support(self) -> Float[Tensor, "n_points way"]:
        return self.first.from_support()

    def refined(self, responsibilities: Float[Tensor, "n_refining way"]) -> Float[Tensor, "n_points way"]:
        return self.later.refined(responsibilities)


class FewImages(Strategy):
    """Distances from the images' inner products: one m × m matrix per class for m members, and no covariance.

    With the members' features C about their mean, the mean of a class is Cᵀ p, p = w / n, and its covariance is
    Q = β I + Cᵀ K C with K = diag(δ) − (λ / n²) w wᵀ and δ = (1 − λ) / m + (λ / n) w. The Woodbury identity turns
    Q⁻¹ into the inverse of M = C Cᵀ + β K⁻¹, and the Sherman-Morrison formula gives K⁻¹.
    """

    def from_support(self) -> Float[Tensor, "n_points way"]:
        return self._logits(self._products(self.samples.support), self.samples.one_hot)

    def refined(self, responsibilities: Float[Tensor, "n_refining way"]) -> Float[Tensor, "n_points way"]:
        return self._logits(self._products_of_members, self.samples.weights(responsibilities))

    @cached_property
    def _products_of_members(self) -> tuple[Tensor, Tensor, Tensor]:
        """The same at every step from 1 on."""
        return self._products(self.samples.members)

    def _products(self, members: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Inner products about the members' mean: among them, theirs with the points, and of each point with itself."""
        centre, n_support = members.mean(0), self.samples.one_hot.shape[0]
        centred = members - centre
        among = centred @ centred.T
        if members is self.samples.features:
            return among, among[:, n_support:], among.diagonal()[n_support:]
        points = self.samples.points - centre
        return among, centred @ points.T, points.square().sum(1)

    def _logits(self, products: tuple[Tensor, Tensor, Tensor], weights: Tensor) -> Float[Tensor, "n_points way"]:
        (among, to_points, squares), beta, m = products, self.head.identity_weight, weights.shape[0]
        counts = weights.sum(0)
        mix = regulariser(counts, self.head)
        task_weights = mix.task_weights[:, None] / divisor(m, self.head.task_covariance_divisor)
        w, image_weights, counts = weights.T.contiguous(), mix.image_weights[:, None], counts[:, None]
        p, delta = w / counts, w * image_weights + task_weights
        ratio = w / delta
        rest = ratio.sum(1, keepdim=True) * task_weights / counts  # 1 − (λ / n²) wᵀ diag(δ)⁻¹ w, without cancellation
        matrices = torch.addcmul(among, (ratio * (beta * image_weights / counts / rest))[..., None], ratio[:, None])
        matrices.diagonal(dim1=1, dim2=2).add_(beta / delta)
        factors = cholesky(matrices, in_place=True)  # of M
        to_means = p @ among
        solved = to_points - to_means[..., None]
        torch.linalg.solve_triangular(factors, solved, upper=False, out=solved)
        lengths = squares - 2 * p @ to_points + (p * to_means).sum(1, keepdim=True)  # |z − μ|²
        distances, log_determinants = (lengths - solved.square_().sum(1)).T / beta, None
        if self.head.log_determinant:
            log_determinants = 2 * factors.diagonal(dim1=1, dim2=2).log().sum(1) + delta.log().sum(1) + rest[:, 0].log()
            log_determinants += (self.samples.features.shape[1] - m) * log(beta)
        return self.logits(distances, log_determinants)


class LowRank(Strategy):
    """A class is an update of a diagonal, of low rank or in few axes."""

    def __init__(self, samples: Samples, head: Head, outside: int, support_axes: int):
        """`support_axes` counts the axes of the samples, from the first, that the support images lie in."""
        super().__init__(samples, head, outside)
        self.support_axes = support_axes

    def from_support(self) -> Float[Tensor, "n_points way"]:
        inner, beyond = self.samples.features.tensor_split([self.support_axes], dim=1)
        support, points = inner.tensor_split([len(self.samples.one_hot)])
        distances, log_determinants = self._distances_from_support(support, points)
        # In the other axes all means are 0 and all covariances identity_weight · I.
        distances = distances + beyond[len(support) :].square().sum(1, keepdim=True) / self.head.identity_weight
        return self.logits(distances, log_determinants + beyond.shape[1] * log(self.head.identity_weight))

    def refined(self, responsibilities: Float[Tensor, "n_refining way"]) -> Float[Tensor, "n_points way"]:
        points, members, variances = self._task_axes
        return self.logits(*self._distances(points, members, self.samples.weights(responsibilities), variances))

    @cached_property
    def _task_axes(self) -> tuple[Tensor, Tensor, Tensor]:
        """Points and members in the axes of the members' covariance, and the variances: the same at every step."""
        members, centre = self.samples.members, self.samples.members.mean(0)
        rotation, variances = principal_axes(covariance(members, self.head))
        return (self.samples.points - centre) @ rotation, (members - centre) @ rotation, variances

    def _distances_from_support(self, support: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
        one_hot, task_covariance = self.samples.one_hot, covariance(support, self.head)
        if min(self.samples.shots) < max(self.samples.shots):
            rotation, variances = principal_axes(task_covariance)
            return self._distances(points @ rotation, support @ rotation, one_hot, variances)
        # All classes share D: a Cholesky factor makes it identity_weight · I, which is cheaper than finding its axes.
        mix = regulariser(one_hot.sum(0), self.head)
        shared = task_covariance * (mix.task_weights[0] / mix.identity_weight)
        shared.diagonal().add_(1)
        factor = cholesky(shared)
        support, points = (torch.linalg.solve_triangular(factor, z.T, upper=False).T for z in (support, points))
        distances, log_determinants = self._distances(points, support, one_hot, torch.zeros_like(factor[0]))
        return distances, log_determinants + 2 * factor.diagonal().log().sum()

    def _distances(self, points: Tensor, members: Tensor, weights: Tensor, variances: Tensor) -> tuple[Tensor, Tensor]:
        """From images in axes in which Σ is diagonal, with `variances`."""
        means, mix = class_means(members, weights), regulariser(weights.sum(0), self.head)
        diagonals = torch.outer(mix.task_weights, variances) + mix.identity_weight
        weights, shots, tolerance = weights * mix.image_weights, self.samples.shots, self.head.tolerance
        found, at_once = [], max(1, AT_ONCE // max(1, points.numel()))
        for start in range(0, len(means), at_once):
            k = slice(start, start + at_once)
            found.append(squared_distances(points, means[k], diagonals[k], members, weights[:, k], shots, tolerance))
        distances, log_determinants = (torch.cat(parts, dim=-1) for parts in zip(*found))
        return distances, log_determinants


def span_coordinates(features: Float[Tensor, "n d"], n_support: int) -> tuple[Float[Tensor, "n r"], int]:
    """Coordinates of the features in an orthonormal basis of their span about the support images' mean.

    Distances, means and covariances computed from the coordinates equal those in the d feature dimensions. Gradients
    pass through exactly: the basis is constant to first order where it matters, because a displacement orthogonal to
    the span changes neither a distance nor a log-determinant to first order.

    Returns:
        The coordinates, r = min(n, d) at most, and how many of them, from the first, the support images need.
    """
    centred = features - features[:n_support].mean(0)
    if len(features) > SMALL:  # after ReLU, some features may be 0 in every image
        varies = (features != features[0]).any(0)
        varies[0] = True  # where all images are the same, too, there is a coordinate
        centred = centred[:, varies]
    n, d = centred.shape
    if n >= d:
        return centred, d
    if features.requires_grad:
        return centred @ torch.linalg.qr(centred.detach().T).Q, n
    # centredᵀ = B R, so the coordinates in B are Rᵀ, and R is triangular.
    return torch.linalg.qr(centred.T, mode="r").R.T, n_support


def principal_axes(matrix: Float[Tensor, "r r"]) -> tuple[Float[Tensor, "r r"], Float[Tensor, "r"]]:
    """Rotation to the axes of a covariance matrix, and the variances along them, the smallest first."""
    try:
        variances, rotation = torch.linalg.eigh(matrix)
    except torch.linalg.LinAlgError:  # in float32 it may not converge where many features are 0 in every image
        variances, rotation = (part.to(matrix.dtype) for part in torch.linalg.eigh(matrix.double()))
    return rotation, variances.clamp_min(0)
