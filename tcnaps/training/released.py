"""The authors' released checkpoints (repository plai-group/simple-cnaps): downloaded, and made a study's.

    python -m tcnaps.training.released list
    python -m tcnaps.training.released download NAME|all [--folder released] [--from BASE_URL]
    python -m tcnaps.training.released import [FILE] --study STUDY.yaml [--force]   (default: what the study imports)
    python -m tcnaps.training.released convert FILE OUT.safetensors

Only `download` uses the network. Its addresses are those that the repository's README gives.
"""

import argparse
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pooch
import torch
from torch import Tensor

from tcnaps.config import Study, UserError, load_study, project_root
from tcnaps.config.storage import file_digest
from tcnaps.training.checkpoints import CheckpointError, checkpoint_folder, load, save
from tcnaps.training.released_reading import (
    COUNTER,
    LSTM_LAYERS,
    MODELS,
    TRAINING,
    ImportedCheckpoint,
    import_checkpoint,
)

TIMEOUT = 30.0  # seconds without an answer or a byte
REPOSITORY = "https://github.com/plai-group/simple-cnaps/raw/master/"
_AT = "model-checkpoints/meta-dataset-checkpoints/best_", "model-checkpoints/pretrained_resnets/pretrained_resnet_"
PUBLISHED = {  # name -> path in the repository, and what it is
    "transductive": (f"{_AT[0]}transductive_cnaps.pt", "Transductive CNAPS, Meta-Dataset"),
    "simple": (f"{_AT[0]}simple_cnaps.pt", "Simple CNAPS, Meta-Dataset"),
    "backbone-meta-dataset": (f"{_AT[1]}meta_dataset.pt.tar", "backbone, 712 ImageNet classes of Meta-Dataset"),
    "backbone-mini-imagenet": (f"{_AT[1]}mini_imagenet.pt.tar", "backbone, mini-ImageNet's training classes"),
    "backbone-tiered-imagenet": (f"{_AT[1]}tiered_imagenet.pt.tar", "backbone, tiered-ImageNet's training classes"),
    "backbone-feti": (f"{_AT[1]}mini_tiered_with_extra_classes.pt.tar", "backbone, FETI's 825 ImageNet classes"),
}


def download_released(name: str, folder: str | Path = "released", base: str = REPOSITORY) -> Path:
    """Downloads one of `PUBLISHED` into a folder, unless a file of its name is there already.

    The authors publish no checksums; `import_checkpoint` checks what it reads.

    Args:
        name: a key of `PUBLISHED`, or the name of the file.
        base: address that the file's path in the repository is appended to.

    Raises:
        CheckpointError: there is no such name, or the address can't be reached.
    """
    paths = {known: path for key, (path, _) in PUBLISHED.items() for known in (key, Path(path).name)}
    if name not in paths:
        raise CheckpointError(f"There is no released file '{name}'. Known: {', '.join(PUBLISHED)}.")
    url, target = f"{base.rstrip('/')}/{paths[name]}", Path(folder) / Path(paths[name]).name
    if target.exists():
        return target
    pooch.get_logger().setLevel(logging.WARNING)  # it would announce what the progress bar shows
    downloader = pooch.HTTPDownloader(timeout=TIMEOUT, progressbar=sys.stderr.isatty())
    source = pooch.create(target.parent, "", registry={target.name: None}, urls={target.name: url}, retry_if_failed=2)
    try:
        source.fetch(target.name, downloader=downloader)
    except (OSError, ValueError) as error:  # of the network, the address or the disk
        raise CheckpointError(f"{url} can't be downloaded to {target}: {error}. Check both, then try again.") from error
    return target


def import_into_study(file: str | Path | ImportedCheckpoint, study: Study, force: bool = False) -> list[Path]:
    """Makes one of the authors' files a study's backbone and, if it holds a whole model, weights.

    Files that hold the very weights already are kept, so that what was trained on them stays valid.

    Args:
        force: replace files that hold other weights.

    Returns:
        The files written, below the study's checkpoint folder.

    Raises:
        CheckpointError: `import_checkpoint`'s, the study is not made for the file, or would lose other weights.
    """
    imported = file if isinstance(file, ImportedCheckpoint) else import_checkpoint(file)
    training, layers = TRAINING.get(imported.kind), study.task_encoder.lstm_layers
    if imported.kind == "transductive" and layers != LSTM_LAYERS:
        raise CheckpointError(
            f"{imported.file}: its LSTM has {LSTM_LAYERS} layers, that of study '{study.name}' {layers}. "
            "Set `preset: released` in the study."
        )
    if training is not None and training not in study.trainings:
        raise CheckpointError(
            f"{imported.file} holds the training '{training}', which study '{study.name}' does not have. "
            f"Add it to `trainings` ({', '.join(study.trainings)})."
        )
    backbone, adaptation = imported.parts
    backbone_path = checkpoint_folder(study) / "backbone.safetensors"
    training_path = backbone_path.with_name(f"{training}.safetensors")
    settings = {"study": study.name, "seed": study.seed, "imported": imported.origin}
    # Both are compared before either is written.
    there = _settings_there(backbone_path, backbone, force)
    of_training = _settings_there(training_path, adaptation, force) if adaptation else None
    written = []
    if there is None:
        save(backbone_path, backbone, settings)
        written.append(backbone_path)
    settings |= {"training": training, "backbone": file_digest(backbone_path), "valid_accuracy": None}
    if adaptation and (of_training or {}).get("backbone") != settings["backbone"]:
        save(training_path, adaptation, settings)
        written.append(training_path)
    return written


def import_all(study: Study, force: bool = False) -> list[tuple[ImportedCheckpoint, list[Path]]]:
    """Imports every file that the study's YAML names under `imported`, relative to the project's root.

    Returns:
        Of every file: what was read, and the files written for it.

    Raises:
        CheckpointError: `import_into_study`'s, a file holds something else than what it is named for, or two files
            have different backbones. All files are read before any is written.
    """
    if not study.imported:
        raise CheckpointError(f"Study '{study.name}' imports nothing. Name a file, or set `imported` in its YAML.")
    kinds = {TRAINING.get(kind, kind): kind for kind in MODELS}
    read: list[ImportedCheckpoint] = []
    for name, file in study.imported.items():
        read.append(imported := import_checkpoint(project_root() / file))
        if imported.kind != kinds[name]:
            raise CheckpointError(
                f"imported.{name}: {file} is a file of {MODELS[imported.kind]}, not of {MODELS[kinds[name]]}. "
                "Name another file."
            )
        if not _equal(imported.parts[0], read[0].parts[0]):
            raise CheckpointError(
                f"{read[0].file} and {imported.file} have different backbones, and a study has one. "
                "Import them into two studies."
            )
    return [(imported, import_into_study(imported, study, force)) for imported in read]


def _equal(these: dict[str, Tensor], those: dict[str, Tensor]) -> bool:
    """Whether they are the same weights. The counters of batch-norms are none: nothing reads them."""
    return these.keys() == those.keys() and all(
        torch.equal(value, those[name]) for name, value in these.items() if not name.endswith(COUNTER)
    )


def _settings_there(path: Path, weights: dict[str, Tensor], force: bool) -> dict | None:
    """Settings of the checkpoint at `path` if it holds these weights; None if `path` is to be written."""
    remedy = "Import with --force to replace it, or into another study."
    if not path.exists():
        return None
    try:
        there, settings = load(path, remedy)
        if not _equal(weights, there):
            raise CheckpointError(f"{path} holds other weights. {remedy}")
    except CheckpointError:
        if force:
            return None
        raise
    return settings


def _lines(options: argparse.Namespace) -> Iterator[str]:
    """Runs a command; what it has to say, line by line."""
    if options.command == "list":
        for name, (path, what) in PUBLISHED.items():
            yield f"{name:<24}  {what}\n{'':<24}  {REPOSITORY}{path}"
    elif options.command == "download":
        for name in PUBLISHED if options.name == "all" else [options.name]:
            path = download_released(name, options.folder, options.base)
            yield f"{path}: SHA-256 {file_digest(path)}"
    elif options.command == "import":
        study, given = load_study(options.study), options.file and import_checkpoint(options.file)
        done = [(given, import_into_study(given, study, options.force))] if given else import_all(study, options.force)
        for imported, written in done:
            yield str(imported)
            yield "\n".join(f"wrote {path}" for path in written) or "wrote nothing: the study has these weights"
    else:
        yield str(imported := import_checkpoint(options.file))
        if options.out.exists():
            raise CheckpointError(f"{options.out} is there already. Delete it or name another file.")
        save(options.out, imported.weights, {"kind": imported.kind, "imported": imported.origin})
        yield f"wrote {options.out}"


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status: 0, or 1 when a file, an address or a study is at fault."""
    try:
        for line in _lines(_parser().parse_args(arguments)):
            print(line)
    except (UserError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m tcnaps.training.released", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="what the authors have published, and where")
    fetch = commands.add_parser("download", help="download one of them, or all")
    fetch.add_argument("name", metavar="NAME", help=f"{', '.join(PUBLISHED)}, a file's name, or all")
    fetch.add_argument("--folder", type=Path, default=Path("released"), help="where to put it (default: released)")
    fetch.add_argument("--from", dest="base", metavar="BASE_URL", default=REPOSITORY, help="a mirror of the repository")
    into = commands.add_parser("import", help="make a file a study's backbone and training")
    into.add_argument("file", type=Path, nargs="?", metavar="FILE", help="default: all that the study's YAML imports")
    into.add_argument("--study", required=True, help="the study's YAML, such as configs/miniature.yaml")
    into.add_argument("--force", action="store_true", help="replace checkpoints that hold other weights")
    convert = commands.add_parser("convert", help="write a file's weights in this project's format")
    convert.add_argument("file", type=Path, metavar="FILE")
    convert.add_argument("out", type=Path, metavar="OUT.safetensors")
    return parser


if __name__ == "__main__":
    sys.exit(main())
