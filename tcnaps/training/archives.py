"""Loads a trained model from an archive, the zip of `make archive`: study.yaml and results/<study>/checkpoints."""

import os
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import torch

from tcnaps.config import Study, UserError, load_study
from tcnaps.config.storage import digest_of, replacing
from tcnaps.method.model import TransductiveCNAPS
from tcnaps.training.checkpoints import checkpoint_folder, load_model

STUDY_FILE = "study.yaml"


def load(
    source: str | Path, training: str = "support_and_query", device: torch.device | str = "cpu"
) -> TransductiveCNAPS:
    """A trained model, ready to classify an episode: `load("archive.zip").classify(Episode(...))`.

    Args:
        source: a zip file, its https address, or the folder it was unpacked into. A download is kept in PyTorch's
            cache. Nothing in the archive is run.
        training: "support_and_query" (Transductive CNAPS) or "support" (Simple CNAPS).

    Raises:
        UserError: there is no such archive, it has no such network, or a file of weights is damaged.
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
    file = _downloaded(str(source)) if str(source).startswith("https://") else Path(source)
    if file.is_dir():
        yield _study(file)
        return
    with tempfile.TemporaryDirectory() as folder:
        try:
            with zipfile.ZipFile(file) as archive:
                names = [name for name in archive.namelist() if name == STUDY_FILE or name.endswith(".safetensors")]
                archive.extractall(folder, names)
        except (OSError, zipfile.BadZipFile) as error:
            raise UserError(f"{file} is no archive that can be read: {error}") from error
        yield _study(Path(folder))


def _study(folder: Path) -> Study:
    if not (folder / STUDY_FILE).is_file():
        raise UserError(f"There is no {STUDY_FILE} in the archive: name one that `make archive` wrote.")
    return load_study(folder / STUDY_FILE).model_copy(update={"root": folder})


def _downloaded(address: str) -> Path:
    file = Path(torch.hub.get_dir(), "tcnaps", digest_of(address)[:16], os.path.basename(urlsplit(address).path))
    if not file.exists():
        try:
            with replacing(file) as temporary:
                torch.hub.download_url_to_file(address, str(temporary))
        except (OSError, RuntimeError) as error:
            raise UserError(f"{address} can't be downloaded: {error}") from error
    return file
