"""Squared Mahalanobis distances with as few multiplications as the features allow.

The plain way is a Cholesky factor of every class covariance Q_k. Where Q_k = D_k + S_k, a diagonal and the scatter of
the class's images, three things save most of it: axes in which S_k is too small to matter need the diagonal alone
(`axes_to_leave_out`), images of negligible weight need not be looked at (`significant_members`), and what remains is
taken by images (the Woodbury identity) or by axes (Q_k itself), whichever multiplies less.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

TOLERANCE = {torch.float32: 3e-5, torch.float64: 1e-12}  # the largest that costs no accuracy beyond rounding
FEW = 128  # axes, up to which it is faster to keep them all
COLUMNS = 512  # of a matrix product: enough for its best speed
IN_CACHE = 2**20  # numbers that are worked on at a time: a processor's cache holds them


def squared_distances(
    points: Float[Tensor, "n r"],
    means: Float[Tensor, "way r"],
    diagonals: Float[Tensor, "way r"],
    members: Float[Tensor, "m r"],
    weights: Float[Tensor, "m way"],
    shots: Sequence[int] = (),
    tolerance: float | int | None = None,
) -> tuple[Float[Tensor, "n way"], Float[Tensor, "way"]]:
    """(z − μ_k)ᵀ Q_k⁻¹ (z − μ_k) and log|Q_k| for Q_k = D_k + S_k, S_k = Σ_j weights_jk (z_j − μ_k)(z_j − μ_k)ᵀ.

    Args:
        points: the images z to classify, in axes in which every D_k is diagonal.
        diagonals: D_k's diagonal, above 0 everywhere.
        members: the images z_j that make up the class covariances, in the same axes.
        weights: λ_k w_jk / n_k.
        shots: how many members, from the first, count in one class each: so many of each class.
        tolerance: see `axes_to_leave_out`; None is `TOLERANCE`.
    """
    from_means, few = squared_euclidean(members, means), means.shape[1] <= FEW
    count = significant_members(from_means, weights, diagonals.min())
    if few:
        left_out = torch.zeros_like(count)
    else:
        tolerance = TOLERANCE[points.dtype] if tolerance is None else tolerance
        left_out = axes_to_leave_out(points, means, diagonals, members, weights, tolerance)
    count, left_out = torch.stack([count, left_out]).tolist()  # a GPU is waited for once
    outer, inner = slice(left_out), slice(left_out, None)
    z, mu, d, of_class = (part[:, inner] for part in (points, means, diagonals, members))
    n, a = z.shape
    by_images = count * a * (n + count) + count**3 / 6 + count**2 * n / 2
    by_axes = (max(shots, default=0) + (len(members) - sum(shots) + n) / 2 + a / 6) * a**2
    if by_images < by_axes:
        x = _largest_rows(of_class, mu, weights, from_means, count)
        distances, log_determinants = low_rank_squared_distances(z, mu, d, x)
    else:
        distances, log_determinants = _by_axes(z, mu, d, of_class, weights, () if few else shots)
    if left_out == 0:
        return distances, log_determinants
    outside = _diagonal_distances(points[:, outer], means[:, outer], 1 / diagonals[:, outer])
    return distances + outside, log_determinants + diagonals[:, outer].log().sum(1)


def axes_to_leave_out(
    points: Float[Tensor, "n r"],
    means: Float[Tensor, "way r"],
    diagonals: Float[Tensor, "way r"],
    members: Float[Tensor, "m r"],
    weights: Float[Tensor, "m way"],
    tolerance: float | int,
) -> Int[Tensor, ""]:
    """How many axes, counted from the first, are so little spread that D_k alone will do for Q_k there.

    Let ε be the sum over these axes of S_k,ii / D_k,ii. With p² and q² the squared distances within the axes kept (by
    Q_k) and within these (by D_k), the whole is p² + q² to within 2 √ε p q + ε max(p², q²), and the log-determinant is
    right to within ε (docs/speed.md has the derivation). Axes are left out while ε and √ε q are at most the tolerance
    for all classes and points, so that no squared distance d² changes by more than tolerance · (2 d + d²).
    """
    scatters = weights.T @ members.square() - weights.sum(0)[:, None] * means.square()
    shares = (scatters.clamp_min(0) / diagonals).cumsum(1).amax(0)
    floor = diagonals.amin(0)
    images_and_means = torch.cat([points, means])
    farthest = sum((z.square() / floor).cumsum(1).amax(0).sqrt() for z in (images_and_means, means))  # at least q
    return ((shares <= tolerance) & (shares.sqrt() * farthest <= tolerance)).sum()


def significant_members(
    squared_norms: Float[Tensor, "m way"], weights: Float[Tensor, "m way"], floor: Float[Tensor, ""]
) -> Int[Tensor, ""]:
    """How many members the largest class needs, so that leaving out the others changes no distance beyond rounding.

    Leaving out rows x_j of X_k lowers Q_k by Δ ≼ (Σ_j |x_j|²) I, and Q_k ≽ floor · I, so that a squared distance grows
    by at most the factor 1 + Σ_j |x_j|² / floor. Members are left out while that sum is below the floating-point
    resolution. At responsibilities of exactly 0 nothing is lost at all.

    Args:
        squared_norms: |z_j − μ_k|².
        weights: λ_k w_jk / n_k, so that |x_j|² = weights · squared_norms.
        floor: the smallest entry of any D_k.
    """
    resolution = torch.finfo(weights.dtype).eps * floor / len(weights)
    return (weights * squared_norms > resolution).sum(0).max()


def low_rank_squared_distances(
    points: Float[Tensor, "n r"],
    means: Float[Tensor, "way r"],
    diagonals: Float[Tensor, "way r"],
    x: Float[Tensor, "way count r"],
) -> tuple[Float[Tensor, "n way"], Float[Tensor, "way"]]:
    """Squared distances and log-determinants for Q_k = D_k + X_kᵀ X_k from a count × count Cholesky factor per class.

    By the Woodbury identity and the matrix determinant lemma.
    """
    way, count, r = x.shape
    precisions = 1 / diagonals
    x_precise = x * precisions[:, None]
    capacitance = torch.baddbmm(torch.eye(count, dtype=x.dtype, device=x.device), x_precise, x.mT)  # I + X D⁻¹ Xᵀ
    factor = cholesky(capacitance)
    at_points = (x_precise.reshape(way * count, r) @ points.T).view(way, count, len(points))
    at_means = x_precise @ means[..., None]
    solved = torch.linalg.solve_triangular(factor, at_points - at_means, upper=False)
    distances = _diagonal_distances(points, means, precisions) - solved.square().sum(1).T
    return distances, diagonals.log().sum(1) + 2 * factor.diagonal(dim1=1, dim2=2).log().sum(1)


def _by_axes(points, means, diagonals, members, weights, shots) -> tuple[Tensor, Tensor]:
    """From every Q_k as a matrix, of as many classes at a time as a processor's cache holds."""
    found, at_once = [], max(1, IN_CACHE // max(1, means.shape[1] ** 2))
    for start in range(0, len(means), at_once):
        classes = slice(start, start + at_once)
        covariances = class_scatters(members, means[classes], weights[:, classes], shots)
        covariances.diagonal(dim1=1, dim2=2).add_(diagonals[classes])
        found.append(dense_squared_distances(points, means[classes], covariances))
    distances, log_determinants = zip(*found)
    return torch.cat(distances, dim=1), torch.cat(log_determinants)


def class_scatters(
    members: Float[Tensor, "m r"],
    means: Float[Tensor, "way r"],
    weights: Float[Tensor, "m way"],
    shots: Sequence[int] = (),
) -> Float[Tensor, "way r r"]:
    """The lower triangles of S_k = Σ_j weights_jk (z_j − μ_k)(z_j − μ_k)ᵀ, as sums of z zᵀ less those of μ_k μ_kᵀ.

    Support images are taken by class. Of the others, a few rows of all classes' matrices are one product, of half the
    size of the whole, and no deviations from every mean are held. The difference loses few digits: in units of D_k,
    |μ_k|² is at most N (n_k + 1) / n_k.
    """
    way, r = means.shape
    if weights.numel() * r <= IN_CACHE // 8:
        x = (members - means[:, None]) * weights.T.sqrt()[..., None]
        return x.mT @ x
    scatters, step = means.new_zeros(way, r, r), -(-COLUMNS // way)
    soft, others = weights[sum(shots) :, :, None], members[sum(shots) :, None]
    for start in range(0, r, step):
        rows, end = slice(start, start + step), min(start + step, r)
        weighted = (others[..., rows] * soft).flatten(1)
        scatters[:, rows, :end] = (weighted.T @ others[:, 0, :end]).view(way, -1, end)
    if shots:
        of_support, images = weights[: sum(shots)].topk(max(shots), dim=0)
        own = members[images.T] * of_support.T.sqrt()[..., None]
        scatters.baddbmm_(own.mT, own)
    return scatters.baddbmm_(means[..., None] * -weights.sum(0)[:, None, None], means[:, None])


def dense_squared_distances(
    points: Float[Tensor, "n r"], means: Float[Tensor, "way r"], covariances: Float[Tensor, "way r r"]
) -> tuple[Float[Tensor, "n way"], Float[Tensor, "way"]]:
    """Squared distances and log-determinants from one Cholesky factor per class; differentiable.

    Of the covariances, the lower triangles are read.
    """
    factors, at_once = cholesky(covariances), max(1, IN_CACHE // 8 // max(1, points.numel()))
    distances = [
        torch.linalg.solve_triangular(factor, (points - mean[:, None]).mT, upper=False).square().sum(1)
        for factor, mean in zip(factors.split(at_once), means.split(at_once))
    ]
    return torch.cat(distances).T.contiguous(), 2 * factors.diagonal(dim1=1, dim2=2).log().sum(1)


def squared_euclidean(points: Float[Tensor, "n r"], means: Float[Tensor, "way r"]) -> Float[Tensor, "n way"]:
    """|z_i − μ_k|² by matrix products."""
    products = points @ means.T
    return (points.square().sum(1, keepdim=True) - 2 * products + means.square().sum(1)).clamp_min(0)


def cholesky(matrices: Float[Tensor, "*batch r r"]) -> Float[Tensor, "*batch r r"]:
    """Lower Cholesky factors.

    Raises:
        ValueError: a matrix is singular in this precision; the message says what to change.
    """
    try:
        return torch.linalg.cholesky(matrices)
    except torch.linalg.LinAlgError as error:
        raise singular(matrices.dtype) from error


def singular(dtype: torch.dtype) -> ValueError:
    """The error of a covariance that can't be inverted in this precision."""
    return ValueError(f"a class covariance is singular in {dtype}: raise identity_weight, or scale the features down")


def _largest_rows(members: Tensor, means: Tensor, weights: Tensor, from_means: Tensor, count: int) -> Tensor:
    """X_k of every class, (way, count, r): the rows that count most, √weight · (z_j − μ_k)."""
    if count < len(members):
        largest = (weights * from_means).topk(count, dim=0).indices.T
        chosen, chosen_weights = members[largest], weights.T.gather(1, largest)
    else:
        chosen, chosen_weights = members.expand(len(means), -1, -1), weights.T
    return (chosen - means[:, None]) * chosen_weights.sqrt()[..., None]


def _diagonal_distances(points: Tensor, means: Tensor, precisions: Tensor) -> Tensor:
    """Σ_i (z_i − μ_ki)² p_ki as three matrix products."""
    cross = points @ (means * precisions).T
    return points.square() @ precisions.T - 2 * cross + (means.square() * precisions).sum(1)
