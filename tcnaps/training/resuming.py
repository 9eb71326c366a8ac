"""Training state on disk, so that an interrupted training goes on where it was."""

import io
from pathlib import Path

import torch

from tcnaps.config.storage import replacing
from tcnaps.training.checkpoints import CheckpointError, read_tensors


class Resumable:
    """What a training needs in order to go on after an interruption, in a file beside its checkpoint.

    Entering its `with` block takes up what an earlier attempt saved under the same key; leaving it without an error
    removes the file. The state of random generators is not part of it: what a training draws is a function of the seed
    and of the step.

    Args:
        path: the training's checkpoint.
        key: what decides the outcome; the state of a training with another key is ignored.
        parts: modules and optimisers, or whatever else has `state_dict` and `load_state_dict`.
        progress: numbers, rows and tensors; changed in place where there is something to take up.

    Raises:
        CheckpointError: the file is damaged (on entering).
    """

    def __init__(self, path: Path, key: str, parts: dict, progress: dict):
        self.path, self.key, self.parts, self.progress = path.with_suffix(".state.pt"), key, parts, progress

    def __enter__(self) -> "Resumable":
        if self.path.is_file():
            try:
                state = read_tensors(self.path)
                key, progress, parts = state["key"], state["progress"], state["parts"]
            except Exception as error:  # damage shows in many ways
                remedy = "Delete it to train from the beginning."
                raise CheckpointError(f"{self.path} is damaged ({error}). {remedy}") from error
            if key == self.key:
                self.progress.update(progress)
                for name, part in self.parts.items():
                    part.load_state_dict(parts[name])
        return self

    def __exit__(self, kind: type | None, *_) -> None:
        if kind is None:
            self.path.unlink(missing_ok=True)

    def save(self) -> None:
        """Writes the state, whole or not at all.

        Raises:
            StorageError: the file can't be written.
        """
        content = io.BytesIO()
        parts = {name: part.state_dict() for name, part in self.parts.items()}
        torch.save({"key": self.key, "progress": self.progress, "parts": parts}, content)
        with replacing(self.path) as temporary:
            temporary.write_bytes(content.getbuffer())
