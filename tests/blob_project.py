"""Blobs as folders of pictures, so that processes started anew find them, too; and what such processes run in tests."""

import os
import signal
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from small_study import blobs, small_study

from tcnaps.config import Study
from tcnaps.data import open_split
from tcnaps.episodes.loading import read_episodes
from tcnaps.training import checkpoints, meta_training, pretraining
from tcnaps.training.processes import ALONE, Team


def write_pictures(root: Path) -> None:
    """Makes `root` a project's root with the datasets of `picture_study`."""
    (root / "Snakefile").touch()  # the sign of a project's root
    for dataset, splits in {"blobs": ("train", "valid"), "others": ("test",)}.items():
        for split in splits:
            source = blobs(dataset, split)
            for k, name in enumerate(source.class_names):
                folder = root / "pictures" / dataset / split / name
                folder.mkdir(parents=True)
                for number, image in enumerate(source.images_of(k)):
                    Image.fromarray(image).save(folder / f"{number:02}.png")


def picture_study(**changes) -> Study:
    """The small study on pictures, with four episodes a step and one evaluation."""
    usual = small_study()
    domains = {"blobs": "in", "others": "out"}
    datasets = {name: {"source": "folder", "domain": d, "path": f"pictures/{name}"} for name, d in domains.items()}
    variable = usual.evaluations["variable"].model_dump() | {"datasets": ["others"], "episodes": 4}
    meta_training = usual.meta_training.model_dump() | {
        "episodes": 12,
        "episodes_per_step": 4,
        "validation_episodes": 2,
    }
    pretraining = usual.pretraining.model_dump() | {"epochs": 1, "batch_size": 48}
    content = {"datasets": datasets, "meta_training": meta_training, "pretraining": pretraining}
    return small_study(**content, evaluations={"variable": variable}, **changes)


def meta_training_step(study: Study, device: str = "cpu", team: Team = ALONE) -> tuple[dict, list[torch.Tensor]]:
    """The first step's row and gradients."""
    sources = [open_split(study, "blobs", "train")]
    model = checkpoints.new_model(study, "support_and_query").train()
    episodes = read_episodes(meta_training.training_tasks(sources, study, team=team))
    optimiser = meta_training.new_optimiser(model, study)
    row = next(meta_training.meta_training_steps(model, study, episodes, optimiser, team))
    return row, [parameter.grad for parameter in model.parameters() if parameter.requires_grad]


def new_classifier(study: Study) -> tuple[pretraining.Classifier, pretraining.ImageTable]:
    images = pretraining.ImageTable([open_split(study, "blobs", "train")], 0.1, 0)
    torch.manual_seed(0)
    return pretraining.Classifier(images.n_classes), images


def pretraining_step(study: Study, device: str, team: Team) -> tuple[dict, list[torch.Tensor], list[torch.Tensor]]:
    """The first step's row, gradients and running averages; of all processes, if they agree."""
    network, images = new_classifier(study)
    optimiser = torch.optim.SGD(network.parameters(), 0.01)
    row = next(pretraining.pretraining_steps(network, study, images, optimiser, team=team))
    every = team.gather([np.concatenate([tensor.detach().flatten() for tensor in network.state_dict().values()])])
    assert all(np.array_equal(every[0], other) for other in every)
    return row, [parameter.grad for parameter in network.parameters()], list(network.buffers())


class Odd(Exception):
    """Can be pickled, but not read."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


def ending(how: str, device: str, team: Team) -> None:
    """The last process ends in some way while the others wait for it."""
    if team.rank == team.size - 1:
        match how:
            case "error":
                raise FloatingPointError("the loss is nan")
            case "odd error":
                raise Odd("this", "that")
            case "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            case "status":
                os._exit(7)
    team.gather([team.rank])
