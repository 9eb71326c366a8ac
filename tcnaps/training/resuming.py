"""The loop of a training, its state on disk, from which an interrupted one goes on, and its curves in TensorBoard."""

import io
import math
import time
import warnings
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from tqdm.auto import tqdm

from tcnaps.config import UserError
from tcnaps.config.storage import replacing
from tcnaps.training.checkpoints import STATE, read_tensors, unusable
from tcnaps.training.processes import gather, rank

SAVING = 0.05  # share of the time that saving may take
CURVES = ("loss", "train_accuracy", "confidence", "learning_rate", "valid_accuracy")


class Diverged(UserError, FloatingPointError):
    """A training's loss is not finite; the message says where, and what to do."""


@dataclass
class Resumable:
    """What a training needs to resume after an interruption: one file, removed once its checkpoint is written.

    A new object loads what an earlier attempt saved under the same key. Random generators have no state to save.
    """

    checkpoint: Path
    key: str  # what decides the outcome; the state of a training with another key is ignored
    parts: dict  # modules and optimisers, or whatever else has `state_dict` and `load_state_dict`
    progress: dict  # numbers, rows and tensors, updated in place from the saved ones

    def __post_init__(self) -> None:
        self.path = self.checkpoint.with_suffix(STATE)
        key, progress, parts = None, {}, {}
        try:
            if self.path.is_file():
                state = read_tensors(self.path)
                key, progress, parts = (state[name] for name in ("key", "progress", "parts"))
        except Exception as error:  # damage shows in many ways
            warnings.warn(f"{self.path} is damaged ({error}). Training starts from the beginning.", stacklevel=2)
        gather([None])  # no process writes before all have read
        if key == self.key:
            self.progress.update(progress)
            for name, part in self.parts.items():
                part.load_state_dict(parts[name])

    def save(self) -> None:
        """Writes the present state, unless a weight is not finite; a StorageError if the file can't be written."""
        parts = {name: part.state_dict() for name, part in self.parts.items()}
        broken = [name for name, part in self.parts.items() if isinstance(part, nn.Module) and unusable(parts[name])]
        if rank() == 0 and not broken:
            torch.save({"key": self.key, "progress": self.progress, "parts": parts}, stream := io.BytesIO())
            with replacing(self.path) as temporary:
                temporary.write_bytes(stream.getvalue())


def run_steps(
    state: Resumable,
    save_every: int,
    steps: Callable[[int], Iterable[dict]],
    end_of_step: Callable[[dict], dict],
    section: str,
    n_steps: int,
) -> None:
    """The loop of every training: takes a step, validates if that is due, records the step, and saves if that is due.

    `steps(k)` goes on after k of the `n_steps` steps; it takes one optimiser step for each row that it yields.
    `end_of_step` returns the row, perhaps with more columns. A loss that is not finite raises Diverged.
    """
    progress, name = state.progress, state.checkpoint.stem
    saved = progress.setdefault("steps", 0)  # the step after which the state was last saved
    bar = tqdm(total=n_steps, initial=saved, desc=f"{section} {name}", unit="step", disable=rank() > 0)
    with bar, nullcontext() if rank() > 0 else curves(state.checkpoint, saved + 1) as events:
        saved_at, cost = time.monotonic(), 0.0  # seconds of the last save
        for row in steps(saved):
            progress["steps"] += 1
            if not math.isfinite(row["loss"]):
                where = f"step {progress['steps']}: the loss is {row['loss']}"
                raise Diverged(f"{section} of {name} diverged at {where}. Lower {section}.learning_rate in the YAML.")
            row = end_of_step(row)
            for curve in CURVES if events else ():
                if math.isfinite(row.get(curve, math.nan)):  # TensorBoard shows no others
                    events.add_scalar(curve, row[curve], progress["steps"])
            bar.update()
            bar.set_postfix(loss=f"{row['loss']:.3f}", refresh=False)
            began = time.monotonic()
            if progress["steps"] - saved >= save_every and began - saved_at >= cost / SAVING:
                saved, saved_at = progress["steps"], began
                state.save()
                cost = time.monotonic() - began


def curves(checkpoint: Path, first: int) -> AbstractContextManager:
    """A TensorBoard writer for steps from `first` on, in place of earlier attempts'; None without tensorboard."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return nullcontext()
    return SummaryWriter(str(checkpoint.parents[1] / "watch" / checkpoint.stem), purge_step=first, flush_secs=10)


@torch.no_grad()
def accuracy_and_confidence(logits: Float[Tensor, "n way"], labels: Int[Tensor, "n"]) -> tuple[float, float]:
    """The share of images labelled correctly, and the mean probability of the predicted labels: equal if calibrated."""
    probabilities, predictions = logits.softmax(1).max(1)
    return (predictions == labels).double().mean().item(), probabilities.double().mean().item()
