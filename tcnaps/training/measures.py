"""Numbers that are logged for every training step besides its loss, and cosine decay of the learning rate."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn


@torch.no_grad()
def accuracy_and_confidence(logits: Float[Tensor, "n way"], labels: Int[Tensor, "n"]) -> tuple[float, float]:
    """The share of images labelled correctly, and the mean probability of the predicted labels: equal if calibrated."""
    probabilities, predictions = logits.softmax(1).max(1)
    return (predictions == labels).double().mean().item(), probabilities.double().mean().item()


def gradient_norm(module: nn.Module) -> float:
    """Euclidean norm of the gradient of all parameters that have one."""
    gradients = [parameter.grad for parameter in module.parameters() if parameter.grad is not None]
    return nn.utils.get_total_norm(gradients).item()


def half_cosine(progress: float) -> float:
    """Falls from 1 to 0 as the progress rises from 0 to 1."""
    return (1 + math.cos(math.pi * progress)) / 2
