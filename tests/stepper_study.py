"""The small study with untrained networks on disk: enough to open its episodes in the stepper."""

import numpy as np
import torch
from small_study import blobs, small_study

from tcnaps.config import study as config
from tcnaps.config.storage import file_digest
from tcnaps.method.backbone import Backbone
from tcnaps.method.head import Head
from tcnaps.method.variants import VARIANTS
from tcnaps.training import checkpoints
from tcnaps_suite import episodes
from tcnaps_suite.experiments import study_episodes


def write_networks(study):
    """Random networks for every training of the study, as checkpoints."""
    torch.manual_seed(0)
    folder = checkpoints.checkpoint_folder(study)
    checkpoints.save(folder / "backbone.safetensors", Backbone().state_dict(), {})
    for training in study.trainings:
        write_training(study, training)


def write_training(study, training):
    backbone = file_digest(checkpoints.checkpoint_folder(study) / "backbone.safetensors")
    weights = checkpoints.new_model(study, training).adaptation_state()
    path = checkpoints.checkpoint_folder(study) / f"{training}.safetensors"
    checkpoints.save(path, weights, {"backbone": backbone})


def place(patch, root):
    """The small study, its results in `root`, its datasets blobs."""
    patch.setattr(config, "project_root", lambda: root)
    patch.setattr(episodes, "open_split", lambda study, name, split: blobs(name, split))
    return small_study(trainings=["support", "support_and_query", "support_log_determinant"])


def planted(way=3, shot=2, n_query=12, d=8, variant="Transductive", spread=1.5, seed=6, names=None):
    """Features in clusters that overlap enough for labels to change."""
    generator = torch.Generator().manual_seed(seed)
    centres = 2.2 * torch.randn(way, d, generator=generator)
    labels = [torch.arange(way).repeat_interleave(n) for n in (shot, n_query)]
    support, query = (centres[own] + spread * torch.randn(len(own), d, generator=generator) for own in labels)
    pixels = np.random.default_rng(0).integers(0, 255, (way * n_query, 8, 8, 3), dtype=np.uint8)
    return study_episodes.ShownEpisode(
        variant=VARIANTS[variant],
        place=("5-way", "planted", 3),
        class_names=names or tuple(f"class-{k}" for k in range(way)),
        support_features=support,
        support_labels=labels[0],
        query_features=query,
        query_labels=labels[1],
        support_images=pixels[: way * shot],
        query_images=pixels,
        head=Head(),
    )
