"""Computes the numbers of `tcnaps.method`, equal up to rounding, with less work; chooses fast or plain arithmetic.

A study's `arithmetic: plain` turns fast arithmetic off for one study, TCNAPS_FAST=0 for a whole process.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from tcnaps.method.class_statistics import Distances, Samples, plain_distances
from tcnaps.method.fast.networks import encoding as fast_encoding, features as fast_features, images_at_once
from tcnaps.method.fast.strategies import strategy_for
from tcnaps.method.head import Head

__all__ = ["Arithmetic", "distances_for", "fast_encoding", "fast_features", "images_at_once", "is_fast"]

Arithmetic = Literal["fast", "plain"]

ENABLED = os.environ.get("TCNAPS_FAST", "1") != "0"


def is_fast(arithmetic: Arithmetic) -> bool:
    """Whether a component with this setting computes fast."""
    return ENABLED and arithmetic == "fast"


def distances_for(samples: Samples, head: Head) -> Callable[[Tensor | None], Distances]:
    """The function from refining images' responsibilities to all points' distances from every class."""
    if is_fast(head.arithmetic):
        return strategy_for(samples, head)
    return plain_distances(in_members_axes(samples, head), head)


def in_members_axes(samples: Samples, head: Head) -> Samples:
    """The samples in orthonormal axes of which the first span the support set, the next the refining images.

    No digits are lost then where identity_weight is tiny. With the class divisor n − 1, the features' own axes matter:
    gaps between logits are off by about 0.002 at a total variance of 5e7 identity_weight, and by 0.15 at 5e8.
    """
    if head.class_covariance_divisor == "n-1":
        return samples
    centre = samples.support.detach().mean(0)
    basis = torch.linalg.qr((samples.members.detach() - centre).T, mode="complete").Q  # (d, d)
    return replace(samples, features=(samples.features - centre) @ basis)
