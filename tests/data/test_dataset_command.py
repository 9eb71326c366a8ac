"""`python -m tcnaps.data` lists and prepares the datasets of a study; one at fault keeps none from it."""

import json
import os
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from file_readers import encoded
from small_study import small_study

from tcnaps.config import load_study
from tcnaps.data import DatasetError, __main__, open_split, open_splits
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


def test_one_dataset_at_fault_keeps_no_other_from_being_prepared(study, tmp_path, capsys):
    assert run(study) == 1
    printed = capsys.readouterr()
    assert str(tmp_path / "birds") in printed.err
    for start in ("photographs train: 5 classes, 15 images", "photographs test: 5 classes", "digits test: 10 classes"):
        assert any(line.startswith(start) for line in printed.out.splitlines())
    assert [name[:-9] for name in sorted(os.listdir(tmp_path / "data"))] == ["digits-32", "photographs-32"]
    assert run(study, "--dataset", "cats") == 1
    assert "cats" in capsys.readouterr().err


def test_an_interruption_says_how_to_go_on(study, monkeypatch, capsys):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("tcnaps.data.preparing._make_split", interrupt)
    assert run(study, "--dataset", "photographs") == 130
    assert "the same command goes on from there" in capsys.readouterr().err


def test_a_list_says_what_is_there_and_what_is_missing(study, photographs, tmp_path, capsys):
    (photographs / "test" / "test-4" / "0.png").write_bytes(b"")
    assert run(study, "--list") == 0
    printed, errors = capsys.readouterr()
    assert printed.count("not prepared") == 3 and str(tmp_path / "birds") in errors
    assert not (tmp_path / "data").exists()
    run(study)
    capsys.readouterr()
    assert run(study, "--list") == 0
    printed = capsys.readouterr().out
    assert printed.count("not prepared") == 1 and "photographs test: 5 classes, 14 images" in printed
    assert "unreadable images left out: 1" in printed


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
