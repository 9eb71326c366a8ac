"""Imports the authors' released checkpoints (repository plai-group/simple-cnaps; docs/fidelity.md has the addresses).

python -m tcnaps.training.released --study STUDY.yaml      all that the study names under `imported`
"""

import argparse
import re
import sys
from functools import cache, reduce
from pathlib import Path

import torch
from torch import Tensor

from tcnaps.config import Study, UserError, load_study, project_root
from tcnaps.config.storage import file_digest
from tcnaps.method.backbone import Backbone
from tcnaps.method.model import ModelSettings, TransductiveCNAPS
from tcnaps.training.checkpoints import CheckpointError, checkpoint_folder, load, read_tensors, save, unusable

LSTM_LAYERS = 2  # the paper has one layer (docs/fidelity.md)
BACKBONE = "backbone."  # prefix of a backbone's weights in a whole model
COUNTER = "num_batches_tracked"  # in batch-norms; nothing reads it, and PyTorch before 0.4.1 wrote none
# Parts of our names, and what the released code calls them. A stage has two blocks, a block has two layers, and the
# released numbering of linear layers counts the ReLUs between them.
RELEASED_NAMES = (
    (r"^backbone", "feature_extractor"),
    (r"(stem|first)\.conv", "conv1"),
    (r"(stem|first)\.norm", "bn1"),
    (r"second\.conv", "conv2"),
    (r"second\.norm", "bn2"),
    (r"shortcut\.(conv|norm)", lambda m: f"downsample.{('conv', 'norm').index(m[1])}"),
    (r"blocks\.(\d)", lambda m: f"layer{int(m[1]) // 2 + 1}.{int(m[1]) % 2}"),
    (r"^task_encoder\.lstm", "set_encoder.sequential_encoder"),
    (r"^task_encoder\.set_encoder", "set_encoder.pre_pooling_fn"),
    (r"(conv|norm)s\.(\d)", lambda m: f"layer{int(m[2]) + 1}.{('conv', 'norm').index(m[1])}"),
    (r"(gamma|beta)s\.(\d)\.layers", lambda m: f"{m[1]}{int(m[2]) % 2 + 1}_processors.{int(m[2]) // 2}"),
    (r"(gamma|beta)s\.(\d)\.regulariser", lambda m: f"{m[1]}{int(m[2]) % 2 + 1}_regularizers.{int(m[2]) // 2}"),
    (r"(processors\.\d)\.(\d)", lambda m: f"{m[1]}.{2 * int(m[2])}.linear"),
    (r"^film_generator\.stages\.(\d)\.shared", r"film_generator.stages.\1.shared_layer.0"),
    (r"^film_generator\.stages", "feature_adaptation_network.layers"),
)


def import_checkpoint(path: Path) -> tuple[str, dict[str, Tensor]]:
    """What a file of the authors holds, "backbone" or a training, and its weights as `TransductiveCNAPS` names them."""
    released = _released_weights(path)
    name = "backbone"
    if any(each.startswith(("set_encoder.", "feature_")) for each in released):  # a whole model
        name = "support_and_query" if any("sequential_encoder" in each for each in released) else "support"
    else:  # leave out the classifier that the backbone was pretrained with
        released = {each: value for each, value in released.items() if not each.startswith("fc.")}
    entries = layout(name)
    released = {each: torch.tensor(0) for each in entries if each.endswith(COUNTER)} | released
    problems = [f"{each} is missing" for each in entries.keys() - released.keys()]
    problems += [f"{each} is unknown" for each in released.keys() - entries.keys()]
    for each in entries.keys() & released.keys():
        shape, expected = getattr(released[each], "shape", "no tensor"), entries[each][1].shape
        problems += unusable({each: released[each]}) if shape == expected else [f"{each} is {shape}, not {expected}"]
    if problems:
        wrong = f"{len(problems)} are wrong, such as: {'; '.join(sorted(problems)[:5])}"
        raise CheckpointError(f"{path} doesn't hold the authors' weights of '{name}': {wrong}. Download it again.")
    # Copies: in files saved on a CPU the regularisers of a block share their memory.
    return name, {ours: released[each].detach().to(like.dtype, copy=True) for each, (ours, like) in entries.items()}


@cache
def layout(name: str) -> dict[str, tuple[str, Tensor]]:
    """For every weight in a released file, by its name there: our name, and a tensor of its shape and type."""
    with torch.device("meta"):  # nothing is allocated or drawn
        training = "support" if name == "backbone" else name
        weights = TransductiveCNAPS(training, Backbone(), ModelSettings(lstm_layers=LSTM_LAYERS)).state_dict()
    entries = {}
    for ours, value in weights.items():
        theirs = reduce(lambda text, names: re.sub(*names, text), RELEASED_NAMES, ours)
        if name != "backbone":
            entries[theirs] = ours, value
        elif ours.startswith(BACKBONE):
            entries[theirs.removeprefix("feature_extractor.")] = ours, value
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
        problem = f"can't be read as weights ({reason}); nothing in it was run"
        hint = f"It begins with {path.read_bytes()[:20]!r}: it may be a web page or a Git LFS pointer"
        raise CheckpointError(f"{path} {problem}. {hint}. Download it again.") from error


def import_into_study(file: str | Path, study: Study) -> list[Path]:
    """Makes one of the authors' files a study's backbone and, if it holds a whole model, a training's weights.

    Returns the files written. A file that already holds these weights is kept. One with other weights is an error.
    """
    name, weights = import_checkpoint(Path(file))
    if name == "support_and_query" and study.task_encoder.lstm_layers != LSTM_LAYERS:
        raise CheckpointError(f"The released LSTM has {LSTM_LAYERS} layers: set `preset: released` in the study.")
    backbone = {each.removeprefix(BACKBONE): weights.pop(each) for each in [*weights] if each.startswith(BACKBONE)}
    folder, origin = checkpoint_folder(study), {"file": Path(file).name, "sha256": file_digest(file)}
    header = {"study": study.name, "seed": study.seed, "imported": origin}
    written = _write(folder / "backbone.safetensors", backbone, header)
    if weights:
        header |= {"training": name, "backbone": file_digest(folder / "backbone.safetensors"), "valid_accuracy": None}
        written += _write(folder / f"{name}.safetensors", weights, header)
    return written


def _write(path: Path, weights: dict[str, Tensor], header: dict) -> list[Path]:
    """Writes a checkpoint unless it is there already; returns the file written, if any."""
    if path.exists():
        existing, found = load(path, "Then import again.")
        same = (torch.equal(value, existing[name]) for name, value in weights.items() if not name.endswith(COUNTER))
        if weights.keys() != existing.keys() or not all(same):
            raise CheckpointError(f"{path} holds other weights. Delete it to replace it, or import into another study.")
        if found.get("backbone") == header.get("backbone"):
            return []
    save(path, weights, header)
    return [path]


def import_all(study: Study) -> list[Path]:
    """Imports every file that the study's YAML names under `imported`, relative to the project's root."""
    if not study.imported:
        raise CheckpointError(f"Study '{study.name}' imports nothing. Name files under `imported` in its YAML.")
    files = {name: project_root() / file for name, file in study.imported.items()}
    for name, file in files.items():  # all of them before any is written
        if (held := import_checkpoint(file)[0]) != name:
            raise CheckpointError(f"imported.{name}: {file} holds the weights of '{held}'. Name another file.")
    return [path for file in files.values() for path in import_into_study(file, study)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser("python -m tcnaps.training.released", description=__doc__.splitlines()[0])
    parser.add_argument("--study", required=True, help="the study's YAML, such as configs/miniature.yaml")
    try:
        written = import_all(load_study(parser.parse_args().study))
    except (UserError, OSError) as error:
        sys.exit(str(error))
    print("\n".join(f"wrote {path}" for path in written) or "wrote nothing: the study has these weights")
