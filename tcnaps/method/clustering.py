"""Soft k-means in a regularised Mahalanobis metric: the paper's classifier and its refinement (section 3, Algorithm 1).

Features and responsibilities give class means and covariances (equations 1-4, and 9-12 with responsibilities);
these give logits; the logits' softmax gives the query images' next responsibilities (equation 8). Step 0, from the
support set alone, is Simple CNAPS; every further step is one round of soft k-means. `refinement_steps` yields the
steps one by one; `trajectory` collects them and `cluster` stops by the paper's rule.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import count, islice
from math import isfinite

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tcnaps.method.checks import Features, Labels, as_features, as_labels, check_finite, check_support_labels
from tcnaps.method.class_statistics import ClassStatistics, Samples, class_logits, class_statistics, log_prior, one_hot
from tcnaps.method.distances import singular
from tcnaps.method.fast.strategies import in_working_precision, strategy_for, total_variance
from tcnaps.method.head import Head
from tcnaps.method.stopping import check_limits, should_stop

__all__ = ["ClassStatistics", "LowVarianceWarning", "Step", "class_logits", "class_statistics", "cluster"]
__all__ += ["refinement_steps", "trajectory"]

FAR = 2.0**17  # size of a logit from which on float32 no longer tells neighbouring logits apart


class LowVarianceWarning(UserWarning):
    """Features that differ by less than `identity_weight`. A network that is learning passes through such."""


@dataclass(frozen=True)
class Step:
    """What is known after one refinement step.

    Attributes:
        logits: of the query images: −scale · d², less ½ log|Q_k| where the head has the log-determinant, plus log π_k
            where it has a class prior. Rows that float32 could not hold (beyond ±131,072) are given relative to their
            largest.
        unlabelled_logits: the same for the other unlabelled images.
    """

    number: int
    logits: Float[Tensor, "n_query way"]
    unlabelled_logits: Float[Tensor, "n_unlabelled way"]

    @cached_property
    def responsibilities(self) -> Float[Tensor, "n_query way"]:
        """Of the query images: rows sum to 1 (equation 8)."""
        return self.logits.softmax(1)

    @cached_property
    def labels(self) -> Int[Tensor, "n_query"]:
        """The most probable class of every query image."""
        return self.logits.argmax(1)


def refinement_steps(
    support_features: Features,
    support_labels: Labels,
    query_features: Features,
    unlabelled_features: Features | None = None,
    head: Head = Head(),
) -> Iterator[Step]:
    """Yields step 0 (support statistics alone), 1, 2, ... without end; take as many as you need (Algorithm 1).

    Without unlabelled images to refine with, every step equals step 0, which is Simple CNAPS. Small episodes and
    features of large variance are clustered in float64; logits come back in the features' own precision.

    `head.identity_weight` is in squared feature units. Where the features' variance, summed over dimensions, is
    smaller, as for L2-normalised embeddings at the default of 1, all classes are nearly equally probable and
    refinement does nothing; set it to about a tenth of that variance.

    Args:
        support_features: (n_support, d), as a tensor, an array or nested lists.
        support_labels: (n_support,) integers 0, ..., way − 1, each at least once.
        query_features: (n_query, d).
        unlabelled_features: (n_unlabelled, d); they refine the classes where `head.unlabelled` says so.

    Raises:
        ValueError: features of different width or kind, or that are not finite numbers; labels that are no integers,
            too few or too many; a class without a support image; a single support image where
            `head.task_covariance_divisor` is n − 1; a single feature where `head.class_covariance_divisor` is; a
            `head.class_prior` for another number of classes; a covariance that is singular in floating point.
    """
    samples, n_query, dtype = _samples(support_features, support_labels, query_features, unlabelled_features, head)
    strategy = strategy_for(samples, head)
    logits = strategy.from_support()
    logits = logits + log_prior(head, logits)
    for number in count():
        rounded = _rounded(logits, dtype)
        yield Step(number, rounded[:n_query], rounded[n_query:])
        if samples.members is not samples.support:  # otherwise step 0 stands
            responsibilities = logits[samples.refining].softmax(1)
            logits = strategy.refined(responsibilities) + log_prior(head, logits, responsibilities)


def trajectory(
    support_features: Features,
    support_labels: Labels,
    query_features: Features,
    unlabelled_features: Features | None = None,
    head: Head = Head(),
    steps: int = 10,
) -> Float[Tensor, "{steps}+1 n_query way"]:
    """Logits of the query images after every refinement step 0, 1, ..., `steps`; one record for every stopping rule.

    Example:
        >>> logits = trajectory([[0.0, 0.0], [9.0, 0.0]], [0, 1], [[1.0, 0.0], [8.0, 2.0]], steps=2)
        >>> logits.argmax(2).tolist()
        [[0, 1], [0, 1], [0, 1]]
    """
    loop = refinement_steps(support_features, support_labels, query_features, unlabelled_features, head)
    return torch.stack([step.logits for step in islice(loop, steps + 1)])


def cluster(
    support_features: Features,
    support_labels: Labels,
    query_features: Features,
    unlabelled_features: Features | None = None,
    head: Head = Head(),
    minimum: int = 2,
    maximum: int = 4,
) -> Step:
    """Refines until the stopping rule says so and returns the last step (Algorithm 1)."""
    check_limits(minimum, maximum)
    labels = None
    for step in refinement_steps(support_features, support_labels, query_features, unlabelled_features, head):
        changed = labels is None or not torch.equal(step.labels, labels)
        labels = step.labels
        if should_stop(step.number, changed, minimum, maximum):
            return step


def _samples(support, labels, query, unlabelled, head: Head) -> tuple[Samples, int, torch.dtype]:
    """The images as the strategies take them, the number of query images, and the precision asked for."""
    sets = as_features({"support": support, "query": query, "unlabelled": unlabelled})
    labels = as_labels(labels, sets["support"], "support")
    shots = check_support_labels(labels)
    if head.task_covariance_divisor == "n-1" and head.metric == "mahalanobis" and len(labels) == 1:
        raise ValueError("there is one support image in all, so n − 1 is 0; use the task covariance's divisor 'n'")
    width = sets["support"].shape[1]
    if head.class_covariance_divisor == "n-1" and head.metric == "mahalanobis" and width < 2:
        raise ValueError(f"each image has {width} feature(s); the class covariance's divisor 'n-1' needs at least two")
    features, n_query = torch.cat(list(sets.values())), len(sets["query"])
    dtype, spread = features.dtype, total_variance(features)
    if not isfinite(spread):
        check_finite(sets)
    if head.metric == "mahalanobis" and spread < head.identity_weight:
        warnings.warn(
            f"The features' total variance, {spread:.3g}, is below identity_weight, {head.identity_weight:g}: "
            "every class is nearly as probable as any other, and refinement does little. Set identity_weight to about "
            "a tenth of that variance, or scale the features up.",
            LowVarianceWarning,
            stacklevel=4,
        )
    features = in_working_precision(features, spread, head)
    refining = {"query": slice(0, n_query), "extra": slice(n_query, None), "both": slice(None)}[head.unlabelled]
    return Samples(features, one_hot(labels, len(shots), features), refining, shots, spread), n_query, dtype


def _rounded(logits: Float[Tensor, "n way"], dtype: torch.dtype) -> Float[Tensor, "n way"]:
    """Logits in the precision asked for; rows whose logits would tie there are given relative to their largest."""
    largest = float(logits.detach().abs().max()) if logits.numel() else 0.0
    if not isfinite(largest):
        raise singular(logits.dtype)
    if logits.dtype != dtype and largest > FAR:
        relative = logits - logits.amax(1, keepdim=True)
        logits = torch.where(logits.abs().amax(1, keepdim=True) > FAR, relative, logits)
    return logits.to(dtype)
