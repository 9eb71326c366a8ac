"""Networks as their training begins, the same each time, and an episode of noise."""

import torch

from tcnaps.method.backbone import Backbone
from tcnaps.method.episode import Episode
from tcnaps.method.model import ModelSettings, TransductiveCNAPS


def untrained(training, **settings):
    torch.manual_seed(0)
    return TransductiveCNAPS(training, Backbone(), ModelSettings(**settings)).eval()


def episode_of_noise():
    """4-way 2-shot, 6 queries."""
    images = 2 * torch.rand(8 + 6, 3, 32, 32, generator=torch.Generator().manual_seed(0)) - 1
    return Episode(images[:8], torch.arange(4).repeat(2), images[8:], torch.tensor([0, 1, 2, 3, 0, 1]))
