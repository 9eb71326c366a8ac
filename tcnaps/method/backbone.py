"""The ResNet18 that turns images into 512 features, modulated by FiLM after both batch-norms of every block."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tcnaps.method.fast.fused_film_conv import affine, modulated_conv

STAGE_CHANNELS = (64, 128, 256, 512)
BLOCKS_PER_STAGE = 2
FEATURES = STAGE_CHANNELS[-1]


class Modulation(NamedTuple):
    """FiLM of one layer: x ← gamma · x + beta for every channel; for all images alike, or a row for each image."""

    gamma: Float[Tensor, "*n channels"]
    beta: Float[Tensor, "*n channels"]


class ConvNorm(nn.Module):
    """A convolution without bias and its batch-norm, then FiLM if there is any.

    Attributes:
        folds: whether the three become one convolution where nothing is trained.
    """

    folds = True

    def __init__(self, inputs: int, outputs: int, size: int, stride: int = 1, padding: int = 0):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, size, stride, padding, bias=False)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x: Float[Tensor, "n c h w"], film: Modulation | None = None) -> Float[Tensor, "n k h2 w2"]:
        if self.training or not self.folds:
            x, rest = self.norm(self.conv(x)), film
        else:
            weight, bias, rest = self.folded(film)
            x = F.conv2d(x, weight, bias, self.conv.stride, self.conv.padding)
            if rest is not None and not torch.is_grad_enabled():
                return affine(x, *rest)
        return x if rest is None else x * rest.gamma[..., None, None] + rest.beta[..., None, None]

    def rectified(
        self, x: Float[Tensor, "n c h w"], film: Modulation | None, shortcut: Float[Tensor, "n k h2 w2"] | None = None
    ) -> Float[Tensor, "n k h2 w2"]:
        """relu(forward(x, film) + shortcut), with less kept for backpropagation where only FiLM is trained."""
        if not self.training and self.folds and film is not None and not self.conv.weight.requires_grad:
            weight, bias, rest = self.folded(film)
            if rest is not None and rest.gamma.dim() == 1:
                return modulated_conv(x, weight, bias, *rest, shortcut, self.conv.stride, self.conv.padding)
        x = self(x, film)
        if not torch.is_grad_enabled():  # fresh memory costs as much as the additions
            return (x if shortcut is None else x.add_(shortcut)).relu_()
        return F.relu(x if shortcut is None else x + shortcut)

    def folded(self, film: Modulation | None) -> tuple[Tensor, Tensor, Modulation | None]:
        """gamma · BN(conv(x)) + beta as one convolution: its weight, its bias, and what FiLM could not be folded.

        FiLM is left out where it needs gradients, since they would cost a convolution's weight gradient, and where each
        image has its own.
        """
        scale = self.norm.weight * torch.rsqrt(self.norm.running_var + self.norm.eps)
        bias = self.norm.bias - self.norm.running_mean * scale
        if film is not None and film.gamma.dim() == 1 and not (torch.is_grad_enabled() and film.gamma.requires_grad):
            scale, bias, film = scale * film.gamma, bias * film.gamma + film.beta, None
        return self.conv.weight * scale[:, None, None, None], bias, film


class Block(nn.Module):
    """A basic residual block; a 1×1 convolution on the shortcut where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.first = ConvNorm(inputs, outputs, 3, stride, padding=1)
        self.second = ConvNorm(outputs, outputs, 3, padding=1)
        self.shortcut = ConvNorm(inputs, outputs, 1, stride) if stride != 1 or inputs != outputs else nn.Identity()

    def forward(self, x: Float[Tensor, "n c h w"], film: Sequence[Modulation | None]) -> Float[Tensor, "n k h2 w2"]:
        y = self.first.rectified(x, film[0])
        return self.second.rectified(y, film[1], self.shortcut(x))


class Backbone(nn.Module):
    """ResNet18 for small images: 5×5 stem with stride 2, no max-pool, four stages of two blocks, average pool.

    Attributes:
        memory_format: in which the convolutions run; see `set_arithmetic`.
    """

    memory_format = torch.channels_last

    def __init__(self):
        super().__init__()
        self.stem = ConvNorm(3, STAGE_CHANNELS[0], 5, stride=2, padding=1)
        blocks, inputs = [], STAGE_CHANNELS[0]
        for stage, outputs in enumerate(STAGE_CHANNELS):
            for block in range(BLOCKS_PER_STAGE):
                blocks.append(Block(inputs, outputs, stride=2 if stage > 0 and block == 0 else 1))
                inputs = outputs
        self.blocks = nn.ModuleList(blocks)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def set_arithmetic(self, arithmetic: Literal["fast", "plain"]) -> None:
        """`fast` is channels-last and folded. `plain` is neither: slower, and rounds as the released code does."""
        self.memory_format = torch.channels_last if arithmetic == "fast" else torch.contiguous_format
        for module in self.modules():
            if isinstance(module, ConvNorm):
                module.folds = arithmetic == "fast"

    def forward(
        self, images: Float[Tensor, "n 3 height width"], film: Sequence[Modulation] | None = None
    ) -> Float[Tensor, "n 512"]:
        """Features of images under FiLM, or unadapted without it.

        Args:
            film: two modulations for every block, in order: 16 in all.
        """
        film = [None] * (2 * len(self.blocks)) if film is None else film
        x = self.stem.rectified(images.contiguous(memory_format=self.memory_format), None)
        for i, block in enumerate(self.blocks):
            x = block(x, film[2 * i : 2 * i + 2])
        return x.mean((2, 3)).to(images.dtype)
