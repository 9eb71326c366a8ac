"""Checkpoints: safetensors files whose header holds the training's settings and a digest of settings and weights."""

import hashlib
import json
import textwrap
import zipfile
from dataclasses import replace
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from tcnaps.config import Study, UserError
from tcnaps.config.settings import Clustering
from tcnaps.config.storage import file_digest, partial_files, replacing
from tcnaps.method.backbone import Backbone
from tcnaps.method.head import Head
from tcnaps.method.model import ModelSettings, TransductiveCNAPS
from tcnaps.method.variants import ALL_TRAININGS

STATE = ".state.pt"  # suffix of the state of an unfinished training, beside its checkpoint


class CheckpointError(UserError):
    """A checkpoint is missing, damaged, or not the one that is needed; the message names the file and the remedy."""


def checkpoint_folder(study: Study) -> Path:
    """results/<study>/checkpoints, from the project's root."""
    return study.results_folder / "checkpoints"


def backbone_file(study: Study) -> Path:
    """The checkpoint of the study's backbone; the first replicate's if the study replicates only meta-training."""
    return checkpoint_folder(study if study.replicate_backbone else study.of_replicate(0)) / "backbone.safetensors"


def save(path: Path, weights: dict[str, Tensor], settings: dict) -> None:
    """Writes a training's weights and settings, then removes its state. Unusable weights raise a CheckpointError."""
    weights = {name: value.detach().cpu().contiguous() for name, value in weights.items()}
    if problems := unusable(weights):
        raise CheckpointError(f"{path} was not written: {'; '.join(problems[:5])}. Lower the training's learning_rate.")
    header = json.dumps(settings | {"sha256": _digest(settings, weights)})
    with replacing(path) as temporary:
        temporary.write_bytes(to_bytes(weights, {"tcnaps": header}))
    for file in (path.with_suffix(STATE), *partial_files(path.with_suffix(STATE))):
        file.unlink(missing_ok=True)


def load(path: Path, remedy: str) -> tuple[dict[str, Tensor], dict]:
    """Weights and settings of one file. If it is missing or damaged, a CheckpointError's message ends with `remedy`."""
    if not path.is_file():
        raise CheckpointError(f"There is no checkpoint {path}. {remedy}")
    try:
        with safe_open(path, framework="pt") as file:
            settings = json.loads(file.metadata()["tcnaps"])
            weights = {name: file.get_tensor(name) for name in file.keys()}
        if settings.pop("sha256", None) != _digest(settings, weights):
            raise ValueError("it no longer has the digest it was written with")
    except Exception as error:  # damage shows in many ways
        raise CheckpointError(f"{path} can't be read: {error}. Delete it. {remedy}") from error
    return weights, settings


def read_tensors(path: Path) -> object:
    """Reads what torch.save wrote, and runs nothing in it. Anything but plain data raises errors of many kinds."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as file:
            if member := file.testzip():  # PyTorch does not check the checksums
                raise ValueError(f"the checksum of {member} in it is wrong")
    return torch.load(path, weights_only=True, map_location="cpu")


def unusable(weights: dict[str, Tensor]) -> list[str]:
    """A sentence for each weight that no network can use: values that are not finite, or negative variances."""
    broken = [name for name, value in weights.items() if not value.isfinite().all()]
    negative = [name for name, value in weights.items() if name.endswith("running_var") and (value < 0).any()]
    problems = [f"{name} has values that are not finite" for name in broken]
    return problems + [f"{name} has negative variances" for name in negative]


def finished_log(path: Path, key: str) -> list[dict] | None:
    """The log of the training with this key, if it wrote the checkpoint."""
    try:
        settings = load(path, "")[1]
    except CheckpointError:
        return None
    return settings["log"] if settings.get("key") == key else None


def load_model(study: Study, training: str, device: torch.device | str = "cpu") -> TransductiveCNAPS:
    """The study's backbone with one training's meta-learned weights, ready to classify.

    A CheckpointError names a file that is missing, damaged or of another network, or was trained on another backbone.
    """
    model, path = new_model(study, training), checkpoint_folder(study) / f"{training}.safetensors"
    remedy = f"Run notebooks/03-meta-train.ipynb with training = '{training}' for this study, or `make figures`."
    weights, settings = load(path, remedy)
    if settings.get("backbone") != file_digest(backbone_file(study)):
        raise CheckpointError(f"{path} was meta-trained on another backbone than {backbone_file(study)}. {remedy}")
    backbone = {name: value for name, value in model.state_dict().items() if name.startswith("backbone.")}
    _fill(model, weights | backbone, path, remedy)
    return model.eval().to(device)


def new_model(study: Study, training: str) -> TransductiveCNAPS:
    """The study's backbone with an untrained task encoder and FiLM generator; errors are those of `load_model`."""
    path, remedy = backbone_file(study), "Run notebooks/02-pretrain.ipynb for this study, or `make figures`."
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(study.training_seed)
        backbone = Backbone().eval()
        _fill(backbone, load(path, remedy)[0], path, remedy)
        return TransductiveCNAPS(training, backbone, model_settings(study, training))


def head_of(training: str, clustering: Clustering = Clustering()) -> Head:
    """The head of a training with a study's settings; a training that learns its head starts from this one."""
    head = ALL_TRAININGS[training].head
    return replace(
        head,
        scale=head.scale if clustering.scale is None else clustering.scale,
        identity_weight=clustering.identity_weight,
        task_covariance_divisor=clustering.task_covariance_divisor,
        # The released code divides the class covariances of Simple CNAPS alone by n - 1 (docs/fidelity.md, row 2).
        class_covariance_divisor=clustering.simple_class_covariance_divisor if training == "support" else "n",
    )


def model_settings(study: Study, training: str) -> ModelSettings:
    """The settings of the networks and the clustering for one training of a study."""
    return ModelSettings(
        head=head_of(training, study.clustering),
        lstm_layers=study.task_encoder.lstm_layers,
        pixel_range=study.pixel_range,
        arithmetic=study.arithmetic,
        precision=getattr(torch, study.precision),
        clustering_dtype=getattr(torch, study.clustering.dtype),
        images_at_once=study.images_at_once,
    )


def refuse_imported(study: Study, name: str) -> None:
    """Raises CheckpointError if the study's YAML names a file for this backbone or training."""
    source = study.imported.get(name) or (name == "backbone" and next(iter(study.imported.values()), None))
    if source:  # the file of a whole model also holds its backbone
        raise CheckpointError(f"Study '{study.name}' imports its {name} from {source}: there is nothing to train.")


def _digest(settings: dict, weights: dict[str, Tensor]) -> str:
    """SHA-256 of the settings and of every weight's name, type, shape and values."""
    sha = hashlib.sha256(json.dumps(settings).encode())
    for name, value in sorted(weights.items()):
        sha.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        sha.update(value.numpy().tobytes())
    return sha.hexdigest()


def _fill(module: torch.nn.Module, weights: dict[str, Tensor], path: Path, remedy: str) -> None:
    try:
        module.load_state_dict(weights)
    except RuntimeError as error:  # names every weight that is missing, unknown or of another shape
        reason = textwrap.shorten(str(error), 500, placeholder=" ...")
        raise CheckpointError(f"{path} does not fit the model: {reason} Delete it. {remedy}") from error
