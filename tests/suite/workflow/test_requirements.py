"""What a study asks of its datasets is known before anything is trained on them."""

import contextlib

import pytest
from small_study import blobs, sized, small_study

from tcnaps.config import FixedProtocol, UserError, VariableProtocol
from tcnaps_suite.workflow import requirements
from tcnaps_suite.workflow.requirements import check_protocol, needs_of, open_usable, unmet_needs

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
    trainings = ["support", "support_and_query"]
    imported = {"backbone": "b.pt", "support": "s.pt", "support_and_query": "f.pt"}
    assert {split for _, _, split, _, _ in needs_of(small_study(trainings=trainings, imported=imported))} == {"test"}
    found = needs_of(small_study(trainings=trainings, imported={"support_and_query": "f.pt"}))
    assert {key for key, _, split, _, _ in found if split == "train"} == {"meta_training"}


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
        ((9, 9), {}, FixedProtocol(way=3, shot=1), "2 classes are fewer than way 3"),
        (
            (9, 9, 4),
            {},
            FixedProtocol(**FIXED),
            "class 'class 2' has 4 images, fewer than 2 support [+] 3 query images",
        ),
        ((9, 9, 1), {}, VariableProtocol(minimum_way=2), "class 'class 2' has 1 image, fewer than 1 support"),
        ((9, 9, 9), {}, VariableProtocol(minimum_way=4), "3 classes are fewer than minimum_way 4"),
        ((9, 9, 9), GROUPS, VariableProtocol(minimum_way=3), "no superclass has the 3 classes"),
        ((9, 9, 9), {"spans": ((0, 1),)}, VariableProtocol(minimum_way=3), "no node of the hierarchy has 3 to 392"),
        ((9, 1, 9), GROUPS, VariableProtocol(minimum_way=2), "class 'class 1' has 1 image"),
        # Classes that no episode can draw may be small.
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


def test_a_split_without_classes_serves_no_protocol():
    for protocol in (FixedProtocol(way=2, shot=1), VariableProtocol()):
        with pytest.raises(ValueError, match="it has no class; add some"):
            check_protocol(sized(), protocol)
