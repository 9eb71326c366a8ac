"""Preparing a study's data, and refusing what the study can't be trained or tested on before it is tried."""

import contextlib
from unittest.mock import Mock

import pytest
import yaml
from file_readers import noise
from small_study import blobs, sized, small_study

from tcnaps.config import FixedProtocol, UserError, VariableProtocol
from tcnaps_suite.workflow import requirements
from tcnaps_suite.workflow.prepare import main
from tcnaps_suite.workflow.requirements import check_protocol, needs_of, open_usable, unmet_needs

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


def test_data_is_prepared_and_its_digests_are_written_and_change_with_the_originals(study, tmp_path, capsys):
    assert main([study(), "--list"]) == 0
    assert "not prepared" in capsys.readouterr().out and not (tmp_path / "data").exists()
    assert main([study()]) == 0
    ready = tmp_path / "results" / "tiny" / ".ready" / "blobs"
    before = ready.read_text()
    assert "digest" in before and "3 classes, 9 images" in before
    assert main([study(), "--list"]) == 0
    assert ", prepared in " in capsys.readouterr().out
    (tmp_path / "photographs" / "test" / "class-6" / "new.png").write_bytes(noise(99))
    assert main([study()]) == 0 and ready.read_text() != before


def test_ctrl_c_ends_with_a_line_that_says_what_is_kept(study, monkeypatch, capsys):
    monkeypatch.setattr("tcnaps_suite.workflow.prepare.ensure_prepared", Mock(side_effect=KeyboardInterrupt))
    assert main([study()]) == 1 and "Stopped. Finished splits are kept" in capsys.readouterr().err


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


GROUPS = {"superclasses": ("a", "a", "b")}
FIXED = {"kind": "fixed", "way": 3, "shot": 2, "queries_per_class": 3}


def test_a_study_needs_what_its_sections_name():
    study = small_study()
    found = needs_of(study)
    assert ("pretraining", "blobs", "train", None, 0) in found
    assert ("meta_training", "blobs", "valid", study.meta_training.protocol, 1) in found
    variable = study.evaluations["variable"]
    assert ("evaluations.variable", "others", "test", variable.protocol, variable.episodes) in found
    assert len(found) == 1 + 2 + 3
    own = small_study(meta_training={**study.meta_training.model_dump(mode="json"), "validation_protocol": FIXED})
    protocols = {split: protocol for key, _, split, protocol, _ in needs_of(own) if key == "meta_training"}
    assert protocols == {"train": study.meta_training.protocol, "valid": FixedProtocol(**FIXED)}


def test_imported_weights_need_no_training_data():
    trainings, imported = ["support", "support_and_query"], {"support_and_query": "f.pt"}
    found = needs_of(small_study(trainings=trainings, imported=imported))
    assert {key for key, _, split, _, _ in found if split == "train"} == {"meta_training"}
    found = needs_of(small_study(trainings=trainings, imported=imported | {"backbone": "b.pt", "support": "s.pt"}))
    assert {split for _, _, split, _, _ in found} == {"test"}


def test_what_is_wanting_is_named_with_the_key_that_asks_for_it():
    study = small_study()
    assert unmet_needs(study, "others", {"test": sized(*[4] * 6)}) == []
    (missing,) = unmet_needs(study, "others", {"train": sized(9)})
    assert "evaluations.variable uses the split 'test' of 'others', which has: train." in missing
    splits = {"train": sized(*[9] * 5), "valid": sized(*[9] * 5), "test": sized(9, 9, 9, 2, 9)}
    (few,) = unmet_needs(study, "blobs", splits)
    assert "evaluations.5-way-1-shot.protocol, dataset 'blobs', split 'test': class 'class 3' has 2 images" in few


def test_too_many_episodes_without_replacement_are_known_before_the_run():
    once = {"protocol": {**FIXED, "replacement": False}, "datasets": ["others"], "trainings": ["support"]}
    study = small_study(evaluations={"once": {**once, "episodes": 2}})
    assert unmet_needs(study, "others", {"test": sized(10, 10, 10)}) == []
    (short,) = unmet_needs(study, "others", {"test": sized(10, 5, 9)})
    assert "evaluations.once.protocol, dataset 'others'" in short and "without replacement" in short


@pytest.mark.parametrize(
    ("sizes", "hierarchy", "protocol", "message"),
    [
        ((), {}, FixedProtocol(way=2, shot=1), "it has no class; add some"),
        ((), {}, VariableProtocol(), "it has no class; add some"),
        ((9, 9, 4), {}, FixedProtocol(**FIXED), "class 'class 2' has 4 images, fewer than 2 support [+] 3 query"),
        ((9, 9, 1), {}, VariableProtocol(minimum_way=2), "class 'class 2' has 1 image, fewer than 1 support"),
        ((9, 9, 9), {}, VariableProtocol(minimum_way=4), "3 classes are fewer than minimum_way 4"),
        ((9, 9, 9), GROUPS, VariableProtocol(minimum_way=3), "no superclass has the 3 classes"),
        ((9, 9, 9), {"spans": ((0, 1),)}, VariableProtocol(minimum_way=3), "no node of the hierarchy has 3 to 392"),
        ((9, 1, 9), GROUPS, VariableProtocol(minimum_way=2), "class 'class 1' has 1 image"),
        ((9, 4, 9, 4), {}, FixedProtocol(**FIXED, replacement=False), "class 'class 1' has 4 images, fewer than 2"),
        # Classes that no episode can draw may be small.
        ((9, 4, 9, 9), {}, FixedProtocol(**FIXED, replacement=False), None),
        ((9, 9, 1), GROUPS, VariableProtocol(minimum_way=2), None),
        ((9, 9, 1), {"spans": ((0, 1), (0, 1, 2))}, VariableProtocol(minimum_way=2, maximum_span=2), None),
    ],
)
def test_protocols_that_a_split_can_and_cannot_serve(sizes, hierarchy, protocol, message):
    with pytest.raises(ValueError, match=message) if message else contextlib.nullcontext():
        check_protocol(sized(*sizes, **hierarchy), protocol)


def test_datasets_that_will_not_do_are_left_out_aloud(monkeypatch):
    few, enough = blobs("few", "test", n_classes=2), blobs("enough", "test")
    splits = {"few": {"test": few}, "enough": {"test": enough}, "none": {}}
    monkeypatch.setattr(requirements, "open_splits", lambda study, name: splits[name])
    usable, left_out = open_usable(small_study(), list(splits), "test", FixedProtocol(**FIXED))
    assert [source.dataset for source in usable] == ["enough"]
    assert left_out == ["few: 2 classes are fewer than way 3; lower the way", "none: there is no split 'test'"]
    with pytest.raises(UserError, match="No dataset will do for this protocol: few: 2 classes"):
        open_usable(small_study(), ["few"], "test", FixedProtocol(**FIXED))
