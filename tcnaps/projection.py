"""An episode's features and classes in a plane, to look at what refinement does."""

from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tcnaps.clustering import Head, class_statistics, one_hot, refinement_steps


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
    features = torch.cat([support_features, query_features])
    found = list(islice(refinement_steps(support_features, support_labels, query_features, head=head), steps + 1))
    way = found[0].logits.shape[1]
    fixed = one_hot(support_labels, way, features)
    responsibilities = [torch.cat([fixed, step.responsibilities]) for step in found]
    if plane is None:
        plane = (
            torch.eye(2, dtype=features.dtype)
            if features.shape[1] == 2
            else discriminative_plane(features, responsibilities[-1])
        )
    statistics = [class_statistics(support_features, fixed, head)]
    statistics += [class_statistics(features, weights, head) for weights in responsibilities[:-1]]
    centre = features.mean(0) if features.shape[1] > 2 else torch.zeros(2, dtype=features.dtype)
    return PlaneView(
        points=((features - centre) @ plane).numpy(),
        is_support=np.arange(len(features)) < len(support_features),
        responsibilities=torch.stack(responsibilities).numpy(),
        means=torch.stack([(s.means - centre) @ plane for s in statistics]).numpy(),
        covariances=torch.stack([plane.T @ s.covariances @ plane for s in statistics]).numpy(),
    )


def discriminative_plane(
    features: Float[Tensor, "n d"], responsibilities: Float[Tensor, "n way"]
) -> Float[Tensor, "d 2"]:
    """The two orthonormal directions in which the class means differ most, measured in units of the spread within
    classes.

    Fisher's linear discriminant with the regularised within-class covariance, orthonormalised.
    """
    statistics = class_statistics(features, responsibilities)
    within = (statistics.covariances * (statistics.counts / statistics.counts.sum())[:, None, None]).sum(0)
    factor = torch.linalg.cholesky(within)
    whitened = torch.linalg.solve_triangular(factor, (statistics.means - statistics.means.mean(0)).T, upper=False)
    directions = torch.linalg.svd(whitened, full_matrices=False).U[:, :2]
    return torch.linalg.qr(torch.linalg.solve_triangular(factor.T, directions, upper=True)).Q
