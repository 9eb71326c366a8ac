"""The authors' files: names, damage, malice, and what becomes of them in a study."""

import builtins
import functools
import hashlib
import http.server
import io
import os
import pickle
import re
import tarfile
import threading
import zipfile
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch
from released_files import (
    MODELS,
    random_weights,
    recipe_images,
    released_keys,
    released_shapes,
    write_file,
    write_released,
)
from small_study import small_study

from tcnaps.config import study as config
from tcnaps.config.storage import file_digest
from tcnaps.method.backbone import Backbone
from tcnaps.method.model import ModelSettings, TransductiveCNAPS
from tcnaps.training import checkpoints, released
from tcnaps.training.checkpoints import CheckpointError, load_model
from tcnaps.training.released import PUBLISHED, download_released, import_all, import_into_study, main
from tcnaps.training.released_reading import import_checkpoint, layout

# A name in a file, and what it is called here. By hand, from the two architectures.
GAMMA, BETA = "gamma2_processors.1.4.linear.bias", "beta2_regularizers.0"
LITERAL = {
    "backbone": {
        "conv1.weight": "stem.conv.weight",
        "bn1.running_var": "stem.norm.running_var",
        "layer1.0.conv1.weight": "blocks.0.first.conv.weight",
        "layer2.0.bn2.bias": "blocks.2.second.norm.bias",
        "layer3.0.downsample.0.weight": "blocks.4.shortcut.conv.weight",
        "layer4.0.downsample.1.running_mean": "blocks.6.shortcut.norm.running_mean",
        "layer4.1.conv2.weight": "blocks.7.second.conv.weight",
        "layer4.1.bn2.num_batches_tracked": "blocks.7.second.norm.num_batches_tracked",
    },
    "simple": {
        "feature_extractor.layer2.1.conv1.weight": "backbone.blocks.3.first.conv.weight",
        "set_encoder.pre_pooling_fn.layer1.0.weight": "task_encoder.set_encoder.convs.0.weight",
        "set_encoder.pre_pooling_fn.layer5.1.bias": "task_encoder.set_encoder.norms.4.bias",
        f"feature_adaptation_network.layers.0.{GAMMA}": "film_generator.stages.0.gammas.3.layers.2.bias",
        f"feature_adaptation_network.layers.1.{BETA}": "film_generator.stages.1.betas.1.regulariser",
        "feature_adaptation_network.layers.3.shared_layer.0.bias": "film_generator.stages.3.shared.bias",
    },
    "transductive": {
        "set_encoder.sequential_encoder.weight_ih_l0": "task_encoder.lstm.weight_ih_l0",
        "set_encoder.sequential_encoder.bias_hh_l1": "task_encoder.lstm.bias_hh_l1",
        "feature_extractor.conv1.weight": "backbone.stem.conv.weight",
    },
}
KINDS = tuple(LITERAL)


@pytest.fixture(scope="module")
def weights():
    """Weights of each kind under the names of the release; a whole model's backbone is the one of "backbone"."""
    backbone = random_weights("backbone")
    there = {f"feature_extractor.{name}": value for name, value in backbone.items()}
    return {kind: backbone if kind == "backbone" else random_weights(kind, 1) | there for kind in KINDS}


@pytest.fixture(scope="module")
def files(weights, tmp_path_factory):
    """A file of each kind."""
    folder = tmp_path_factory.mktemp("released")
    return {kind: write_file(folder / f"{kind}.pt", weights[kind]) for kind in KINDS}


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A project's root in place of the real one."""
    for module in (config, released):
        monkeypatch.setattr(module, "project_root", lambda: tmp_path)
    return tmp_path


def study(**changes):
    return small_study(**{"task_encoder": {"lstm_layers": 2}} | changes)


def new_module(kind):
    if kind == "backbone":
        return Backbone()
    return TransductiveCNAPS(
        "support" if kind == "simple" else "support_and_query", Backbone(), ModelSettings(lstm_layers=2)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_the_layout_by_hand(kind):
    entries = layout(kind)
    assert {theirs: entries[theirs][0] for theirs in LITERAL[kind]} == LITERAL[kind]
    assert {name: tuple(like.shape) for name, (_, like) in entries.items()} == released_shapes(kind)
    assert len(entries) == {"backbone": 120, "simple": 387, "transductive": 395}[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_the_layout_is_that_of_the_released_code(kind, reference):
    entries = released_keys(reference, MODELS[kind])["entries"]
    assert {name: tuple(e["shape"]) for name, e in entries.items()} == released_shapes(kind)
    whole = {name for name, e in entries.items() if e["dtype"] == "int64"}
    assert whole == {name for name, (_, like) in layout(kind).items() if like.dtype == torch.int64}


@pytest.mark.parametrize("kind", KINDS)
def test_every_weight_arrives_under_its_name(kind, files, weights):
    imported = import_checkpoint(files[kind])
    assert (imported.kind, imported.file, imported.dropped) == (kind, f"{kind}.pt", ())
    assert imported.sha256 == hashlib.sha256(files[kind].read_bytes()).hexdigest()
    assert all(torch.equal(imported.weights[ours], weights[kind][theirs]) for theirs, ours in LITERAL[kind].items())
    module = new_module(kind)
    module.load_state_dict(imported.weights, strict=True)
    values = sorted(float(value.double().sum()) for value in weights[kind].values())
    assert sorted(float(value.double().sum()) for value in module.state_dict().values()) == values


BESIDE = {"epoch": 3, "optimizer": {"lr": [0.1]}, "best": torch.tensor(1.0)}


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("prefix", ["", "module."])
@pytest.mark.parametrize("key", [None, "state_dict", "resnet_dict"])
def test_every_way_of_saving_a_backbone(tmp_path, weights, files, legacy, prefix, key):
    classifier = {"fc.weight": torch.zeros(5, 512), "fc.bias": torch.zeros(5)}
    content = OrderedDict((f"{prefix}{name}", value) for name, value in (weights["backbone"] | classifier).items())
    imported = import_checkpoint(
        write_file(tmp_path / "b.pt.tar", {**BESIDE, key: content} if key else content, legacy)
    )
    assert imported.dropped == (f"{prefix}fc.weight", f"{prefix}fc.bias")
    plain = import_checkpoint(files["backbone"])
    assert imported.weights.keys() == plain.weights.keys()
    assert all(torch.equal(value, plain.weights[name]) for name, value in imported.weights.items())


def test_half_precision_becomes_float32(tmp_path, weights):
    content = {name: v.half() if v.is_floating_point() else v for name, v in weights["backbone"].items()}
    imported = import_checkpoint(write_file(tmp_path / "b.pt", content))
    assert {value.dtype for value in imported.weights.values()} == {torch.float32, torch.int64}
    assert torch.equal(imported.weights["stem.conv.weight"], content["conv1.weight"].float())


def test_a_file_without_counters_gets_zeros(tmp_path, weights):
    content = {name: value for name, value in weights["backbone"].items() if not name.endswith("tracked")}
    imported = import_checkpoint(write_file(tmp_path / "b.pt", content))
    assert imported.weights["stem.norm.num_batches_tracked"] == 0


def test_regularisers_that_share_their_memory_are_parted(tmp_path, weights, root):
    """As in a model that was trained on a CPU by the released code."""
    shared = torch.randn(64)
    names = [f"feature_adaptation_network.layers.0.{w}_regularizers.1" for w in ("gamma1", "beta1", "gamma2", "beta2")]
    path = write_file(tmp_path / "s.pt", weights["simple"] | dict.fromkeys(names, shared))
    import_into_study(path, study())
    model = load_model(study(), "support")
    assert torch.equal(model.film_generator.stages[0].betas[3].regulariser, shared)
    assert len({parameter.data_ptr() for parameter in model.parameters()}) == len(list(model.parameters()))


@pytest.mark.parametrize(
    ("kind", "name", "value", "message"),
    [
        ("backbone", "layer1.0.conv1.weight", None, "1 of its weights are wrong (missing layer1.0.conv1.weight)"),
        ("simple", "film.extra", torch.zeros(1), "unknown film.extra"),
        ("simple", "fc.weight", torch.zeros(1), "unknown fc.weight"),  # no classifier is in a whole model
        ("backbone", "bn1.bias", torch.zeros(65), "bn1.bias is (65,), not (64,)"),
        ("backbone", "bn1.bias", torch.zeros(64, dtype=torch.int64), "bn1.bias is torch.int64, not floating point"),
        ("backbone", "bn1.num_batches_tracked", torch.tensor(1.0), "tracked is torch.float32, not whole numbers"),
        ("backbone", "bn1.bias", torch.full((64,), torch.nan), "bn1.bias has values that are not finite"),
        ("backbone", "bn1.running_var", torch.full((64,), -0.1), "bn1.running_var has negative variances"),
        ("backbone", "bn1.bias", "a text", "bn1.bias is no plain tensor but str"),
        ("backbone", "bn1.bias", torch.zeros(64).to_sparse(), "bn1.bias is no plain tensor but torch.sparse_coo"),
    ],
)
def test_wrong_weights_are_named(tmp_path, weights, kind, name, value, message):
    content = {k: v for k, v in weights[kind].items() if k != name} | ({} if value is None else {name: value})
    path = write_file(tmp_path / "w.pt", content)
    with pytest.raises(CheckpointError, match=re.escape(message)) as error:
        import_checkpoint(path)
    assert str(path) in str(error.value) and "1 of its weights are wrong" in str(error.value)


def test_many_wrong_weights_are_counted_and_the_first_named_as_in_the_file(tmp_path, weights):
    content = {f"module.{name}": value for name, value in weights["backbone"].items() if "layer4" not in name}
    with pytest.raises(CheckpointError) as error:
        import_checkpoint(write_file(tmp_path / "w.pt", content))
    missing = sum("layer4" in name and not name.endswith("tracked") for name in weights["backbone"])
    assert f"{missing} of its weights are wrong" in str(error.value) and f"and {missing - 10} more" in str(error.value)
    assert str(error.value).count("missing module.layer4") == 10


@pytest.mark.parametrize("content", [[torch.zeros(1)], {}, {"state_dict": {}}, {1: torch.zeros(1)}, torch.zeros(2)])
def test_files_of_something_else(tmp_path, content):
    with pytest.raises(CheckpointError, match="w.pt holds no dictionary of named weights"):
        import_checkpoint(write_file(tmp_path / "w.pt", content))


class Malice:
    """Makes a file when it is unpickled."""

    def __init__(self, function, argument):
        self.call = function, (argument,)

    def __reduce__(self):
        return self.call


MALICES = {  # what is called, with a file's name in its argument
    f"{os.system.__module__}.system": (os.system, "touch {}"),
    "exec": (builtins.exec, "open('{}', 'w').close()"),
    "eval": (builtins.eval, "open('{}', 'w').close()"),
}


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("hidden", ["alone", "in state_dict", "beside state_dict", "in a list"])
@pytest.mark.parametrize("asked", MALICES)
def test_a_malicious_file_runs_nothing(tmp_path, asked, hidden, legacy):
    mark, (function, argument) = tmp_path / "executed", MALICES[asked]
    malice, small = Malice(function, argument.format(mark)), {"conv1.weight": torch.zeros(64, 3, 5, 5)}
    content = {
        "alone": malice,
        "in state_dict": {"epoch": 1, "state_dict": small | {"bn1.bias": malice}},
        "beside state_dict": {"optimizer": malice, "state_dict": small},
        "in a list": {"state_dict": small, "list": [[malice]]},
    }[hidden]
    path = write_file(tmp_path / "evil.pt", content, legacy)
    with pytest.raises(CheckpointError, match=f"evil.pt holds more than weights .it asks for .*{asked}.* was refused"):
        import_checkpoint(path)
    assert not mark.exists()
    torch.load(path, weights_only=False)  # the test can fail: read without care, the file does run
    assert mark.exists()


@pytest.mark.parametrize("protocol", [0, 1, 2, 4])
def test_a_malicious_pickle_without_pytorch_runs_nothing(tmp_path, protocol):
    mark, path = tmp_path / "executed", tmp_path / "evil.pt"
    path.write_bytes(pickle.dumps(Malice(os.system, f"touch {mark}"), protocol))
    with pytest.raises(CheckpointError, match="was refused|not a file of torch.save"):
        import_checkpoint(path)
    assert not mark.exists()
    pickle.loads(path.read_bytes())
    assert mark.exists()


def packed(kind):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") if kind == "zip" else tarfile.open(fileobj=data, mode="w") as file:
        file.writestr("readme.txt", "hello") if kind == "zip" else file.addfile(tarfile.TarInfo("empty"))
    return data.getvalue()


BROKEN = {
    "empty": (b"", "is not a file of torch.save: it begins with b''"),
    "pointer": (b"version https://git-lfs.github.com/spec/v1\noid", "begins with b'version https://.* `git lfs pull`"),
    "page": (b"\n\n<!DOCTYPE html>\n<html></html>", "begins with .*<html.* download the raw file"),
    "tar": (packed("tar"), "is not a file of torch.save"),
    "another zip": (packed("zip"), "damaged, incomplete or of another kind"),
    "another pickle": (pickle.dumps({"conv1.weight": 1}, 2), "damaged, incomplete or of another kind"),
    "a newer pickle": (pickle.dumps({"conv1.weight": 1}, 4), "instructions that weights don't need"),
}


@pytest.mark.parametrize(("data", "message"), BROKEN.values(), ids=BROKEN)
def test_files_that_are_no_checkpoints(tmp_path, data, message):
    (tmp_path / "w.pt").write_bytes(data)
    with pytest.raises(CheckpointError, match=f"{tmp_path / 'w.pt'} .*{message}"):
        import_checkpoint(tmp_path / "w.pt")


def test_a_flipped_bit_is_found(tmp_path, weights):
    path = write_file(tmp_path / "w.pt", weights["backbone"])
    data = bytearray(path.read_bytes())
    data[data.index(weights["backbone"]["conv1.weight"][0, 0, 0].numpy().tobytes()) + 1] ^= 4
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=r"w.pt can't be read .* \(the checksum of .*/data/\d+ in it is wrong"):
        import_checkpoint(path)


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("share", [0.0001, 0.5, 0.999])
def test_truncated_files(tmp_path, weights, legacy, share):
    path = write_file(tmp_path / "w.pt", {"conv1.weight": torch.zeros(64, 3, 5, 5)}, legacy)
    data = path.read_bytes()
    path.write_bytes(data[: max(20, int(share * len(data)))])
    with pytest.raises(CheckpointError, match="damaged, incomplete or of another kind"):
        import_checkpoint(path)


def test_both_models_into_one_study_on_the_backbone_they_share(root, files, weights):
    folder = root / "results/small/checkpoints"
    first = import_into_study(files["transductive"], study())
    assert first == [folder / "backbone.safetensors", folder / "support_and_query.safetensors"]
    assert import_into_study(files["simple"], study()) == [folder / "support.safetensors"]
    for training, kind in (("support_and_query", "transductive"), ("support", "simple")):
        model = load_model(study(), training)
        wanted = {ours: weights[kind][theirs] for theirs, (ours, _) in layout(kind).items()}
        assert all(torch.equal(value, wanted[name]) for name, value in model.state_dict().items())
        settings = checkpoints.load(folder / f"{training}.safetensors", "")[1]
        assert settings["training"] == training and settings["valid_accuracy"] is None
        assert settings["backbone"] == file_digest(folder / "backbone.safetensors")
        sha256 = hashlib.sha256(files[kind].read_bytes()).hexdigest()
        assert settings["imported"] == {"file": f"{kind}.pt", "sha256": sha256} and settings["study"] == "small"
    assert import_into_study(files["simple"], study()) == []
    before = (folder / "backbone.safetensors").stat().st_mtime_ns
    assert import_into_study(files["backbone"], study()) == []  # the same one: all stays valid
    assert (folder / "backbone.safetensors").stat().st_mtime_ns == before


def test_other_weights_are_replaced_only_by_force(root, tmp_path, files, weights):
    folder = root / "results/small/checkpoints"
    import_into_study(files["simple"], study())
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    other = weights["simple"] | {"feature_extractor.bn1.bias": torch.zeros(64)}
    path = write_file(tmp_path / "other.pt", other)
    with pytest.raises(CheckpointError, match="backbone.safetensors holds other weights. Import with --force .*study"):
        import_into_study(path, study())
    adapted = weights["simple"] | {"feature_adaptation_network.layers.0.shared_layer.0.bias": torch.zeros(64)}
    with pytest.raises(CheckpointError, match="support.safetensors holds other weights"):
        import_into_study(write_file(tmp_path / "adapted.pt", adapted), study())
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    written = import_into_study(path, study(), force=True)  # the backbone is another; so the model's header is, too
    assert [path.name for path in written] == ["backbone.safetensors", "support.safetensors"]
    assert load_model(study(), "support").backbone.stem.norm.bias.eq(0).all()


@pytest.mark.parametrize(("name", "message"), [("support", "holds other weights"), ("backbone", "can't be read")])
def test_what_is_in_the_way_is_replaced_only_by_force(root, files, name, message):
    path = root / f"results/small/checkpoints/{name}.safetensors"
    if name == "support":
        checkpoints.save(path, {"x": torch.zeros(1)}, {})
    else:
        path.parent.mkdir(parents=True)
        path.write_bytes(b"damaged")
    before = path.read_bytes()
    with pytest.raises(CheckpointError, match=f"{name}.safetensors {message}"):
        import_into_study(files["simple"], study())
    assert path.read_bytes() == before and len(list(path.parent.iterdir())) == 1
    assert path in import_into_study(files["simple"], study(), force=True)


def test_a_study_must_fit_the_file(root, files):
    with pytest.raises(CheckpointError, match="transductive.pt: its LSTM has 2 layers.* 1. Set `preset: released`"):
        import_into_study(files["transductive"], small_study())
    one_shot = {"5-way-1-shot": small_study().evaluations["5-way-1-shot"]}
    with pytest.raises(CheckpointError, match="holds the training 'support', which study 'small' does not have"):
        import_into_study(files["simple"], study(trainings=["support_and_query"], evaluations=one_shot))
    assert not (root / "results").exists()
    import_into_study(files["simple"], small_study())  # it has no LSTM


def test_all_that_a_study_names_is_imported(root, files):
    (root / "released").mkdir()
    for kind in KINDS:
        (root / "released" / f"{kind}.pt").write_bytes(files[kind].read_bytes())
    named = {
        "support_and_query": "released/transductive.pt",
        "support": "released/simple.pt",
        "backbone": str(files["backbone"]),
    }
    done = import_all(study(imported=named))
    folder = root / "results/small/checkpoints"
    assert [(imported.kind, written) for imported, written in done] == [
        ("transductive", [folder / "backbone.safetensors", folder / "support_and_query.safetensors"]),
        ("simple", [folder / "support.safetensors"]),
        ("backbone", []),
    ]
    assert load_model(study(imported=named), "support") and load_model(study(imported=named), "support_and_query")


@pytest.mark.parametrize("force", [False, True])
def test_what_a_study_names_must_be_what_it_is_named_for_and_go_together(root, tmp_path, files, weights, force):
    simple, other = str(files["simple"]), tmp_path / "other.pt"
    write_file(other, weights["backbone"] | {"bn1.bias": torch.zeros(64)})
    wrong = "imported.support_and_query: .*simple.pt is a file of Simple CNAPS, not of Transductive CNAPS"
    for named, message in (
        ({}, "Study 'small' imports nothing"),
        ({"support": simple, "support_and_query": simple}, wrong),
        ({"support": simple, "backbone": str(other)}, "different backbones, and a study has one"),
        ({"backbone": str(other), "support": simple}, "different backbones, and a study has one"),
        ({"support": simple, "backbone": "nowhere.pt"}, "There is no file .*nowhere.pt"),
    ):
        with pytest.raises(CheckpointError, match=message):
            import_all(study(imported=named), force)
    assert not (root / "results").exists()


@pytest.mark.parametrize(("kind", "prefix"), [("simple", "simple"), ("transductive", "trans")])
@pytest.mark.parametrize("legacy", [False, True])
def test_an_imported_model_embeds_as_the_released_code(reference, tmp_path, kind, prefix, legacy):
    path = write_released(tmp_path / "released.pt", MODELS[kind], reference, legacy=legacy)
    imported = import_checkpoint(path)
    assert imported.kind == kind
    model = new_module(kind)
    model.load_state_dict(imported.weights, strict=True)
    model = model.double().eval()
    with np.load(reference / "episodes/w5s3_42.npz") as npz:
        images, labels = recipe_images(npz).double(), torch.from_numpy(npz["support_labels"])
        wanted, film = (torch.from_numpy(npz[f"{prefix}.{key}_f64"]) for key in ("task_representation", "film"))
    with torch.no_grad():
        embedding = model.task_encoder(images[: len(labels)], labels, images[len(labels) :])
        found = torch.cat([torch.cat(modulation) for modulation in model.film_generator(embedding)])
    assert (embedding - wanted).abs().max() < 1e-6 * wanted.abs().max()
    assert (found - film).abs().max() < 1e-6 * film.abs().max()


# The command

STUDY = """
name: small
task_encoder: {lstm_layers: 2}
datasets: {blobs: {source: miniature, domain: in}}
pretraining: {datasets: [blobs]}
meta_training: {datasets: [blobs], protocol: {kind: variable}, validation_datasets: [blobs]}
evaluations: {all: {protocol: {kind: variable}, datasets: [blobs], trainings: [support_and_query]}}
"""


def test_command_imports_a_file(root, files, capsys):
    (root / "study.yaml").write_text(STUDY)
    file, *of_study = str(files["transductive"]), "--study", str(root / "study.yaml")
    assert main(["import", file, *of_study]) == 0
    printed = capsys.readouterr().out
    assert "transductive.pt: Transductive CNAPS, 395 tensors, 19847833 values" in printed
    assert f"wrote {root / 'results/small/checkpoints/support_and_query.safetensors'}" in printed
    (root / "study.yaml").write_text(f"{STUDY}imported: {{support_and_query: {file}}}")
    assert main(["import", *of_study]) == 0 and "wrote nothing" in capsys.readouterr().out
    assert main(["import", str(root / "none.pt"), *of_study]) == 1
    assert "There is no file" in capsys.readouterr().err
    assert main(["import", "--study", "nowhere.yaml"]) == 1
    assert "No study at nowhere.yaml" in capsys.readouterr().err


def test_command_converts_a_file(tmp_path, weights, capsys):
    path = write_file(tmp_path / "b.pt.tar", weights["backbone"] | {"fc.bias": torch.zeros(7)})
    out = tmp_path / "out.safetensors"
    assert main(["convert", str(path), str(out)]) == 0
    assert "dropped fc.bias" in capsys.readouterr().out
    converted, settings = checkpoints.load(out, "")
    assert settings["kind"] == "backbone" and settings["imported"]["file"] == "b.pt.tar"
    assert torch.equal(converted["stem.conv.weight"], weights["backbone"]["conv1.weight"])
    assert main(["convert", str(path), str(out)]) == 1
    assert "is there already" in capsys.readouterr().err


# Downloads, from a server of the test's own


@pytest.fixture
def served(tmp_path, monkeypatch):
    """Its address, and how many bytes the server breaks off after, one entry per response."""
    cuts, folder = [], tmp_path / "served"
    for path, _ in PUBLISHED.values():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(path.encode())

    class Handler(http.server.SimpleHTTPRequestHandler):
        def copyfile(self, source, stream):
            stream.write(source.read()[: cuts.pop(0) if cuts else None])

        def log_message(self, *arguments):
            pass

    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    monkeypatch.chdir(tmp_path)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", cuts
        server.shutdown()
        thread.join()


def test_command_lists_and_downloads_every_published_file(served, tmp_path, capsys):
    assert main(["list"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed and f"/{path}" in printed for name, (path, _) in PUBLISHED.items())
    simple = PUBLISHED["simple"][0]
    there = tmp_path / "released/best_transductive_cnaps.pt"
    there.parent.mkdir()
    there.write_bytes(b"mine")
    assert main(["download", "best_simple_cnaps.pt", "--from", f"{served[0]}/"]) == 0
    assert hashlib.sha256(simple.encode()).hexdigest() in capsys.readouterr().out
    assert main(["download", "all", "--from", served[0]]) == 0
    found = {path.name: path.read_bytes() for path in (tmp_path / "released").iterdir()}
    assert found == {Path(path).name: path.encode() for path, _ in PUBLISHED.values()} | {there.name: b"mine"}
    assert main(["download", "nothing"]) == 1
    assert "no released file 'nothing'. Known: transductive, simple" in capsys.readouterr().err


def test_a_lost_connection_is_tried_again(served, tmp_path):
    address, cuts = served
    cuts.extend([10, 0])
    path = download_released("simple", tmp_path / "a", address)
    assert path.read_text() == PUBLISHED["simple"][0]
    cuts.extend([10, 20, 0])
    with pytest.raises(CheckpointError, match="simple_cnaps.pt can't be downloaded"):
        download_released("simple", tmp_path / "b", address)
    assert not list((tmp_path / "b").iterdir())


@pytest.mark.parametrize(
    "base", ["http://127.0.0.1:1", "file:///etc", "ftp://127.0.0.1", "a/b", "https://", "http://["]
)
def test_what_cannot_be_had_is_named(base, served, tmp_path):
    with pytest.raises(CheckpointError, match="simple_cnaps.pt can't be downloaded to .*simple_cnaps.pt"):
        download_released("simple", tmp_path / "c", base)
    assert not any((tmp_path / "c").glob("*"))
    (tmp_path / "file").write_text("not a folder")
    for address, folder, message in ((f"{served[0]}/x", "c", "404"), (served[0], "file", "file")):
        with pytest.raises(CheckpointError, match=f"can't be downloaded to .*: .*{message}"):
            download_released("simple", tmp_path / folder, address)
