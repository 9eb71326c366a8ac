"""A frozen convolution, FiLM, shortcut and ReLU as one autograd function that keeps one tensor instead of four.

Autograd keeps the convolution's input for the weight's gradient, which is not needed here, FiLM's input for gamma's
gradient, and ReLU's output. With frozen weights FiLM's input is enough, plus one byte per number where a shortcut is
added.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F


def modulated_conv(
    x: Float[Tensor, "n c h w"],
    weight: Float[Tensor, "k c size size"],
    bias: Float[Tensor, "k"],
    gamma: Float[Tensor, "k"],
    beta: Float[Tensor, "k"],
    shortcut: Float[Tensor, "n k h2 w2"] | None,
    stride: tuple[int, int],
    padding: tuple[int, int],
) -> Float[Tensor, "n k h2 w2"]:
    """relu(gamma · conv(x) + beta + shortcut), with gradients for x, gamma, beta and shortcut alone.

    Second derivatives are not implemented.
    """
    return _ModulatedConv.apply(x, weight, bias, gamma, beta, shortcut, stride, padding)


class _ModulatedConv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, gamma, beta, shortcut, stride, padding):
        inner = F.conv2d(x, weight, bias, stride, padding)
        outer = affine(inner, gamma, beta)
        positive = None
        if shortcut is None:
            outer.relu_()
        else:
            outer.add_(shortcut).relu_()
            positive = (outer > 0).view(torch.uint8)  # multiplying by bytes is faster than by bools
        ctx.save_for_backward(inner, weight.to(inner.dtype), gamma, beta, positive)
        ctx.input_shape, ctx.stride, ctx.padding = x.shape, stride, padding
        return outer

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        inner, weight, gamma, beta, positive = ctx.saved_tensors
        if positive is None:
            gradient = torch.ops.aten.threshold_backward(gradient, affine(inner, gamma, beta), 0)
        else:
            gradient = gradient * positive
        # The backward pass of batch-norm with mean 0 and variance 1 sums gradient · inner and gradient in one pass.
        no, one, wanted = torch.zeros_like(gamma), torch.ones_like(gamma), (False, True, True)
        _, to_gamma, to_beta = torch.ops.aten.native_batch_norm_backward(
            gradient, inner, one, None, None, no, one, True, 0.0, wanted
        )
        to_x = None
        if ctx.needs_input_grad[0]:
            # Only the shape of the input matters: its values would enter the weight's gradient alone.
            shaped = torch.empty(
                ctx.input_shape, dtype=inner.dtype, device=inner.device, memory_format=_memory_format(inner)
            )
            modulated, only_x = weight * gamma.to(weight.dtype)[:, None, None, None], (True, False, False)
            to_x = torch.ops.aten.convolution_backward(
                gradient, shaped, modulated, None, ctx.stride, ctx.padding, (1, 1), False, (0, 0), 1, only_x
            )[0]
        return to_x, None, None, to_gamma, to_beta, gradient if ctx.needs_input_grad[5] else None, None, None


def affine(
    x: Float[Tensor, "n k h w"], gamma: Float[Tensor, "k"], beta: Float[Tensor, "k"]
) -> Float[Tensor, "n k h w"]:
    """gamma · x + beta in the precision of x, without gradients."""
    gamma, beta = (part.to(x.dtype)[:, None, None] for part in (gamma, beta))
    return torch.addcmul(beta, x, gamma, out=torch.empty_like(x))


def _memory_format(x: Tensor) -> torch.memory_format:
    channels_last = x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
    return torch.channels_last if channels_last else torch.contiguous_format
