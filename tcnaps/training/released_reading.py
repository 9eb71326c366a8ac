"""One of the authors' released files to weights under this project's names, without running anything that it holds."""

import hashlib
import io
import pickle
import re
import warnings
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from tcnaps.training.checkpoints import CheckpointError
from tcnaps.training.released_layout import COUNTER, MODELS, Entry, Kind, layout

SHOWN = 10  # names that an error lists


@dataclass(frozen=True)
class ImportedCheckpoint:
    """The weights of one of the authors' files, checked and under this project's names.

    Attributes:
        weights: of a backbone as in `Backbone.state_dict()`, of a whole model as in `TransductiveCNAPS.state_dict()`.
        file: its name, without folders.
        dropped: names in the file that no model here has, such as the classifier that a backbone was pretrained with.
        notes: sentences on what else was changed.
    """

    kind: Kind
    weights: dict[str, Tensor]
    file: str
    sha256: str
    dropped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def source(self) -> dict[str, str]:
        """Where the weights came from, for the header of what is written."""
        return {"file": self.file, "sha256": self.sha256}


def import_checkpoint(path: str | Path) -> ImportedCheckpoint:
    """Reads one of the authors' files without running anything that it may hold.

    Raises:
        CheckpointError: the file is missing, damaged or holds more than weights; or names, shapes or values are not
            those of the released models. The message names the file and the weights at fault, as the file calls them.
    """
    path = Path(path)
    if not path.is_file():
        raise CheckpointError(
            f"There is no file {path}. `python -m tcnaps.training.released list` names those to download."
        )
    data = path.read_bytes()
    prefix, found = _weights(path, _unpickle(path, data))
    kind = _kind(path, found)
    entries, notes = layout(kind), []
    dropped = [name for name in found if kind == "backbone" and name in ("fc.weight", "fc.bias")]
    found = {name: value for name, value in found.items() if name not in dropped}
    counters = [name for name, entry in entries.items() if entry.counter]
    if not any(name in found for name in counters):
        found |= {name: torch.tensor(0) for name in counters}
        notes.append(f"{len(counters)} {COUNTER} are not in the file (PyTorch before 0.4.1) and were set to 0.")
    problems = [f"missing {prefix}{name}" for name in entries if name not in found]
    weights = {}
    for name, value in found.items():
        entry = entries.get(name)
        problem = _problem(value, entry)
        if problem is None:  # a copy: in files saved on a CPU the regularisers of a block share their memory
            weights[entry.name] = value.detach().to(torch.int64 if entry.counter else torch.float32, copy=True)
            problem = None if weights[entry.name].isfinite().all() else "{} has values that are not finite"
        if problem is not None:
            problems.append(problem.format(f"{prefix}{name}"))
    if problems:
        more = f"; and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        raise CheckpointError(
            f"{path} is not the authors' {MODELS[kind]}: {len(problems)} of its weights are wrong "
            f"({'; '.join(problems[:SHOWN])}{more}). Download it again, or name another file."
        )
    ordered = {entry.name: weights[entry.name].contiguous() for entry in entries.values()}
    return ImportedCheckpoint(
        kind,
        ordered,
        path.name,
        hashlib.sha256(data).hexdigest(),
        tuple(prefix + name for name in dropped),
        tuple(notes),
    )


def _unpickle(path: Path, data: bytes) -> object:
    """The file's content: tensors, numbers, strings and their containers. A pickle that asks for more is refused."""
    start = data[:512].lstrip().lower()
    if not data:
        raise CheckpointError(f"{path} is empty. Download it again.")
    if start.startswith(b"version https://git-lfs"):
        raise CheckpointError(f"{path} is a Git LFS pointer, not the file itself. Fetch that with `git lfs pull`.")
    if start.startswith((b"<!doctype", b"<html", b"<?xml")):
        raise CheckpointError(f"{path} is a web page, not a checkpoint. Download the raw file.")
    if not data.startswith((b"PK", b"\x80")):  # zip, PyTorch's format since 1.6, or pickle, the one before
        raise CheckpointError(
            f"{path} is not a file of torch.save. Files called .pt.tar are no archives: don't unpack "
            "or repack them. Download it again."
        )
    try:
        with warnings.catch_warnings(action="ignore"):  # of sparse tensors and such: they are refused later
            return torch.load(io.BytesIO(data), weights_only=True, map_location="cpu")
    except pickle.UnpicklingError as error:
        asked = re.search(r"GLOBAL ([\w.]+)", str(error))
        what = f"it asks for {asked[1]}" if asked else str(error).strip().splitlines()[-1]
        raise CheckpointError(
            f"{path} holds more than weights ({what}) and was refused: none of it was run. If you trust the file, load "
            "it with PyTorch where it can do no harm, and torch.save its state_dict alone."
        ) from error
    except Exception as error:  # torch.load raises many kinds for a damaged file
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise CheckpointError(
            f"{path} can't be read as a checkpoint: it is damaged, incomplete or of another kind "
            f"({reason}). Download it again."
        ) from error


def _weights(path: Path, content: object) -> tuple[str, dict[str, object]]:
    """The dictionary of weights and the prefix that all its names had, "module." if it was saved from DataParallel."""
    if isinstance(content, dict) and isinstance(content.get("state_dict"), dict):
        content = content["state_dict"]
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


def _problem(value: object, entry: Entry | None) -> str | None:
    """What is wrong with one weight, with {} for its name."""
    if entry is None:
        return "unknown {}"
    if not isinstance(value, Tensor) or value.layout != torch.strided or value.is_quantized or value.is_meta:
        what = f"{value.layout} on {value.device}" if isinstance(value, Tensor) else type(value).__name__
        return f"{{}} is no plain tensor but {what}"
    if tuple(value.shape) != entry.shape:
        return f"{{}} is {tuple(value.shape)}, not {entry.shape}"
    if value.is_floating_point() == entry.counter or value.is_complex():
        return f"{{}} is {value.dtype}, not {'whole numbers' if entry.counter else 'floating point'}"
    return None
