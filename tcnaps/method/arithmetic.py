"""The choice between plain and fast arithmetic; no other module of `tcnaps.method` imports `tcnaps.method.fast`.

Both give the same numbers but for rounding. Plain arithmetic follows the paper line by line; `tcnaps.method.fast` holds
what is there for speed alone. A study's `arithmetic: plain` turns it off for one study, and the environment variable
TCNAPS_FAST=0 for a whole process.
"""

import os
from collections.abc import Callable, Sequence
from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn

from tcnaps.method.class_statistics import Distances
from tcnaps.method.head import Head
from tcnaps.method.samples import Plain, Samples, in_members_axes

Arithmetic = Literal["fast", "plain"]

ENABLED = os.environ.get("TCNAPS_FAST", "1") != "0"


def is_fast(arithmetic: Arithmetic) -> bool:
    """Whether a component with this setting computes fast."""
    return ENABLED and arithmetic == "fast"


def distances_for(samples: Samples, head: Head) -> Callable[[Tensor | None], Distances]:
    """The function from refining images' responsibilities to all points' distances from every class; see `Plain`."""
    if not is_fast(head.arithmetic):
        return Plain(in_members_axes(samples, head), head)
    from tcnaps.method.fast.strategies import strategy_for

    return strategy_for(samples, head)


def fast_features(
    backbone: nn.Module, images: Float[Tensor, "n 3 height width"], film: Sequence[tuple[Tensor, Tensor] | None]
) -> Float[Tensor, "n 512"]:
    """`Backbone.forward` in evaluation mode, with batch-norm and FiLM folded into the convolutions."""
    from tcnaps.method.fast.folded_backbone import features

    return features(backbone, images, film)


def fast_encoding(encoder: nn.Module, x: Float[Tensor, "n 3 height width"]) -> Float[Tensor, "n 64 h2 w2"]:
    """The five layers of a `SetEncoder` with the statistics of the batch, each layer as one operation."""
    from tcnaps.method.fast.fused_set_encoder import layers

    return layers(encoder, x)
