"""Training state on disk, so that an interrupted training goes on where it was."""

import io
import warnings
from pathlib import Path

import torch

from tcnaps.config.storage import read_sealed, remove_leftovers, write_sealed
from tcnaps.training.checkpoints import CheckpointError
from tcnaps.training.watching import Diverged


class Resumable:
    """What a training needs in order to go on after an interruption, in a file beside its checkpoint.

    Entering its `with` block takes up what an earlier attempt saved under the same key; leaving it without an error
    removes the files. The last two states are kept: where the newest is damaged, the one before is taken, and says so.
    After a divergence the newest goes if no good step has followed it, for its weights may be bad already.

    The state of random generators is not part of it: what a training draws is a function of the seed and of the step.

    Args:
        path: the training's checkpoint.
        key: what decides the outcome; the state of a training with another key is ignored.
        parts: modules and optimisers, or whatever else has `state_dict` and `load_state_dict`.
        progress: numbers, rows and tensors; changed in place where there is something to take up.
        every: steps between states that `after_step` saves.
        active: whether anything is written or removed; of several processes that train together, one does it.

    Raises:
        CheckpointError: the file is damaged and there is none before it (on entering).
    """

    def __init__(self, path: Path, key: str, parts: dict, progress: dict, every: int = 1, active: bool = True):
        self.path, self.before = path.with_suffix(".state.pt"), path.with_suffix(".before.state.pt")
        self.key, self.parts, self.progress, self.every, self.active = key, parts, progress, every, active
        self._steps, self._confirmed = 0, True  # since the last state: how many, and whether one of them was good

    def __enter__(self) -> "Resumable":
        if self.active:
            remove_leftovers(self.path)
        state = self._read()
        if state is not None and state["key"] == self.key:
            self._confirmed = False  # the earlier attempt may have been killed before the next step
            self.progress.update(state["progress"])
            for name, part in self.parts.items():
                part.load_state_dict(state["parts"][name])
        return self

    def __exit__(self, kind: type | None, *_) -> None:
        if not self.active:
            return
        if kind is None:
            self.remove()
        elif issubclass(kind, (Diverged, CheckpointError)) and not self._confirmed:
            self.path.unlink(missing_ok=True)

    def after_step(self, good: bool) -> None:
        """Saves the state if one is due and the training is well.

        Args:
            good: whether the step's loss was; it belongs to the weights before the step.
        """
        self._steps += 1
        self._confirmed |= good
        if good and self._steps >= self.every:
            self.save()
            self._confirmed = False

    def save(self) -> None:
        """Writes the state, whole or not at all.

        Raises:
            StorageError: the file can't be written.
        """
        self._steps = 0
        if self.active:
            content = io.BytesIO()
            parts = {name: part.state_dict() for name, part in self.parts.items()}
            torch.save({"key": self.key, "progress": self.progress, "parts": parts}, content)
            write_sealed(self.path, content.getbuffer(), self.before)

    def remove(self) -> None:
        """Removes the states of a training that is finished."""
        for file in (self.before, self.path) if self.active else ():
            file.unlink(missing_ok=True)

    def _read(self) -> dict | None:
        """The newest state that is whole; None where there is none at all."""
        found, damaged = None, []
        for path in (file for file in (self.path, self.before) if file.is_file()):
            try:
                content = io.BytesIO(read_sealed(path))
                found = torch.load(content, weights_only=True, map_location="cpu")
                found["key"], found["progress"], found["parts"]
                break
            except Exception as error:  # damage shows in many ways
                found = None
                damaged.append(f"{path} is damaged ({error}).")
        if damaged and found is None:
            remedy = f"Delete {'it' if len(damaged) == 1 else 'both'} to train from the beginning."
            raise CheckpointError(f"{' '.join(damaged)} {remedy}")
        if damaged:
            warnings.warn(f"{damaged[0]} The state before it is taken.", stacklevel=3)
            if self.active:
                self.path.unlink()  # or it would take the place of the good one
        return found
