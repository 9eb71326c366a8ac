"""A direct implementation of the networks and of evaluation, to time the library against.

The modules are written from the paper, as one would in PyTorch without further thought: default memory layout, float32,
batch-norm and FiLM separate from the convolutions, support and query images one set after the other, and a run of the
whole model for each stopping rule and variant. Parameters have the library's names, so that `load_state_dict` gives
both the same weights.
"""

import direct
import torch
from torch import Tensor, nn
from torch.nn import functional as F


class ConvNorm(nn.Module):
    def __init__(self, inputs: int, outputs: int, size: int, stride: int = 1, padding: int = 0):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, size, stride, padding, bias=False)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor, film: tuple[Tensor, Tensor] | None = None) -> Tensor:
        x = self.norm(self.conv(x))
        if film is None:
            return x
        gamma, beta = film
        return gamma[:, None, None] * x + beta[:, None, None]


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.first = ConvNorm(inputs, outputs, 3, stride, 1)
        self.second = ConvNorm(outputs, outputs, 3, 1, 1)
        self.shortcut = ConvNorm(inputs, outputs, 1, stride) if stride > 1 or inputs != outputs else nn.Identity()

    def forward(self, x: Tensor, film: list[tuple[Tensor, Tensor]]) -> Tensor:
        y = F.relu(self.first(x, film[0]))
        y = self.second(y, film[1])
        return F.relu(y + self.shortcut(x))


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = ConvNorm(3, 64, 5, 2, 1)
        shapes = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1)]
        shapes += [(128, 256, 2), (256, 256, 1), (256, 512, 2), (512, 512, 1)]
        self.blocks = nn.ModuleList(Block(*shape) for shape in shapes)  # inputs, outputs, stride

    def forward(self, images: Tensor, film: list[tuple[Tensor, Tensor]]) -> Tensor:
        x = F.relu(self.stem(images))
        for i, block in enumerate(self.blocks):
            x = block(x, film[2 * i : 2 * i + 2])
        return x.mean((2, 3))


class SetEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(3 if i == 0 else 64, 64, 3, padding=1) for i in range(5))
        self.norms = nn.ModuleList(nn.BatchNorm2d(64) for _ in range(5))

    def forward(self, images: Tensor) -> Tensor:
        x = images
        for conv, norm in zip(self.convs, self.norms):
            x = F.batch_norm(conv(x), None, None, norm.weight, norm.bias, training=True)
            x = F.max_pool2d(F.relu(x), 2)
        return x.mean((2, 3))


class TaskEncoder(nn.Module):
    def __init__(self, transductive: bool):
        super().__init__()
        self.set_encoder = SetEncoder()
        self.lstm = nn.LSTM(64, 64) if transductive else None

    def forward(self, support: Tensor, labels: Tensor, query: Tensor) -> Tensor:
        encoded = self.set_encoder(support)
        if self.lstm is None:
            return encoded.mean(0)
        class_means = torch.stack([encoded[labels == k].mean(0) for k in labels.unique()])
        outputs, _ = self.lstm(torch.stack([class_means.mean(0), self.set_encoder(query).mean(0)]))
        return outputs[-1]


class Processor(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(channels, channels) for _ in range(3))
        self.regulariser = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.layers[0](x)
        for layer in self.layers[1:]:
            x = F.relu(x)
            x = x + layer(x)
        return x * self.regulariser


class StageGenerator(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.shared = nn.Linear(64, channels)
        self.gammas = nn.ModuleList(Processor(channels) for _ in range(4))
        self.betas = nn.ModuleList(Processor(channels) for _ in range(4))

    def forward(self, embedding: Tensor) -> list[tuple[Tensor, Tensor]]:
        x = F.relu(self.shared(embedding))
        return [(1 + gamma(x), beta(x)) for gamma, beta in zip(self.gammas, self.betas)]


class FilmGenerator(nn.Module):
    def __init__(self):
        super().__init__()
        self.stages = nn.ModuleList(StageGenerator(channels) for channels in (64, 128, 256, 512))

    def forward(self, embedding: Tensor) -> list[tuple[Tensor, Tensor]]:
        return [film for stage in self.stages for film in stage(embedding)]


class Model(nn.Module):
    """Episode in, features or labels out. The backbone is frozen and in evaluation mode."""

    def __init__(self, transductive: bool = True):
        super().__init__()
        self.backbone = Backbone().requires_grad_(False).eval()
        self.task_encoder = TaskEncoder(transductive)
        self.film_generator = FilmGenerator()

    def train(self, mode: bool = True) -> "Model":
        super().train(mode)
        self.backbone.eval()
        return self

    def features(self, support: Tensor, labels: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
        film = self.film_generator(self.task_encoder(support, labels, query))
        return self.backbone(support, film), self.backbone(query, film)

    @torch.no_grad()
    def classify(self, support: Tensor, labels: Tensor, query: Tensor, minimum: int, maximum: int) -> Tensor:
        """Labels by the stopping rule."""
        support_features, query_features = self.features(support, labels, query)
        return direct.cluster(support_features, labels, query_features, minimum, maximum)[0].argmax(1)

    def loss(self, support: Tensor, labels: Tensor, query: Tensor, query_labels: Tensor) -> Tensor:
        """Cross-entropy of the queries by the support set's statistics."""
        support_features, query_features = self.features(support, labels, query)
        weights = F.one_hot(labels).to(support_features.dtype)
        logits = direct.logits(query_features, *direct.statistics(support_features, weights))
        return F.cross_entropy(logits, query_labels)
