"""An episode's images as the refinement loop sees them, and the plain way from responsibilities to distances."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import threshold

from tcnaps.method.class_statistics import ClassStatistics, Distances, class_distances, class_means, class_statistics
from tcnaps.method.head import Head


@dataclass(frozen=True)
class Samples:
    """An episode's images as points, in the feature dimensions or in other coordinates."""

    features: Float[Tensor, "n d"]  # of the support set, then the points: query images, then unlabelled ones
    one_hot: Float[Tensor, "n_support way"]  # responsibilities of the support images
    refining: slice  # the points that refine the classes
    shots: Sequence[int]  # support images of each class
    spread: float  # the features' total variance

    @cached_property
    def support(self) -> Float[Tensor, "n_support d"]:
        return self.features[: self.one_hot.shape[0]]

    @cached_property
    def points(self) -> Float[Tensor, "n_points d"]:
        return self.features[self.one_hot.shape[0] :]

    @cached_property
    def members(self) -> Float[Tensor, "m d"]:
        """The images that make up the classes from step 1 on: the support set and the refining images."""
        refining = self.points[self.refining]
        return self.features if len(refining) == len(self.points) else torch.cat([self.support, refining])


def member_weights(
    one_hot: Float[Tensor, "n_support way"], responsibilities: Float[Tensor, "n_refining way"]
) -> Float[Tensor, "m way"]:
    """Responsibilities of support and refining images; those of the support set are fixed (equation 8).

    Responsibilities below eps² change no Q_k beyond rounding. They become 0, for denormal numbers are slow.
    """
    negligible = torch.finfo(responsibilities.dtype).eps ** 2
    return torch.cat([one_hot, threshold(responsibilities, negligible, 0)])


class Plain:
    """Squared distances by the equations, with every Q_k as a matrix. Serves every head; differentiable."""

    def __init__(self, samples: Samples, head: Head):
        self.samples, self.head = samples, head

    def __call__(self, responsibilities: Float[Tensor, "n_refining way"] | None) -> Distances:
        """Distances of all points, by the refining images' responsibilities; None is step 0, the support set alone."""
        statistics = self.support_statistics if responsibilities is None else self._refined(responsibilities)
        return class_distances(self.samples.points, statistics, self.head)

    @cached_property
    def support_statistics(self) -> ClassStatistics:
        return class_statistics(self.samples.support, self.samples.one_hot, self.head)

    def _refined(self, responsibilities: Float[Tensor, "n_refining way"]) -> ClassStatistics:
        members, weights = self.samples.members, member_weights(self.samples.one_hot, responsibilities)
        if self.head.update == "means":
            return replace(self.support_statistics, means=class_means(members, weights))
        return class_statistics(members, weights, replace(self.head, class_covariance_divisor="n"))
