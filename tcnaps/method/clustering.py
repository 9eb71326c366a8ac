"""Soft k-means in a regularised Mahalanobis metric: the paper's classifier and its refinement (section 3, Algorithm 1).

Features and responsibilities give class means and covariances (equations 1-4, and 9-12 with responsibilities);
these give logits; the logits' softmax gives the query images' next responsibilities (equation 8). Step 0, from the
support set alone, is Simple CNAPS; every further step is one round of soft k-means. `refinement_steps` yields the
steps one by one; `trajectory` collects them and `cluster` stops by the paper's rule.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count, islice

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tcnaps.method import low_rank
from tcnaps.method.checks import check_features, check_support_labels
from tcnaps.method.head import Head
from tcnaps.method.stopping import should_stop

SMALL = 256  # up to so many images or features, float64 throughout costs little, and no rounding is amplified


@dataclass(frozen=True)
class ClassStatistics:
    """Means and regularised covariances of every class, in the coordinates of the features they came from."""

    means: Float[Tensor, "way d"]
    covariances: Float[Tensor, "way d d"]  # Q_k
    counts: Float[Tensor, "way"]  # n_k


@dataclass(frozen=True)
class Step:
    """What is known after one refinement step.

    Attributes:
        logits: of the query images: −scale · d², less ½ log|Q_k| where the head has the log-determinant.
        unlabelled_logits: the same of the extra unlabelled images.
        rows: how many images the largest class needed; see `refinement_steps`. On a device, for nobody waits for it.
    """

    number: int
    logits: Float[Tensor, "n_query way"]
    unlabelled_logits: Float[Tensor, "n_extra way"]
    rows: Int[Tensor, ""] | int = 0

    @property
    def responsibilities(self) -> Float[Tensor, "n_query way"]:
        """Of the query images: rows sum to 1 (equation 8)."""
        return self.logits.softmax(1)

    @property
    def labels(self) -> Int[Tensor, "n_query"]:
        """The most probable class of every query image."""
        return self.logits.argmax(1)


def one_hot(labels: Int[Tensor, "n"], way: int, like: Tensor) -> Float[Tensor, "n way"]:
    """Responsibilities of labelled images: 1 for the label's class, 0 elsewhere (equation 8)."""
    return torch.nn.functional.one_hot(labels, way).to(like.dtype)


def class_statistics(
    features: Float[Tensor, "n d"], responsibilities: Float[Tensor, "n way"], head: Head = Head()
) -> ClassStatistics:
    """Class means and covariances from weighted images (equations 9-12; with one-hot rows, equations 1-4).

    Σ is the weighted task covariance and Σ_k the weighted class covariance, about the means μ and μ_k; then
    Q_k = λ_k Σ_k + (1 − λ_k) Σ + identity_weight · I with the shrinkage λ_k = n_k / (n_k + 1). With the class divisor
    n_k − 1, responsibilities are to be one-hot and features not rotated: see `Head`.
    """
    n, d = features.shape
    counts = responsibilities.sum(0)
    means = responsibilities.T @ features / counts[:, None]
    identity = torch.eye(d, dtype=features.dtype, device=features.device)
    if head.metric == "euclidean":
        return ClassStatistics(means, identity.expand(len(counts), d, d), counts)
    centred = features - features.mean(0)  # rows of responsibilities sum to 1: Σ is the plain covariance
    task_covariance = centred.T @ centred / _divisor(n, head.task_covariance_divisor)
    shrinkage, scatter_weights = _weights(responsibilities, counts, head)
    covariances = []
    for k in range(len(counts)):
        deviations = features - means[k]
        if head.class_covariance_divisor == "n-1" and counts[k] == 1:
            scatter = shrinkage[k] * features[responsibilities[:, k].argmax()].var()
        else:
            scatter = (deviations * scatter_weights[:, k : k + 1]).T @ deviations  # λ_k Σ_k
        covariances.append(scatter + (1 - shrinkage[k]) * task_covariance + head.identity_weight * identity)
    return ClassStatistics(means, torch.stack(covariances), counts)


def class_logits(
    features: Float[Tensor, "n d"], statistics: ClassStatistics, head: Head = Head(), outside: int = 0
) -> Float[Tensor, "n way"]:
    """Logits of images under given class statistics (equation 5, or the mixture equation with `log_determinant`).

    Args:
        outside: feature dimensions beyond d in which every covariance is identity_weight · I and no image differs
            from a mean; they count in the log-determinant only.
    """
    distances, log_determinants = low_rank.dense_squared_distances(features, statistics.means, statistics.covariances)
    return _logits(distances, log_determinants, head, outside)


def refinement_steps(
    support_features: Float[Tensor, "n_support d"],
    support_labels: Int[Tensor, "n_support"],
    query_features: Float[Tensor, "n_query d"],
    unlabelled_features: Float[Tensor, "n_extra d"] | None = None,
    head: Head = Head(),
    rows: int | None = None,
) -> Iterator[Step]:
    """Yields step 0 (support statistics alone), 1, 2, ... without end; take as many as you need (Algorithm 1).

    Without unlabelled images to refine with, every step equals step 0, which is Simple CNAPS.

    Args:
        support_labels: 0, ..., way − 1, each at least once.
        unlabelled_features: further unlabelled images; they refine the classes where `head.unlabelled` says so.
        rows: how many images make up each class's covariance, those that count most. Default: as many as are needed
            to be exact, which the host waits for the device to say. Otherwise it waits for nothing after step 1 has
            begun, and a step is exact if its `rows` is no more.

    Raises:
        ValueError: features of different width or kind, non-finite features, a class without a support image, or a
            single support image where `head.task_covariance_divisor` is n − 1.
    """
    if unlabelled_features is None:
        unlabelled_features = query_features.new_zeros(0, query_features.shape[1])
    sets = {"support": support_features, "query": query_features, "extra": unlabelled_features}
    check_features(sets)
    labels_here = support_labels.cpu()  # the host waits once, and not for each of the following
    way = check_support_labels(labels_here)
    if head.task_covariance_divisor == "n-1" and head.metric == "mahalanobis" and len(support_labels) == 1:
        raise ValueError("there is one support image in all, so n − 1 is 0; use the task covariance's divisor 'n'")
    features = torch.cat(list(sets.values()))
    n_support, n_query, dtype = len(support_features), len(query_features), features.dtype
    if min(features.shape) <= SMALL:
        features = features.double()
    refining = {"query": slice(0, n_query), "extra": slice(n_query, None), "both": slice(None)}[head.unlabelled]
    dense = features.requires_grad or head.metric == "euclidean" or head.update == "means"
    # The released Simple CNAPS' rule for 1-shot classes depends on the axes of the features; nothing else does.
    first_head, head = head, replace(head, class_covariance_divisor="n")
    as_they_are = first_head != head
    in_axes = not dense and features.shape[0] < min(features.shape[1], SMALL)
    if in_axes:
        coordinates = low_rank.principal_coordinates(features)
    else:
        coordinates = features if as_they_are and dense else low_rank.span_coordinates(features)
    outside = features.shape[1] - coordinates.shape[1]
    equal_shots = len(labels_here.bincount().unique()) == 1
    needed = 0

    support_responsibilities = responsibilities = one_hot(support_labels, way, features)
    members, points = coordinates[:n_support], coordinates[n_support:]
    for number in count():
        if dense:
            statistics = class_statistics(members, responsibilities, first_head if number == 0 else head)
            if number == 0:
                covariances = statistics.covariances
            elif head.update == "means":
                statistics = replace(statistics, covariances=covariances)
            logits = class_logits(points, statistics, head, outside)
        elif number == 0 and as_they_are:
            statistics = class_statistics(features[:n_support], responsibilities, first_head)
            logits = class_logits(features[n_support:], statistics, head)
        elif number == 0:
            support_logits = _equal_shots_logits if equal_shots else _support_logits
            logits, needed = support_logits(points, members, responsibilities, head, outside, rows)
        elif len(members) > n_support:  # else nothing refines: step 0 stands
            if number == 1:  # the task covariance is that of all members from here on: diagonalise it once
                divisor = _divisor(len(members), head.task_covariance_divisor)
                if in_axes and len(members) == len(features):
                    variances = members.square().sum(0) / divisor
                else:
                    rotation, variances = low_rank.principal_axes(members, divisor)
                    members, points = members @ rotation, points @ rotation
            logits, needed = _low_rank_logits(points, members, variances, responsibilities, head, outside, rows)
        rounded = logits.to(dtype)
        yield Step(number, rounded[:n_query], rounded[n_query:], needed)
        responsibilities = torch.cat([support_responsibilities, logits[refining].softmax(1)])
        if number == 0:
            members = torch.cat([members, points[refining]])


def trajectory(
    support_features: Float[Tensor, "n_support d"],
    support_labels: Int[Tensor, "n_support"],
    query_features: Float[Tensor, "n_query d"],
    unlabelled_features: Float[Tensor, "n_extra d"] | None = None,
    head: Head = Head(),
    steps: int = 10,
    waiting: bool | None = None,
) -> Float[Tensor, "{steps}+1 n_query way"]:
    """Logits of the query images after every refinement step 0, 1, ..., `steps`; one record for every stopping rule.

    Args:
        waiting: whether the host may wait for the device between two steps. Otherwise the steps are queued with a guess
            of what they need, and queued again where it was too low. Default: on a CPU, which is the host.
    """
    sets = (support_features, support_labels, query_features, unlabelled_features, head)
    if waiting if waiting is not None else query_features.device.type == "cpu":
        return torch.stack([step.logits for step in islice(refinement_steps(*sets), steps + 1)])
    n_images = (
        len(support_features) + len(query_features) + (0 if unlabelled_features is None else len(unlabelled_features))
    )
    rows = 2 * math.ceil(n_images / (int(support_labels.max()) + 1))
    while True:
        taken = list(islice(refinement_steps(*sets, rows), steps + 1))
        needed = max(int(step.rows) for step in taken)
        if needed <= rows:
            break
        rows = needed
    logits = torch.stack([step.logits for step in taken])
    if not logits.isfinite().all():
        raise ValueError("logits are not finite: a covariance is singular in this precision; raise identity_weight")
    return logits


def cluster(
    support_features: Float[Tensor, "n_support d"],
    support_labels: Int[Tensor, "n_support"],
    query_features: Float[Tensor, "n_query d"],
    unlabelled_features: Float[Tensor, "n_extra d"] | None = None,
    head: Head = Head(),
    minimum: int = 2,
    maximum: int = 4,
) -> Step:
    """Refines until the stopping rule says so and returns the last step (Algorithm 1)."""
    labels = None
    for step in refinement_steps(support_features, support_labels, query_features, unlabelled_features, head):
        changed = labels is None or not torch.equal(step.labels, labels)
        labels = step.labels
        if should_stop(step.number, changed, minimum, maximum):
            return step


def _support_logits(points, members, responsibilities, head, outside, rows):
    """Step 0 in the axes of the support set."""
    divisor = _divisor(len(members), head.task_covariance_divisor)
    rotation, variances = low_rank.principal_axes(members, divisor)
    members, points = members @ rotation, points @ rotation
    return _low_rank_logits(points, members, variances, responsibilities, head, outside, rows)


def _equal_shots_logits(points, members, responsibilities, head, outside, rows):
    """The same where all classes share (1 − λ) Σ + identity_weight · I; a Cholesky factor makes it I."""
    counts, divisor = responsibilities.sum(0), _divisor(len(members), head.task_covariance_divisor)
    shrinkage, scatter_weights = _weights(responsibilities, counts, head)
    factor = low_rank.shared_factor(members, (1 - shrinkage[0]) / divisor, head.identity_weight)
    members, points = (torch.linalg.solve_triangular(factor, z.T, upper=False).T for z in (members, points))
    means = responsibilities.T @ members / counts[:, None]
    distances, log_determinants, needed = low_rank.squared_distances(
        points, means, torch.ones_like(means), members, scatter_weights, identity_weight=1.0, rows=rows
    )
    return _logits(distances, log_determinants + 2 * factor.diagonal().log().sum(), head, outside), needed


def _low_rank_logits(points, members, variances, responsibilities, head, outside, rows):
    counts = responsibilities.sum(0)
    means = responsibilities.T @ members / counts[:, None]
    shrinkage, scatter_weights = _weights(responsibilities, counts, head)
    diagonals = torch.outer(1 - shrinkage, variances) + head.identity_weight
    distances, log_determinants, needed = low_rank.squared_distances(
        points, means, diagonals, members, scatter_weights, head.identity_weight, rows
    )
    return _logits(distances, log_determinants, head, outside), needed


def _logits(distances, log_determinants, head, outside):
    logits = -head.scale * distances
    if head.log_determinant and head.metric == "mahalanobis":
        logits = logits - (log_determinants + outside * math.log(head.identity_weight)) / 2
    return logits


def _weights(responsibilities, counts, head):
    """The shrinkage λ_k and the weight λ_k w_jk / n_k of image j in class k's covariance."""
    shrinkage = counts / (counts + 1)
    return shrinkage, responsibilities * (shrinkage / _divisor(counts, head.class_covariance_divisor))


def _divisor(count, rule):
    return count - 1 if rule == "n-1" else count
