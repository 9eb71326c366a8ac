"""The same logits at the cost of a class's own few images, instead of d³ operations per class. Exact.

Three facts carry it. (1) All means and images lie in the affine span of the episode's N features, and every class
covariance is identity_weight · I outside of it: r = min(N, d) coordinates give identical distances. (2) In the axes
that diagonalise the task covariance Σ, the part of Q_k that all classes share up to a factor,
D_k = (1 − λ_k) Σ + identity_weight · I, is diagonal. (3) The rest, λ_k Σ_k = X_kᵀ X_k, has one row for each image that
counts in class k, so that Q_k⁻¹ and |Q_k| follow from an M_k × M_k Cholesky factor (the Woodbury identity and the
matrix determinant lemma).
"""

from dataclasses import replace
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from tcnaps.method.class_statistics import Dense, Samples, divisor, logits_of, member_weights, regulariser
from tcnaps.method.distances import cholesky, squared_distances
from tcnaps.method.head import Head

FEW = 256  # images, up to which their own axes are found from the matrix of inner products


class LowRank:
    """A strategy for the refinement loop: a class is a low-rank update of a diagonal."""

    def __init__(self, samples: Samples, head: Head):
        n, d = samples.features.shape
        self.few = n < min(d, FEW)
        coordinates = principal_coordinates(samples.features) if self.few else span_coordinates(samples.features)
        self.samples, self.outside = samples.at(coordinates), d - coordinates.shape[1]
        self.head = replace(head, class_covariance_divisor="n")  # all but the released rule of step 0

    def from_support(self) -> Float[Tensor, "n_points way"]:
        """Logits under the support set's statistics alone: step 0, which is Simple CNAPS."""
        support, points, one_hot = self.samples.support, self.samples.points, self.samples.one_hot
        counts = one_hot.sum(0)
        if bool((counts == counts[0]).all()):
            return self._from_equal_shots()
        rotation, variances = principal_axes(support, divisor(len(support), self.head.task_covariance_divisor))
        return self._logits(points @ rotation, support @ rotation, variances, one_hot)

    def refined(self, responsibilities: Float[Tensor, "n_refining way"]) -> Float[Tensor, "n_points way"]:
        """Logits under the statistics of support and refining images, weighted by responsibilities."""
        return self._logits(*self._task_axes, self.samples.weights(responsibilities))

    @cached_property
    def _task_axes(self) -> tuple[Tensor, Tensor, Tensor]:
        """Points and members in the axes of the members' covariance, and the variances: the same at every step."""
        members, points = self.samples.members, self.samples.points
        n = divisor(len(members), self.head.task_covariance_divisor)
        if self.few and len(members) == len(self.samples.support) + len(points):  # these are its axes
            return points, members, members.square().sum(0) / n
        rotation, variances = principal_axes(members, n)
        return points @ rotation, members @ rotation, variances

    def _logits(self, points: Tensor, members: Tensor, variances: Tensor, responsibilities: Tensor) -> Tensor:
        counts = responsibilities.sum(0)
        means = responsibilities.T @ members / counts[:, None]
        mix = regulariser(counts, self.head)
        diagonals = torch.outer(mix.task_weights, variances) + mix.identity_weight
        weights = member_weights(responsibilities, counts, self.head)
        found = squared_distances(
            points, means, diagonals, members, weights, len(self.samples.support), self.head.tolerance
        )
        return logits_of(*found, self.head, self.outside)

    def _from_equal_shots(self) -> Tensor:
        """All classes share D: a Cholesky factor makes it I, which is cheaper than finding its axes."""
        support, points, one_hot = self.samples.support, self.samples.points, self.samples.one_hot
        counts = one_hot.sum(0)
        mix = regulariser(counts, self.head)
        n = divisor(len(support), self.head.task_covariance_divisor)
        factor = shared_factor(support, mix.task_weights[0] / n, mix.identity_weight)
        support, points = (torch.linalg.solve_triangular(factor, z.T, upper=False).T for z in (support, points))
        means = one_hot.T @ support / counts[:, None]
        weights = member_weights(one_hot, counts, self.head)
        ones = torch.ones_like(means)
        distances, log_determinants = squared_distances(points, means, ones, support, weights, len(support), 0)
        log_determinants = log_determinants + 2 * factor.diagonal().log().sum()
        return logits_of(distances, log_determinants, self.head, self.outside)


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
    variances, rotation = torch.linalg.eigh(centred.T @ centred / divisor)
    return rotation, variances.clamp_min(0)


def shared_factor(
    points: Float[Tensor, "m r"], weight: Float[Tensor, ""], identity_weight: float | int
) -> Float[Tensor, "r r"]:
    """Lower Cholesky factor of weight · (scatter of the points) + identity_weight · I."""
    centred = points - points.mean(0)
    covariance = centred.T @ (weight * centred)
    covariance.diagonal().add_(identity_weight)
    return cholesky(covariance)
