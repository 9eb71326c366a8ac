"""A head some of whose numbers are meta-learned together with the networks.

FiT (Shysheya et al. 2023, arXiv 2206.08671, `src/naive_bayes.py` of its code) learns three weights in its classifier's
covariances, Q_k = e₁ Σ_k + e₂ Σ + e₃ I, which start at ½, ½ and 1. Here Q_k = e₁ λ_k Σ_k + e₂ (1 − λ_k) Σ + e₃ I, since
classes of one episode differ in size, and the weights start at the paper's head. A weight is its start times exp(θ),
with θ = 0 at first, so that it stays above 0; FiT's ReLU can die.
"""

from collections.abc import Mapping
from dataclasses import replace

from jaxtyping import Float
from torch import Tensor

from tcnaps.method.head import Head


def learned_head(start: Head, exponents: Mapping[str, Float[Tensor, ""]]) -> Head:
    """`start` with each learned number multiplied by exp(exponent); gradients pass through the clustering.

    Args:
        exponents: by the names of the head's numbers: scale, identity_weight, ...
    """
    return replace(start, **{name: getattr(start, name) * exponent.exp() for name, exponent in exponents.items()})


def in_numbers(head: Head) -> Head:
    """The head with plain numbers in place of tensors."""
    return replace(head, **{name: value.item() for name, value in vars(head).items() if isinstance(value, Tensor)})
