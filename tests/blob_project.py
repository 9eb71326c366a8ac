"""Blobs as folders of pictures, so that processes started anew find them, too; and what such processes run in tests."""

import os
import time
from pathlib import Path

import torch
from PIL import Image
from small_study import blobs, small_study

from tcnaps.config import Study
from tcnaps.data import open_split
from tcnaps.episodes.loading import read_episodes
from tcnaps.training import checkpoints, meta_training, pretraining
from tcnaps.training.processes import gather, rank, share, size

SPLITS = {"blobs": ("train", "valid"), "others": ("test",)}


def write_pictures(root: Path, datasets: dict[str, tuple[str, ...]] = SPLITS, n_images: int = 14) -> None:
    """Makes `root` a project's root with splits of datasets; by default those of `picture_study`."""
    (root / "Snakefile").touch()  # the sign of a project's root
    for dataset, splits in datasets.items():
        for split in splits:
            source = blobs(dataset, split, n_images=n_images)
            for k, name in enumerate(source.class_names):
                folder = root / "pictures" / dataset / split / name
                folder.mkdir(parents=True, exist_ok=True)
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


def meta_training_step(study: Study) -> tuple[dict, list[torch.Tensor]]:
    """The first step's row and gradients."""
    sources = [open_split(study, "blobs", "train")]
    model = checkpoints.new_model(study, "support_and_query").train()
    episodes = read_episodes(meta_training.training_tasks(sources, study))
    optimiser = meta_training.new_optimiser(model, study)
    row = next(meta_training.meta_training_steps(model, study, episodes, optimiser))
    return row, [parameter.grad for parameter in model.parameters() if parameter.requires_grad]


def new_classifier(study: Study) -> tuple[pretraining.Classifier, pretraining.ImageTable]:
    images = pretraining.ImageTable([open_split(study, "blobs", "train")], 0.1, 0)
    return pretraining.new_classifier(study, images.n_classes), images


def pretraining_step(study: Study) -> tuple[dict, list[torch.Tensor], list[torch.Tensor]]:
    """The first step's row, gradients and running averages."""
    network, images = new_classifier(study)
    optimiser = torch.optim.SGD(network.parameters(), 0.01)
    row = next(pretraining.pretraining_steps(network, study, images, optimiser))
    return row, [parameter.grad for parameter in network.parameters()], list(network.buffers())


def first_steps(study: Study, device: str, file: str) -> None:
    """Run by several processes, each of which writes what it computed."""
    gathered = gather([10 * number for number in share(range(5))])
    torch.save((gathered, meta_training_step(study), pretraining_step(study)), f"{file}-{rank()}")


def failing(study: Study, device: str) -> None:
    """The last of several processes fails while the others wait for it."""
    if rank() == size() - 1:
        raise FloatingPointError("the loss is nan")
    gather([None])


def sleeping(study: Study, device: str, file: str) -> None:
    """Writes the number of the process and sleeps."""
    Path(f"{file}-{rank()}").write_text(str(os.getpid()))
    time.sleep(600)
