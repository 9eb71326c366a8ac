"""Soft k-means in a regularised Mahalanobis metric: the paper's classifier and its refinement (section 3, Algorithm 1).

Step 0, from the support set alone, is Simple CNAPS; every further step is one round of soft k-means.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count, islice
from math import isfinite

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tcnaps.method.class_statistics import Distances, Samples, log_prior, logits_of, one_hot, scale_of, singular
from tcnaps.method.episode import Features, Labels, as_features, as_labels, check_finite, check_support_labels
from tcnaps.method.fast import distances_for
from tcnaps.method.head import Head, check_limits

SMALL = 256  # up to this many images or features, all is float64: it costs little, and no rounding is amplified
SPREAD = 1e4  # total variance, in units of identity_weight, from which on rounding would hide small distances
FAR = 2.0**17  # size of a logit from which on float32 no longer tells neighbouring logits apart


class LowVarianceWarning(UserWarning):
    """The features vary by less than `identity_weight`. A network that is learning passes through such features."""


@dataclass(frozen=True)
class Step:
    """What is known after one refinement step."""

    number: int
    logits: Float[Tensor, "n_query way"]  # of the query images (equation 5, or the mixture equation, plus log π_k)
    unlabelled_logits: Float[Tensor, "n_unlabelled way"]
    scale: float | int | Float[Tensor, ""]  # factor on the squared distances
    log_prior: Float[Tensor, "way"]  # log π_k; 0 without a class prior
    refined_with: Float[Tensor, "n_refining way"] | None  # responsibilities behind its statistics; None at step 0

    @cached_property
    def responsibilities(self) -> Float[Tensor, "n_query way"]:
        """Of the query images: rows sum to 1 (equation 8)."""
        return self.logits.softmax(1)

    @cached_property
    def labels(self) -> Int[Tensor, "n_query"]:
        """The most probable class of every query image."""
        return self.logits.argmax(1)


def soft_k_means(
    distances_from: Callable[[Float[Tensor, "n_refining way"] | None], Distances],
    n_query: int,
    head: Head,
    competing: Bool[Tensor, "n_points way"] | None = None,
) -> Iterator[Step]:
    """Algorithm 1 without its end: yields step 0, 1, 2, ... for as long as they are taken.

    `distances_from` turns the refining images' responsibilities, or None for the support set alone, into the squared
    distances of all points (query, then unlabelled images) from every class. A point may have its `competing` classes.
    """
    refining, responsibilities = refining_points(head, n_query), None  # step 0: the support set alone
    for number in count():
        if responsibilities is None or len(responsibilities) > 0:  # else every step equals step 0
            if responsibilities is None or head.update != "none":
                distances, log_determinants = distances_from(responsibilities)  # (n_points, way), (way,)
            scale = scale_of(distances[: n_query or None], head, number)
            prior = log_prior(head, distances, responsibilities, number)
            logits = logits_of(distances, log_determinants, scale, head) + prior  # equation 5
            if competing is not None:
                logits = logits.masked_fill(~competing, -torch.inf)
        yield Step(number, logits[:n_query], logits[n_query:], scale, prior, responsibilities)
        responsibilities = logits[refining].softmax(1)  # equation 8


def refining_points(head: Head, n_query: int) -> slice:
    """Which points refine the classes; points are query images, then other unlabelled ones."""
    return {"query": slice(0, n_query), "extra": slice(n_query, None), "both": slice(None)}[head.unlabelled]


def stopped(steps: Iterable[Step], minimum: int, maximum: int) -> Step:
    """The first step, from the minimum on, that changes no query's label; at most the maximum (Algorithm 1)."""
    check_limits(minimum, maximum)
    labels = None
    for step in steps:
        unchanged = labels is not None and torch.equal(step.labels, labels)
        labels = step.labels
        if step.number >= maximum or (step.number >= minimum and unchanged):
            break
    return step


def refinement_steps(
    support_features: Features,
    support_labels: Labels,
    query_features: Features,
    unlabelled_features: Features | None = None,
    head: Head = Head(),
) -> Iterator[Step]:
    """Yields step 0 (support statistics alone), 1, 2, ... without end; take as many as you need (Algorithm 1).

    Features are (n, d), support labels integers 0, ..., way − 1, each at least once: tensors, arrays or nested lists.
    Small episodes and features of large variance are clustered in float64. Logits come back in the features' own
    precision; a row too large for it is shifted so that its maximum is 0. `head.identity_weight` is in squared
    units of the features; about a tenth of their total variance suits embeddings that nobody meta-trained.

    Raises:
        ValueError: features or labels that do not fit together, or a covariance that is singular in floating point.
    """
    sets = as_features({"support": support_features, "query": query_features, "unlabelled": unlabelled_features})
    labels = as_labels(support_labels, sets["support"], "support")
    shots = check_support_labels(labels)
    features, n_query = torch.cat(list(sets.values())), len(sets["query"])
    spread = total_variance(features)
    if not isfinite(spread):
        check_finite(sets)
    if head.metric == "mahalanobis" and spread < head.identity_weight:
        warnings.warn(
            f"The features' total variance, {spread:.3g}, is below identity_weight, {head.identity_weight:g}: "
            "refinement does little. Set identity_weight to about a tenth of that variance, or scale the features up.",
            LowVarianceWarning,
            stacklevel=3,
        )
    dtype, features = features.dtype, in_working_precision(features, spread, head)
    samples = Samples(features, one_hot(labels, len(shots), features), refining_points(head, n_query), shots, spread)
    for step in soft_k_means(distances_for(samples, head), n_query, head):
        query, unlabelled = (_rounded(logits, dtype) for logits in (step.logits, step.unlabelled_logits))
        yield replace(step, logits=query, unlabelled_logits=unlabelled)


def trajectory(
    support_features: Features,
    support_labels: Labels,
    query_features: Features,
    unlabelled_features: Features | None = None,
    head: Head = Head(),
    steps: int = 10,
) -> Float[Tensor, "{steps}+1 n_query way"]:
    """Logits of the query images after every refinement step 0, 1, ..., `steps`; one record for every stopping rule."""
    check_limits(0, steps)
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
    steps = refinement_steps(support_features, support_labels, query_features, unlabelled_features, head)
    return stopped(steps, minimum, maximum)


def total_variance(features: Float[Tensor, "n d"]) -> float:
    """The variance of features about their mean, summed over dimensions."""
    features = features.detach()
    return float((features - features.mean(0)).square().sum()) / len(features)


def in_working_precision(features: Float[Tensor, "n d"], spread: float, head: Head) -> Float[Tensor, "n d"]:
    """The features, in float64 where they are few or their total variance is large."""
    small = min(features.shape) <= SMALL
    return features.double() if small or not spread <= SPREAD * head.identity_weight else features


def _rounded(logits: Float[Tensor, "n way"], dtype: torch.dtype) -> Float[Tensor, "n way"]:
    """Logits in the precision asked for; rows whose logits would tie there are given relative to their largest."""
    largest = float(logits.detach().abs().max()) if logits.numel() else 0.0
    if not isfinite(largest):
        raise singular(logits.dtype)
    if logits.dtype != dtype and largest > FAR:
        relative = logits - logits.amax(1, keepdim=True)
        logits = torch.where(logits.abs().amax(1, keepdim=True) > FAR, relative, logits)
    return logits.to(dtype)
