"""Exact squared Mahalanobis distances at the cost of a class's own few images, instead of d³ a class.

Three facts carry it. (1) All means and images lie in the affine span of the episode's N features, and every class
covariance is `identity_weight`·I outside of it: r = min(N, d) coordinates give identical distances. (2) In the
axes that diagonalise the task covariance Σ, the part of Q_k common to all classes, D_k = (1 − λ_k) Σ +
identity_weight·I, is diagonal. (3) The rest, λ_k Σ_k = X_kᵀ X_k, has a row for each image that counts in class k,
so that Q_k⁻¹ and |Q_k| follow from an M_k × M_k Cholesky factor (the Woodbury identity and the matrix
determinant lemma).
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor


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
    return torch.linalg.cholesky(covariance)


def significant_rows(
    squared_norms: Float[Tensor, "m way"], weights: Float[Tensor, "m way"], identity_weight: float | int
) -> Int[Tensor, ""]:
    """How many rows the largest class needs, so that leaving out the others changes no distance beyond rounding.

    Leaving out rows x_j of X_k lowers Q_k by Δ ≼ (Σ_j |x_j|²) I, and Q_k ≽ identity_weight·I, so that a squared
    distance grows by at most the factor 1 + Σ_j |x_j|² / identity_weight. Rows are left out while that sum is
    below the floating-point resolution; at responsibilities of exactly 0 nothing is lost at all.

    Args:
        squared_norms: |z_j − μ_k|².
        weights: λ_k w_jk / n_k, so that |x_j|² = weights · squared_norms.
    """
    resolution = torch.finfo(weights.dtype).eps * identity_weight / len(weights)
    return (weights * squared_norms > resolution).sum(0).max()


def squared_distances(
    points: Float[Tensor, "n r"],
    means: Float[Tensor, "way r"],
    diagonals: Float[Tensor, "way r"],
    members: Float[Tensor, "m r"],
    weights: Float[Tensor, "m way"],
    identity_weight: float | int,
    rows: int | None = None,
) -> tuple[Float[Tensor, "n way"], Float[Tensor, "way"], Int[Tensor, ""] | int]:
    """(z − μ_k)ᵀ Q_k⁻¹ (z − μ_k) and log|Q_k| for Q_k = D_k + Σ_j weights_jk (z_j − μ_k)(z_j − μ_k)ᵀ.

    Args:
        points: the images z to classify, in the axes in which the D_k are diagonal.
        diagonals: D_k's diagonal, at least `identity_weight` everywhere.
        members: the images z_j that make up the class covariances, in the same axes.
        weights: λ_k w_jk / n_k.
        rows: how many members to use for each class: those that count most. Default: as many as `significant_rows`
            says, for which the host waits for the device.

    Returns:
        Both, and `significant_rows`: the former are exact only where `rows` is no less.
    """
    precisions = 1 / diagonals
    distances = _diagonal_distances(points, means, precisions)
    log_determinants = diagonals.log().sum(1)
    from_means = _euclidean(members, means)
    significant = significant_rows(from_means, weights, identity_weight)
    if rows is None:
        count = significant = int(significant)
        cholesky = torch.linalg.cholesky
    else:
        count, cholesky = min(rows, len(members)), _unchecked_cholesky
    if count == 0:
        return distances, log_determinants, significant
    way, r = means.shape
    if count < len(members):
        largest = (weights * from_means).topk(count, dim=0).indices.T
        chosen, chosen_weights = members[largest], weights.T.gather(1, largest)
    else:
        chosen, chosen_weights = members.expand(way, -1, -1), weights.T
    x = (chosen - means[:, None]) * chosen_weights.sqrt()[..., None]  # way × M × r
    if count > r // 2:  # a class has about as many members as there are dimensions: Q_k itself is cheaper
        covariances = x.mT @ x
        covariances.diagonal(dim1=1, dim2=2).add_(diagonals)
        return *dense_squared_distances(points, means, covariances, waiting=rows is None), significant
    x_precise = x * precisions[:, None]
    capacitance = torch.baddbmm(torch.eye(count, dtype=x.dtype, device=x.device), x_precise, x.mT)  # I + X D⁻¹ Xᵀ
    factor = cholesky(capacitance)
    at_points = (x_precise.reshape(way * count, r) @ points.T).view(way, count, -1)
    at_means = x_precise @ means[..., None]
    solved = torch.linalg.solve_triangular(factor, at_points - at_means, upper=False)
    distances = distances - solved.square().sum(1).T
    log_determinants = log_determinants + 2 * factor.diagonal(dim1=1, dim2=2).log().sum(1)
    return distances, log_determinants, significant


def dense_squared_distances(
    points: Float[Tensor, "n r"],
    means: Float[Tensor, "way r"],
    covariances: Float[Tensor, "way r r"],
    waiting: bool = True,
) -> tuple[Float[Tensor, "n way"], Float[Tensor, "way"]]:
    """Squared Mahalanobis distances and log-determinants by a Cholesky factor a class; differentiable.

    Args:
        waiting: whether the host may wait for the device to say that the factors exist. Otherwise all classes are
            taken together as well, since a GPU likes few large steps better than many small ones.
    """
    if waiting:
        factors = torch.linalg.cholesky(covariances)
        distances = [
            torch.linalg.solve_triangular(factor, (points - mean).T, upper=False).square().sum(0)
            for factor, mean in zip(factors, means)
        ]  # a class at a time: never n × way × r numbers at once
        distances = torch.stack(distances, dim=1)
    else:
        factors = _unchecked_cholesky(covariances)
        solved = torch.linalg.solve_triangular(factors, points.T - means[..., None], upper=False)
        distances = solved.square().sum(1).T
    return distances, 2 * factors.diagonal(dim1=1, dim2=2).log().sum(1)


def _unchecked_cholesky(matrices: Float[Tensor, "way m m"]) -> Float[Tensor, "way m m"]:
    """Without waiting for the device to say that it went well: where it did not, there is NaN."""
    return torch.linalg.cholesky_ex(matrices).L


def _diagonal_distances(points, means, precisions):
    """Σ_i (z_i − μ_ki)² p_ki as three matrix products."""
    cross = points @ (means * precisions).T
    return points.square() @ precisions.T - 2 * cross + (means.square() * precisions).sum(1)


def _euclidean(points, means):
    return (points.square().sum(1, keepdim=True) - 2 * points @ means.T + means.square().sum(1)).clamp_min(0)
