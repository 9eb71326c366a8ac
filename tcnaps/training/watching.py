"""Watching a training: a bar, a CSV and TensorBoard's event files with one row per step, and an end where it diverges.

    python -m tcnaps.training.watching configs/miniature.yaml      opens TensorBoard on a study's trainings

Nothing here changes what is trained.
"""

import math
import os
import sys
import time
from pathlib import Path

import psutil
from tqdm.auto import tqdm

from tcnaps.config import UserError, load_study
from tcnaps.config.storage import append_text, naming, write_text

START = 20  # steps whose mean loss is the start that a loss is compared with
PATIENCE = 200  # steps above its start, one after the other, after which a training has diverged
OF_STEPS = ["loss", "train_accuracy", "confidence", "gradient_norm", "learning_rate", "valid_accuracy"]
MEGABYTE = 2**20


class Diverged(UserError, FloatingPointError):
    """A training's loss is not finite, or stays above its start; the message says where, and what to do."""

    def __init__(self, training: str, where: str, reason: str, setting: str):
        super().__init__(
            f"{training} diverged at {where}: {reason}. Lower {setting}.learning_rate in the study's YAML. The last "
            "good state is kept: with unchanged settings, training goes on from there."
        )


class Watch:
    """Shows how a training goes and writes it down, one row per step, and stops it where it diverges.

    The CSV is results/<study>/watch/<name>.csv, `name` being the checkpoint's, with the columns step, `OF_STEPS`, what
    it does per second, memory_mb (of this process, resident), gpu_memory_mb (its peak) and seconds_left. A training
    that goes on after an interruption goes on in the same files. Event files lie in the folder of the same name beside
    it, if the extra `watch` (tensorboard) is installed.

    A step is good if its loss is finite and no higher than the start, the mean of the first `START` losses. Of these
    none counts as more than 1 above the first, which no training has touched, so that a training that diverges at once
    does not become its own measure. Until the start is known, a loss up to 1 above the first is good.

    Args:
        path: the training's checkpoint.
        title: what the bar and errors call the training.
        setting: the study's section that has its learning rate.
        n_steps: of the whole training.
        first: how many of them are done.
        per_step: how many of what a step takes, for instance {"episodes": 16}.
        memory: what is known of the start; changed in place, and part of what the training saves.
        device: where it trains.
        active: whether anything is shown or written; of several processes that train together, one does it.
    """

    def __init__(
        self,
        path: Path,
        title: str,
        setting: str,
        n_steps: int,
        first: int,
        per_step: dict[str, int],
        memory: dict,
        device: object = "cpu",
        active: bool = True,
    ):
        self.title, self.setting, self.n_steps, self.first, self.step = title, setting, n_steps, first, first
        ((self._things, self._count),) = per_step.items()
        self._memory, self._device, self._active = memory, str(device), active
        self.file = path.parents[1] / "watch" / f"{path.stem}.csv"
        self._columns = ["step", *OF_STEPS, f"{self._things}_per_second", "memory_mb", "gpu_memory_mb", "seconds_left"]
        self._bar = tqdm(total=n_steps, initial=first, desc=title, unit="step", disable=not active)

    def __enter__(self) -> "Watch":
        if self._active:
            kept = _lines(self.file, self.first, self._columns)
            write_text(self.file, "\n".join([",".join(self._columns), *kept]) + "\n")
        self._events = _event_writer(self.file.with_suffix(""), self.first) if self._active else None
        self._began = self._last = time.monotonic()
        return self

    def __exit__(self, *_) -> None:
        self._bar.close()
        if self._events is not None:
            self._events.close()

    def log(self, row: dict) -> bool:
        """Notes one step, and says whether it was good.

        Args:
            row: what is known of `OF_STEPS`; anything else in it is left out.

        Raises:
            Diverged: the loss is not finite, or has been above its start for `PATIENCE` steps.
            StorageError: there is no room for the row.
        """
        self.step += 1
        if self._active:
            self._write({name: row[name] for name in OF_STEPS if name in row} | self._of_machine())
        self._bar.update()
        self._bar.set_postfix(loss=f"{row['loss']:.3f}", refresh=False)
        return self._is_good(row["loss"])

    def _is_good(self, loss: float) -> bool:
        if not math.isfinite(loss):
            raise Diverged(self.title, f"step {self.step}", f"the loss is {loss}", self.setting)
        first = self._memory.setdefault("first", [])
        if len(first) < START:
            first.append(min(loss, first[0] + 1) if first else loss)
            return loss <= first[0] + 1
        start = math.fsum(first) / START
        self._memory["above"] = self._memory.get("above", 0) + 1 if loss > start else 0
        if self._memory["above"] >= PATIENCE:
            reason = f"the loss is {loss:.4g} and has been above its start, {start:.4g}, for {PATIENCE} steps"
            raise Diverged(self.title, f"step {self.step}", reason, self.setting)
        return loss <= start

    def _of_machine(self) -> dict[str, float]:
        """Speed of the last step, memory, and the time left at the mean speed of this process."""
        now = time.monotonic()
        speed, self._last = self._count / max(now - self._last, 1e-9), now
        left = (now - self._began) / (self.step - self.first) * (self.n_steps - self.step)
        found = {f"{self._things}_per_second": speed, "memory_mb": psutil.Process().memory_info().rss / MEGABYTE}
        if self._device.startswith("cuda"):
            import torch

            found["gpu_memory_mb"] = torch.cuda.max_memory_allocated(self._device) / MEGABYTE
        return found | {"seconds_left": left}

    def _write(self, values: dict) -> None:
        texts = (f"{values[name]:.6g}" if name in values else "" for name in self._columns[1:])
        append_text(self.file, ",".join([str(self.step), *texts]) + "\n")
        if self._events is not None:
            with naming(self.file.with_suffix("")):
                for name in values:
                    if math.isfinite(values[name]):  # TensorBoard shows no others
                        self._events.add_scalar(name, values[name], self.step)


def _lines(file: Path, last: int, columns: list[str]) -> list[str]:
    """Whole rows of a CSV up to a step, each once, without its header; none of a file that has another header."""
    try:
        header, *lines = file.read_text(encoding="utf-8").splitlines() or [""]
    except (FileNotFoundError, UnicodeDecodeError):
        return []
    kept = {}
    for line in lines if header == ",".join(columns) else ():
        step, *others = line.split(",")
        if step.isdecimal() and 0 < int(step) <= last and len(others) == len(columns) - 1:
            kept[int(step)] = line
    return [kept[step] for step in sorted(kept)]


def _event_writer(folder: Path, first: int):
    """A writer of event files, in which what follows step `first` is void; None without tensorboard."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    if not first:
        for file in folder.glob("events.*"):  # of an earlier training
            file.unlink()
    with naming(folder):
        writer = SummaryWriter(str(folder), purge_step=first + 1, flush_secs=10)
    writer.add_custom_scalars(
        {"calibration": {"confidence and accuracy": ["Multiline", ["confidence", "train_accuracy"]]}}
    )
    return writer


def main(arguments: list[str] | None = None) -> int:
    """Opens TensorBoard; what follows the study goes to it. Returns the exit status, if nothing can be opened."""
    path, *options = (sys.argv[1:] if arguments is None else arguments) or ["configs/miniature.yaml"]
    try:
        import tensorboard  # noqa: F401

        study = load_study(path)
        if not any(study.results_folder.rglob("watch/*/events.*")):
            raise UserError(f"There is nothing to watch yet: no training of study '{study.name}' has written events.")
    except (UserError, ImportError) as error:
        print(
            f"{error}. Install the extra `watch`: pip install tensorboard." if isinstance(error, ImportError) else error
        )
        return 1
    place = ["--logdir", str(study.results_folder)]
    os.execv(sys.executable, [sys.executable, "-m", "tensorboard.main", *place, *options])


if __name__ == "__main__":
    sys.exit(main())
