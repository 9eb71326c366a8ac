"""Refinement that suits the classes' shares among the query images, which it estimates first.

Soft k-means fills every class with query images, also a class that has none. A probe with an estimated class prior
tells how even the shares are, and `head_for` chooses how to refine by that. Its limits were chosen on features of an
ImageNet network for five sets of classes, and tested on others (docs/comparisons.md).
"""

import math
from dataclasses import replace

import torch
from jaxtyping import Float
from sklearn.model_selection import StratifiedKFold
from torch import Tensor

from tcnaps.method.checks import Features, Labels
from tcnaps.method.clustering import Step, cluster
from tcnaps.method.head import Head

EVEN = 0.98  # evenness from which on the classes count as equally frequent
NEARLY_EVEN = 0.97  # evenness from which on they count as nearly so
FEW = 0.9  # evenness up to which some classes seem to have hardly any query images
PROBED = 5000  # query images that the probe looks at, at most
MANY_LABELS = 10  # support images of every class from which on it is tried whether refinement helps
FOLDS = 5

PROBE = {"class_prior": "estimated", "uniform_weight": 0.5}
EQUAL = {"class_prior": "estimated", "prior_weight": -1.0, "uniform_weight": 0.1}
NEARLY_EQUAL = {"class_prior": None}
UNEQUAL = {"class_prior": "estimated", "uniform_weight": 0.3}
MISSING = {"class_prior": "estimated", "uniform_weight": 0.03, "update": "none"}


def evenness(responsibilities: Float[Tensor, "n way"]) -> float:
    """Entropy of the classes' shares, the mean responsibilities, over its maximum log(way): 1 where all are equal."""
    shares = responsibilities.mean(0)
    return float(torch.special.entr(shares).sum()) / math.log(len(shares)) if len(shares) > 1 else 1.0


def head_for(even: float, head: Head) -> Head:
    """The head with the refinement that suits shares of this evenness.

    Equal classes: push towards equal shares. Nearly equal ones: the paper's refinement. Unequal ones: refine with
    estimated shares. Where some classes seem to have hardly any query images: estimate the shares, but leave the class
    statistics as the support set gave them.
    """
    for limit, settings in ((EVEN, EQUAL), (NEARLY_EVEN, NEARLY_EQUAL), (FEW, UNEQUAL)):
        if even > limit:
            return replace(head, **settings)
    return replace(head, **MISSING)


def cluster_by_shares(
    support_features: Features,
    support_labels: Labels,
    query_features: Features,
    head: Head = Head(),
    minimum: int = 2,
    maximum: int = 4,
) -> tuple[Step, Head]:
    """`cluster`, with the refinement that `head_for` chooses after a probe; also returns the head that it used.

    Where every class has many labels, it refines only if that would have helped for support images left out.
    """
    if maximum > 0 and len(query_features) > 0:
        some = query_features[:: -(-len(query_features) // PROBED)]
        if torch.bincount(support_labels).min() >= MANY_LABELS:
            maximum *= _refinement_helps(support_features, support_labels, some, head, minimum, maximum)
        probed = cluster(support_features, support_labels, some, None, replace(head, **PROBE), minimum, maximum)
        head = head_for(evenness(probed.responsibilities), head)
    return cluster(support_features, support_labels, query_features, None, head, minimum, maximum), head


def right_of_left_out(support: Features, labels: Labels, head: Head) -> int:
    """How many support images the others classify right without refinement, in five folds."""
    right = 0
    for rest, left_out in StratifiedKFold(FOLDS).split(support, labels):
        step = cluster(support[rest], labels[rest], support[left_out], None, head, 0, 0)
        right += int((step.labels == labels[left_out]).sum())
    return right


def _refinement_helps(support: Tensor, labels: Tensor, query: Tensor, head: Head, minimum: int, maximum: int) -> bool:
    """Whether refinement classifies more of the support images that were left out right than the rest of them alone."""
    gain = 0
    for rest, left_out in StratifiedKFold(FOLDS).split(support, labels):
        points = torch.cat([support[left_out], query])
        probed = cluster(support[rest], labels[rest], points, None, replace(head, **PROBE), minimum, maximum)
        refined = head_for(evenness(probed.responsibilities), head)
        for sign, limits in ((1, (minimum, maximum)), (-1, (0, 0))):
            step = cluster(support[rest], labels[rest], points, None, refined, *limits)
            gain += sign * int((step.labels[: len(left_out)] == labels[left_out]).sum())
    return gain > 0
