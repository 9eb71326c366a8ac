"""Training state on disk, so that an interrupted training goes on where it was."""

import os
from pathlib import Path

import torch


def save_state(path: Path, key: str, state: dict) -> None:
    """Writes the state, whole or not at all. `key` says what it is the state of."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    torch.save({"key": key, **state}, scratch)
    os.replace(scratch, path)


def load_state(path: Path, key: str) -> dict | None:
    """The state saved under the same key, or None: a state of other settings or a damaged file is not resumed from."""
    if not path.is_file():
        return None
    try:
        state = torch.load(path, weights_only=True, map_location="cpu")
    except Exception as error:  # torch.load raises many kinds for a damaged file
        print(f"{path} can't be read ({type(error).__name__}); starting afresh")
        return None
    return state if state.get("key") == key else None
