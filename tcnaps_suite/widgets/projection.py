"""An episode's features and classes in a plane, to look at what refinement does."""

from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from tcnaps.figures.clustering import PlaneView
from tcnaps.method.class_statistics import ClassStatistics, class_statistics, one_hot
from tcnaps.method.head import Head


def view_in_plane(
    support_features: Float[Tensor, "n_support d"],
    support_labels: Int[Tensor, "n_support"],
    query_features: Float[Tensor, "n_query d"],
    query_responsibilities: Float[Tensor, "n_steps n_query way"],
    head: Head = Head(),
) -> PlaneView:
    """Projects responsibilities, and the statistics from which they were computed, to `discriminative_plane`."""
    features = torch.cat([support_features, query_features])
    n_support, d = support_features.shape
    one_hot_labels = one_hot(support_labels, query_responsibilities.shape[2], features)
    responsibilities = [torch.cat([one_hot_labels, step.to(features.dtype)]) for step in query_responsibilities]
    if d == 2:  # drawn as it is
        plane, centre = torch.eye(2, dtype=features.dtype), torch.zeros(2, dtype=features.dtype)
    else:
        plane = discriminative_plane(features, responsibilities[-1])
        centre = features.mean(0)
    points = (features - centre) @ plane  # (n_points, 2)
    # Means and covariances of the projected features are the projections of the features' own. Only the released rule
    # for classes of one image depends on the axes of all d features, so step 0 is computed there.
    first = class_statistics(support_features, one_hot_labels, head)
    first = ClassStatistics((first.means - centre) @ plane, plane.T @ first.covariances @ plane, first.counts)
    later = replace(head, class_covariance_divisor="n")
    statistics = [first, *(class_statistics(points, weights, later) for weights in responsibilities[:-1])]
    if head.update == "means":
        statistics = [replace(step, covariances=first.covariances) for step in statistics]
    return PlaneView(
        points=points.numpy(),
        is_support=np.arange(len(features)) < n_support,
        responsibilities=torch.stack(responsibilities).numpy(),
        means=torch.stack([step.means for step in statistics]).numpy(),
        covariances=torch.stack([step.covariances for step in statistics]).numpy(),
    )


def discriminative_plane(
    features: Float[Tensor, "n d"], responsibilities: Float[Tensor, "n way"]
) -> Float[Tensor, "d 2"]:
    """Fisher's two linear discriminants, with the regularised covariance within classes, orthonormalised."""
    statistics = class_statistics(features - features.mean(0), responsibilities)
    shares = statistics.counts / statistics.counts.sum()  # (way,)
    within = (shares[:, None, None] * statistics.covariances).sum(0)  # (d, d)
    between = statistics.means - statistics.means.mean(0)  # (way, d)
    factor = torch.linalg.cholesky(within)
    whitened = torch.linalg.solve_triangular(factor, between.T, upper=False)
    directions = torch.linalg.svd(whitened, full_matrices=False).U[:, :2]
    plane = torch.linalg.qr(torch.linalg.solve_triangular(factor.T, directions, upper=True)).Q
    largest = plane.gather(0, plane.abs().argmax(0, keepdim=True))
    return plane * largest.sign()  # decompositions leave the sign open
