"""The backbone in evaluation mode: gamma · BN(conv(x)) + beta is one convolution with other weights and a bias."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tcnaps.method.fast.fused_film_conv import modulated_conv

Film = tuple[Tensor, Tensor] | None  # gamma and beta of every channel
BYTES_AT_ONCE = 2**25  # of the first layer's output, on a CPU: the memory that one part frees serves the next


def features(
    backbone: nn.Module, images: Float[Tensor, "n 3 height width"], film: Sequence[Film]
) -> Float[Tensor, "n 512"]:
    """`Backbone.forward` in evaluation mode, of images that have their channels last."""
    x = _rectified(backbone.stem, images, None)
    for i, block in enumerate(backbone.blocks):
        y = _rectified(block.first, x, film[2 * i])
        shortcut = x if isinstance(block.shortcut, nn.Identity) else _folded_conv(block.shortcut, x, None)
        x = _rectified(block.second, y, film[2 * i + 1], shortcut)
    return x.mean((2, 3)).to(images.dtype)


def images_at_once(images: Float[Tensor, "n 3 height width"], most: int, channels: int, precision: torch.dtype) -> int:
    """How many images should go through the backbone together; `channels` are those of its first layer."""
    if images.device.type != "cpu":
        return most
    first_output = channels * images[0, 0].numel() // 4  # numbers per image
    n_bytes = BYTES_AT_ONCE // (2 if torch.is_grad_enabled() else 1)
    return max(1, min(most, n_bytes // (first_output * precision.itemsize)))


def _rectified(layer: nn.Module, x: Tensor, film: Film, shortcut: Tensor | None = None) -> Tensor:
    """relu(layer(x, film) + shortcut).

    FiLM that needs gradients stays outside of frozen convolutions, since folded it would cost their weights' gradients.
    """
    conv = layer.conv
    if film is not None and torch.is_grad_enabled() and film[0].requires_grad and not conv.weight.requires_grad:
        weight, bias = _folded(layer, None)
        return modulated_conv(x, weight, bias, *film, shortcut, conv.stride, conv.padding)
    x = _folded_conv(layer, x, film)
    if torch.is_grad_enabled():
        return F.relu(x if shortcut is None else x + shortcut)
    return (x if shortcut is None else x.add_(shortcut)).relu_()  # fresh memory costs as much as the additions


def _folded_conv(layer: nn.Module, x: Tensor, film: Film) -> Tensor:
    weight, bias = _folded(layer, film)
    return F.conv2d(x, weight, bias, layer.conv.stride, layer.conv.padding)


def _folded(layer: nn.Module, film: Film) -> tuple[Float[Tensor, "k c size size"], Float[Tensor, "k"]]:
    """Weight and bias of the one convolution that equals gamma · BN(conv(x)) + beta."""
    norm = layer.norm
    scale = norm.weight * torch.rsqrt(norm.running_var + norm.eps)
    bias = norm.bias - norm.running_mean * scale
    if film is not None:
        gamma, beta = film
        scale, bias = scale * gamma, bias * gamma + beta
    return layer.conv.weight * scale[:, None, None, None], bias
