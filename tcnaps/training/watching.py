"""Watching a training: its curves in TensorBoard, what they show, and the error of one that diverges.

Nothing here changes what is trained.
"""

import contextlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tcnaps.config import UserError
from tcnaps.training.processes import rank

CURVES = ("loss", "train_accuracy", "confidence", "learning_rate", "valid_accuracy")
CURVES += ("images_per_second", "episodes_per_second")


@torch.no_grad()
def accuracy_and_confidence(logits: Float[Tensor, "n way"], labels: Int[Tensor, "n"]) -> tuple[float, float]:
    """The share of images labelled correctly, and the mean probability of the predicted labels: equal if calibrated."""
    probabilities, predictions = logits.softmax(1).max(1)
    return (predictions == labels).double().mean().item(), probabilities.double().mean().item()


class Diverged(UserError, FloatingPointError):
    """A training's loss is not finite; the message says where, and what to do."""

    def __init__(self, section: str, training: str, where: str, loss: float):
        super().__init__(
            f"{section} of {training} diverged at {where}: the loss is {loss}. Lower {section}.learning_rate in the "
            "study's YAML."
        )


@contextlib.contextmanager
def curves(checkpoint: Path, first: int) -> Iterator[Callable[[dict, int], None]]:
    """Yields a function that writes a step's row to TensorBoard's files, as far as it has `CURVES`.

    `first` is the first step to be written: those from there on of an earlier attempt are replaced. Of several
    processes, the first writes. Without the package tensorboard nothing is written.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        SummaryWriter = None
    if SummaryWriter is None or rank() > 0:
        yield lambda row, step: None
        return
    folder = checkpoint.parents[1] / "watch" / checkpoint.stem
    with SummaryWriter(str(folder), purge_step=first, flush_secs=10) as events:

        def write(row: dict, step: int) -> None:
            for name in CURVES:
                if math.isfinite(row.get(name, math.nan)):  # TensorBoard shows no others
                    events.add_scalar(name, row[name], step)

        yield write
