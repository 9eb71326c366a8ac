"""Blobs as folders of pictures, so that processes started anew find them, too; and what such processes run in tests."""

import os
import signal
import time
from pathlib import Path

import torch
from PIL import Image
from small_study import blobs, small_study

from tcnaps.config import Study
from tcnaps.data import open_split
from tcnaps.evaluation.evaluate import evaluate
from tcnaps.training import checkpoints, meta_training, pretraining
from tcnaps.training.processes import gather, rank, share

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
    """The small study on pictures, with fewer images, validations and evaluations."""
    usual = small_study()
    domains = {"blobs": "in", "others": "out"}
    datasets = {name: {"source": "folder", "domain": d, "path": f"pictures/{name}"} for name, d in domains.items()}
    protocol = {"kind": "variable", "maximum_way": 6, "maximum_support_size": 12, "queries_per_class": 2}
    variable = {"protocol": protocol, "datasets": ["others"], "trainings": ["support_and_query"], "episodes": 4}
    episodes = {"episodes": 6, "validate_every": 6, "validation_episodes": 2}
    content = {
        "datasets": datasets,
        "pretraining": usual.pretraining.model_dump() | {"epochs": 1, "batch_size": 48},
        "meta_training": usual.meta_training.model_dump() | {"protocol": protocol, **episodes},
        "evaluations": {"variable": variable},
    }
    return small_study(**content, **changes)


def meta_training_step(study: Study, device: str = "cpu") -> tuple[dict, list[torch.Tensor]]:
    """The first step's row and gradients."""
    sources = [open_split(study, "blobs", "train")]
    model = checkpoints.new_model(study, "support_and_query").train().to(device)
    episodes = meta_training.training_episodes(sources, study, device)
    row = next(meta_training.meta_training_steps(model, study, episodes, meta_training.new_optimiser(model, study)))
    return row, [parameter.grad for parameter in model.parameters() if parameter.requires_grad]


def new_classifier(study: Study) -> tuple[pretraining.Classifier, pretraining.ImageTable]:
    images = pretraining.ImageTable([open_split(study, "blobs", "train")], 0.1, 0)
    torch.manual_seed(study.backbone_seed)
    return pretraining.Classifier(images.n_classes, study.pixel_range), images


def pretraining_step(study: Study, device: str = "cpu") -> tuple[dict, list[torch.Tensor], list[torch.Tensor]]:
    """The first step's row, gradients and running averages."""
    network, images = new_classifier(study)
    network.to(device)
    row = next(pretraining.pretraining_steps(network, study, images, torch.optim.SGD(network.parameters(), 0.01)))
    return row, [parameter.grad for parameter in network.parameters()], list(network.buffers())


def shared_work(study: Study, device: str, file: str) -> None:
    """Some of everything that several processes share; each writes what it computed in first steps."""
    gathered = gather([10 * number for number in share(range(5))])
    torch.save((gathered, meta_training_step(study), pretraining_step(study)), f"{file}-{rank()}")
    pretraining.pretrain(picture_study(name="shared"))
    evaluate(study, "support_and_query")


def killed(study: Study, device: str) -> None:
    """Meta-training, whose last process kills itself in the third step, once there is a saved state."""
    usual, calls = meta_training.episode_loss, []

    def episode_loss(*arguments):
        calls.append(arguments)
        while rank() == 1 and len(calls) == 3:
            if list(checkpoints.checkpoint_folder(study).glob("*.state.pt")):
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(0.05)
        return usual(*arguments)

    meta_training.episode_loss = episode_loss
    meta_training.meta_train(study, "support_and_query", save_every=1)
