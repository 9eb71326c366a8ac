"""Heads beside the paper's on the small study: trained, stored, and compared on the same episodes."""

import shutil

import numpy as np
import pandas as pd
import pytest
from small_study import small_study
from trained_study import placed

from tcnaps.config import UserError
from tcnaps.evaluation.evaluate import evaluate
from tcnaps.evaluation.result_files import load_rows
from tcnaps.evaluation.statistics import episode_accuracies
from tcnaps.evaluation.stopped_rows import variant_predictions
from tcnaps.training.checkpoints import checkpoint_folder, load, load_model
from tcnaps.training.meta_training import meta_train
from tcnaps_suite.experiments.heads import head_accuracies, learned_numbers

LEARNED = "support_and_query_learned_scale"
STEPS = "support_and_query_learned_steps"
RATE = 0.05


@pytest.fixture(scope="module")
def study(trained_root, tmp_path_factory):
    """The small study with a training whose head learns, all evaluated."""
    root = tmp_path_factory.mktemp("root")
    shutil.copytree(trained_root / "results", root / "results")
    with placed(root):
        content = small_study().model_dump(mode="json", exclude_none=True)
        trainings = ["support_and_query", LEARNED, STEPS]
        variable = content["evaluations"]["variable"] | {"trainings": trainings}
        learning = content["meta_training"] | {"head_learning_rate": RATE}
        study = small_study(meta_training=learning, trainings=trainings, evaluations={"variable": variable})
        for training in (LEARNED, STEPS):
            meta_train(study, training)
        for training in trainings:
            evaluate(study, training)
        yield study


@pytest.mark.slow
def test_learned_numbers_come_back_with_the_model_and_move_at_their_own_rate(study):
    table = learned_numbers(study).set_index(["training", "number"])
    assert list(table.index) == [(LEARNED, "scale"), *[(STEPS, "scale")] * 5 + [(STEPS, "prior_weight")] * 5]
    scales, weights = (table.xs(name, level="number") for name in ("scale", "prior_weight"))
    assert (scales["start"] == 1).all() and (weights["start"] == 0).all()
    moved = pd.concat([np.log(scales["learned"]).abs(), weights["learned"].abs()])
    assert (moved < 4.1 * RATE).all(), "four steps of at most about RATE each"
    assert (moved > 1e-3).groupby(level=0).any().all()
    assert abs(weights["learned"].iloc[0]) < 1e-6, "at step 0 the classes are equal"
    stored, _ = load(checkpoint_folder(study) / f"{LEARNED}.safetensors", "")
    assert load_model(study, LEARNED).head.scale == pytest.approx(stored["head_numbers.scale"].exp().item())


@pytest.mark.slow
def test_differences_are_from_transductive_on_the_same_episodes(study, monkeypatch):
    variants = ["Calibrated Transductive", "Learned Scale"]
    table = head_accuracies(study, "variable", variants, [0.25, 1.0])
    assert set(table["variant"]) == {"Transductive", *variants, "scale 0.25", "scale 1"}
    assert (table.groupby("variant").size() == 2 * 2).all()  # datasets × episodes
    exact = table[table["variant"].isin(["Transductive", "scale 1"])]
    assert (exact["difference"] == 0).all(), "features extracted once more give the same rows"

    def accuracies(name):
        predicted = variant_predictions(load_rows(study, "variable"), name, *study.refinement.limits)
        return episode_accuracies(predicted)["accuracy"].to_numpy()

    learned = table[table["variant"] == "Learned Scale"]
    assert (learned["accuracy"].to_numpy() == accuracies("Learned Scale")).all()
    assert (learned["difference"].to_numpy() == accuracies("Learned Scale") - accuracies("Transductive")).all()
    monkeypatch.setattr("tcnaps_suite.experiments.heads.SAME_TRAINING", ("Learned Steps", "Learned Scale"))
    pair = head_accuracies(study, "variable", ["Learned Scale", "Learned Steps"], [1.0])
    pair = pair.loc[pair["variant"] == "Learned Steps minus Learned Scale", "difference"]
    assert (pair.to_numpy() == accuracies("Learned Steps") - accuracies("Learned Scale")).all()
    # These rows do not serve a variant of another scale.
    with pytest.raises(UserError, match="Calibrated Transductive"):
        variant_predictions(load_rows(study, "variable"), "Calibrated Transductive", 2, 4)
