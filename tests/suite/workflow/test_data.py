"""Preparing a study's data, and refusing what the study can't be trained or tested on."""

import pytest
import yaml
from file_readers import noise
from small_study import small_study

from tcnaps_suite.workflow.prepare import main

PROTOCOL = {"kind": "fixed", "way": 2, "shot": 1, "queries_per_class": 2}


@pytest.fixture
def study(root):
    """Writes a study of photographs, 3 classes of 3 images per split, and returns its path."""
    for number in range(27):
        split, k = ("train", "valid", "test")[number // 9], number // 3
        place = root / "photographs" / split / f"class-{k}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number}.png").write_bytes(noise(number))

    def write(protocol=PROTOCOL, path="photographs", **others):
        content = small_study().model_dump(mode="json", exclude_none=True)
        section = {"source": "folder", "domain": "in", "path": path}
        content |= {"datasets": {**others, "blobs": section}, "trainings": ["support"], "name": "tiny"}
        content["meta_training"] |= {"protocol": protocol}
        evaluation = {"protocol": protocol, "datasets": ["blobs"], "trainings": ["support"]}
        (root / "study.yaml").write_text(yaml.safe_dump(content | {"evaluations": {"main": evaluation}}))
        return "study.yaml"

    return write


def test_data_is_prepared_and_its_digests_are_written(study, tmp_path, capsys):
    assert main([study(), "--list"]) == 0
    assert "not prepared" in capsys.readouterr().out and not (tmp_path / "data").exists()
    assert main([study()]) == 0
    ready = (tmp_path / "results" / "tiny" / ".ready" / "blobs").read_text()
    assert "sha256" in ready and "3 classes, 9 images" in ready
    assert main([study(), "--list"]) == 0
    assert ", prepared in " in capsys.readouterr().out


def test_changed_originals_change_the_digests(study, tmp_path):
    assert main([study()]) == 0
    before = (tmp_path / "results" / "tiny" / ".ready" / "blobs").read_text()
    (tmp_path / "photographs" / "test" / "class-6" / "new.png").write_bytes(noise(99))
    assert main([study()]) == 0
    assert (tmp_path / "results" / "tiny" / ".ready" / "blobs").read_text() != before


def test_what_the_study_asks_in_vain_is_named_before_anything_is_trained(study, capsys):
    path = study({**PROTOCOL, "way": 4})
    assert main([path]) == 1
    said = capsys.readouterr().err
    assert "meta_training.protocol, dataset 'blobs', split 'valid': 3 classes are fewer than way 4" in said
    assert "evaluations.main.protocol, dataset 'blobs', split 'test': 3 classes are fewer" in said
    assert main([path, "--list"]) == 0 and "fewer than way 4" in capsys.readouterr().err


def test_missing_data_and_a_wrong_study_are_named(study, tmp_path, capsys):
    birds = {"source": "folder", "domain": "in", "path": "nowhere"}
    (tmp_path / "photographs" / "test" / "class-6" / "18.png").write_bytes(b"")
    for arguments, status in (["--list"], 0), ([], 1):  # one dataset at fault keeps no other from being prepared
        assert main([study(birds=birds), *arguments]) == status
        said = capsys.readouterr()
        assert f"there is no {tmp_path / 'nowhere'}" in said.err
    assert "blobs test: 3 classes, 8 images" in said.out and "unreadable images left out: 1" in said.out
    (tmp_path / "study.yaml").write_text("nmae: x")
    assert main(["study.yaml"]) == 1
    assert "did you mean 'name'" in capsys.readouterr().err
