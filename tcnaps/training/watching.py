"""Watching a training: a progress bar, one row per step in a CSV and in TensorBoard's files, and an end if it diverges.

    python -m tcnaps.training.watching configs/miniature.yaml      opens TensorBoard on a study's trainings

Nothing here changes what is trained.
"""

import math
import os
import sys
import time
from pathlib import Path

import pandas as pd
import psutil
import torch
from tqdm.auto import tqdm

from tcnaps.config import UserError, load_study
from tcnaps.config.storage import append_text, naming, write_text
from tcnaps.training.processes import rank

START = 20  # steps whose mean loss is the start, which later losses are compared with
PATIENCE = 200  # consecutive steps above the start after which a training has diverged
OF_STEPS = ["loss", "train_accuracy", "confidence", "gradient_norm", "learning_rate", "valid_accuracy"]
MEGABYTE = 2**20


class Diverged(UserError, FloatingPointError):
    """A training's loss is not finite, or stays above its start; the message says where, and what to do."""

    def __init__(self, training: str, where: str, reason: str, setting: str):
        super().__init__(
            f"{training} diverged at {where}: {reason}. Lower {setting}.learning_rate in the study's YAML. The last "
            "good state is kept: with unchanged settings, training goes on from there."
        )


def judge(loss: float, memory: dict) -> tuple[bool, str]:
    """Whether the loss of one step is good, and why the training must stop ("" if it need not).

    A loss is good if it is no higher than the start, the mean of the first `START` losses. So that a training that
    diverges at once does not set its own standard, none of these counts as more than 1 above the first loss. Until the
    start is known, a loss up to 1 above the first is good.

    Args:
        memory: the first losses and the number of steps above the start; updated in place.
    """
    if not math.isfinite(loss):
        return False, f"the loss is {loss}"
    first_losses = memory.setdefault("first", [])
    if len(first_losses) < START:
        first_losses.append(min(loss, first_losses[0] + 1) if first_losses else loss)
        return loss <= first_losses[0] + 1, ""
    start = math.fsum(first_losses) / START
    memory["above"] = memory.get("above", 0) + 1 if loss > start else 0
    if memory["above"] < PATIENCE:
        return loss <= start, ""
    return False, f"the loss is {loss:.4g} and has been above its start, {start:.4g}, for {PATIENCE} steps"


class Watch:
    """Shows how a training goes, writes one row per step, and stops the training if it diverges.

    The CSV is results/<study>/watch/<name>.csv, where `name` is the checkpoint's; docs/scaling.md explains its columns.
    Event files lie in the folder of that name beside it, if the extra `watch` (tensorboard) is installed. A training
    that goes on after an interruption goes on in the same files. Of several processes, the first writes.

    Args:
        path: the training's checkpoint.
        title: the training's name in the bar and in errors.
        setting: the study's section that has the learning rate.
        n_steps: steps of the whole training.
        first: how many of them are done.
        per_step: what a step takes and how many of it, for instance ("episodes", 16).
        memory: what `judge` remembers; it is saved with the training.
        device: where the training runs.
    """

    def __init__(
        self,
        path: Path,
        title: str,
        setting: str,
        n_steps: int,
        first: int,
        per_step: tuple[str, int],
        memory: dict,
        device: torch.device | str = "cpu",
    ):
        self.title, self.setting, self.n_steps, self.first, self.step = title, setting, n_steps, first, first
        self._speed, self._count = f"{per_step[0]}_per_second", per_step[1]
        self._memory, self._device, self._events = memory, torch.device(device), None
        self.file = path.parents[1] / "watch" / f"{path.stem}.csv"
        self._columns = ["step", *OF_STEPS, self._speed, "memory_mb", "gpu_memory_mb", "seconds_left"]
        self._bar = tqdm(total=n_steps, initial=first, desc=title, unit="step", disable=rank() > 0)

    def __enter__(self) -> "Watch":
        if rank() == 0:
            write_text(self.file, self._rows_so_far().to_csv(index=False))
            self._events = _event_writer(self.file.with_suffix(""), self.first)
        self._began = self._last = time.monotonic()
        return self

    def __exit__(self, *_) -> None:
        self._bar.close()
        if self._events is not None:
            self._events.close()

    def log(self, row: dict) -> bool:
        """Writes one step down, and says whether it was good.

        Args:
            row: any of `OF_STEPS`; other entries are left out.

        Raises:
            Diverged: the loss is not finite, or has been above its start for `PATIENCE` steps.
            StorageError: there is no room for the row.
        """
        self.step += 1
        if rank() == 0:
            self._write({name: row[name] for name in OF_STEPS if name in row} | self._machine())
        self._bar.update()
        self._bar.set_postfix(loss=f"{row['loss']:.3f}", refresh=False)
        good, reason = judge(row["loss"], self._memory)
        if reason:
            raise Diverged(self.title, f"step {self.step}", reason, self.setting)
        return good

    def _machine(self) -> dict[str, float]:
        """The speed of the last step, memory, and the time left at the mean speed since this process began."""
        now = time.monotonic()
        values = {self._speed: self._count / max(now - self._last, 1e-9)}
        values["memory_mb"] = psutil.Process().memory_info().rss / MEGABYTE
        if self._device.type == "cuda":
            values["gpu_memory_mb"] = torch.cuda.max_memory_allocated(self._device) / MEGABYTE
        values["seconds_left"] = (now - self._began) / (self.step - self.first) * (self.n_steps - self.step)
        self._last = now
        return values

    def _write(self, values: dict) -> None:
        texts = (f"{values[name]:.6g}" if name in values else "" for name in self._columns[1:])
        append_text(self.file, ",".join([str(self.step), *texts]) + "\n")
        if self._events is not None:
            with naming(self.file.with_suffix("")):
                for name, value in values.items():
                    if math.isfinite(value):  # TensorBoard shows no others
                        self._events.add_scalar(name, value, self.step)

    def _rows_so_far(self) -> pd.DataFrame:
        """The rows of the steps that are done; none if the file is of another training, or damaged."""
        try:
            rows = pd.read_csv(self.file, dtype=str)[self._columns]
        except (FileNotFoundError, KeyError, ValueError):
            return pd.DataFrame(columns=self._columns)
        steps = pd.to_numeric(rows["step"], errors="coerce")
        return rows[steps.between(1, self.first) & ~steps.duplicated()]


def _event_writer(folder: Path, first: int):
    """TensorBoard's writer, which makes void what follows step `first`; None without tensorboard."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    with naming(folder):
        writer = SummaryWriter(str(folder), purge_step=first + 1, flush_secs=10)
    chart = ["Multiline", ["confidence", "train_accuracy"]]
    writer.add_custom_scalars({"calibration": {"confidence and accuracy": chart}})
    return writer


def main(arguments: list[str] | None = None) -> int:
    """Opens TensorBoard on a study's results, with any further options; returns 1 if the study can't be read."""
    path, *options = (sys.argv[1:] if arguments is None else arguments) or ["configs/miniature.yaml"]
    try:
        folder = load_study(path).results_folder
    except UserError as error:
        print(error)
        return 1
    os.execv(sys.executable, [sys.executable, "-m", "tensorboard.main", "--logdir", str(folder), *options])


if __name__ == "__main__":
    sys.exit(main())
