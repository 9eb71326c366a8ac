"""An episode's features and classes in a plane, to look at what refinement does."""

from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tcnaps.method.clustering import ClassStatistics, class_statistics, one_hot, refinement_steps
from tcnaps.method.head import Head


@dataclass(frozen=True)
class PlaneView:
    """Refinement steps 0, ..., T of one episode in two dimensions. Support images come first.

    Attributes:
        covariances: Q_k restricted to the plane.
    """

    points: Float[np.ndarray, "n_points 2"]
    is_support: Bool[np.ndarray, "n_points"]
    responsibilities: Float[np.ndarray, "n_steps n_points way"]
    means: Float[np.ndarray, "n_steps way 2"]
    covariances: Float[np.ndarray, "n_steps way 2 2"]


def view_in_plane(
    support_features: Float[Tensor, "n_support d"],
    support_labels: Int[Tensor, "n_support"],
    query_features: Float[Tensor, "n_query d"],
    head: Head = Head(),
    steps: int = 4,
    plane: Float[Tensor, "d 2"] | None = None,
) -> PlaneView:
    """Runs the clustering in all d dimensions and projects what is found after each step.

    The responsibilities of step t are those computed from the means and covariances drawn with it.

    Args:
        plane: two orthonormal directions; default: those that tell the classes of the last step apart best.
    """
    loop = refinement_steps(support_features, support_labels, query_features, head=head)
    found = torch.stack([step.responsibilities for step in islice(loop, steps + 1)])
    return project(support_features, support_labels, query_features, found, head, plane)


def project(
    support_features: Float[Tensor, "n_support d"],
    support_labels: Int[Tensor, "n_support"],
    query_features: Float[Tensor, "n_query d"],
    query_responsibilities: Float[Tensor, "n_steps n_query way"],
    head: Head = Head(),
    plane: Float[Tensor, "d 2"] | None = None,
) -> PlaneView:
    """Projects what the clustering found: its responsibilities, and the statistics from which it computed them.

    Args:
        plane: as for `view_in_plane`.
    """
    features = torch.cat([support_features, query_features])
    fixed = one_hot(support_labels, query_responsibilities.shape[2], features)
    responsibilities = [torch.cat([fixed, own.to(features.dtype)]) for own in query_responsibilities]
    d = features.shape[1]
    if plane is None:
        plane = torch.eye(2, dtype=features.dtype) if d == 2 else discriminative_plane(features, responsibilities[-1])
    centre = features.mean(0) if d > 2 else torch.zeros(2, dtype=features.dtype)
    points = (features - centre) @ plane
    # Means and covariances of the projected features are the projections of the features' own.
    statistics = [_first_statistics(support_features, points[: len(fixed)], fixed, head, plane)]
    later = replace(head, class_covariance_divisor="n")
    statistics += [class_statistics(points, weights, later) for weights in responsibilities[:-1]]
    if head.update == "means":
        statistics = [replace(own, covariances=statistics[0].covariances) for own in statistics]
    return PlaneView(
        points=points.numpy(),
        is_support=np.arange(len(features)) < len(support_features),
        responsibilities=torch.stack(responsibilities).numpy(),
        means=torch.stack([own.means for own in statistics]).numpy(),
        covariances=torch.stack([own.covariances for own in statistics]).numpy(),
    )


def discriminative_plane(
    features: Float[Tensor, "n d"], responsibilities: Float[Tensor, "n way"]
) -> Float[Tensor, "d 2"]:
    """The two orthonormal directions in which the class means differ most, measured in units of the spread within
    classes.

    Fisher's linear discriminant with the regularised within-class covariance, orthonormalised.
    """
    basis = _span(features)  # outside of it no means differ, and all covariances are the identity
    statistics = class_statistics((features - features.mean(0)) @ basis, responsibilities)
    within = (statistics.covariances * (statistics.counts / statistics.counts.sum())[:, None, None]).sum(0)
    factor = torch.linalg.cholesky(within)
    whitened = torch.linalg.solve_triangular(factor, (statistics.means - statistics.means.mean(0)).T, upper=False)
    directions = torch.linalg.svd(whitened, full_matrices=False).U[:, :2]
    return _oriented(basis @ torch.linalg.qr(torch.linalg.solve_triangular(factor.T, directions, upper=True)).Q)


def principal_plane(features: Float[Tensor, "n d"]) -> Float[Tensor, "d 2"]:
    """The two orthonormal directions along which the features spread most, whatever their classes."""
    return _oriented(torch.linalg.svd(features - features.mean(0), full_matrices=False).Vh[:2].T)


def _span(features: Tensor) -> Tensor:
    """An orthonormal basis of the centred features' span, (d, min(n, d))."""
    n, d = features.shape
    centred = features - features.mean(0)
    return torch.eye(d, dtype=features.dtype) if n >= d else torch.linalg.qr(centred.T).Q


def _oriented(plane: Tensor) -> Tensor:
    """The same directions, pointing where their largest component is positive: decompositions leave it open."""
    largest = plane.gather(0, plane.abs().argmax(0, keepdim=True))
    return plane * torch.where(largest < 0, -1.0, 1.0).to(plane.dtype)


def _first_statistics(support_features, points, fixed, head, plane):
    """Step 0's. The released rule for classes of one image depends on the axes of all d features: there, not here."""
    if head.class_covariance_divisor == "n":
        return class_statistics(points, fixed, head)
    own = class_statistics(support_features, fixed, head)
    means = fixed.T @ points / own.counts[:, None]
    return ClassStatistics(means, plane.T @ own.covariances @ plane, own.counts)
