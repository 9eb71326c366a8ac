"""The same logits with far fewer operations than d³ per class.

Three facts carry it. (1) All means and images lie in the affine span of the episode's N features, and every class
covariance is identity_weight · I outside of it: r = min(N, d) coordinates give identical distances. (2) In the axes
that diagonalise the task covariance Σ, the part of Q_k that all classes share up to a factor,
D_k = (1 − λ_k) Σ + identity_weight · I, is diagonal. (3) The rest, λ_k Σ_k, has few rows, one for each image that
counts in class k, or few axes that matter, since Σ_k ≼ (N / n_k) Σ: `tcnaps.method.distances` makes use of either.
"""

from dataclasses import replace
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from tcnaps.method.class_statistics import Dense, Samples, divisor, logits_of, member_weights, regulariser, scale_of
from tcnaps.method.distances import cholesky, squared_distances
from tcnaps.method.head import Head

FEW = 256  # images, up to which their own axes are found from the matrix of inner products
AT_ONCE = 2**28  # classes × images × axes that are worked on at a time, so that they fit in memory


class LowRank:
    """A strategy for the refinement loop: a class is an update of a diagonal, of low rank or in few axes.

    Attributes:
        scale: the factor on the squared distances in the logits that were computed last.
    """

    def __init__(self, samples: Samples, head: Head):
        features = samples.features
        n, d = features.shape
        self.few = n < min(d, FEW)
        if self.few:
            coordinates = principal_coordinates(features)
        else:  # after ReLU, some features may be 0 in every image
            varies = (features != features[0]).any(0)
            varies[0] = True  # where all images are the same, too, there is a coordinate
            coordinates = span_coordinates(features[:, varies])
        self.samples, self.outside = samples.at(coordinates), d - coordinates.shape[1]
        self.head = replace(head, class_covariance_divisor="n")  # all but the released rule of step 0

    def from_support(self) -> Float[Tensor, "n_points way"]:
        """Logits under the support set's statistics alone: step 0, which is Simple CNAPS."""
        support, points, one_hot = self.samples.support, self.samples.points, self.samples.one_hot
        counts = one_hot.sum(0)
        if bool((counts == counts[0]).all()):
            return self._from_equal_shots()
        rotation, variances = principal_axes(support, divisor(len(support), self.head.task_covariance_divisor))
        return self._logits(points @ rotation, support @ rotation, self._diagonals(counts, variances), one_hot)

    def refined(self, responsibilities: Float[Tensor, "n_refining way"]) -> Float[Tensor, "n_points way"]:
        """Logits under the statistics of support and refining images, weighted by responsibilities."""
        (points, members, variances), weights = self._task_axes, self.samples.weights(responsibilities)
        return self._logits(points, members, self._diagonals(weights.sum(0), variances), weights)

    @cached_property
    def _task_axes(self) -> tuple[Tensor, Tensor, Tensor]:
        """Points and members in the axes of the members' covariance, and the variances: the same at every step."""
        members, points = self.samples.members, self.samples.points
        n = divisor(len(members), self.head.task_covariance_divisor)
        if self.few and len(members) == len(self.samples.support) + len(points):  # these are its axes
            return points, members, members.square().sum(0) / n
        rotation, variances = principal_axes(members, n)
        return points @ rotation, members @ rotation, variances

    def _diagonals(self, counts: Tensor, variances: Tensor) -> Tensor:
        mix = regulariser(counts, self.head)
        return torch.outer(mix.task_weights, variances) + mix.identity_weight

    def _from_equal_shots(self) -> Tensor:
        """All classes share D: a Cholesky factor makes it I, which is cheaper than finding its axes."""
        support, points, one_hot = self.samples.support, self.samples.points, self.samples.one_hot
        mix = regulariser(one_hot.sum(0), self.head)
        centred = support - support.mean(0)
        weight = mix.task_weights[0] / divisor(len(support), self.head.task_covariance_divisor)
        shared = centred.T @ (weight * centred)
        shared.diagonal().add_(mix.identity_weight)
        factor = cholesky(shared)
        support, points = (torch.linalg.solve_triangular(factor, z.T, upper=False).T for z in (support, points))
        ones = support.new_ones(one_hot.shape[1], support.shape[1])
        return self._logits(points, support, ones, one_hot, 2 * factor.diagonal().log().sum())

    def _logits(self, points, members, diagonals, responsibilities, log_determinant=0) -> Tensor:
        """`log_determinant` is that of the change to these axes, if they stretch."""
        counts = responsibilities.sum(0)
        means = responsibilities.T @ members / counts[:, None]
        shots, tolerance = self.samples.shots, self.head.tolerance
        found, at_once = [], max(1, AT_ONCE // max(1, points.numel()))
        for start in range(0, len(counts), at_once):
            k = slice(start, start + at_once)
            weights = member_weights(responsibilities[:, k], counts[k], self.head)
            found.append(squared_distances(points, means[k], diagonals[k], members, weights, shots, tolerance))
        distances, log_determinants = (torch.cat(parts, dim=-1) for parts in zip(*found))
        self.scale = scale_of(distances, self.head)
        return logits_of(distances, log_determinants + log_determinant, self.scale, self.head, self.outside)


class LowRankAfterReleased(LowRank):
    """The same but for step 0, which divides by n_k − 1 as the released Simple CNAPS does: see `Head`.

    Its rule for 1-shot classes depends on the axes of the features, so that it needs them as they are.
    """

    def __init__(self, samples: Samples, head: Head):
        super().__init__(samples, head)
        self.released = Dense(samples, head)

    def from_support(self) -> Float[Tensor, "n_points way"]:
        return self.released.from_support()


def span_coordinates(features: Float[Tensor, "n d"]) -> Float[Tensor, "n r"]:
    """Coordinates of the features in an orthonormal basis of their centred span; r = min(n, d).

    Distances, means and covariances computed from the coordinates equal those in the d feature dimensions. Gradients
    pass through exactly: the basis is constant to first order where it matters, because a displacement orthogonal to
    the span changes neither a distance nor a log-determinant to first order.
    """
    centred = features - features.mean(0)
    n, d = features.shape
    if n >= d:
        return centred
    if not features.requires_grad:
        return torch.linalg.qr(centred.T, mode="r").R.T  # centredᵀ = B R, so the coordinates in B are Rᵀ
    basis = torch.linalg.qr(centred.detach().T).Q
    return centred @ basis


def principal_coordinates(features: Float[Tensor, "n d"]) -> Float[Tensor, "n n"]:
    """The same for fewer features than dimensions, in the axes of the features' covariance, which is diagonal there.

    From the eigenvectors of the n × n matrix of inner products: as exact as `span_coordinates`, for distances, and
    the rotation that `principal_axes` would find comes with it.
    """
    centred = features - features.mean(0)
    squared_lengths, axes = torch.linalg.eigh(centred @ centred.T)
    return axes * squared_lengths.clamp_min(0).sqrt()


def principal_axes(points: Float[Tensor, "m r"], divisor: int) -> tuple[Float[Tensor, "r r"], Float[Tensor, "r"]]:
    """Rotation to the axes of the points' covariance, and the variances along them (scatter / `divisor`)."""
    centred = points - points.mean(0)
    covariance = centred.T @ centred / divisor
    try:
        variances, rotation = torch.linalg.eigh(covariance)
    except torch.linalg.LinAlgError:  # in float32 it may not converge where many features are 0 in every image
        variances, rotation = (part.to(points.dtype) for part in torch.linalg.eigh(covariance.double()))
    return rotation, variances.clamp_min(0)
