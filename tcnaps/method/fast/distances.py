"""Squared Mahalanobis distances with as few multiplications as the features allow.

Q_k = D_k + S_k is a diagonal plus the scatter of the class's images. Axes in which S_k is too small to matter use the
diagonal alone (`axes_to_leave_out`). Images of negligible weight are skipped. The rest is computed by images (the
Woodbury identity) or by axes (from Q_k itself), whichever needs fewer multiplications.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tcnaps.method.class_statistics import singular, squared_euclidean

TOLERANCE = {torch.float32: 3e-5, torch.float64: 1e-12}  # of axes left out: the largest that costs no accuracy
COLUMNS = 256  # of a matrix product on a CPU: enough for its best speed
IN_CACHE = 2**20  # numbers that a CPU works on at a time: its cache holds them
ON_A_DEVICE = 2**28  # numbers that a GPU works on at a time: it waits for calls rather than for memory


def squared_distances(
    points: Float[Tensor, "n r"],
    means: Float[Tensor, "way r"],
    diagonals: Float[Tensor, "way r"],
    members: Float[Tensor, "m r"],
    weights: Float[Tensor, "m way"],
    shots: Sequence[int] = (),
) -> tuple[Float[Tensor, "n way"], Float[Tensor, "way"]]:
    """(z − μ_k)ᵀ Q_k⁻¹ (z − μ_k) and log|Q_k| for Q_k = D_k + S_k, S_k = Σ_j weights_jk (z_j − μ_k)(z_j − μ_k)ᵀ.

    z are the points, z_j the members, in axes in which every D_k is diagonal, and above 0; weights are λ_k w_jk / n_k.
    The first `sum(shots)` members are support images, `shots[k]` of class k; each counts in its own class alone.
    """
    # S_k = X_kᵀ X_k. Leaving out rows x_j of X_k lowers Q_k by Δ ≼ (Σ_j |x_j|²) I, and Q_k ≽ floor · I, so a squared
    # distance grows by at most the factor 1 + Σ_j |x_j|² / floor. `count` members per class leave that to rounding.
    sizes, floor = weights * squared_euclidean(members, means), diagonals.min()  # |x_j|²
    count = (sizes > torch.finfo(sizes.dtype).eps * floor / len(sizes)).sum(0).max()
    left_out = axes_to_leave_out(points, means, diagonals, members, weights)
    count, left_out = torch.stack([count, left_out]).tolist()  # a GPU is waited for once
    z, mu, d, of_class = (part[:, left_out:] for part in (points, means, diagonals, members))
    n, a = z.shape
    by_images = count * a * (n + count) + count**3 / 6 + count**2 * n / 2
    by_axes = (max(shots, default=0) + (len(members) - sum(shots) + n) / 2 + a / 6) * a**2
    if by_images < by_axes:
        distances, log_determinants = _by_images(z, mu, d, of_class, weights, sizes, count)
    else:
        distances, log_determinants = _by_axes(z, mu, d, of_class, weights, shots)
    if left_out == 0:
        return distances, log_determinants
    z, mu, d = (part[:, :left_out] for part in (points, means, diagonals))
    return distances + _along_axes(z, mu, 1 / d), log_determinants + d.log().sum(1)


def axes_to_leave_out(
    points: Float[Tensor, "n r"],
    means: Float[Tensor, "way r"],
    diagonals: Float[Tensor, "way r"],
    members: Float[Tensor, "m r"],
    weights: Float[Tensor, "m way"],
) -> Int[Tensor, ""]:
    """How many axes, counted from the first, are so little spread that D_k alone will do for Q_k there.

    Let ε be the sum over these axes of S_k,ii / D_k,ii, and q² the squared distance within them by D_k. Axes are left
    out while ε and √ε q are at most τ = `TOLERANCE` for all classes and points. No squared distance d² changes then by
    more than τ (2 d + d²), and no log-determinant by more than ε (docs/speed.md has the derivation).
    """
    tolerance = TOLERANCE[points.dtype]
    scatters = weights.T @ members.square() - weights.sum(0)[:, None] * means.square()
    shares = (scatters.clamp_min(0) / diagonals).cumsum(1).amax(0)
    floor = diagonals.amin(0)
    some = [*points.split(_at_once(points, IN_CACHE, points.shape[1])), means]
    squares = [torch.cat([z, means]).square_().div_(floor).cumsum(1).amax(0) for z in some]
    farthest = torch.stack(squares).amax(0).sqrt() + squares[-1].sqrt()  # at least q
    return ((shares <= tolerance) & (shares.sqrt() * farthest <= tolerance)).sum()


def _by_images(points, means, diagonals, members, weights, sizes, count) -> tuple[Tensor, Tensor]:
    """By the Woodbury identity for Q_k = D_k + X_kᵀ X_k, from a Cholesky factor of as many rows as X_k has images."""
    precisions, identity = 1 / diagonals, torch.eye(count, dtype=points.dtype, device=points.device)
    largest = sizes.topk(count, dim=0).indices
    x = members[largest.T].sub_(means[:, None]).mul_(weights.gather(0, largest).sqrt_().T[..., None])
    x_precise = x * precisions[:, None]
    factors = cholesky_in_place(torch.baddbmm(identity, x_precise, x.mT))  # of I + X D⁻¹ Xᵀ
    solved = (x_precise.flatten(0, 1) @ points.T).view(len(means), count, len(points))
    solved -= x_precise @ means[..., None]
    torch.linalg.solve_triangular(factors, solved, upper=False, out=solved)
    distances = _along_axes(points, means, precisions) - solved.square_().sum(1).T
    return distances, diagonals.log().sum(1) + 2 * factors.diagonal(dim1=1, dim2=2).log().sum(1)


def _along_axes(points: Tensor, means: Tensor, precisions: Tensor) -> Tensor:
    """Σ_a (z_ia − μ_ka)² p_ka by matrix products, (n, way)."""
    weighted = means * precisions
    return (points.square() @ precisions.T - 2 * points @ weighted.T + (weighted * means).sum(1)).clamp_min(0)


def _by_axes(points, means, diagonals, members, weights, shots) -> tuple[Tensor, Tensor]:
    """From every Q_k as a matrix, of some classes at a time, one thread for each."""
    at_once, solved_at_once = (_at_once(means, IN_CACHE, n) for n in (means.shape[1] ** 2, 8 * points.numel()))
    columns = points.T.contiguous().split(_at_once(points, IN_CACHE, points.shape[1]), dim=1)

    def lengths(factors: Tensor, means: Tensor, z: Tensor) -> Tensor:
        differences = z - means[:, :, None]
        return torch.linalg.solve_triangular(factors, differences, upper=False, out=differences).square_().sum(1)

    def of_some(means: Tensor, diagonals: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        covariances = class_scatters(members, means, weights, shots)
        covariances.diagonal(dim1=1, dim2=2).add_(diagonals)
        factors = cholesky_in_place(covariances)
        classes = zip(factors.split(solved_at_once), means.split(solved_at_once))
        distances = [torch.cat([lengths(*some, z) for z in columns], dim=1) for some in classes]
        return torch.cat(distances).T, 2 * factors.diagonal(dim1=1, dim2=2).log().sum(1)

    threads = torch.get_num_threads() if points.device.type == "cpu" else 1
    parts = means.split(at_once), diagonals.split(at_once), weights.split(at_once, dim=1)
    distances, log_determinants = zip(*(map if threads == 1 else _pool(threads).map)(of_some, *parts))
    return torch.cat(distances, dim=1), torch.cat(log_determinants)


def _at_once(tensor: Tensor, on_cpu: int, each: int) -> int:
    """How many things, `each` of so many numbers, to work on together where the tensor lies."""
    return max(1, (on_cpu if tensor.device.type == "cpu" else ON_A_DEVICE) // max(1, each))


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    """Threads that compute alone, for small matrices. PyTorch gives any later Python thread one thread, too."""
    return ThreadPoolExecutor(threads, "clustering", torch.set_num_threads, (1,))


def class_scatters(
    members: Float[Tensor, "m r"], means: Float[Tensor, "way r"], weights: Float[Tensor, "m way"], shots: Sequence[int]
) -> Float[Tensor, "way r r"]:
    """The upper triangles of S_k, as sums of z zᵀ less those of μ_k μ_kᵀ.

    Support images are taken by class. Of the others, a few rows of all classes' matrices are one product. The
    difference loses few digits: in units of D_k, |μ_k|² is at most N (n_k + 1) / n_k.
    """
    (way, r), n_support = means.shape, sum(shots)
    scatters, step = means.new_empty(way, r, r), -(-_at_once(means, COLUMNS * len(members), len(members)) // way)
    soft, others = weights[n_support:, :, None], members[n_support:, None]
    for start in range(0, r, step):
        rows = slice(start, start + step)
        weighted = (others[..., rows] * soft).flatten(1)
        scatters[:, rows, start:] = (weighted.T @ others[:, 0, start:]).view(way, -1, r - start)
    shares, images = weights[:n_support].topk(max(shots, default=0), dim=0)
    terms = torch.cat([members[images.T], means[:, None]], dim=1)
    shares = torch.cat([shares, -weights.sum(0, keepdim=True)]).T[..., None]
    return scatters.baddbmm_((shares * terms).mT, terms)


def cholesky_in_place(matrices: Float[Tensor, "*batch r r"]) -> Float[Tensor, "*batch r r"]:
    """`cholesky` from the upper triangles, written over the matrices: fresh memory costs as much as the arithmetic."""
    factors = matrices.mT  # column by column, as LAPACK works
    failures = torch.empty(matrices.shape[:-2], dtype=torch.int32, device=matrices.device)
    torch.linalg.cholesky_ex(factors, out=(factors, failures))
    if failures.any():
        raise singular(matrices.dtype)
    return factors
