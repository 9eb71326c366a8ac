"""One of the authors' released files to weights under this project's names, without running anything that it holds."""

import hashlib
import io
import pickle
import re
import warnings
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from tcnaps.method.backbone import Backbone
from tcnaps.method.model import ModelSettings, TransductiveCNAPS
from tcnaps.training.checkpoints import SHOWN, CheckpointError, unusable

Kind = Literal["backbone", "simple", "transductive"]

MODELS = {"backbone": "backbone", "simple": "Simple CNAPS", "transductive": "Transductive CNAPS"}
TRAINING = {"simple": "support", "transductive": "support_and_query"}  # the training whose weights a whole model's are
LSTM_LAYERS = 2  # the paper has one layer, the released code two (docs/fidelity.md)
COUNTER = "num_batches_tracked"  # of a batch-norm; read only where its momentum is None, which is nowhere
# Parts of names here, and what the released code (repository plai-group/simple-cnaps) calls them. A stage has two
# blocks, a block two layers, and between the linear layers of a file ReLUs are counted, too.
CALLED = (
    (r"^backbone", "feature_extractor"),
    (r"(stem|first)\.conv", "conv1"),
    (r"(stem|first)\.norm", "bn1"),
    (r"second\.conv", "conv2"),
    (r"second\.norm", "bn2"),
    (r"shortcut\.conv", "downsample.0"),
    (r"shortcut\.norm", "downsample.1"),
    (r"blocks\.(\d)", lambda m: f"layer{int(m[1]) // 2 + 1}.{int(m[1]) % 2}"),
    (r"^task_encoder\.lstm", "set_encoder.sequential_encoder"),
    (r"^task_encoder\.set_encoder", "set_encoder.pre_pooling_fn"),
    (r"convs\.(\d)", lambda m: f"layer{int(m[1]) + 1}.0"),
    (r"norms\.(\d)", lambda m: f"layer{int(m[1]) + 1}.1"),
    (r"(gamma|beta)s\.(\d)\.layers", lambda m: f"{m[1]}{int(m[2]) % 2 + 1}_processors.{int(m[2]) // 2}"),
    (r"(gamma|beta)s\.(\d)\.regulariser", lambda m: f"{m[1]}{int(m[2]) % 2 + 1}_regularizers.{int(m[2]) // 2}"),
    (r"(processors\.\d)\.(\d)", lambda m: f"{m[1]}.{2 * int(m[2])}.linear"),
    (r"^film_generator\.stages\.(\d)\.shared", r"film_generator.stages.\1.shared_layer.0"),
    (r"^film_generator\.stages", "feature_adaptation_network.layers"),
)


@cache
def layout(kind: Kind) -> dict[str, tuple[str, Tensor]]:
    """Of every weight of a file of this kind, by its name there: its name here, and a tensor of its shape and type."""
    with torch.device("meta"):  # nothing is allocated or drawn
        module = Backbone()
        if kind != "backbone":
            module = TransductiveCNAPS(TRAINING[kind], module, ModelSettings(lstm_layers=LSTM_LAYERS))
    entries = {}
    for name, value in module.state_dict().items():
        theirs = name
        for ours, called in CALLED:
            theirs = re.sub(ours, called, theirs)
        entries[theirs] = name, value
    return entries


@dataclass(frozen=True)
class ImportedCheckpoint:
    """The weights of one of the authors' files, checked and under this project's names.

    Attributes:
        weights: of a backbone as in `Backbone.state_dict()`, of a whole model as in `TransductiveCNAPS.state_dict()`.
        file: its name, without folders.
        dropped: names in the file that no model here has, such as the classifier that a backbone was pretrained with.
    """

    kind: Kind
    weights: dict[str, Tensor]
    file: str
    sha256: str
    dropped: tuple[str, ...] = ()

    def __str__(self) -> str:
        values = sum(value.numel() for value in self.weights.values())
        dropped = f"\ndropped {', '.join(self.dropped)}" if self.dropped else ""
        count = f"{len(self.weights)} tensors, {values} values"
        return f"{self.file}: {MODELS[self.kind]}, {count}\nSHA-256 {self.sha256}{dropped}"

    @property
    def origin(self) -> dict[str, str]:
        """Where the weights come from, for the header of a checkpoint."""
        return {"file": self.file, "sha256": self.sha256}

    @property
    def parts(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The backbone's weights without prefix, and the meta-learned ones, of which a backbone's file has none."""
        if self.kind == "backbone":
            return self.weights, {}
        adaptation = {name: value for name, value in self.weights.items() if not name.startswith("backbone.")}
        backbone = {name: value for name, value in self.weights.items() if name not in adaptation}
        return {name.removeprefix("backbone."): value for name, value in backbone.items()}, adaptation


def import_checkpoint(path: str | Path) -> ImportedCheckpoint:
    """Reads one of the authors' files without running anything that it may hold.

    Raises:
        CheckpointError: the file is missing, damaged or holds more than weights; or names, shapes or values are not
            those of the released models. The message names the file and the weights at fault, as the file calls them.
    """
    path = Path(path)
    if not path.is_file():
        raise CheckpointError(f"There is no file {path}. `python -m tcnaps.training.released list` names the files.")
    data = path.read_bytes()
    prefix, found = _named_weights(path, _unpickled(path, data))
    kind = _kind(found)
    entries = layout(kind)
    dropped = [name for name in found if kind == "backbone" and name in ("fc.weight", "fc.bias")]
    # PyTorch wrote none of the counters before 0.4.1.
    found = {name: torch.tensor(0) for name in entries if name.endswith(COUNTER)} | found
    problems = [f"missing {prefix}{name}" for name in entries if name not in found]
    for name in found.keys() - set(dropped):
        problems += _problems(prefix + name, found[name], entries.get(name))
    if problems:
        more = f"; and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        raise CheckpointError(
            f"{path} is not the authors' {MODELS[kind]}: {len(problems)} of its weights are wrong "
            f"({'; '.join(sorted(problems)[:SHOWN])}{more}). Download it again, or name another file."
        )
    # Copies: in files saved on a CPU the regularisers of a block share their memory.
    weights = {
        ours: found[name].detach().to(like.dtype, copy=True).contiguous() for name, (ours, like) in entries.items()
    }
    dropped = tuple(prefix + name for name in dropped)
    return ImportedCheckpoint(kind, weights, path.name, hashlib.sha256(data).hexdigest(), dropped)


def _unpickled(path: Path, data: bytes) -> object:
    """The file's content: tensors, numbers, strings and their containers. A pickle that asks for more is refused."""
    if not data.startswith((b"PK", b"\x80")):  # zip, PyTorch's format since 1.6, or pickle, the one before
        raise CheckpointError(
            f"{path} is not a file of torch.save: it begins with {data[:30]!r}. Of a Git LFS pointer, fetch the file "
            "with `git lfs pull`; in place of a web page, download the raw file; a .pt.tar is no archive, so don't "
            "unpack or repack it."
        )
    try:
        if data.startswith(b"PK") and (member := zipfile.ZipFile(io.BytesIO(data)).testzip()):
            raise ValueError(f"the checksum of {member} in it is wrong")
        with warnings.catch_warnings(action="ignore"):  # of sparse tensors and such: they are refused later
            return torch.load(io.BytesIO(data), weights_only=True, map_location="cpu")
    except pickle.UnpicklingError as error:
        asked = re.search(r"GLOBAL ([\w.]+)", str(error))
        what = f"it asks for {asked[1]}" if asked else "it has instructions that weights don't need"
        raise CheckpointError(
            f"{path} holds more than weights ({what}) and was refused: none of it was run. If you trust the file, load "
            "it with PyTorch where it can do no harm, and torch.save its state_dict alone."
        ) from error
    except Exception as error:  # zipfile and torch.load raise many kinds for a damaged file
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise CheckpointError(
            f"{path} can't be read as a checkpoint: it is damaged, incomplete or of another kind "
            f"({reason}). Download it again."
        ) from error


def _named_weights(path: Path, content: object) -> tuple[str, dict[str, object]]:
    """The dictionary of weights and the prefix that all its names had, "module." if it was saved from DataParallel."""
    for key in ("state_dict", "resnet_dict"):  # the latter for mini-, tiered-ImageNet and FETI
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    if not isinstance(content, dict) or not content or not all(isinstance(name, str) for name in content):
        raise CheckpointError(f"{path} holds no dictionary of named weights. Name one of the authors' files.")
    prefix = "module." if all(name.startswith("module.") for name in content) else ""
    return prefix, {name.removeprefix(prefix): value for name, value in content.items()}


def _kind(names: Iterable[str]) -> Kind:
    if any(name.startswith("set_encoder.sequential_encoder.") for name in names):
        return "transductive"
    whole = "set_encoder.", "feature_extractor.", "feature_adaptation_network."
    return "simple" if any(name.startswith(whole) for name in names) else "backbone"


def _problems(name: str, value: object, entry: tuple[str, Tensor] | None) -> list[str]:
    if entry is None:
        return [f"unknown {name}"]
    if not isinstance(value, Tensor) or value.layout != torch.strided:
        return [f"{name} is no plain tensor but {getattr(value, 'layout', type(value).__name__)}"]
    like = entry[1]
    if value.shape != like.shape:
        return [f"{name} is {tuple(value.shape)}, not {tuple(like.shape)}"]
    if value.is_floating_point() != like.is_floating_point() or value.is_complex():
        return [f"{name} is {value.dtype}, not {'floating point' if like.is_floating_point() else 'whole numbers'}"]
    return unusable({name: value})
