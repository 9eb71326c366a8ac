"""Networks as their training begins, the same each time, also as checkpoints; and an episode of noise."""

import torch

from tcnaps.config.storage import file_digest
from tcnaps.method.backbone import Backbone
from tcnaps.method.episode import Episode
from tcnaps.method.model import ModelSettings, TransductiveCNAPS
from tcnaps.training import checkpoints


def untrained(training, **settings):
    torch.manual_seed(0)
    return TransductiveCNAPS(training, Backbone(), ModelSettings(**settings)).eval()


def write_networks(study):
    """Random networks for every training of the study, as checkpoints."""
    torch.manual_seed(0)
    checkpoints.save(checkpoints.checkpoint_folder(study) / "backbone.safetensors", Backbone().state_dict(), {})
    for training in study.trainings:
        write_training(study, training)


def write_training(study, training):
    backbone = file_digest(checkpoints.checkpoint_folder(study) / "backbone.safetensors")
    weights = checkpoints.new_model(study, training).state_dict()
    checkpoints.save(checkpoints.checkpoint_folder(study) / f"{training}.safetensors", weights, {"backbone": backbone})


def episode_of_noise():
    """4-way 2-shot, 6 queries."""
    images = 2 * torch.rand(8 + 6, 3, 32, 32, generator=torch.Generator().manual_seed(0)) - 1
    return Episode(images[:8], torch.arange(4).repeat(2), images[8:], torch.tensor([0, 1, 2, 3, 0, 1]))
