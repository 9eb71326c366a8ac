"""Which name and shape each weight has in the authors' files, and its name here; generated from the architecture.

The names are those that the released code (repository plai-group/simple-cnaps) saves and strictly loads.
"""

from functools import cache
from typing import Literal, NamedTuple

import torch

from tcnaps.method.backbone import BLOCKS_PER_STAGE, STAGE_CHANNELS, Backbone
from tcnaps.method.model import ModelSettings, TransductiveCNAPS

Kind = Literal["backbone", "simple", "transductive"]

MODELS = {"backbone": "backbone", "simple": "Simple CNAPS", "transductive": "Transductive CNAPS"}
TRAINING = {"simple": "support", "transductive": "support_and_query"}  # the training whose weights a whole model's are
LSTM_LAYERS = 2  # the paper has one layer, the released code two (docs/fidelity.md)
COUNTER = "num_batches_tracked"  # of a batch-norm; read only where its momentum is None, which is nowhere


class Entry(NamedTuple):
    """What one weight of a file is here."""

    name: str
    shape: tuple[int, ...]
    counter: bool  # a whole number instead of a tensor of floats


@cache
def layout(kind: Kind) -> dict[str, Entry]:
    """Every weight of a file of this kind, by its name in the file."""
    with torch.device("meta"):  # shapes only: nothing is allocated or drawn
        whole = kind != "backbone"
        module = (
            TransductiveCNAPS(TRAINING[kind], Backbone(), ModelSettings(lstm_layers=LSTM_LAYERS))
            if whole
            else Backbone()
        )
    renamed = _backbone("feature_extractor.", "backbone.") | _task_encoder() | _film() if whole else _backbone("", "")
    entries = {}
    for name, value in module.state_dict().items():
        place, _, leaf = name.rpartition(".")
        theirs = renamed[place] if leaf == "regulariser" else f"{renamed[place]}.{leaf}"
        entries[theirs] = Entry(name, tuple(value.shape), leaf == COUNTER)
    return entries


def _backbone(theirs: str, ours: str) -> dict[str, str]:
    """Modules of the backbone: name here -> name in a file, where they begin with `ours` and `theirs`."""
    renamed = {f"{ours}stem.conv": f"{theirs}conv1", f"{ours}stem.norm": f"{theirs}bn1"}
    for stage in range(len(STAGE_CHANNELS)):
        for block in range(BLOCKS_PER_STAGE):
            here, there = f"{ours}blocks.{BLOCKS_PER_STAGE * stage + block}", f"{theirs}layer{stage + 1}.{block}"
            for number, layer in enumerate(("first", "second"), start=1):
                renamed[f"{here}.{layer}.conv"] = f"{there}.conv{number}"
                renamed[f"{here}.{layer}.norm"] = f"{there}.bn{number}"
            renamed[f"{here}.shortcut.conv"] = f"{there}.downsample.0"
            renamed[f"{here}.shortcut.norm"] = f"{there}.downsample.1"
    return renamed


def _task_encoder() -> dict[str, str]:
    renamed = {"task_encoder.lstm": "set_encoder.sequential_encoder"}
    for i in range(5):
        renamed[f"task_encoder.set_encoder.convs.{i}"] = f"set_encoder.pre_pooling_fn.layer{i + 1}.0"
        renamed[f"task_encoder.set_encoder.norms.{i}"] = f"set_encoder.pre_pooling_fn.layer{i + 1}.1"
    return renamed


def _film() -> dict[str, str]:
    """Modules of the FiLM generator. A file holds its regularisers in lists of their own, without a module's name."""
    renamed = {}
    for stage in range(len(STAGE_CHANNELS)):
        here, there = f"film_generator.stages.{stage}", f"feature_adaptation_network.layers.{stage}"
        renamed[f"{here}.shared"] = f"{there}.shared_layer.0"
        for what in ("gamma", "beta"):
            for layer in range(2 * BLOCKS_PER_STAGE):
                block, number = layer // 2, layer % 2 + 1
                renamed[f"{here}.{what}s.{layer}"] = f"{there}.{what}{number}_regularizers.{block}"
                for i in range(3):  # ReLUs are counted in the file: 0, 2, 4
                    dense = f"{there}.{what}{number}_processors.{block}.{2 * i}.linear"
                    renamed[f"{here}.{what}s.{layer}.layers.{i}"] = dense
    return renamed
