"""One switch at a time: the switched studies, and the paired changes against rows counted by hand."""

import numpy as np
import pandas as pd
import pytest
from small_study import blobs, small_study

from tcnaps.config.study import PRESETS
from tcnaps.evaluation.evaluate import evaluate_dataset
from tcnaps.training import checkpoints, meta_training, pretraining
from tcnaps_suite.experiments.differences import Difference, cost_of_differences, differences_of, switched

NOTHING = Difference(None, "nothing", {}, variants=("Simple", "Transductive"))
IDENTITY = Difference(1, "identity weight", {"clustering": {"identity_weight": 5.0}})
LAYERS = Difference(5, "two layers", {"task_encoder": {"lstm_layers": 2}}, "adaptation", ("Transductive",))
RANGE = Difference(13, "pixels", {"pixel_range": [0, 1]}, "everything", ("Transductive",))


def test_every_difference_is_one_change_of_a_valid_study():
    study = small_study()
    plain = study.model_dump()
    for difference in differences_of(study):
        other = switched(study, difference.changes).model_dump()
        assert [key for key in plain if plain[key] != other[key]] == list(difference.changes), difference.label
        if difference.row in (3, 4):  # of training episodes alone: validation is that of the study
            training, own = plain["meta_training"], other["meta_training"]
            assert own["protocol"] != training["protocol"]
            assert own["validation_protocol"] == (training["validation_protocol"] or training["protocol"])
    chance = [switched(study, d.changes) for d in differences_of(study) if d.label.startswith("no switch")]
    assert [other.training_seed for other in chance] == [study.seed + 1, study.seed + 2]
    assert {difference.row for difference in differences_of(study)} == {None, 1, 2, 3, 4, 5, 7, 8, 9, 11, 12, 13}


def test_switches_go_to_the_released_side():
    """Where the presets differ in what changes accuracy, the difference is among those measured."""
    changes = [difference.changes for difference in differences_of(small_study())]
    for section, values in PRESETS["released"]["both"].items():
        for key, value in values.items() if isinstance(values, dict) else [(None, values)]:
            assert ({section: {key: value}} if key else {section: value}) in changes, (section, key)


@pytest.mark.slow
def test_costs_are_paired_means_over_datasets(study):
    costs = cost_of_differences(study, [NOTHING, IDENTITY], ["variable"])
    assert list(costs["label"]) == ["nothing"] * 2 + ["identity weight"] * 2
    assert (costs["difference"][:2] == 0).all() and (costs["interval"][:2] == 0).all()
    assert (costs["n_datasets"] == 2).all()
    row = costs[(costs["label"] == "identity weight") & (costs["variant"] == "Simple")].iloc[0]

    def accuracy(weight, name):
        other = switched(study, {"clustering": {"identity_weight": weight}})
        model = checkpoints.load_model(other, "support")
        rows = evaluate_dataset(model, blobs(name, "test"), other, "variable")
        return (rows["prediction_0"] == rows["label"]).groupby(rows["episode"]).mean().mean()

    gains = [accuracy(5.0, name) - accuracy(1.0, name) for name in ("blobs", "others")]
    assert row["difference"] == pytest.approx(np.mean(gains), abs=1e-9)


@pytest.mark.slow
def test_retrained_weights_lie_apart_and_are_found_again(study, monkeypatch):
    study = switched(study, {"pretraining": {"epochs": 1}, "meta_training": {"episodes": 4, "validate_every": 2}})
    before = {file: file.read_bytes() for file in study.results_folder.glob("checkpoints/*")}
    costs = cost_of_differences(study, [LAYERS, RANGE], ["5-way-1-shot"])
    assert list(costs["trains"]) == ["adaptation", "everything"]
    assert {file: file.read_bytes() for file in study.results_folder.glob("checkpoints/*")} == before
    made = study.results_folder / "differences"
    assert sorted(folder.name for folder in made.iterdir()) == ["pixels", "two-layers"]
    weights, _ = checkpoints.load(made / "two-layers/checkpoints/support_and_query.safetensors", "")
    assert "task_encoder.lstm.weight_ih_l1" in weights
    with monkeypatch.context() as patch:
        for module, name in ((meta_training, "episode_loss"), (pretraining, "augment")):
            patch.setattr(module, name, lambda *a, **k: pytest.fail("trained again"))
        pd.testing.assert_frame_equal(cost_of_differences(study, [LAYERS, RANGE], ["5-way-1-shot"]), costs)
    shorter = cost_of_differences(study, [NOTHING, LAYERS], ["5-way-1-shot"], episodes=2)
    assert (shorter["difference"][:1] == 0).all() and shorter["trains"].iloc[-1] == "adaptation"
    for name in ("none", "two-layers"):
        path = made / f"{name}/checkpoints/support_and_query.safetensors"
        assert checkpoints.load(path, "")[1]["log"][-1]["episode"] == 2
