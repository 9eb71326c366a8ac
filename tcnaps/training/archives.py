"""Loads a trained model from an archive, the zip of `make archive`: study.yaml and results/<study>/checkpoints."""

import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from tcnaps.config import Study, UserError, load_study
from tcnaps.method.model import TransductiveCNAPS
from tcnaps.training.checkpoints import checkpoint_folder, load_model

STUDY_FILE = "study.yaml"


def load(
    source: str | Path, training: str = "support_and_query", device: torch.device | str = "cpu"
) -> TransductiveCNAPS:
    """A trained model, ready to classify an episode: `load("archive.zip").classify(Episode(...))`.

    `source` is a zip file or the folder it was unpacked into; nothing in it is run. Its trainings are
    "support_and_query" (Transductive CNAPS) and "support" (Simple CNAPS). A UserError says what is missing or damaged.
    """
    with opened(source) as study:
        folder = checkpoint_folder(study)
        if not (folder / f"{training}.safetensors").is_file():
            known = sorted(file.stem for file in folder.glob("*.safetensors") if file.stem != "backbone")
            raise UserError(f"{source} has no network '{training}', only {', '.join(known) or 'none'}.")
        return load_model(study, training, device)


@contextmanager
def opened(source: str | Path) -> Iterator[Study]:
    """The study of an archive, with its checkpoints in place until the block ends."""
    with tempfile.TemporaryDirectory() as unpacked:
        folder = Path(source)
        if not folder.is_dir():
            try:
                with zipfile.ZipFile(source) as archive:
                    names = [name for name in archive.namelist() if name == STUDY_FILE or name.endswith(".safetensors")]
                    archive.extractall(unpacked, names)
            except (OSError, zipfile.BadZipFile, zlib.error) as error:
                raise UserError(f"{source} is no archive that can be read: {error}") from error
            folder = Path(unpacked)
        if not (folder / STUDY_FILE).is_file():
            raise UserError(f"There is no {STUDY_FILE} in {source}: name an archive that `make archive` wrote.")
        yield load_study(folder / STUDY_FILE).model_copy(update={"root": folder})
