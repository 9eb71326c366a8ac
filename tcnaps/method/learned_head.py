"""A head some of whose numbers are meta-learned together with the networks.

FiT (Shysheya et al. 2023, arXiv 2206.08671, `src/naive_bayes.py` of its code) learns the weights e of the three terms
of its quadratic classifier's covariances, Q_k = e₁ Σ_k + e₂ Σ + e₃ I, by gradients through the classifier. They are
three numbers for all classes, episodes and datasets, kept above 0 by a ReLU, and start at ½, ½ and 1. Here they are

    Q_k = e₁ λ_k Σ_k + e₂ (1 − λ_k) Σ + e₃ I,

and start at 1, 1 and the study's identity_weight: the paper's head exactly, so that a comparison with it begins where
it does. λ_k stays, since classes of very different size meet in one episode here. A weight is its start times exp(θ)
with θ = 0 at first, so that it stays above 0, where a ReLU can die.
"""

from collections.abc import Mapping
from dataclasses import replace

from jaxtyping import Float
from torch import Tensor

from tcnaps.method.head import Head


def learned_head(start: Head, exponents: Mapping[str, Float[Tensor, ""]]) -> Head:
    """The head whose numbers are those of `start` times the exponentials of what is learned.

    Args:
        exponents: by the names of the head's numbers: scale, identity_weight, ... Their gradients pass through the
            clustering, of which there is then only the plain way (`tcnaps.method.fast.strategies`).

    Example:
        >>> import torch
        >>> found = learned_head(Head(scale=0.5), {"scale": torch.tensor(2.0).log()})
        >>> round(found.scale.item(), 4), found.identity_weight
        (1.0, 1.0)
    """
    return replace(start, **{name: getattr(start, name) * exponent.exp() for name, exponent in exponents.items()})


def in_numbers(head: Head) -> Head:
    """The head with plain numbers in place of tensors."""
    tensors = {name: value.item() for name, value in vars(head).items() if isinstance(value, Tensor)}
    return replace(head, **tensors)
