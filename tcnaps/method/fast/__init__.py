"""The numbers of `tcnaps.method` with less work, and the choice between this arithmetic and the plain one.

Both give the same numbers but for rounding. Plain arithmetic follows the paper line by line; fast arithmetic is there
for speed alone. A study's `arithmetic: plain` turns it off for one study, TCNAPS_FAST=0 for a whole process.
"""

import os
from collections.abc import Callable
from typing import Literal

from torch import Tensor

from tcnaps.method.class_statistics import Distances
from tcnaps.method.fast.folded_backbone import features as fast_features
from tcnaps.method.fast.fused_set_encoder import layers as fast_encoding
from tcnaps.method.fast.strategies import strategy_for
from tcnaps.method.head import Head
from tcnaps.method.samples import Plain, Samples, in_members_axes

__all__ = ["Arithmetic", "distances_for", "fast_encoding", "fast_features", "is_fast"]

Arithmetic = Literal["fast", "plain"]

ENABLED = os.environ.get("TCNAPS_FAST", "1") != "0"


def is_fast(arithmetic: Arithmetic) -> bool:
    """Whether a component with this setting computes fast."""
    return ENABLED and arithmetic == "fast"


def distances_for(samples: Samples, head: Head) -> Callable[[Tensor | None], Distances]:
    """The function from refining images' responsibilities to all points' distances from every class; see `Plain`."""
    if is_fast(head.arithmetic):
        return strategy_for(samples, head)
    return Plain(in_members_axes(samples, head), head)
