"""The authors' files: names, damage, malice, and what becomes of them in a study."""

import io
import os
import pickle
import runpy
import sys

import pytest
import torch
import yaml
from released_files import random_weights, released_shapes, write_file
from small_study import small_study

from tcnaps.config.storage import file_digest
from tcnaps.training import checkpoints
from tcnaps.training.checkpoints import CheckpointError, load_model
from tcnaps.training.released import import_all, import_checkpoint, import_into_study, layout

# A name in a file, and what it is called here. By hand, from the two architectures.
GAMMA, BETA = "gamma2_processors.1.4.linear.bias", "beta2_regularizers.0"
LITERAL = {
    "backbone": {
        "conv1.weight": "backbone.stem.conv.weight",
        "layer2.0.bn2.bias": "backbone.blocks.2.second.norm.bias",
        "layer3.0.downsample.0.weight": "backbone.blocks.4.shortcut.conv.weight",
        "layer4.0.downsample.1.running_mean": "backbone.blocks.6.shortcut.norm.running_mean",
    },
    "simple": {
        "feature_extractor.layer2.1.conv1.weight": "backbone.blocks.3.first.conv.weight",
        "set_encoder.pre_pooling_fn.layer5.1.bias": "task_encoder.set_encoder.norms.4.bias",
        f"feature_adaptation_network.layers.0.{GAMMA}": "film_generator.stages.0.gammas.3.layers.2.bias",
        f"feature_adaptation_network.layers.1.{BETA}": "film_generator.stages.1.betas.1.regulariser",
        "feature_adaptation_network.layers.3.shared_layer.0.bias": "film_generator.stages.3.shared.bias",
    },
    "transductive": {"set_encoder.sequential_encoder.bias_hh_l1": "task_encoder.lstm.bias_hh_l1"},
}
NAMES = {"backbone": "backbone", "simple": "support", "transductive": "support_and_query"}


@pytest.fixture(scope="module")
def weights():
    """Weights of each kind under the names of the release; a whole model's backbone is the one of "backbone"."""
    backbone = random_weights("backbone")
    there = {f"feature_extractor.{name}": value for name, value in backbone.items()}
    return {kind: backbone if kind == "backbone" else random_weights(kind, 1) | there for kind in NAMES}


@pytest.fixture(scope="module")
def files(weights, tmp_path_factory):
    """A file of each kind."""
    folder = tmp_path_factory.mktemp("released")
    return {kind: write_file(folder / f"{kind}.pt", weights[kind]) for kind in NAMES}


def study(**changes):
    return small_study(**{"task_encoder": {"lstm_layers": 2}} | changes)


@pytest.mark.parametrize("kind", NAMES)
def test_every_weight_arrives_under_its_name(kind, files, weights):
    entries = layout(NAMES[kind])
    assert {theirs: entries[theirs][0] for theirs in LITERAL[kind]} == LITERAL[kind]
    assert {name: tuple(like.shape) for name, (_, like) in entries.items()} == released_shapes(kind)
    name, found = import_checkpoint(files[kind])
    assert name == NAMES[kind] and len(found) == len(entries)
    assert all(torch.equal(found[ours], weights[kind][theirs]) for theirs, (ours, _) in entries.items())


@pytest.mark.parametrize(
    ("legacy", "prefix", "key"), [(True, "module.", None), (False, "", "state_dict"), (True, "", "resnet_dict")]
)
def test_every_way_of_saving_a_backbone(tmp_path, weights, files, legacy, prefix, key):
    classifier = {"fc.weight": torch.zeros(5, 512), "fc.bias": torch.zeros(5)}
    content = {f"{prefix}{name}": value for name, value in (weights["backbone"] | classifier).items()}
    beside = {"epoch": 3, "optimizer": {"lr": [0.1]}, "best": torch.tensor(1.0)}
    file = write_file(tmp_path / "b.pt.tar", {**beside, key: content} if key else content, legacy)
    name, imported = import_checkpoint(file)
    assert name == "backbone"
    torch.testing.assert_close(imported, import_checkpoint(files["backbone"])[1], rtol=0, atol=0)


def test_half_precision_becomes_float32_and_missing_counters_zero(tmp_path, weights):
    content = {name: value.half() for name, value in weights["backbone"].items() if not name.endswith("tracked")}
    backbone = import_checkpoint(write_file(tmp_path / "b.pt", content))[1]
    assert {value.dtype for value in backbone.values()} == {torch.float32, torch.int64}
    assert torch.equal(backbone["backbone.stem.conv.weight"], content["conv1.weight"].float())
    assert backbone["backbone.stem.norm.num_batches_tracked"] == 0


def test_regularisers_that_share_their_memory_are_parted(tmp_path, weights, root):
    """As in a model that was trained on a CPU by the released code."""
    shared = torch.randn(64)
    names = [f"feature_adaptation_network.layers.0.{w}_regularizers.1" for w in ("gamma1", "beta1", "gamma2", "beta2")]
    import_into_study(write_file(tmp_path / "s.pt", weights["simple"] | dict.fromkeys(names, shared)), study())
    model = load_model(study(), "support")
    assert torch.equal(model.film_generator.stages[0].betas[3].regulariser, shared)
    assert len({parameter.data_ptr() for parameter in model.parameters()}) == len(list(model.parameters()))


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("backbone", "layer1.0.conv1.weight", None),
        ("simple", "fc.weight", torch.zeros(1)),  # no classifier is in a whole model
        ("backbone", "bn1.bias", torch.zeros(65)),
        ("backbone", "bn1.bias", torch.full((64,), torch.nan)),
        ("backbone", "bn1.running_var", torch.full((64,), -0.1)),
        ("backbone", "bn1.bias", "a text"),
    ],
)
def test_wrong_weights_are_named(tmp_path, weights, kind, name, value):
    content = {k: v for k, v in weights[kind].items() if k != name} | ({} if value is None else {name: value})
    path = write_file(tmp_path / "w.pt", content)
    with pytest.raises(CheckpointError, match=f"{path}.*{name}"):
        import_checkpoint(path)


class Malice:
    """Makes a file when it is unpickled."""

    def __init__(self, mark):
        self.command = f"touch {mark}"

    def __reduce__(self):
        return os.system, (self.command,)


@pytest.mark.parametrize("legacy", [False, True])
def test_a_malicious_file_runs_nothing(tmp_path, legacy):
    mark = tmp_path / "executed"
    content = {"optimizer": Malice(mark), "state_dict": {"conv1.weight": torch.zeros(64, 3, 5, 5)}}
    path = write_file(tmp_path / "evil.pt", content, legacy)
    with pytest.raises(CheckpointError, match="evil.pt"):
        import_checkpoint(path)
    assert not mark.exists()
    torch.load(path, weights_only=False)  # the test can fail: read without care, the file does run
    assert mark.exists()


def test_files_that_are_no_checkpoints(tmp_path, files, weights):
    path, data = tmp_path / "w.pt", files["backbone"].read_bytes()
    place = data.index(weights["backbone"]["conv1.weight"][0, 0, 0].numpy().tobytes()) + 1
    flipped = data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :]
    torch.save(torch.zeros(2), tensor := io.BytesIO())
    page, pickled = b"\n\n<!DOCTYPE html>\n<html></html>", pickle.dumps([1], 4)
    for content in (page, pickled, tensor.getvalue(), data[: len(data) // 2], flipped):
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match=str(path)):
            import_checkpoint(path)


@pytest.mark.slow
def test_all_that_a_study_names_is_imported_on_the_backbone_that_it_shares(root, files, weights):
    folder, named = root / "results/small/checkpoints", {NAMES[kind]: str(file) for kind, file in files.items()}
    written = [folder / f"{name}.safetensors" for name in NAMES.values()]
    assert import_all(study(imported=named)) == written and import_all(study(imported=named)) == []
    for kind in ("simple", "transductive"):
        model = load_model(study(), NAMES[kind])
        wanted = {ours: weights[kind][theirs] for theirs, (ours, _) in layout(NAMES[kind]).items()}
        assert all(torch.equal(value, wanted[name]) for name, value in model.state_dict().items())
        header = checkpoints.load(folder / f"{NAMES[kind]}.safetensors", "")[1]
        assert header["training"] == NAMES[kind] and header["valid_accuracy"] is None and header["study"] == "small"
        assert header["backbone"] == file_digest(folder / "backbone.safetensors")
        assert header["imported"] == {"file": f"{kind}.pt", "sha256": file_digest(files[kind])}


def test_other_weights_and_damaged_files_are_never_replaced(root, tmp_path, files, weights):
    folder = root / "results/small/checkpoints"
    import_into_study(files["simple"], study())
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for name in ("feature_extractor.bn1.bias", "feature_adaptation_network.layers.0.shared_layer.0.bias"):
        path = write_file(tmp_path / "other.pt", weights["simple"] | {name: torch.zeros(64)})
        with pytest.raises(CheckpointError, match="safetensors"):
            import_into_study(path, study())
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    (folder / "support.safetensors").write_bytes(b"damaged")
    with pytest.raises(CheckpointError, match="support.safetensors"):
        import_into_study(files["simple"], study())


def test_a_study_must_fit_its_files(root, files):
    with pytest.raises(CheckpointError, match="preset: released"):
        import_into_study(files["transductive"], small_study())
    simple = str(files["simple"])
    for named, message in (
        ({}, "small"),
        ({"support": simple, "support_and_query": simple}, "support_and_query: .*simple.pt .*'support'"),
        ({"support": simple, "backbone": "nowhere.pt"}, "nowhere.pt"),
    ):
        with pytest.raises(CheckpointError, match=message):
            import_all(study(imported=named))
    assert not (root / "results").exists()


@pytest.mark.filterwarnings("ignore:'tcnaps.training.released' found in sys.modules")
def test_the_command_imports_what_the_study_names(root, files, monkeypatch, capsys):
    def run(file):
        content = study(imported={"support_and_query": str(file)}).model_dump(mode="json", exclude_unset=True)
        (root / "study.yaml").write_text(yaml.safe_dump(content))
        monkeypatch.setattr(sys, "argv", ["released", "--study", str(root / "study.yaml")])
        runpy.run_module("tcnaps.training.released", run_name="__main__")
        return capsys.readouterr().out

    assert f"wrote {root / 'results/small/checkpoints/support_and_query.safetensors'}" in run(files["transductive"])
    assert "wrote nothing" in run(files["transductive"])
    with pytest.raises(SystemExit, match="none.pt"):
        run(root / "none.pt")
