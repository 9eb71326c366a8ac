"""How far to trust labels, judged by the labelled images alone: some are left out, and labelled like the others.

A fold leaves out examples of every class at once. Leaving out a single one would put its class at a disadvantage and
understate accuracy (docs/my-images.md has the measurements).
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.optimize import minimize_scalar
from scipy.special import softmax
from scipy.stats import norm
from sklearn.model_selection import StratifiedKFold

from tcnaps.estimator import TransductiveMahalanobisClassifier

FOLDS = 5  # at most; no more than the smallest class has examples
OTHERS = 2000  # unlabelled images that take part in a fold, at most
COVERED = 0.9  # share of the images whose sets hold the right label
FAMILIAR = 0.9  # share of the left-out examples that are not taken for foreign images
OFFSET = 0.4  # share of the unlabelled images' common offset from their classes that is taken off
SHARED = 2.0  # this many examples count as one independent example in the interval, for they fail together
LEARNING = 0.2  # errors fall with n examples per class as n to the power −0.2 (docs/my-images.md)
TINY = 1e-12


@dataclass(frozen=True)
class Trust:
    """What leaving examples out says about the others' labels.

    Left-out examples are labelled by fewer examples than the images will be, and `accuracy` makes up for that.
    """

    accuracy: float  # what to expect, with its 95% interval
    low: float
    high: float
    temperature: float  # calibrates probabilities; they are raised to 1 / temperature
    rarest: float  # the smallest calibrated probability of a label that belongs to an image's set
    farthest: float  # distance to the nearest class mean beyond which an image is unlike every class


def trust_of(
    points: Float[np.ndarray, "n r"], codes: Int[np.ndarray, "n"], estimator: TransductiveMahalanobisClassifier
) -> Trust | None:
    """What to expect of `estimator` on the images without a label (code −1); None where a class has one example."""
    rows = np.flatnonzero(codes >= 0)
    labels, others = codes[rows], np.flatnonzero(codes < 0)
    n_folds = min(FOLDS, np.bincount(labels).min())
    if n_folds < 2:
        return None
    others = others[np.unique(np.linspace(0, len(others) - 1, min(OTHERS, len(others))).astype(int))]
    probabilities, distances = np.empty((len(rows), labels.max() + 1)), np.empty(len(rows))
    for kept, left_out in StratifiedKFold(n_folds, shuffle=True, random_state=0).split(rows, labels):
        members = np.concatenate([rows[kept], rows[left_out], others])
        seen = np.where(np.arange(len(members)) < len(kept), codes[members], -1)
        unlabelled = estimator.fit(points[members], seen).label_distributions_[len(kept) :]
        probabilities[left_out] = unlabelled[: len(left_out)]
        distances[left_out] = distance_to_classes(points[members], seen, unlabelled)[: len(left_out)]
    right, temperature = probabilities.argmax(1) == labels, _temperature(probabilities, labels)
    of_truth = calibrated(probabilities, temperature)[np.arange(len(labels)), labels]
    fewer_errors = (1 - 1 / n_folds) ** LEARNING  # with all examples, as a factor
    accuracy, low, high = (1 - fewer_errors * (1 - share) for share in (right.mean(), *_interval(right)))
    rarest = 1 - _limit(1 - of_truth, 1 - (1 - COVERED) / fewer_errors, 1.0)
    return Trust(accuracy, low, high, temperature, rarest, _limit(distances, FAMILIAR, math.inf))


def calibrated(probabilities: Float[np.ndarray, "n way"], temperature: float) -> Float[np.ndarray, "n way"]:
    """Probabilities as confident as left-out examples were right."""
    return softmax(np.log(np.maximum(probabilities, TINY)) / temperature, 1)


def distance_to_classes(
    points: Float[np.ndarray, "n r"], codes: Int[np.ndarray, "n"], probabilities: Float[np.ndarray, "u way"]
) -> Float[np.ndarray, "u"]:
    """Distance of every unlabelled image (code −1) from the nearest mean of a class's labelled images.

    Images of another camera may all differ from the examples in the same way. A part of this offset, the median of
    image − expected class mean, is taken off first.
    """
    means = np.stack([points[codes == k].mean(0) for k in range(codes.max() + 1)])
    unlabelled = points[codes < 0]
    unlabelled = unlabelled - OFFSET * np.median(unlabelled - probabilities @ means, axis=0)
    return np.min([np.linalg.norm(unlabelled - mean, axis=1) for mean in means], axis=0)


def _temperature(probabilities: Float[np.ndarray, "n way"], labels: Int[np.ndarray, "n"]) -> float:
    """The most likely temperature T, drawn towards 1 where examples are few: log T is standard normal a priori."""

    def loss(log_temperature: float) -> float:
        of_truth = calibrated(probabilities, math.exp(log_temperature))[np.arange(len(labels)), labels]
        return log_temperature**2 / 2 - np.log(np.maximum(of_truth, TINY)).sum()

    return math.exp(minimize_scalar(loss, bounds=(-2, 2.5), method="bounded").x)


def _interval(right: Bool[np.ndarray, "n"]) -> tuple[float, float]:
    """Wilson's 95% interval, with `SHARED` examples counted as one."""
    n, share, z = len(right) / SHARED, right.mean(), norm.ppf(0.975)
    middle, half = share + z**2 / (2 * n), z * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return (middle - half) / (1 + z**2 / n), (middle + half) / (1 + z**2 / n)


def _limit(scores: Float[np.ndarray, "n"], share: float, largest: float) -> float:
    """The score that this share of new images stays below: conformal, interpolated between neighbouring ranks."""
    if share * (len(scores) + 1) > len(scores):
        return largest
    return float(np.quantile(scores, share, method="weibull"))
