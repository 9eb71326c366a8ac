"""Transductive CNAPS: task encoder → FiLM generator → adapted backbone → clustering (the paper's Figures 2 and 4)."""

import math
from dataclasses import dataclass, replace
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tcnaps.method.backbone import STAGE_CHANNELS, Backbone, FilmGenerator, Modulation
from tcnaps.method.clustering import Step, cluster, trajectory
from tcnaps.method.episode import Episode, to_pixel_range
from tcnaps.method.fast import Arithmetic, images_at_once
from tcnaps.method.head import Head
from tcnaps.method.task_encoder import TaskEncoder
from tcnaps.method.variants import ALL_TRAININGS


@dataclass(frozen=True)
class ModelSettings:
    """How a model computes; docs/fidelity.md says which settings the paper has and which its released code.

    `images_at_once` bounds the memory alone: training computes the activations of all further images once more.
    """

    head: Head | None = None  # None takes the training's own with the paper's settings
    lstm_layers: int = 1  # of the task encoder
    pixel_range: tuple[int, int] = (-1, 1)  # on which the weights were trained; episodes are in [-1, 1] all the same
    arithmetic: Arithmetic = "fast"  # of networks and clustering; "plain" rounds as the released code does
    precision: torch.dtype = torch.float32  # of the convolutions
    clustering_dtype: torch.dtype = torch.float32  # or float64
    images_at_once: int = 512


class TransductiveCNAPS(nn.Module):
    """A few-shot classifier whose features and classes are adapted to the episode.

    A name of `ALL_TRAININGS` says which task encoder and head. The backbone is frozen and stays in evaluation mode.
    """

    def __init__(self, training: str, backbone: Backbone, settings: ModelSettings = ModelSettings()):
        super().__init__()
        if training not in ALL_TRAININGS:
            raise ValueError(f"there is no training '{training}'; trainings are {', '.join(ALL_TRAININGS)}")
        row = ALL_TRAININGS[training]
        self.training_name, self.settings = training, settings
        self.first_head = replace(settings.head or row.head, arithmetic=settings.arithmetic)
        sizes = (row.learned_steps,) if row.learned_steps else ()
        self.head_numbers = nn.ParameterDict({name: torch.zeros(sizes) for name in row.learned})
        self.backbone = backbone.requires_grad_(False).eval()
        self.backbone.arithmetic = settings.arithmetic
        self.task_encoder = TaskEncoder(row.task_embedding, settings.lstm_layers)
        self.task_encoder.set_encoder.arithmetic = settings.arithmetic
        self.task_encoder.set_encoder.precision = settings.precision
        self.film_generator = FilmGenerator()

    @property
    def head(self) -> Head:
        """How features become logits. A learned scale is its start times exp(x), so it stays above 0."""
        learned = {
            name: self.first_head.scale * x.exp() if name == "scale" else x for name, x in self.head_numbers.items()
        }
        if not (self.training and torch.is_grad_enabled()):  # plain numbers, for fast arithmetic
            learned = {name: tuple(x.tolist()) if x.ndim else x.item() for name, x in learned.items()}
        return replace(self.first_head, **learned)

    def forward(self, episode: Episode, steps: int = 10) -> Float[Tensor, "{steps}+1 n_query way"]:
        """Logits of the query images after steps 0, 1, ..., `steps`; row 0 is Simple CNAPS' way of classifying."""
        return trajectory(*self.features(episode), self.head, steps)

    def classify(self, episode: Episode, minimum: int = 2, maximum: int = 4) -> Step:
        """Refines until the stopping rule says so (Algorithm 1)."""
        return cluster(*self.features(episode), self.head, minimum, maximum)

    def features(self, episode: Episode) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Adapted features of the support images, their labels, and features of the query and unlabelled images."""
        every = episode.support_images, episode.query_images, episode.unlabelled_images
        sets = [images for images in every if images is not None]
        features = self.extract(torch.cat(sets), self.adapt(episode)).to(self.settings.clustering_dtype)
        support, query, *unlabelled = features.split([len(images) for images in sets])
        return support, episode.support_labels, query, unlabelled[0] if unlabelled else None

    def embed(self, episode: Episode) -> Float[Tensor, "64"]:
        """The episode's task embedding."""
        support, query = (self._input(x) for x in (episode.support_images, episode.query_images))
        return self.task_encoder(support, episode.support_labels, query)

    def adapt(self, episode: Episode) -> list[Modulation]:
        """gamma and beta for every block, from the task embedding."""
        return self.film_generator(self.embed(episode))

    def train(self, mode: bool = True) -> "TransductiveCNAPS":
        """Training mode for everything but the backbone, which stays as pretraining left it."""
        super().train(mode)
        self.backbone.eval()
        return self

    def extract(self, images: Float[Tensor, "n 3 height width"], film: list[Modulation]) -> Float[Tensor, "n 512"]:
        """Features of images under the modulations that `adapt` returned."""
        images = self._input(images)
        at_once = images_at_once(images, self.settings.images_at_once, STAGE_CHANNELS[0], self.settings.precision)
        features, done = [], 0
        with torch.autocast(images.device.type, torch.bfloat16, enabled=self.settings.precision == torch.bfloat16):
            for part in images.tensor_split(math.ceil(len(images) / at_once)):
                done += len(part)
                run = self.backbone
                if torch.is_grad_enabled() and done > self.settings.images_at_once:
                    run = partial(checkpoint, self.backbone, use_reentrant=False, preserve_rng_state=False)
                features.append(run(part, film))
        return torch.cat(features)

    def _input(self, images: Float[Tensor, "n 3 height width"]) -> Float[Tensor, "n 3 height width"]:
        """Images in the range and the number format of the weights."""
        return to_pixel_range(images.to(self.backbone.stem.conv.weight.dtype), self.settings.pixel_range)
