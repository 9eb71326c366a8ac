"""The state of a training on disk, so that an interrupted training goes on where it was."""

import io
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path

import torch

from tcnaps.config.storage import remove_leftovers, replacing
from tcnaps.training.checkpoints import STATE, read_tensors
from tcnaps.training.processes import gather, rank
from tcnaps.training.watching import Watch


class Resumable:
    """What a training needs to go on after an interruption, in one file beside its checkpoint.

    Entering its `with` block restores what an earlier attempt saved under the same key. Leaving it without an error
    removes the file. A state reaches the disk only after a later step had a good loss, so a divergence, which spoils
    the weights before it shows in the loss, never spoils the file.

    Of several processes that train together all read the file, and the first writes it. The state of random generators
    is not part of it: what a training draws is a function of the seed and of the step.

    Args:
        path: the training's checkpoint.
        key: what decides the outcome; the state of a training with another key is ignored.
        parts: modules and optimisers, or whatever else has `state_dict` and `load_state_dict`.
        progress: numbers, rows and tensors, updated in place from the saved ones.
        every: steps between the states that `after_step` saves.
    """

    def __init__(self, path: Path, key: str, parts: dict, progress: dict, every: int = 1):
        self.checkpoint, self.path = path, path.with_suffix(STATE)
        self.key, self.parts, self.progress, self.every = key, parts, progress, every
        self._steps = 0  # since the last state
        self._unconfirmed: bytes | None = None  # the last state, until a later step has a good loss

    def __enter__(self) -> "Resumable":
        if rank() == 0:
            remove_leftovers(self.path)
        state = self._read()
        gather([None])  # no process writes before all have read
        if state is not None and state["key"] == self.key:
            self.progress.update(state["progress"])
            for name, part in self.parts.items():
                part.load_state_dict(state["parts"][name])
        return self

    def __exit__(self, kind: type | None, *_) -> None:
        if kind is None and rank() == 0:
            self.path.unlink(missing_ok=True)

    def after_step(self, good: bool) -> None:
        """Writes the last state if the training is well, and takes the next one if it is due.

        Args:
            good: whether the step's loss was good. It was computed with the weights before the step.
        """
        self._steps += 1
        if not good or rank() > 0:
            return
        if self._unconfirmed is not None:
            self._write(self._unconfirmed)
            self._unconfirmed = None
        if self._steps >= self.every:
            self._steps, self._unconfirmed = 0, self._state()

    def save(self) -> None:
        """Writes the present state, whole or not at all.

        Raises:
            StorageError: the file can't be written.
        """
        if rank() == 0:
            self._write(self._state())

    def _state(self) -> bytes:
        parts = {name: part.state_dict() for name, part in self.parts.items()}
        content = io.BytesIO()
        torch.save({"key": self.key, "progress": self.progress, "parts": parts}, content)
        return content.getvalue()

    def _write(self, state: bytes) -> None:
        with replacing(self.path) as temporary:
            temporary.write_bytes(state)

    def _read(self) -> dict | None:
        """The saved state; None if there is none, or only a damaged one."""
        if not self.path.is_file():
            return None
        try:
            state = read_tensors(self.path)
            return {name: state[name] for name in ("key", "progress", "parts")}
        except Exception as error:  # damage shows in many ways
            warnings.warn(f"{self.path} is damaged ({error}). Training starts from the beginning.", stacklevel=3)
            return None


def run_steps(steps: Iterable[dict], end_of_step: Callable[[dict], dict], state: Resumable, **watched: object) -> None:
    """The loop of every training: take a step, validate if it is time to, write the step down, save if it is time to.

    Args:
        steps: takes one optimiser step for each row that it yields.
        end_of_step: what follows a step; it returns the row, perhaps with more columns.
        watched: further arguments of `Watch`.
    """
    memory = state.progress.setdefault("watched", {})
    with Watch(state.checkpoint, memory=memory, **watched) as watch:
        for row in steps:
            good = watch.log(end_of_step(row))
            state.after_step(good)
