"""The small study with untrained networks on disk: enough to open its episodes in the stepper."""

import numpy as np
import torch
from clusters import clusters
from small_study import blobs, small_study

from tcnaps.config import study as config
from tcnaps.config.storage import file_digest
from tcnaps.method.backbone import Backbone
from tcnaps.method.head import Head
from tcnaps.method.variants import VARIANTS
from tcnaps.training import checkpoints
from tcnaps_suite import episodes
from tcnaps_suite.experiments.study_episodes import ShownEpisode


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


def place(patch, root):
    """The small study, its results in `root`, its datasets blobs."""
    patch.setattr(config, "project_root", lambda: root)
    patch.setattr(episodes, "open_split", lambda study, name, split: blobs(name, split))
    return small_study(trainings=["support", "support_and_query", "support_log_determinant"])


def planted(shot=2, n_query=12, variant="Transductive", spread=1.5, names=("class-0", "class-1", "class-2")):
    """Features in clusters that overlap enough for labels to change."""
    sets = clusters([shot] * 3, [n_query] * 3, 8, 2.2, spread, seed=6, dtype=torch.float32)
    pixels = np.random.default_rng(0).integers(0, 255, (3 * n_query, 8, 8, 3), dtype=np.uint8)
    return ShownEpisode(VARIANTS[variant], ("5-way", "planted", 3), names, *sets, pixels[: 3 * shot], pixels, Head())
