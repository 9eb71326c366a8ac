"""What meta-training adds, from planted rows before and after."""

import numpy as np
import pandas as pd
import pytest
from synthetic_rows import DATASETS, synthetic_rows

from tcnaps.evaluation.stopped_rows import stopped
from tcnaps_suite.experiments.before_and_after import calibration, gain_of_training, reliability


@pytest.fixture(scope="module")
def trained():
    return synthetic_rows()


def test_the_gain_is_paired_per_dataset_and_variant(trained):
    wrong = trained[trained["episode"] < 7].assign(evaluation="start", **{f"prediction_{t}": -1 for t in range(7)})
    gains, averages = gain_of_training(wrong, trained, ["Simple", "Transductive"], (2, 4))
    assert list(gains["dataset"]) == [*DATASETS, *DATASETS]
    digits = trained[(trained["training"] == "support") & (trained["dataset"] == "digits") & (trained["episode"] < 7)]
    accuracy = (digits["prediction_0"] == digits["label"]).groupby(digits["episode"]).mean()
    row = gains.set_index(["variant", "dataset"]).loc[("Simple", "digits")]
    assert row["difference"] == pytest.approx(accuracy.mean()) and row["n_episodes"] == 7
    assert set(averages["domain"]) == {"in", "out", "all"} and (averages["difference"] > 0).all()


def test_reliability_counts_queries_by_their_confidence(trained):
    bins = reliability(trained, trained.assign(confidence_0=1.0), "support", (2, 4), edges=(0.0, 0.5, 1.0))
    training_rows = trained[trained["training"] == "support"]
    for step, at in {
        "step 0": np.zeros(len(training_rows), int),
        "stop": stopped(training_rows, 2, 4)["step"].to_numpy(),
    }.items():
        every = np.arange(len(training_rows))
        confidence = training_rows[[f"confidence_{t}" for t in range(7)]].to_numpy()[every, at]
        right = (
            training_rows[[f"prediction_{t}" for t in range(7)]].to_numpy()[every, at]
            == training_rows["label"].to_numpy()
        )
        step_bins = bins[(bins["state"] == "start") & (bins["step"] == step)]
        for row, taken in zip(step_bins.itertuples(), (confidence < 0.5, confidence >= 0.5), strict=True):
            assert row.confidence == pytest.approx(confidence[taken].mean(), rel=1e-5)
            assert (row.accuracy, row.share) == pytest.approx((right[taken].mean(), taken.mean()))
    sure = bins[(bins["state"] == "trained") & (bins["step"] == "step 0")]
    assert sure["confidence"].tolist() == [1] and sure["share"].tolist() == [1]
    table = calibration(bins).set_index(["images", "state", "step"])
    accuracy = (training_rows["prediction_0"] == training_rows["label"]).mean()
    assert tuple(table.loc[("all", "trained", "step 0")]) == pytest.approx((1, accuracy, 1 - accuracy))


def test_only_one_evaluation_before_and_one_after(trained):
    with pytest.raises(ValueError, match="mix the evaluations variable, other, variable: pick one"):
        reliability(pd.concat([trained, trained.assign(evaluation="other")]), trained, "support", (2, 4))
