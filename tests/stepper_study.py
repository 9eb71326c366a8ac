"""The small study with untrained networks on disk: enough to open its episodes in the stepper."""

import torch
from small_study import blobs, small_study

from tcnaps.config import study as config
from tcnaps.config.storage import file_digest
from tcnaps.method.backbone import Backbone
from tcnaps.training import checkpoints
from tcnaps.widgets import episode_features as materials


def write_networks(folder_of):
    """Random networks for every training of the study, as checkpoints."""
    torch.manual_seed(0)
    folder = checkpoints.checkpoint_folder(folder_of)
    checkpoints.save(folder / "backbone.safetensors", Backbone().state_dict(), {})
    for training in folder_of.trainings:
        write_training(folder_of, training)


def write_training(study, training):
    backbone = file_digest(checkpoints.checkpoint_folder(study) / "backbone.safetensors")
    weights = checkpoints.new_model(study, training).adaptation_state()
    path = checkpoints.checkpoint_folder(study) / f"{training}.safetensors"
    checkpoints.save(path, weights, {"backbone": backbone})


def place(patch, root):
    """The small study, its results in `root`, its datasets blobs."""
    patch.setattr(config, "project_root", lambda: root)
    patch.setattr(materials, "open_split", lambda study, name, split: blobs(name, split))
    return small_study(trainings=["support", "support_and_query", "support_log_determinant"])


def finish(generator):
    """What work returns in the end."""
    while True:
        try:
            next(generator)
        except StopIteration as end:
            return end.value
