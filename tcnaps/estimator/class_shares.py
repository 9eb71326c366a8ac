"""Refinement that suits the classes' shares among the query images, which it estimates first.

Soft k-means fills every class with query images, also one that has none. A probe with an estimated class prior and the
labels of step 0 tell how even the shares are; `REFINEMENTS` go by that. docs/estimator.md says how they were chosen.
"""

import math
import warnings
from dataclasses import replace
from itertools import chain

import numpy as np
import torch
from jaxtyping import Float
from sklearn.model_selection import StratifiedKFold
from torch import Tensor
from torch.nn import Identity

from tcnaps.estimator.sketch import refinement
from tcnaps.estimator.whitening import Whitening, whitening
from tcnaps.method.class_statistics import one_hot
from tcnaps.method.clustering import LowVarianceWarning, Step, cluster, stopped
from tcnaps.method.episode import Features, Labels
from tcnaps.method.head import Head

FEWEST = 3  # query images per class, on average, that refinement needs to gain anything
PROBED = 5000  # query images that the probe looks at, at most; with more, pushing takes no more steps than the rest
MANY_LABELS = 10  # from so many support images per class on, refinement is first tried on left-out labels
FOLDS = 5
STAYING = 0.85  # share of the support images right at step 0 that must stay in their classes; one may always leave
ALLOWED = 2.0  # step 0 may underrate evenness by this / (query images per class · √support images of the rarest)

Limits = tuple[int, int]  # of refinement steps: minimum, maximum
PROBE = {"class_prior": "estimated", "uniform_weight": 0.5}
EQUAL = {"class_prior": "estimated", "prior_weight": -1.0, "uniform_weight": 0.1}
NEVER = 10**9
REFINEMENTS = (  # what suits shares that are more even than this, and from how many labels per class on it whitens
    (0.97, EQUAL, 1),  # equal classes: push towards equal shares
    (0.96, {"class_prior": None}, 5),  # nearly equal ones: the paper's
    (0.92, {"class_prior": "estimated", "uniform_weight": 0.3}, 5),  # unequal ones: estimated shares
    (0.77, {"class_prior": "estimated", "uniform_weight": 0.1}, NEVER),
    (-1.0, {"class_prior": "estimated", "uniform_weight": 0.3, "update": "none"}, NEVER),  # hardly any images in some
)


def evenness(responsibilities: Float[Tensor, "n way"]) -> float:
    """Entropy of the classes' shares, the mean responsibilities, over its maximum log(way): 1 where all are equal."""
    shares = responsibilities.mean(0)
    return float(torch.special.entr(shares).sum()) / math.log(len(shares)) if len(shares) > 1 else 1.0


def head_for(even: float, head: Head) -> tuple[Head, int]:
    """The head with the refinement that suits shares of this evenness, and from how many labels on it whitens."""
    _, settings, labels = next(row for row in REFINEMENTS if even > row[0])
    return replace(head, **settings), labels


def cluster_by_shares(
    support: Features,
    labels: Labels,
    query: Features,
    head: Head,
    limits: Limits = (2, 4),
    pushing: Limits = (0, 0),
    many: int = MANY_LABELS,
) -> tuple[Step, Head, Whitening | Identity]:
    """`cluster`, with the refinement that `head_for` chooses after a probe; also the head and the whitening it used.

    It does not refine few query images. With `many` labels per class, it refines only if left-out labels gain by that.
    It goes back to step 0 where classes lose their support images. Unless `pushing` is (0, 0), it whitens where
    `REFINEMENTS` says so, and these are the limits where it pushes towards equal shares of up to 5,000 images.
    """
    counts, whiten = torch.bincount(labels), Identity()
    some = query[np.lexsort((query.sum(1), query[:, 0]))[:: -(-len(query) // PROBED) or 1]]  # the same in any order
    refines = len(query) >= FEWEST * len(counts) and limits[1] > 0
    if refines and counts.min() >= many:
        refines = right_of_left_out(support, labels, head, some, limits) > right_of_left_out(support, labels, head)
    if not refines:
        return cluster(support, labels, query, None, head, 0, 0), head, whiten
    head, enough = _probed(support, labels, some, head, limits)
    steps = refinement(support, labels, query, support, head)
    with warnings.catch_warnings(action="ignore", category=LowVarianceWarning):  # as support images count twice
        first = next(steps)
    steps = chain([first], steps)
    if pushing[1] > 0 and counts.min() >= enough:
        rows, whiten = whitening(torch.cat([support, query]), len(counts))
        support, query = rows[: len(labels)], rows[len(labels) :]
        if head.prior_weight == EQUAL["prior_weight"] and len(query) <= PROBED:
            limits = pushing
        steps = refinement(support, labels, query, support, head)
    last = stopped(steps, *limits)
    now, then = (((step.unlabelled_logits - step.log_prior).argmax(1) == labels).sum() for step in (last, first))
    return (last, head, whiten) if now >= min(STAYING * then, then - 1) else (first, head, Identity())


def right_of_left_out(
    support: Features, labels: Labels, head: Head, query: Tensor | None = None, limits: Limits = (0, 0)
) -> int:
    """How many support images are classified right when left out, in five folds; with a `query`, after refinement."""
    right, order = 0, np.lexsort((support.sum(1), support[:, 0]))  # folds that are the same in any order
    support, labels = support[order], labels[order]
    for rest, left_out in StratifiedKFold(FOLDS).split(support, labels):
        fold, points, suited = (support[rest], labels[rest]), support[left_out], head
        if query is not None:
            points = torch.cat([points, query])
            suited, _ = _probed(*fold, points, head, limits)
        step = stopped(refinement(*fold, points, points[:0], suited), *limits)
        right += int((step.labels[: len(left_out)] == labels[left_out]).sum())
    return right


def _probed(support: Tensor, labels: Tensor, query: Tensor, head: Head, limits: Limits) -> tuple[Head, int]:
    """The head that suits the classes' shares. The probe may split a large class, so the labels of step 0 bound it."""
    steps = refinement(support, labels, query, query[:0], replace(head, **PROBE))
    first = next(steps)  # step 0 is that of any prior
    probe = stopped(chain([first], steps), *limits).responsibilities
    first = one_hot(first.labels, probe.shape[1], probe)
    allowed = ALLOWED / math.sqrt(torch.bincount(labels).min()) * probe.shape[1] / len(query)
    return head_for(min(evenness(probe), evenness(first) + allowed), head)
