"""Watching a training: a progress bar, one row per step in TensorBoard's files, and an end if it diverges.

Nothing here changes what is trained.
"""

import contextlib
import math
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from tqdm.auto import tqdm

from tcnaps.config import UserError
from tcnaps.training.processes import rank

OF_STEPS = ["loss", "train_accuracy", "confidence", "gradient_norm", "learning_rate", "valid_accuracy"]


@torch.no_grad()
def accuracy_and_confidence(logits: Float[Tensor, "n way"], labels: Int[Tensor, "n"]) -> tuple[float, float]:
    """The share of images labelled correctly, and the mean probability of the predicted labels: equal if calibrated."""
    probabilities, predictions = logits.softmax(1).max(1)
    return (predictions == labels).double().mean().item(), probabilities.double().mean().item()


def gradient_norm(module: nn.Module) -> float:
    """Euclidean norm of the gradient of all parameters that have one."""
    gradients = [parameter.grad for parameter in module.parameters() if parameter.grad is not None]
    return nn.utils.get_total_norm(gradients).item()


class Diverged(UserError, FloatingPointError):
    """A training's loss is not finite; the message says where, and what to do."""

    def __init__(self, section: str, training: str, where: str, loss: float):
        super().__init__(
            f"{section} of {training} diverged at {where}: the loss is {loss}. Lower {section}.learning_rate in the "
            "study's YAML."
        )


@dataclass
class Watch:
    """Shows how a training goes, and stops it if it diverges.

    docs/scaling.md says what is written, and where. A training that goes on after an interruption goes on in the same
    files. Of several processes, the first writes.
    """

    checkpoint: Path
    progress: dict  # "steps" that are done; it is saved with the training
    section: str  # of the study: "pretraining" or "meta_training"
    n_steps: int  # of the whole training
    per_step: int  # images or episodes

    def __enter__(self) -> "Watch":
        first, self.events = self.progress["steps"], None
        title, hidden = f"{self.section} {self.checkpoint.stem}", rank() > 0
        self.bar = tqdm(total=self.n_steps, initial=first, desc=title, unit="step", disable=hidden)
        if rank() == 0:
            with contextlib.suppress(ImportError):  # tensorboard is optional
                from torch.utils.tensorboard import SummaryWriter

                folder = self.checkpoint.parents[1] / "watch" / self.checkpoint.stem
                self.events = SummaryWriter(str(folder), purge_step=first + 1, flush_secs=10)
        self.last = time.monotonic()
        return self

    def __exit__(self, *_) -> None:
        self.bar.close()
        if self.events is not None:
            self.events.close()

    def log(self, row: dict) -> None:
        """Writes the last step down, as far as the row has `OF_STEPS`; raises Diverged if the loss is not finite."""
        step, before, self.last = self.progress["steps"], self.last, time.monotonic()
        speed = "images_per_second" if self.section == "pretraining" else "episodes_per_second"
        row = row | {speed: self.per_step / max(self.last - before, 1e-9)}
        for name in (*OF_STEPS, speed) if self.events is not None else ():
            if math.isfinite(row.get(name, math.nan)):  # TensorBoard shows no others
                self.events.add_scalar(name, row[name], step)
        self.bar.update()
        self.bar.set_postfix(loss=f"{row['loss']:.3f}", refresh=False)
        if not math.isfinite(row["loss"]):
            raise Diverged(self.section, self.checkpoint.stem, f"step {step}", row["loss"])
