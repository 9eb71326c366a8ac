"""Transductive CNAPS: task encoder → FiLM generator → adapted backbone → clustering (the paper's Figures 2 and 4)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tcnaps.method.backbone import STAGE_CHANNELS, Backbone, Modulation
from tcnaps.method.clustering import Step, cluster, trajectory
from tcnaps.method.episode import Episode, to_pixel_range
from tcnaps.method.film import FilmGenerator
from tcnaps.method.head import Head
from tcnaps.method.learned_head import in_numbers, learned_head
from tcnaps.method.memory import keep_some_memory
from tcnaps.method.task_encoder import TaskEncoder
from tcnaps.method.variants import ALL_TRAININGS, TRAININGS, VARIANTS

__all__ = ["TRAININGS", "VARIANTS", "ModelSettings", "TransductiveCNAPS"]

# On a CPU, bytes of the first layer's output that are computed at a time. The memory that one part of the images frees
# serves the next. Half as much in training, where gradients take as much again.
BYTES_AT_ONCE = 2**25


@dataclass(frozen=True)
class ModelSettings:
    """How a model computes; docs/fidelity.md says which settings the paper has and which its released code.

    Attributes:
        head: how features become logits; None takes the training's own with the paper's settings.
        lstm_layers, set_encoder_statistics: of the task encoder; see `tcnaps.method.task_encoder`.
        pixel_range: what the weights were trained on, (-1, 1) or (0, 1). Episodes are in [-1, 1] all the same.
        arithmetic: of the networks, equal but for rounding: `plain` is slower and rounds as the released code does.
        precision: of the convolutions.
        clustering_dtype: float32 or float64.
        images_at_once: how many images go through the backbone together, at most. It bounds the memory and changes
            nothing else: training keeps the activations of so many images and computes those of the others once more
            in the backward pass. On a CPU fewer go together, which is faster there.
    """

    head: Head | None = None
    lstm_layers: int = 1
    set_encoder_statistics: Literal["batch", "running"] = "batch"
    pixel_range: tuple[int, int] = (-1, 1)
    arithmetic: Literal["fast", "plain"] = "fast"
    precision: torch.dtype = torch.float32
    clustering_dtype: torch.dtype = torch.float32
    images_at_once: int = 512


class TransductiveCNAPS(nn.Module):
    """A few-shot classifier whose features and classes are adapted to the episode.

    `model(episode)` gives the logits of the query images after every refinement step; row 0 is Simple CNAPS' way of
    classifying, by the support set alone.

    Args:
        training: a name of `ALL_TRAININGS`; it says which task encoder and which head.
        backbone: pretrained; frozen and in evaluation mode from here on.

    Raises:
        ValueError: there is no such training, or it learns a number that the settings' head does not have.
    """

    def __init__(self, training: str, backbone: Backbone, settings: ModelSettings = ModelSettings()):
        super().__init__()
        if training not in ALL_TRAININGS:
            raise ValueError(f"there is no training '{training}'; trainings are {', '.join(ALL_TRAININGS)}")
        own = ALL_TRAININGS[training]
        self.training_name, self.settings = training, settings
        self.first_head = settings.head or own.head
        if "scale" in own.learned and self.first_head.scale == "auto":
            raise ValueError(f"'{training}' learns its scale, which must start from a number, not from 'auto'")
        self.exponents = nn.ParameterDict({name: torch.zeros(()) for name in own.learned})
        self.backbone = backbone.requires_grad_(False).eval()
        self.backbone.set_arithmetic(settings.arithmetic)
        self.task_encoder = TaskEncoder(own.task_embedding, settings.set_encoder_statistics, settings.lstm_layers)
        self.task_encoder.set_encoder.memory_format = self.backbone.memory_format
        self.task_encoder.set_encoder.precision = settings.precision
        self.film_generator = FilmGenerator()

    @property
    def head(self) -> Head:
        """How features become logits. Learned numbers carry gradients in training mode."""
        head = learned_head(self.first_head, dict(self.exponents.items()))
        return head if self.training and torch.is_grad_enabled() else in_numbers(head)

    def forward(self, episode: Episode, steps: int = 10) -> Float[Tensor, "{steps}+1 n_query way"]:
        """Logits after refinement steps 0, 1, ..., `steps`."""
        return trajectory(*self.features(episode), self.head, steps)

    def classify(self, episode: Episode, minimum: int = 2, maximum: int = 4) -> Step:
        """Refines until the stopping rule says so (Algorithm 1)."""
        return cluster(*self.features(episode), self.head, minimum, maximum)

    def features(self, episode: Episode) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Adapted features of the support images, their labels, and features of the query and unlabelled images."""
        return self.features_together([episode])[0]

    def features_together(self, episodes: Sequence[Episode]) -> list[tuple[Tensor, Tensor, Tensor, Tensor | None]]:
        """`features` of several episodes whose images go through the backbone in one batch, each under its own FiLM.

        The same but for rounding. A GPU is kept busy by it; on a CPU, episodes one by one are faster.
        """
        sets = [_sets(episode) for episode in episodes]
        images = [images for of_episode in sets for images in of_episode]
        features = self.extract(torch.cat(images), self.adapt(*episodes)).to(self.settings.clustering_dtype)
        parts = iter(features.split(list(map(len, images))))
        return [
            (next(parts), episode.support_labels, next(parts), next(parts) if len(of_episode) == 3 else None)
            for episode, of_episode in zip(episodes, sets)
        ]

    def embed(self, episode: Episode) -> Float[Tensor, "64"]:
        """The episode's task embedding."""
        if episode.support_images.device.type == "cpu":
            keep_some_memory()
        support, query = (self._input(x) for x in (episode.support_images, episode.query_images))
        return self.task_encoder(support, episode.support_labels, query)

    def adapt(self, *episodes: Episode) -> list[Modulation]:
        """gamma and beta for every block, from the task embedding; of several episodes, a row for each image."""
        film = self.film_generator(torch.stack([self.embed(episode) for episode in episodes]))
        if len(episodes) == 1:
            return [Modulation(*(part[0] for part in layer)) for layer in film]
        counts = torch.tensor([sum(map(len, _sets(episode))) for episode in episodes])
        own = torch.arange(len(episodes)).repeat_interleave(counts).to(film[0].gamma.device)  # each image's episode
        return [Modulation(*(part[own] for part in layer)) for layer in film]

    def train(self, mode: bool = True) -> "TransductiveCNAPS":
        """Training mode for everything but the backbone, which stays as pretraining left it."""
        super().train(mode)
        self.backbone.eval()
        return self

    def adaptation_state(self) -> dict[str, Tensor]:
        """The meta-learned weights: everything but the backbone's."""
        return {name: value for name, value in self.state_dict().items() if not name.startswith("backbone.")}

    def extract(self, images: Float[Tensor, "n 3 height width"], film: list[Modulation]) -> Float[Tensor, "n 512"]:
        """Adapted features of images, under what `adapt` found for their episode; or a row of it for each image."""
        images = self._input(images)
        n_parts = math.ceil(len(images) / self._at_once(images))
        own = film[0].gamma.dim() == 2
        films = zip(*(zip(*(part.tensor_split(n_parts) for part in layer)) for layer in film)) if own else repeat(film)
        features, done = [], 0
        with torch.autocast(images.device.type, torch.bfloat16, enabled=self.settings.precision == torch.bfloat16):
            for part, of_part in zip(images.tensor_split(n_parts), films):
                done += len(part)
                if torch.is_grad_enabled() and done > self.settings.images_at_once:
                    run = partial(checkpoint, self.backbone, use_reentrant=False, preserve_rng_state=False)
                else:
                    run = self.backbone
                features.append(run(part, [Modulation(*layer) for layer in of_part]))
        return torch.cat(features)

    def _input(self, images: Float[Tensor, "n 3 height width"]) -> Float[Tensor, "n 3 height width"]:
        """Images in the range and the number format of the weights."""
        return to_pixel_range(images.to(self.backbone.stem.conv.weight.dtype), self.settings.pixel_range)

    def _at_once(self, images: Float[Tensor, "n 3 height width"]) -> int:
        if images.device.type != "cpu":
            return self.settings.images_at_once
        keep_some_memory()
        first_output = STAGE_CHANNELS[0] * images[0, 0].numel() // 4  # numbers an image
        n_bytes = BYTES_AT_ONCE // (2 if torch.is_grad_enabled() else 1)
        return max(1, min(self.settings.images_at_once, n_bytes // (first_output * self.settings.precision.itemsize)))


def _sets(episode: Episode) -> list[Tensor]:
    sets = episode.support_images, episode.query_images, episode.unlabelled_images
    return [images for images in sets if images is not None]
