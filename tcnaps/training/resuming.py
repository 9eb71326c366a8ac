"""The loop of a training, and the training's state on disk, from which an interrupted one goes on."""

import io
import math
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from tqdm.auto import tqdm

from tcnaps.config.storage import partial_file, replacing
from tcnaps.training.checkpoints import STATE, read_tensors
from tcnaps.training.processes import gather, rank
from tcnaps.training.watching import Diverged, curves

SAVING = 0.05  # share of the time that saving may take


@dataclass
class Resumable:
    """What a training needs to go on after an interruption, in one file beside its checkpoint.

    Entering its `with` block restores what an earlier attempt saved under the same key. Leaving it without an error
    removes the file. It holds no random generators: what a training draws is a function of the seed and of the step.
    """

    checkpoint: Path
    key: str  # what decides the outcome; the state of a training with another key is ignored
    parts: dict  # modules and optimisers, or whatever else has `state_dict` and `load_state_dict`
    progress: dict  # numbers, rows and tensors, updated in place from the saved ones

    def __post_init__(self) -> None:
        self.path = self.checkpoint.with_suffix(STATE)

    def __enter__(self) -> "Resumable":
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
        return self

    def __exit__(self, kind: type | None, *_) -> None:
        if kind is None and rank() == 0:
            for file in (self.path, partial_file(self.path)):
                file.unlink(missing_ok=True)

    def save(self) -> None:
        """Writes the present state, unless a weight is not finite; a StorageError if the file can't be written."""
        parts = {name: part.state_dict() for name, part in self.parts.items()}
        networks = [part for part in self.parts.values() if isinstance(part, nn.Module)]
        finite = all(weight.isfinite().all() for network in networks for weight in network.state_dict().values())
        if rank() == 0 and finite:
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
    per_step: int,
) -> None:
    """The loop of every training: take a step, validate if it is time to, write the step down, save if it is time to.

    Args:
        steps: given how many steps are done, takes one optimiser step for each row that it yields.
        end_of_step: what follows a step; it returns the row, perhaps with more columns.
        section: of the study, "pretraining" or "meta_training".
        n_steps: of the whole training.
        per_step: images or episodes.

    Raises:
        Diverged: the loss of a step is not finite.
    """
    progress, name = state.progress, state.checkpoint.stem
    saved = progress.setdefault("steps", 0)  # the step after which the state was last saved
    speed = "images_per_second" if section == "pretraining" else "episodes_per_second"
    bar = tqdm(total=n_steps, initial=saved, desc=f"{section} {name}", unit="step", disable=rank() > 0)
    with bar, curves(state.checkpoint, saved + 1) as write:
        began = saved_at = time.monotonic()
        cost = 0.0  # seconds of the last save
        for row in steps(saved):
            progress["steps"] += 1
            row = end_of_step(row)
            ended = time.monotonic()
            write(row | {speed: per_step / max(ended - began, 1e-9)}, progress["steps"])
            began = ended
            bar.update()
            bar.set_postfix(loss=f"{row['loss']:.3f}", refresh=False)
            if not math.isfinite(row["loss"]):
                raise Diverged(section, name, f"step {progress['steps']}", row["loss"])
            if progress["steps"] - saved >= save_every and ended - saved_at >= cost / SAVING:
                saved, saved_at = progress["steps"], ended
                state.save()
                cost = time.monotonic() - ended
