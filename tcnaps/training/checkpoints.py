"""Weights in and out: safetensors with the settings they were trained with in the file's header."""

import hashlib
import json
import os
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from tcnaps.config import Study
from tcnaps.config.networks import head_of
from tcnaps.method.backbone import Backbone
from tcnaps.method.model import TransductiveCNAPS

FORMAT = 1


class CheckpointError(ValueError):
    """A checkpoint is missing, damaged, or not the one that is needed; the message names the file and the remedy."""


def checkpoint_folder(study: Study) -> Path:
    """results/<study>/checkpoints, from the project's root."""
    return study.results_folder / "checkpoints"


def save(path: Path, weights: dict[str, Tensor], settings: dict) -> None:
    """Writes weights and settings to one file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    contiguous = {name: value.detach().cpu().contiguous() for name, value in weights.items()}
    save_file(contiguous, scratch, metadata={"tcnaps": json.dumps({"format": FORMAT, **settings})})
    os.replace(scratch, path)


def load(path: Path, remedy: str) -> tuple[dict[str, Tensor], dict]:
    """Weights and settings of one file.

    Raises:
        CheckpointError: the file is missing, damaged or not of this project; `remedy` ends the message.
    """
    if not path.is_file():
        raise CheckpointError(f"There is no checkpoint {path}. {remedy}")
    try:
        with safe_open(path, framework="pt") as file:
            settings = json.loads((file.metadata() or {}).get("tcnaps", "null"))
            weights = {name: file.get_tensor(name) for name in file.keys()}
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} can't be read: {error}. Delete it. {remedy}") from error
    if settings is None or settings.get("format") != FORMAT:
        raise CheckpointError(f"{path} was not written by this version of the project. {remedy}")
    return weights, settings


def finished_log(path: Path, key: str) -> list[dict] | None:
    """The log in a checkpoint's header, if the checkpoint is what the training with this key ends in; else None."""
    try:
        settings = load(path, "")[1]
    except CheckpointError:
        return None
    return settings.get("log") if settings.get("key") == key else None


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def load_backbone(study: Study) -> Backbone:
    """The study's pretrained backbone, in evaluation mode."""
    path = checkpoint_folder(study) / "backbone.safetensors"
    weights, _ = load(path, "Run notebooks/02-pretrain.ipynb for this study, or `make figures`.")
    backbone = Backbone()
    _fill(backbone, weights, path)
    return backbone.eval()


def load_model(study: Study, training: str, device: torch.device | str = "cpu") -> TransductiveCNAPS:
    """The study's backbone with one training's meta-learned weights, ready to classify.

    Raises:
        CheckpointError: a checkpoint is missing or damaged, or the training used another backbone than the one there.
    """
    model = new_model(study, training)
    path = checkpoint_folder(study) / f"{training}.safetensors"
    remedy = f"Run notebooks/03-meta-train.ipynb with training = '{training}' for this study, or `make figures`."
    weights, settings = load(path, remedy)
    if settings["backbone"] != digest(path.with_name("backbone.safetensors")):
        raise CheckpointError(
            f"{path} was meta-trained on another backbone than {path.with_name('backbone.safetensors')}. {remedy}"
        )
    backbone = {name: value for name, value in model.state_dict().items() if name.startswith("backbone.")}
    _fill(model, weights | backbone, path)
    return model.eval().to(device)


def new_model(study: Study, training: str) -> TransductiveCNAPS:
    """The study's backbone with a task encoder and FiLM generator yet to be trained (by the global generator)."""
    return TransductiveCNAPS(
        training,
        load_backbone(study),
        head_of(training, study.clustering),
        lstm_layers=study.task_encoder.lstm_layers,
        set_encoder_statistics=study.task_encoder.statistics,
        pixel_range=study.pixel_range,
        arithmetic=study.arithmetic,
        precision=getattr(torch, study.precision),
        clustering_dtype=getattr(torch, study.clustering.dtype),
        chunk=study.images_at_once,
    )


def refuse_imported(study: Study, name: str) -> None:
    """Refuses to train what the study imports.

    Raises:
        CheckpointError: the study's YAML names a file for this backbone or training.
    """
    source = study.imported.get(name) or (name == "backbone" and next(iter(study.imported.values()), None))
    if source:  # a whole model's file holds its backbone too
        raise CheckpointError(
            f"Study '{study.name}' imports its {name} from {source}, so that there is nothing to train. "
            f"Run `python -m tcnaps.training.released import --study ...`, or take it out of `imported` in the study's YAML."
        )


def _fill(module: torch.nn.Module, weights: dict[str, Tensor], path: Path) -> None:
    wanted = {name: tuple(value.shape) for name, value in module.state_dict().items()}
    there = {name: tuple(value.shape) for name, value in weights.items()}
    problems = [f"missing {name}" for name in wanted.keys() - there.keys()]
    problems += [f"unknown {name}" for name in there.keys() - wanted.keys()]
    problems += [
        f"{name} is {there[name]}, not {wanted[name]}"
        for name in wanted.keys() & there.keys()
        if wanted[name] != there[name]
    ]
    if problems:
        raise CheckpointError(f"{path} does not fit the model: {'; '.join(sorted(problems)[:10])}")
    module.load_state_dict(weights)
