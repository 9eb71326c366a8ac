"""The authors' released checkpoints (repository plai-group/simple-cnaps): download them, import them into a study.

    python -m tcnaps.training.released download NAME [--folder released]
    python -m tcnaps.training.released import [FILE] --study STUDY.yaml     (default: what the study imports)

Only `download` uses the network. The repository's README gives its addresses.
"""

import argparse
import re
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pooch
import torch
from torch import Tensor

from tcnaps.config import Study, UserError, load_study, project_root
from tcnaps.config.storage import file_digest
from tcnaps.method.backbone import Backbone
from tcnaps.method.model import ModelSettings, TransductiveCNAPS
from tcnaps.training.checkpoints import CheckpointError, checkpoint_folder, load, read_tensors, save, unusable

LSTM_LAYERS = 2  # the paper has one layer, the released code two (docs/fidelity.md)
COUNTER = "num_batches_tracked"  # in batch-norms; nothing reads it, and PyTorch before 0.4.1 wrote none
REPOSITORY = "https://github.com/plai-group/simple-cnaps/raw/master/model-checkpoints"
PUBLISHED = {
    "transductive": "meta-dataset-checkpoints/best_transductive_cnaps.pt",
    "simple": "meta-dataset-checkpoints/best_simple_cnaps.pt",
    "backbone-meta-dataset": "pretrained_resnets/pretrained_resnet_meta_dataset.pt.tar",
    "backbone-mini-imagenet": "pretrained_resnets/pretrained_resnet_mini_imagenet.pt.tar",
    "backbone-tiered-imagenet": "pretrained_resnets/pretrained_resnet_tiered_imagenet.pt.tar",
    "backbone-feti": "pretrained_resnets/pretrained_resnet_mini_tiered_with_extra_classes.pt.tar",
}
# Parts of our names, and what the released code calls them. A stage has two blocks, a block has two layers, and the
# released numbering of linear layers counts the ReLUs between them.
RELEASED_NAMES = (
    (r"^backbone", "feature_extractor"),
    (r"(stem|first)\.conv", "conv1"),
    (r"(stem|first)\.norm", "bn1"),
    (r"second\.conv", "conv2"),
    (r"second\.norm", "bn2"),
    (r"shortcut\.conv", "downsample.0"),
    (r"shortcut\.norm", "downsample.1"),
    (r"blocks\.(\d)", lambda m: f"layer{int(m[1]) // 2 + 1}.{int(m[1]) % 2}"),
    (r"^task_encoder\.lstm", "set_encoder.sequential_encoder"),
    (r"^task_encoder\.set_encoder", "set_encoder.pre_pooling_fn"),
    (r"convs\.(\d)", lambda m: f"layer{int(m[1]) + 1}.0"),
    (r"norms\.(\d)", lambda m: f"layer{int(m[1]) + 1}.1"),
    (r"(gamma|beta)s\.(\d)\.layers", lambda m: f"{m[1]}{int(m[2]) % 2 + 1}_processors.{int(m[2]) // 2}"),
    (r"(gamma|beta)s\.(\d)\.regulariser", lambda m: f"{m[1]}{int(m[2]) % 2 + 1}_regularizers.{int(m[2]) // 2}"),
    (r"(processors\.\d)\.(\d)", lambda m: f"{m[1]}.{2 * int(m[2])}.linear"),
    (r"^film_generator\.stages\.(\d)\.shared", r"film_generator.stages.\1.shared_layer.0"),
    (r"^film_generator\.stages", "feature_adaptation_network.layers"),
)


def download_released(name: str, folder: str | Path = "released", base: str = REPOSITORY) -> Path:
    """Downloads one of `PUBLISHED` into a folder, unless a file of its name is there already.

    The authors publish no checksums; `import_checkpoint` checks what it reads.

    Raises:
        CheckpointError: there is no such name, or `base` and the file's path give no address that can be reached.
    """
    if name not in PUBLISHED:
        raise CheckpointError(f"There is no released file '{name}'. Known: {', '.join(PUBLISHED)}.")
    url, target = f"{base}/{PUBLISHED[name]}", Path(folder) / Path(PUBLISHED[name]).name
    try:
        pooch.retrieve(url, None, target.name, target.parent, progressbar=sys.stderr.isatty())
    except (OSError, ValueError) as error:  # of the network, the address or the disk
        raise CheckpointError(f"{url} can't be downloaded to {target}: {error}. Try again.") from error
    return target


@dataclass(frozen=True)
class ImportedCheckpoint:
    """The weights of one of the authors' files, checked and under this project's names.

    Attributes:
        name: as under `imported` in a study's YAML: backbone, or the training that a whole model's weights belong to.
        backbone: as in `Backbone.state_dict()`.
        adaptation: the meta-learned weights; empty for a backbone's file.
        origin: the file's name and SHA-256, for the header of a checkpoint.
    """

    name: str
    backbone: dict[str, Tensor]
    adaptation: dict[str, Tensor]
    origin: dict[str, str]


def import_checkpoint(path: str | Path) -> ImportedCheckpoint:
    """Reads one of the authors' files without running anything that it may hold.

    Raises:
        CheckpointError: the file is missing, damaged or holds more than weights; or its names, shapes or values are
            not those of the released models. The message names the file and the weights at fault, as the file does.
    """
    path = Path(path)
    released = _released_weights(path)
    name = "backbone"
    if any(each.startswith(("set_encoder.", "feature_")) for each in released):  # a whole model
        name = "support_and_query" if any("sequential_encoder" in each for each in released) else "support"
    else:  # leave out the classifier that the backbone was pretrained with
        released = {each: value for each, value in released.items() if not each.startswith("fc.")}
    entries = layout(name)
    released = {each: torch.tensor(0) for each in entries if each.endswith(COUNTER)} | released
    if problems := _problems(released, entries):
        raise CheckpointError(
            f"{path} does not hold the authors' weights of '{name}': {len(problems)} are wrong, such as: "
            f"{'; '.join(sorted(problems)[:5])}. Download it again, or name another file."
        )
    # Copies: in files saved on a CPU the regularisers of a block share their memory.
    weights = {ours: released[each].detach().to(like.dtype, copy=True) for each, (ours, like) in entries.items()}
    in_backbone = [each for each in weights if name == "backbone" or each.startswith("backbone.")]
    backbone = {each.removeprefix("backbone."): weights.pop(each) for each in in_backbone}
    return ImportedCheckpoint(name, backbone, weights, {"file": path.name, "sha256": file_digest(path)})


def _problems(released: dict, entries: dict[str, tuple[str, Tensor]]) -> list[str]:
    problems = [f"{each} is missing" for each in entries.keys() - released.keys()]
    problems += [f"{each} is unknown" for each in released.keys() - entries.keys()]
    for each in entries.keys() & released.keys():
        shape, expected = getattr(released[each], "shape", "no tensor"), entries[each][1].shape
        right = shape == expected
        problems += unusable({each: released[each]}) if right else [f"{each} is {shape}, not {expected}"]
    return problems


@cache
def layout(name: str) -> dict[str, tuple[str, Tensor]]:
    """For every weight in a released file, by its name there: our name, and a tensor of its shape and type."""
    with torch.device("meta"):  # nothing is allocated or drawn
        module = Backbone()
        if name != "backbone":
            module = TransductiveCNAPS(name, module, ModelSettings(lstm_layers=LSTM_LAYERS))
    entries = {}
    for ours, value in module.state_dict().items():
        theirs = ours
        for part, released in RELEASED_NAMES:
            theirs = re.sub(part, released, theirs)
        entries[theirs] = ours, value
    return entries


def _released_weights(path: Path) -> dict[str, object]:
    """The file's dictionary of weights, without the prefix that DataParallel gives to all names."""
    if not path.is_file():
        raise CheckpointError(f"There is no file {path}. docs/fidelity.md says how to download the authors'.")
    try:
        content = read_tensors(path)
        for key in ("state_dict", "resnet_dict"):  # the latter for mini-, tiered-ImageNet and FETI
            content = content.get(key, content)
        return {name.removeprefix("module."): value for name, value in content.items()}
    except Exception as error:  # a damaged file raises many kinds
        reason = str(error).partition("\n\n")[2] or error  # PyTorch's begins with advice to run the file all the same
        raise CheckpointError(
            f"{path} can't be read as weights, and nothing in it was run. It begins with {path.read_bytes()[:20]!r}. "
            f"It may be a web page or a Git LFS pointer in place of the file: download it again. ({reason})"
        ) from error


def import_into_study(file: str | Path | ImportedCheckpoint, study: Study) -> list[Path]:
    """Makes one of the authors' files a study's backbone and, if it holds a whole model, a training's weights.

    Files that hold these weights already are kept, so that what was trained on them stays valid.

    Returns:
        The files written, below the study's checkpoint folder.

    Raises:
        CheckpointError: `import_checkpoint`'s, the study is not made for the file, or would lose other weights.
    """
    imported = file if isinstance(file, ImportedCheckpoint) else import_checkpoint(file)
    if imported.name == "support_and_query" and study.task_encoder.lstm_layers != LSTM_LAYERS:
        raise CheckpointError(f"The released LSTM has {LSTM_LAYERS} layers: set `preset: released` in the study.")
    backbone_path = checkpoint_folder(study) / "backbone.safetensors"
    training_path = backbone_path.with_name(f"{imported.name}.safetensors")
    header, written = {"study": study.name, "seed": study.seed, "imported": imported.origin}, []
    # Both are compared before either is written.
    backbone_header = _existing_header(backbone_path, imported.backbone)
    training_header = _existing_header(training_path, imported.adaptation) if imported.adaptation else {}
    if not backbone_header:
        save(backbone_path, imported.backbone, header)
        written.append(backbone_path)
    header |= {"training": imported.name, "backbone": file_digest(backbone_path), "valid_accuracy": None}
    if imported.adaptation and training_header.get("backbone") != header["backbone"]:
        save(training_path, imported.adaptation, header)
        written.append(training_path)
    return written


def _existing_header(path: Path, weights: dict[str, Tensor]) -> dict:
    """The header of the checkpoint at `path`, which must hold these weights; empty if there is none."""
    if not path.exists():
        return {}
    existing, header = load(path, "Then import again.")
    same = (torch.equal(value, existing[name]) for name, value in weights.items() if not name.endswith(COUNTER))
    if weights.keys() != existing.keys() or not all(same):
        raise CheckpointError(f"{path} holds other weights. Delete it to replace it, or import into another study.")
    return header


def import_all(study: Study) -> list[Path]:
    """Imports every file that the study's YAML names under `imported`, relative to the project's root.

    Raises:
        CheckpointError: `import_into_study`'s, or a file holds something else than what it is named for.
    """
    if not study.imported:
        raise CheckpointError(f"Study '{study.name}' imports nothing. Name a file, or set `imported` in its YAML.")
    checkpoints = [import_checkpoint(project_root() / file) for file in study.imported.values()]
    for (name, file), imported in zip(study.imported.items(), checkpoints):
        if imported.name != name:
            raise CheckpointError(f"imported.{name}: {file} holds the weights of '{imported.name}'. Name another file.")
    return [path for imported in checkpoints for path in import_into_study(imported, study)]


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status: 0, or 1 if a file, an address or a study is at fault."""
    parser = argparse.ArgumentParser("python -m tcnaps.training.released", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("download", help="download one of the authors' files")
    command.add_argument("name", metavar="NAME", help=f"one of {', '.join(PUBLISHED)}")
    command.add_argument("--folder", type=Path, default=Path("released"), help="where to put it (default: released)")
    command = commands.add_parser("import", help="make a file a study's backbone and training")
    command.add_argument("file", type=Path, nargs="?", metavar="FILE", help="default: all that the study imports")
    command.add_argument("--study", required=True, help="the study's YAML, such as configs/miniature.yaml")
    options = parser.parse_args(arguments)
    try:
        if options.command == "download":
            print(path := download_released(options.name, options.folder), "SHA-256", file_digest(path))
        else:
            study = load_study(options.study)
            written = import_into_study(options.file, study) if options.file else import_all(study)
            print("\n".join(f"wrote {path}" for path in written) or "wrote nothing: the study has these weights")
    except (UserError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
