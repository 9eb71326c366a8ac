"""One of the authors' released files to weights under this project's names, without running anything that it holds."""

import hashlib
import io
import pickle
import re
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from tcnaps.training.checkpoints import SHOWN, CheckpointError, unusable
from tcnaps.training.released_layout import MODELS, Entry, Kind, layout


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

    @property
    def origin(self) -> dict[str, str]:
        """Where the weights come from, for the header of a checkpoint."""
        return {"file": self.file, "sha256": self.sha256}

    @property
    def parts(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The backbone's weights without prefix, and the meta-learned ones, of which a backbone's file has none."""
        if self.kind == "backbone":
            return self.weights, {}
        backbone = {name: value for name, value in self.weights.items() if name.startswith("backbone.")}
        adaptation = {name: value for name, value in self.weights.items() if name not in backbone}
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
    kind = _kind(path, found)
    entries = layout(kind)
    dropped = [name for name in found if kind == "backbone" and name in ("fc.weight", "fc.bias")]
    counters = [name for name, entry in entries.items() if entry.counter]
    if not any(name in found for name in counters):  # as PyTorch wrote files before 0.4.1
        found |= {name: torch.tensor(0) for name in counters}
    problems = [f"missing {prefix}{name}" for name in entries if name not in found]
    weights = {}
    for name in found.keys() - set(dropped):
        weights[name], problem = _checked(prefix + name, found[name], entries.get(name))
        problems += problem
    if problems:
        more = f"; and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        raise CheckpointError(
            f"{path} is not the authors' {MODELS[kind]}: {len(problems)} of its weights are wrong "
            f"({'; '.join(sorted(problems)[:SHOWN])}{more}). Download it again, or name another file."
        )
    ordered = {entry.name: weights[name] for name, entry in entries.items()}
    dropped = tuple(prefix + name for name in dropped)
    return ImportedCheckpoint(kind, ordered, path.name, hashlib.sha256(data).hexdigest(), dropped)


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


def _kind(path: Path, found: dict[str, object]) -> Kind:
    if any(name.startswith("feature_adaptation_network.feature_extractor.") for name in found):
        raise CheckpointError(
            f"{path}: the auto-regressive variant (film+ar) is not part of this project. Name a "
            "checkpoint of feature adaptation 'film'."
        )
    if any(name.startswith(("set_encoder.", "feature_extractor.", "feature_adaptation_network.")) for name in found):
        return "transductive" if any(name.startswith("set_encoder.sequential_encoder.") for name in found) else "simple"
    if any(name in layout("backbone") for name in found):
        return "backbone"
    names = ", ".join(list(found)[:SHOWN])
    raise CheckpointError(
        f"{path} is none of the authors' models: its weights are called {names}, ... Name one of their files."
    )


def _checked(name: str, value: object, entry: Entry | None) -> tuple[Tensor | None, list[str]]:
    """One weight as it is used here, and what is wrong with it."""
    if entry is None:
        return None, [f"unknown {name}"]
    if not isinstance(value, Tensor) or value.layout != torch.strided or value.is_quantized or value.is_meta:
        what = f"{value.layout} on {value.device}" if isinstance(value, Tensor) else type(value).__name__
        return None, [f"{name} is no plain tensor but {what}"]
    if tuple(value.shape) != entry.shape:
        return None, [f"{name} is {tuple(value.shape)}, not {entry.shape}"]
    if value.is_floating_point() == entry.counter or value.is_complex():
        return None, [f"{name} is {value.dtype}, not {'whole numbers' if entry.counter else 'floating point'}"]
    # A copy: in files saved on a CPU the regularisers of a block share their memory.
    value = value.detach().to(torch.int64 if entry.counter else torch.float32, copy=True).contiguous()
    return value, unusable({name: value})
