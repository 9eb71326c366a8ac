"""The networks: the backbone in evaluation mode, and the set encoder.

In the backbone gamma · BN(conv(x)) + beta is one convolution. In the set encoder each layer is one autograd function.
The sign of a negative gamma moves into the convolution. Batch-norm then increases with its input, so max-pooling can
come first. The convolution's output, by far the largest tensor, is held for a few images at a time only. The backward
pass computes it again in the first layer, where the output is largest and computing it is cheap.
"""

from collections.abc import Sequence
from itertools import zip_longest

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

Film = tuple[Tensor, Tensor] | None  # gamma and beta of every channel
WINDOW = (2, 2)
# Pixels of the images whose convolutions are computed at a time: on a CPU as many as stay in its cache.
PIXELS_AT_ONCE, ON_OTHER_DEVICES = {"cpu": 2**15}, 2**24
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
    """relu(layer(x, film) + shortcut), in place: fresh memory costs as much as the additions.

    FiLM that needs gradients is not folded into frozen convolutions: the weights' gradients would be computed, too.
    """
    apart = film is not None and torch.is_grad_enabled() and not layer.conv.weight.requires_grad
    x = _folded_conv(layer, x, None if apart else film)
    if apart:  # batch-norm keeps its input alone, and sums both gradients in one pass; variance + eps is exactly 1
        (gamma, beta), eps = film, 2**-8  # PyTorch 2.11 refuses 0
        x = F.batch_norm(x, torch.zeros_like(gamma), torch.full_like(gamma, 1 - eps), gamma, beta, eps=eps)
    return (x if shortcut is None else x.add_(shortcut)).relu_()


def _folded_conv(layer: nn.Module, x: Tensor, film: Film) -> Float[Tensor, "n k h2 w2"]:
    """gamma · BN(conv(x)) + beta as one convolution with other weights and a bias."""
    norm = layer.norm
    scale = norm.weight * torch.rsqrt(norm.running_var + norm.eps)
    bias = norm.bias - norm.running_mean * scale
    if film is not None:
        gamma, beta = film
        scale, bias = scale * gamma, bias * gamma + beta
    return F.conv2d(x, layer.conv.weight * scale[:, None, None, None], bias, layer.conv.stride, layer.conv.padding)


def encoding(encoder: nn.Module, x: Float[Tensor, "n 3 height width"]) -> Float[Tensor, "n 64 h2 w2"]:
    """The five layers of a `SetEncoder` that normalises with the statistics of the batch."""
    at_once = PIXELS_AT_ONCE.get(x.device.type, ON_OTHER_DEVICES)
    for conv, norm in zip(encoder.convs, encoder.norms):
        images = max(1, at_once // x[0, 0].numel())
        again = x.shape[1] < len(conv.weight) or not torch.is_grad_enabled()
        x = PooledLayer.apply(x, conv.weight, conv.bias, norm.weight, norm.bias, norm.eps, images, again)
    return x


class PooledLayer(torch.autograd.Function):
    """relu(max_pool(batch_norm(conv(x)))) with the statistics of x, in the precision of x.

    It convolves `at_once` images at a time. The backward pass computes their outputs `again`, or finds them kept. The
    bias cancels, since the mean contains it, so its gradient is 0. Second derivatives are not implemented.
    """

    @staticmethod
    def forward(ctx, x, weight, bias, gamma, beta, eps, at_once, again):
        sign = torch.where(gamma < 0, -1.0, 1.0).to(gamma.dtype)
        signed, padding = _signed(weight, sign, x), weight.shape[2] // 2
        counts, moments, pooled, kept = [], [], [], []
        for part in x.split(at_once):
            y = F.conv2d(part, signed, padding=padding)
            counts.append(y.numel() // y.shape[1])
            moments.append(_moments(y, gamma.dtype))
            pooled.append(F.max_pool2d(y, WINDOW))
            if not again:
                kept.append(y)
        count, (means, variances) = sum(counts), map(torch.stack, zip(*moments))
        shares = torch.tensor(counts, dtype=gamma.dtype, device=gamma.device)[:, None] / count
        mean = (shares * means).sum(0)
        variance = (shares * (variances + (means - mean).square())).sum(0)
        inverse = torch.rsqrt(variance + eps)
        slope = gamma.abs() * inverse
        out = torch.cat([_line(part, slope, beta - mean * slope).relu_() for part in pooled])
        ctx.save_for_backward(x, weight, sign, slope, mean, inverse, torch.cat(pooled), out, *kept)
        ctx.at_once, ctx.count = at_once, count
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        x, weight, sign, slope, mean, inverse, pooled, out, *kept = ctx.saved_tensors
        signed, padding = _signed(weight, sign, x), weight.shape[2] // 2
        gradient = torch.ops.aten.threshold_backward(gradient, out, 0)
        wanted = (False, True, True)
        _, to_gamma, to_beta = torch.ops.aten.native_batch_norm_backward(
            gradient, pooled, slope, None, None, mean, inverse, True, 0.0, wanted
        )
        # Directly, only the largest value of a window has a gradient; through mean and variance, every y has one.
        by_variance = -slope * inverse * to_gamma / ctx.count
        by_mean = -slope * to_beta / ctx.count - mean * by_variance
        to_weight, to_x = torch.zeros_like(weight), []
        for part, gradient_part, y in zip_longest(x.split(ctx.at_once), gradient.split(ctx.at_once), kept):
            y = F.conv2d(part, signed, padding=padding) if y is None else y
            _, places = F.max_pool2d(y, WINDOW, return_indices=True)
            to_y = torch.ops.aten.max_pool2d_with_indices_backward(
                _line(gradient_part, slope), y, WINDOW, WINDOW, (0, 0), (1, 1), False, places
            )
            to_y += _line(y, by_variance, by_mean)
            to_part, to_signed, _ = torch.ops.aten.convolution_backward(
                to_y, part, signed, None, (1, 1), (padding, padding), (1, 1), False, (0, 0), 1,
                (ctx.needs_input_grad[0], True, False),
            )  # fmt: skip
            to_weight += to_signed
            to_x.append(to_part)
        to_weight *= sign[:, None, None, None]
        to_x = torch.cat(to_x) if ctx.needs_input_grad[0] else None
        return to_x, to_weight, torch.zeros_like(mean), to_gamma * sign, to_beta, None, None, None


def _moments(y: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Mean and variance of every channel, the latter divided by n."""
    if y.dtype == dtype:
        return torch.batch_norm_update_stats(y, None, None, 0.0)
    # y has a lower precision than the parameters. Running averages of one batch are the only way to full precision.
    count, channels = y.numel() // y.shape[1], y.shape[1]
    mean, variance = (torch.zeros(channels, dtype=dtype, device=y.device) for _ in range(2))
    torch.batch_norm_update_stats(y, mean, variance, 1.0)
    return mean, variance * ((count - 1) / count) if count > 1 else torch.zeros_like(variance)


def _signed(weight: Tensor, sign: Tensor, like: Tensor) -> Tensor:
    return (weight * sign[:, None, None, None]).to(like.dtype)


def _line(x: Tensor, slope: Tensor, start: Tensor | None = None) -> Tensor:
    """slope · x + start for every channel, computed in the precision of slope and rounded to that of x."""
    line = x * slope[:, None, None]
    return (line if start is None else line.add_(start[:, None, None])).to(x.dtype)
