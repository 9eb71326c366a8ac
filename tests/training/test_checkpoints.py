"""Checkpoints and states: what is written comes back, damage is named, and a study's settings reach the networks."""

import os
import resource
import signal
import warnings

import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st
from safetensors.torch import load_file, save_file
from small_study import small_study

from tcnaps.config.storage import StorageError, file_digest
from tcnaps.evaluation.result_files import write_rows
from tcnaps.method.backbone import Backbone
from tcnaps.method.variants import TRAININGS
from tcnaps.training import checkpoints
from tcnaps.training.checkpoints import CheckpointError, head_of, load, load_model, save
from tcnaps.training.resuming import Resumable

WEIGHTS = {"b.weight": torch.randn(5, 7), "a.running_var": torch.rand(3), "a.count": torch.tensor(4)}


@pytest.fixture
def path(tmp_path):
    save(tmp_path / "some.safetensors", WEIGHTS, {"study": "small", "log": [{"loss": float("nan")}]})
    return tmp_path / "some.safetensors"


@pytest.fixture
def folder(root):
    """Checkpoints of a backbone and of a training."""
    folder = root / "results/small/checkpoints"
    save(folder / "backbone.safetensors", Backbone().state_dict(), {"study": "small"})
    header = {"training": "simple", "backbone": file_digest(folder / "backbone.safetensors")}  # its former name
    save(folder / "support.safetensors", checkpoints.new_model(small_study(), "support").state_dict(), header)
    return folder


def test_equal_weights_give_equal_files(path):
    written = set()
    for _ in range(4):
        save(path, {"b": torch.ones(2), "a": torch.zeros(3)}, {"study": "small", "seed": 1})
        written.add(path.read_bytes())
    assert len(written) == 1


@pytest.mark.parametrize("header", [None, "{", "[]", '{"format": 1}', '{"format": 2}', "[" * 9999])
def test_a_broken_header_is_named_with_the_remedy(path, header):
    save_file(WEIGHTS, path, None if header is None else {"tcnaps": header})
    with pytest.raises(CheckpointError, match=f"{path}.* Train again."):
        load(path, "Train again.")


@pytest.mark.parametrize(("name", "value"), [("b.weight", torch.nan), ("a.running_var", -1.0)])
def test_weights_that_no_network_can_use_are_not_written(path, name, value):
    before = path.read_bytes()
    with pytest.raises(CheckpointError, match=f"{path}.*{name}"):
        save(path, WEIGHTS | {name: torch.full_like(WEIGHTS[name], value)}, {})
    assert path.read_bytes() == before


def test_a_model_comes_back_whatever_the_header_calls_its_training(folder):
    model = load_model(small_study(), "support")
    torch.testing.assert_close(model.state_dict(), load_file(folder / "support.safetensors"), rtol=0, atol=0)
    assert not model.training and not model.backbone.training


def test_checkpoints_that_do_not_fit_are_refused_with_the_remedy(folder):
    path, study = folder / "support.safetensors", small_study()
    remedy = "notebooks/03-meta-train.ipynb with training = 'support'"
    weights, header = load(path, "")
    films = {name: value for name, value in weights.items() if "film" in name}
    for broken, settings_of_file, name in (
        (weights | {"surplus": torch.zeros(1)}, header, "surplus"),
        (films, header, "task_encoder"),
        ({name: value[None] for name, value in weights.items()}, header, "size mismatch"),
        (weights, {"backbone": "of another day"}, "backbone.safetensors"),
    ):
        save(path, broken, settings_of_file)
        with pytest.raises(CheckpointError, match=f"{path}.*{name}.*{remedy}"):
            load_model(study, "support")
    path.unlink()
    with pytest.raises(CheckpointError, match=f"{path}.*{remedy}"):
        load_model(study, "support")
    (folder / "backbone.safetensors").write_bytes(b"not a checkpoint at all")
    with pytest.raises(CheckpointError, match="backbone.safetensors.*notebooks/02-pretrain"):
        load_model(study, "support")


def resumable(path, key="key", value=0.0):
    layer = torch.nn.Linear(2, 2)
    torch.nn.init.constant_(layer.weight, value)
    return Resumable(path, key, {"layer": layer}, {"log": [], "best": {}})


def saved_state(path):
    """The file of a training that was interrupted."""
    state = resumable(path, value=3.0)
    state.progress["log"].append({"loss": 1.0})
    state.save()
    return path.with_suffix(".state.pt")


def test_a_state_is_restored_under_its_own_key_and_removed_at_the_end(path):
    file = saved_state(path)
    assert resumable(path, "another").progress["log"] == []
    state = resumable(path)
    assert state.progress == {"log": [{"loss": 1.0}], "best": {}} and state.parts["layer"].weight.eq(3).all()
    path.with_name(f".partial.0.{file.name}").touch()  # of a process that was killed
    save(path, WEIGHTS, {"key": "key", "log": []})
    assert checkpoints.finished_log(path, "key") == [] and os.listdir(path.parent) == [path.name]
    saved_state(path)  # another training's
    assert checkpoints.finished_log(path, "key") == [] and file.exists()


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_a_flipped_bit_is_found_or_changes_nothing(path, place, bit):
    def flip(file):
        data = bytearray(file.read_bytes())
        data[place % len(data)] ^= 1 << bit
        file.write_bytes(data)

    save(path, WEIGHTS, {"study": "small"})
    flip(path)
    try:
        weights, header = load(path, "Train again.")
        assert header == {"study": "small"}  # white space of the header, or so
        assert all(torch.equal(weights[name], value) for name, value in WEIGHTS.items())
    except CheckpointError as error:
        assert str(path) in str(error) and "Train again." in str(error)
    path.with_suffix(".state.pt").unlink(missing_ok=True)
    file = saved_state(path)
    flip(file)
    with warnings.catch_warnings(record=True, action="always") as caught:
        state = resumable(path)
    if caught:
        assert str(file) in str(caught[0].message) and state.progress["log"] == []
    else:
        assert state.progress["log"] == [{"loss": 1.0}] and state.parts["layer"].weight.eq(3).all()


@pytest.mark.parametrize("content", [b"no archive", {"key": "key"}])
def test_a_file_that_is_no_state_is_named_and_made_again(path, content):
    file = path.with_suffix(".state.pt")
    file.write_bytes(content) if isinstance(content, bytes) else torch.save(content, file)
    with pytest.warns(UserWarning, match=str(file)):
        state = resumable(path)
    state.save()
    assert state.progress["log"] == resumable(path).progress["log"] == []


def test_no_room_for_a_state_or_a_checkpoint_names_the_file_and_leaves_nothing(path):
    before, file = path.read_bytes(), saved_state(path)
    state = file.read_bytes()
    usual = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, usual[0][1]))  # bytes: the disk is full
    try:
        with pytest.raises(StorageError, match=f"{file}"):
            resumable(path).save()
        with pytest.raises(StorageError, match=f"{path}"):
            save(path, WEIGHTS, {})
        rows = path.with_name("rows.parquet")
        with pytest.raises(StorageError, match=f"{rows}"):
            write_rows(rows, pd.DataFrame({"label": range(1000)}), "key")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual[0])
        signal.signal(signal.SIGXFSZ, usual[1])
    assert path.read_bytes() == before and file.read_bytes() == state
    assert sorted(os.listdir(path.parent)) == sorted([path.name, file.name])


@pytest.mark.parametrize("training", TRAININGS)
def test_the_head_of_a_training(training):
    study = small_study(clustering={"identity_weight": 3.0, "simple_class_covariance_divisor": "n-1"})
    head = head_of(training, study.clustering)
    assert head.identity_weight == 3.0 and head.log_determinant == ("log_determinant" in training)
    assert head.scale == (0.5 if head.log_determinant else 1)
    assert head_of(training, small_study(clustering={"scale": "auto"}).clustering).scale == "auto"
    # Only Simple CNAPS divides by n - 1 in the released code.
    assert head.class_covariance_divisor == ("n-1" if training == "support" else "n")


def test_every_switch_of_the_networks_is_handed_over():
    study = small_study(precision="bfloat16", arithmetic="plain", pixel_range=[0, 1], images_at_once=7)
    settings = checkpoints.model_settings(study, "support_and_query")
    assert settings.precision == torch.bfloat16 and settings.clustering_dtype == torch.float32
    assert (settings.arithmetic, settings.pixel_range, settings.images_at_once) == ("plain", (0, 1), 7)
    assert settings.head == head_of("support_and_query", study.clustering)
