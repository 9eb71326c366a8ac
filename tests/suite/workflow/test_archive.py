"""The archive of a study: complete, checkable, and loaded elsewhere as the same network."""

import hashlib
import json
import shutil
import zipfile
from pathlib import Path

import pandas as pd
import pytest
import torch
import yaml
from small_study import small_study
from untrained import episode_of_noise

import tcnaps
from tcnaps.config import UserError, load_study
from tcnaps.training.checkpoints import CheckpointError, load_model
from tcnaps_suite.experiments.networks import open_network
from tcnaps_suite.workflow.archive import write_archive
from tcnaps_suite.workflow.command import main

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture
def project(trained_root, tmp_path, monkeypatch):
    """A project with the small study, its networks and some of its tables."""
    root = tmp_path / "project"
    shutil.copytree(REPOSITORY / "notebooks", root / "notebooks")
    shutil.copy(REPOSITORY / "CITATION.cff", root)
    (root / "small.yaml").write_text(yaml.safe_dump(small_study().model_dump(mode="json")))
    shutil.copytree(trained_root / "results/small/checkpoints", root / "results/small/checkpoints")
    row = {"variant": "Simple", "evaluation": "5-way-1-shot", "dataset": "blobs", "accuracy": 0.5, "interval": 0.04}
    pd.DataFrame([row | {"n_episodes": 3}]).to_csv(root / "results/small/accuracy.csv", index=False)
    (root / "results/small/headline.json").write_text(json.dumps({"sentence": "A minus B: +2.5 ± 0.8 points"}))
    monkeypatch.chdir(root)
    return root


@pytest.fixture
def archive(project, tmp_path, monkeypatch):
    """The archive alone, in another folder."""
    file = tmp_path / "elsewhere" / "archive.zip"
    file.parent.mkdir()
    shutil.move(write_archive("small.yaml"), file)
    monkeypatch.chdir(file.parent)
    return file


@pytest.mark.parametrize("training", ["support", "support_and_query"])
def test_an_archive_or_its_folder_loads_as_the_same_network(project, archive, monkeypatch, training):
    with zipfile.ZipFile(archive) as file:
        file.extractall(archive.parent / "unpacked")
    monkeypatch.chdir(project)
    wanted = load_model(load_study("small.yaml"), training)(episode_of_noise())
    monkeypatch.chdir(archive.parent)
    for source in (archive, str(archive), archive.parent / "unpacked"):
        assert torch.equal(tcnaps.load(source, training)(episode_of_noise()), wanted)


def test_an_archive_can_be_checked_and_read_by_people(archive):
    with zipfile.ZipFile(archive) as file:
        contents = {name: file.read(name) for name in file.namelist()}
    sums = dict(reversed(line.split("  ")) for line in contents.pop("SHA256SUMS").decode().splitlines())
    assert sums == {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    card = contents["README.md"].decode()
    assert "A minus B: +2.5 ± 0.8 points" in card and "50.0 ± 4.0" in card
    assert {"CITATION.cff", "study.yaml", "results/small/report.html", "results/small/accuracy.csv"} <= contents.keys()


def test_a_folder_of_images_is_labelled_by_an_archives_network(archive):
    network = open_network(f"study:{archive}")
    assert network.adapted is not None


def test_what_is_no_archive_or_damaged_is_named(archive, tmp_path):
    with pytest.raises(UserError, match="nothing.zip"):
        tcnaps.load(tmp_path / "nothing.zip")
    with pytest.raises(UserError, match="support_and_query"):
        tcnaps.load(archive, "support_half_scale")
    with zipfile.ZipFile(archive) as file:
        file.extractall(tmp_path)
    weights = tmp_path / "results/small/checkpoints/support.safetensors"
    content = bytearray(weights.read_bytes())
    content[-5] ^= 1
    weights.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"support\.safetensors"):
        tcnaps.load(tmp_path, "support")


def test_a_study_that_has_not_run_is_refused(project, capsys):
    shutil.rmtree(project / "results")
    with pytest.raises(SystemExit):
        main(["archive", "small.yaml"])
    assert "make figures" in capsys.readouterr().err
