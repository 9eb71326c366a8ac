"""`python -m tcnaps.data` lists and prepares the datasets of a study; one at fault keeps none from it."""

import importlib
import json
import os
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from file_readers import encoded
from small_study import small_study

from tcnaps.config import load_study
from tcnaps.config.settings import AnyDataset
from tcnaps.data import DatasetError, __main__, files, open_split, open_splits
from tcnaps.data.decoding import square, to_rgb

SIZE = 32


@pytest.fixture
def photographs(tmp_path) -> Path:
    """Photographs of 5 + 5 classes, of 3 images each."""
    for seed, (split, k, number) in enumerate(product(("train", "test"), range(5), range(3))):
        place = tmp_path / "photographs" / split / f"{split}-{k}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number}.png").write_bytes(encoded(seed))
    return tmp_path / "photographs"


@pytest.fixture
def study(tmp_path, photographs) -> Path:
    """A study of photographs that are there, of birds that are not, and of the built-in digits."""
    folders = {
        name: {"source": "folder", "domain": "in", "path": str(tmp_path / name)} for name in ("birds", "photographs")
    }
    return write_study(tmp_path, folders | {"digits": {"source": "miniature", "domain": "out"}})


def write_study(folder: Path, datasets: dict, **values) -> Path:
    content = small_study().model_dump(mode="json", exclude={"evaluations"})
    names = [name for name, dataset in datasets.items() if dataset["domain"] == "in"]
    content["pretraining"]["datasets"] = names
    content["meta_training"] |= {"datasets": names, "validation_datasets": names}
    evaluation = {"protocol": {"kind": "variable"}, "datasets": list(datasets), "trainings": ["support"]}
    content |= {"datasets": datasets, "data_folder": str(folder / "data"), "evaluations": {"main": evaluation}}
    (folder / "study.yaml").write_text(json.dumps(content | values))  # JSON is YAML
    return folder / "study.yaml"


def run(*arguments: object) -> int:
    return __main__.main([str(argument) for argument in arguments])


# Preparing


def test_one_dataset_at_fault_keeps_no_other_from_being_prepared(study, tmp_path, capsys):
    assert run(study) == 1
    said = capsys.readouterr()
    assert f"Dataset 'birds': there is no {tmp_path / 'birds'}. Images must lie" in said.err
    lines = said.out.splitlines()
    assert lines[0].startswith("photographs train: 5 classes, 15 images, sha256 ")
    assert lines[1].startswith("photographs test: 5 classes, 15 images, sha256 ")
    assert lines[2].startswith("digits test: 10 classes, 1,797 images, sha256 ")
    assert [name[:-9] for name in sorted(os.listdir(tmp_path / "data"))] == ["digits-32", "photographs-32"]


def test_only_some_datasets(study, capsys):
    assert run(study, "--dataset", "digits", "--dataset", "digits") == 0
    said = capsys.readouterr().out
    assert said.count("digits test") == 1 and "photographs" not in said
    assert run(study, "--dataset", "cats") == 1
    assert "cats: The study has no dataset of this name; it has: birds, photographs, digits." in capsys.readouterr().err


def test_an_interruption_says_how_to_go_on(study, monkeypatch, capsys):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("tcnaps.data.preparing._make_split", interrupt)
    assert run(study, "--dataset", "photographs") == 130
    assert "the same command goes on from there" in capsys.readouterr().err


# Listing


def test_a_list_says_what_is_there_and_what_is_missing(study, photographs, tmp_path, capsys):
    (photographs / "test" / "test-4" / "0.png").write_bytes(b"")
    assert run(study, "--list") == 0
    said, wrong = capsys.readouterr()
    assert f"birds: folder, {tmp_path / 'birds'}, not prepared in" in said
    assert f"birds: Dataset 'birds': there is no {tmp_path / 'birds'}. Images must lie" in wrong
    assert f"photographs: folder, {photographs}, not prepared in" in said
    assert "digits: miniature, built in, not prepared in" in said
    assert not (tmp_path / "data").exists()
    run(study)
    assert "photographs: unreadable images left out: 1, listed in" in capsys.readouterr().out
    assert run(study, "--list") == 0
    said = capsys.readouterr().out
    assert f"photographs: folder, {photographs}, prepared in {tmp_path / 'data'}/photographs-{SIZE}-" in said
    assert "photographs test: 5 classes, 14 images, sha256 " in said and "unreadable images left out: 1" in said


# From a study


def test_images_are_decoded_as_the_study_says(tmp_path, photographs):
    datasets = {"photographs": {"source": "folder", "domain": "in", "path": str(photographs)}}
    study = load_study(write_study(tmp_path, datasets, decoding={"resampling": "aligned corners"}))
    opened = open_split(study, "photographs", "test")
    wanted = square(to_rgb((photographs / "test" / "test-2" / "1.png").read_bytes()), SIZE, "aligned corners")
    np.testing.assert_array_equal(opened.images_of(2)[1], wanted)
    splits = open_splits(study, "photographs")
    assert list(splits) == ["train", "test"] and splits["test"].digest == opened.digest
    with pytest.raises(DatasetError, match="'photographs' has no split 'valid'; it has: train, test"):
        open_split(study, "photographs", "valid")


def test_a_path_is_taken_from_the_projects_root(tmp_path, photographs, monkeypatch):
    (tmp_path / "Snakefile").touch()
    monkeypatch.chdir(tmp_path)
    datasets = {"photographs": {"source": "folder", "domain": "in", "path": "photographs"}}
    study = load_study(write_study(tmp_path, datasets, data_folder="here"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert open_split(study, "photographs", "test").n_classes == 5
    assert len(list((tmp_path / "here").glob("photographs-32-*/index.json"))) == 1


def test_every_source_has_its_reader():
    sections = {section.model_fields["source"].annotation.__args__[0] for section in AnyDataset.__args__}
    assert sections == {"miniature", *files.READERS}
    for module, function in files.READERS.values():
        assert callable(getattr(importlib.import_module(f"tcnaps.data.readers.{module}"), function))
