"""Distances from responsibilities with far fewer operations than the plain reading; one strategy per episode.

`FewImages` needs the images' inner products alone. `LowRank` is for many images. All means and images lie in the affine
span of the N features, so r = min(N, d) coordinates give identical distances. In the axes that diagonalise the task
covariance Σ, D_k = (1 − λ_k) Σ + identity_weight · I is diagonal. The rest, λ_k Σ_k, has few rows, one for each image
that counts in class k, or few axes that matter, since Σ_k ≼ (N / n_k) Σ; `tcnaps.method.fast.distances` uses both.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from math import log

import torch
from jaxtyping import Float
from torch import Tensor

from tcnaps.method.class_statistics import (
    Distances,
    Samples,
    cholesky,
    class_means,
    covariance,
    divisor,
    member_weights,
    plain_distances,
    shrinkage,
)
from tcnaps.method.fast.distances import cholesky_in_place, squared_distances
from tcnaps.method.head import Head

FEW = 200  # images, up to which their inner products are all that is needed
FLAT = 1e4  # total variance, in units of identity_weight, up to which inner products keep small distances
MANY = 256  # images, from which on it pays to look for features that are the same in all of them
AT_ONCE = 2**28  # classes × images × axes that are worked on at a time, so that they fit in memory


def strategy_for(samples: Samples, head: Head) -> Callable[[Tensor | None], Distances]:
    """The fastest way from responsibilities to distances that serves the head and, where there are any, gradients."""
    if head.metric == "euclidean" or head.class_covariance_divisor == "n-1":
        return plain_distances(samples, head)
    plain = head.update == "means" or samples.features.requires_grad or isinstance(head.scale, Tensor)
    n, d = samples.features.shape
    if not plain and n <= FEW and samples.spread <= FLAT * head.identity_weight:
        return FewImages(samples, head)
    coordinates, support_axes = span_coordinates(samples.features, len(samples.one_hot))
    samples = replace(samples, features=coordinates)
    inside = plain_distances(samples, head) if plain else LowRank(samples, head, support_axes)
    outside = (d - coordinates.shape[1]) * log(head.identity_weight)  # outside the span, Q_k is β I

    def distances(responsibilities: Tensor | None) -> Distances:
        squared, log_determinants = inside(responsibilities)
        return squared, log_determinants + outside

    return distances


class FewImages:
    """Distances from the images' inner products: one m × m matrix per class for m members, and no covariance.

    With the members' features C about their mean (m × d), the mean of a class is Cᵀ p, p = w / n, and its covariance is
    Q = β I + Cᵀ K C with K = diag(δ) − (λ / n²) w wᵀ and δ = (1 − λ) / m + (λ / n) w. The Woodbury identity turns
    Q⁻¹ into the inverse of M = C Cᵀ + β K⁻¹, and the Sherman-Morrison formula gives K⁻¹.
    """

    def __init__(self, samples: Samples, head: Head):
        self.samples, self.head = samples, head

    def __call__(self, responsibilities: Float[Tensor, "n_refining way"] | None) -> Distances:
        if responsibilities is None:
            return self._distances(self._products(self.samples.support), self.samples.one_hot)
        return self._distances(self._products_of_members, member_weights(self.samples.one_hot, responsibilities))

    @cached_property
    def _products_of_members(self) -> tuple[Tensor, Tensor, Tensor]:  # the same at every step from 1 on
        return self._products(self.samples.members)

    def _products(self, members: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Inner products about the members' mean: member with member, member with point, each point with itself."""
        centre, n_support = members.mean(0), self.samples.one_hot.shape[0]
        centred = members - centre
        among = centred @ centred.T
        if len(members) == len(self.samples.features):  # every point is a member
            return among, among[:, n_support:], among.diagonal()[n_support:]
        points = self.samples.points - centre
        return among, centred @ points.T, points.square().sum(1)

    def _distances(self, products: tuple[Tensor, Tensor, Tensor], weights: Tensor) -> Distances:
        (among, to_points, squares), beta, m = products, self.head.identity_weight, weights.shape[0]
        counts = weights.sum(0)
        of_class, of_task = shrinkage(counts)
        task_weights = of_task[:, None] / divisor(m, self.head.task_covariance_divisor)  # (1 − λ) / m
        image_weights = (of_class / counts)[:, None]  # λ / n
        w, counts = weights.T.contiguous(), counts[:, None]  # (way, m), (way, 1)
        p = w / counts
        delta = w * image_weights + task_weights
        ratio = w / delta
        rest = ratio.sum(1, keepdim=True) * task_weights / counts  # 1 − (λ / n²) wᵀ diag(δ)⁻¹ w, without cancellation
        outer_weights = beta * image_weights / counts / rest
        matrices = torch.addcmul(among, (ratio * outer_weights)[..., None], ratio[:, None])  # M: (way, m, m)
        matrices.diagonal(dim1=1, dim2=2).add_(beta / delta)
        factors = cholesky_in_place(matrices)
        to_means = p @ among
        solved = to_points - to_means[..., None]
        torch.linalg.solve_triangular(factors, solved, upper=False, out=solved)
        lengths = squares - 2 * p @ to_points + (p * to_means).sum(1, keepdim=True)  # |z − μ|²
        distances = (lengths - solved.square_().sum(1)).T / beta
        if not self.head.log_determinant:
            return distances, None
        log_determinants = 2 * factors.diagonal(dim1=1, dim2=2).log().sum(1) + delta.log().sum(1) + rest[:, 0].log()
        return distances, log_determinants + (self.samples.features.shape[1] - m) * log(beta)


class LowRank:
    """Each Q_k is a diagonal plus a matrix of low rank or in few axes. The support set lies in the first axes."""

    def __init__(self, samples: Samples, head: Head, support_axes: int):
        self.samples, self.head, self.support_axes = samples, head, support_axes

    def __call__(self, responsibilities: Float[Tensor, "n_refining way"] | None) -> Distances:
        if responsibilities is None:
            return self._from_support()
        points, members, variances = self._task_axes
        return self._distances(points, members, member_weights(self.samples.one_hot, responsibilities), variances)

    @cached_property
    def _task_axes(self) -> tuple[Tensor, Tensor, Tensor]:
        """Points and members in the axes of the members' covariance, and the variances: the same at every step."""
        members = self.samples.members
        rotation, variances = principal_axes(covariance(members, self.head))
        turned = replace(self.samples, features=(self.samples.features - members.mean(0)) @ rotation)
        return turned.points, turned.members, variances

    def _from_support(self) -> Distances:
        beta, one_hot, shots = self.head.identity_weight, self.samples.one_hot, self.samples.shots
        inner, beyond = self.samples.features.tensor_split([self.support_axes], dim=1)
        support, points = inner.tensor_split([len(one_hot)])
        task_covariance, determinant_of_shared = covariance(support, self.head), 0
        if min(shots) < max(shots):
            rotation, variances = principal_axes(task_covariance)
            support, points = support @ rotation, points @ rotation
        else:  # all classes share D: a Cholesky factor makes it β I, which is cheaper than finding its axes
            _, of_task = shrinkage(one_hot.sum(0))
            shared = task_covariance * (of_task[0] / beta)
            shared.diagonal().add_(1)
            factor = cholesky(shared)
            support, points = (torch.linalg.solve_triangular(factor, z.T, upper=False).T for z in (support, points))
            variances, determinant_of_shared = torch.zeros_like(factor[0]), 2 * factor.diagonal().log().sum()
        distances, log_determinants = self._distances(points, support, one_hot, variances)
        # In the other axes all means are 0 and all covariances β I.
        distances = distances + beyond[len(support) :].square().sum(1, keepdim=True) / beta
        return distances, log_determinants + determinant_of_shared + beyond.shape[1] * log(beta)

    def _distances(self, points: Tensor, members: Tensor, weights: Tensor, variances: Tensor) -> Distances:
        """From images in axes in which Σ is diagonal, with `variances`."""
        counts, means = weights.sum(0), class_means(members, weights)
        of_class, of_task = shrinkage(counts)
        diagonals = torch.outer(of_task, variances) + self.head.identity_weight  # D_k
        weights, shots = weights * (of_class / counts), self.samples.shots
        at_once = max(1, AT_ONCE // max(1, points.numel()))
        classes = zip(means.split(at_once), diagonals.split(at_once), weights.split(at_once, dim=1))
        parts = [squared_distances(points, mean, d, members, some, shots) for mean, d, some in classes]
        distances, log_determinants = (torch.cat(part, dim=-1) for part in zip(*parts))
        return distances, log_determinants


def span_coordinates(features: Float[Tensor, "n d"], n_support: int) -> tuple[Float[Tensor, "n r"], int]:
    """Coordinates in an orthonormal basis of the features' span, and how many, from the first, the support set needs.

    The basis counts as constant, and gradients are exact: a move out of the span changes nothing to first order.
    """
    centred = features - features[:n_support].mean(0)
    if len(features) > MANY:  # after ReLU, some features may be 0 in every image
        varies = (features != features[0]).any(0)
        varies[0] = True  # one coordinate stays where all images are the same
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
