"""A direct implementation of the paper's clustering, to time the library against.

It is written as one would write the equations in PyTorch without further thought: every covariance in all d
dimensions, one inverse per class, all n × way × d differences at once. Operations are batched throughout: the code is
direct, not careless.
"""

from collections.abc import Callable

import torch
from torch import Tensor


def statistics(features: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Class means and covariances from weighted features (equations 9-12)."""
    counts = weights.sum(0)
    means = weights.T @ features / counts[:, None]
    task_mean = weights.sum(1) @ features / weights.sum()
    centred = features - task_mean
    task = (centred * weights.sum(1, keepdim=True)).T @ centred / weights.sum()
    identity = torch.eye(features.shape[1], dtype=features.dtype, device=features.device)
    covariances = []
    for k in range(weights.shape[1]):
        deviations = features - means[k]
        covariance = (deviations * weights[:, k : k + 1]).T @ deviations / counts[k]
        shrinkage = counts[k] / (counts[k] + 1)
        covariances.append(shrinkage * covariance + (1 - shrinkage) * task + identity)
    return means, torch.stack(covariances)


def logits(points: Tensor, means: Tensor, covariances: Tensor) -> Tensor:
    """Negative squared Mahalanobis distances (equation 5)."""
    precisions = torch.linalg.inv(covariances)
    differences = points[:, None] - means  # n × way × d
    return -((differences.transpose(0, 1) @ precisions).transpose(0, 1) * differences).sum(2)


def cholesky_logits(points: Tensor, means: Tensor, covariances: Tensor) -> Tensor:
    """The same from triangular factors instead of inverses, of all classes at once: what an expert would write."""
    differences = (points - means[:, None]).mT  # way × d × n
    factors = torch.linalg.cholesky(covariances)
    return -torch.linalg.solve_triangular(factors, differences, upper=False).square().sum(1).T


def cluster(
    support: Tensor, labels: Tensor, query: Tensor, minimum: int, maximum: int, logits: Callable = logits
) -> tuple[Tensor, int]:
    """Algorithm 1 with the minimum/maximum rule: the last logits and the number of refinement steps."""
    way = int(labels.max()) + 1
    one_hot = torch.nn.functional.one_hot(labels, way).to(support.dtype)
    current = logits(query, *statistics(support, one_hot))
    features = torch.cat([support, query])
    for step in range(1, maximum + 1):
        weights = torch.cat([one_hot, current.softmax(1)])
        previous, current = current, logits(query, *statistics(features, weights))
        if step >= minimum and torch.equal(previous.argmax(1), current.argmax(1)):
            return current, step
    return current, maximum
