"""Refinement of many rows and features with far fewer operations: class covariances keep few directions.

S_k = λ_k Σ_k becomes a diagonal plus a matrix of low rank, by one subspace iteration and Nyström's approximation. Axes
are those of the task covariance. What the low rank lacks of the diagonal stays there.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from tcnaps.method import class_statistics as equations
from tcnaps.method.class_statistics import Distances, Samples, cholesky
from tcnaps.method.clustering import Step, refinement_steps, refining_points, soft_k_means, total_variance
from tcnaps.method.episode import Features, Labels
from tcnaps.method.fast import distances_for
from tcnaps.method.head import Head

LARGE = 10**10  # rows · features² · classes: from so many operations on, which take some tenths of a second
DIRECTIONS = 32  # kept of each class covariance
MANY = 300  # features, from which on this pays
AT_ONCE = 2**26  # numbers: classes · directions · rows that are worked on together
TINY = 1e-5  # of the squares in the directions kept: makes them independent where a class has fewer, or is a point


def refinement(support: Features, labels: Labels, query: Features, unlabelled: Features, head: Head) -> Iterator[Step]:
    """`refinement_steps`; of a `LARGE` problem the steps from 1 on are approximate."""
    way, (n, d) = int(labels.max()) + 1, query.shape
    if min(n, d) < MANY or way * n * min(n, d) ** 2 < LARGE:
        return refinement_steps(support, labels, query, unlabelled, head)
    rows, shots = torch.cat([support, query, unlabelled]), torch.bincount(labels).tolist()
    weights = equations.one_hot(labels, way, rows)
    samples = Samples(rows, weights, refining_points(head, n), shots, total_variance(rows))
    first, task_covariance = distances_for(samples, head), equations.covariance(samples.members, head)
    variances, axes = (part.to(rows) for part in torch.linalg.eigh(task_covariance.double()))
    turned = replace(samples, features=(rows - samples.members.mean(0)) @ axes)

    def distances(responsibilities: Float[Tensor, "n_refining way"] | None) -> Distances:
        if responsibilities is None:
            return first(None)
        return sketched_distances(turned, variances.clamp_min(0), responsibilities, head)

    return soft_k_means(distances, n, head)


def sketched_distances(
    samples: Samples, variances: Float[Tensor, "d"], responsibilities: Float[Tensor, "n_refining way"], head: Head
) -> Distances:
    """Squared distances of all points, and log|Q_k|, in axes in which the task covariance has these `variances`."""
    members, weights = samples.members, equations.member_weights(samples.one_hot, responsibilities)
    counts, means = weights.sum(0), equations.class_means(members, weights)
    of_class, of_task = equations.shrinkage(counts)
    diagonals = torch.outer(of_task, variances) + head.identity_weight
    at_once = max(1, AT_ONCE // (DIRECTIONS * len(samples.features)))
    classes = zip(*(x.split(at_once) for x in (means, diagonals, (weights * (of_class / counts)).T)))
    parts = [_of_some(samples.points, members, *some) for some in classes]
    squared, log_determinants = (torch.cat(part, dim=-1) for part in zip(*parts))
    return squared, log_determinants


def _of_some(points: Tensor, members: Tensor, means: Tensor, diagonals: Tensor, weights: Tensor) -> Distances:
    """Of some classes, by the Woodbury identity for Q_k = D_k + X_kᵀ X_k."""
    start = torch.randn(1, means.shape[1], DIRECTIONS, generator=torch.Generator().manual_seed(0)).to(members)
    directions = torch.linalg.qr(_scatters_times(start, members, means, weights)).Q
    images = _scatters_times(directions, members, means, weights)
    within = directions.mT @ images
    squares = within.diagonal(dim1=1, dim2=2).sum(1, keepdim=True) + means.square().sum(1, keepdim=True)
    within.diagonal(dim1=1, dim2=2).add_(TINY * (squares + diagonals.amin(1, keepdim=True)))
    x = torch.linalg.solve_triangular(cholesky(within), images.mT, upper=False)  # X_k: (way, directions, d)
    scatters = weights @ members.square() - weights.sum(1, keepdim=True) * means.square()  # the diagonals of S_k
    precisions = 1 / (diagonals + (scatters - x.square().sum(1)).clamp_min(0))
    x_precise, weighted = x * precisions[:, None], means * precisions
    factors = cholesky(torch.eye(DIRECTIONS, dtype=x.dtype, device=x.device) + x_precise @ x.mT)
    solved = (x_precise.flatten(0, 1) @ points.T).unflatten(0, x.shape[:2]) - x_precise @ means[..., None]
    solved = torch.linalg.solve_triangular(factors, solved, upper=False)
    lengths = points.square() @ precisions.T - 2 * points @ weighted.T + (weighted * means).sum(1)
    log_determinants = 2 * factors.diagonal(dim1=1, dim2=2).log().sum(1) - precisions.log().sum(1)
    return (lengths - solved.square().sum(1).T).clamp_min(0), log_determinants


def _scatters_times(directions: Tensor, members: Tensor, means: Tensor, weights: Tensor) -> Float[Tensor, "way d q"]:
    """S_k V_k, with S_k = Σ_j weights_kj (z_j − μ_k)(z_j − μ_k)ᵀ; all classes may share V."""
    way, d = means.shape
    products = (members @ directions.transpose(0, 1).flatten(1)).unflatten(1, (len(directions), -1))
    sums = members.T @ (products * weights.T[..., None]).flatten(1)  # (d, way · directions)
    of_means = (weights.sum(1, keepdim=True) * means)[..., None] * (means[:, None] @ directions)
    return sums.view(d, way, -1).transpose(0, 1) - of_means
