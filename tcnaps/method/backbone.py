"""The ResNet18 that turns images into 512 features, modulated by FiLM after both batch-norms of every block.

FiLM's gamma and beta come from the task embedding: the adaptation networks psi (section 3.2).
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tcnaps.method.fast import Arithmetic, fast_features, is_fast
from tcnaps.method.task_encoder import EMBEDDING

STAGE_CHANNELS = (64, 128, 256, 512)
BLOCKS_PER_STAGE = 2
FEATURES = STAGE_CHANNELS[-1]


class Modulation(NamedTuple):
    """FiLM of one layer: x ← gamma · x + beta for every channel."""

    gamma: Float[Tensor, "channels"]
    beta: Float[Tensor, "channels"]


class ConvNorm(nn.Module):
    """A convolution without bias and its batch-norm, then FiLM if there is any."""

    def __init__(self, inputs: int, outputs: int, size: int, stride: int = 1, padding: int = 0):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, size, stride, padding, bias=False)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x: Float[Tensor, "n c h w"], film: Modulation | None = None) -> Float[Tensor, "n k h2 w2"]:
        x = self.norm(self.conv(x))
        return x if film is None else x * film.gamma[:, None, None] + film.beta[:, None, None]


class Block(nn.Module):
    """A basic residual block; a 1×1 convolution on the shortcut where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.first = ConvNorm(inputs, outputs, 3, stride, padding=1)
        self.second = ConvNorm(outputs, outputs, 3, padding=1)
        self.shortcut = ConvNorm(inputs, outputs, 1, stride) if stride != 1 or inputs != outputs else nn.Identity()

    def forward(self, x: Float[Tensor, "n c h w"], film: Sequence[Modulation | None]) -> Float[Tensor, "n k h2 w2"]:
        y = F.relu(self.first(x, film[0]))
        return F.relu(self.second(y, film[1]) + self.shortcut(x))


class Backbone(nn.Module):
    """ResNet18 for small images: 5×5 stem with stride 2, no max-pool, four stages of two blocks, average pool."""

    arithmetic: Arithmetic = "fast"  # folds batch-norm and FiLM into the convolutions; "plain" rounds as released code

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

    def forward(
        self, images: Float[Tensor, "n 3 height width"], film: Sequence[Modulation] | None = None
    ) -> Float[Tensor, "n 512"]:
        """Features of images under `film`, two modulations for every block in order, or unadapted without it."""
        film = [None] * (2 * len(self.blocks)) if film is None else film
        fast = is_fast(self.arithmetic)
        x = images.contiguous(memory_format=torch.channels_last if fast else torch.contiguous_format)
        if fast and not self.training:
            return fast_features(self, x, film)
        x = F.relu(self.stem(x))
        for i, block in enumerate(self.blocks):
            x = block(x, film[2 * i : 2 * i + 2])
        return x.mean((2, 3)).to(images.dtype)


class Processor(nn.Module):
    """Three dense residual layers x + Wx + b with ReLU between them, times a learned regulariser for each channel."""

    def __init__(self, channels: int):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(channels, channels) for _ in range(3))
        self.regulariser = nn.Parameter(0.001 * torch.randn(channels))  # starts near 0: an unadapted backbone

    def forward(self, x: Float[Tensor, "channels"]) -> Float[Tensor, "channels"]:
        for i, layer in enumerate(self.layers):
            x = F.relu(x) if i > 0 else x
            x = x + layer(x)
        return x * self.regulariser


class StageGenerator(nn.Module):
    """gamma and beta for the blocks of one stage, from one shared view of the task embedding."""

    def __init__(self, channels: int):
        super().__init__()
        self.shared = nn.Linear(EMBEDDING, channels)
        self.gammas = nn.ModuleList(Processor(channels) for _ in range(2 * BLOCKS_PER_STAGE))
        self.betas = nn.ModuleList(Processor(channels) for _ in range(2 * BLOCKS_PER_STAGE))

    def forward(self, embedding: Float[Tensor, "64"]) -> list[Modulation]:
        x = F.relu(self.shared(embedding))
        return [Modulation(1 + gamma(x), beta(x)) for gamma, beta in zip(self.gammas, self.betas)]


class FilmGenerator(nn.Module):
    """Task embedding to 16 modulations, two for every block of the backbone: 3,840 gammas and as many betas."""

    def __init__(self):
        super().__init__()
        self.stages = nn.ModuleList(StageGenerator(channels) for channels in STAGE_CHANNELS)

    def forward(self, embedding: Float[Tensor, "64"]) -> list[Modulation]:
        return [modulation for stage in self.stages for modulation in stage(embedding)]

    def penalty(self) -> Float[Tensor, ""]:
        """Sum of the squared regularisers, which the released code adds to the loss."""
        return sum(m.regulariser.square().sum() for m in self.modules() if isinstance(m, Processor))
