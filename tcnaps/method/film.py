"""Task embedding to FiLM's gamma and beta for every block: the adaptation networks psi (section 3.2)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tcnaps.method.backbone import BLOCKS_PER_STAGE, STAGE_CHANNELS, Modulation
from tcnaps.method.task_encoder import EMBEDDING


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
