"""What meta-training adds, from planted rows before and after."""

import pytest
from synthetic_rows import DATASETS

from tcnaps_suite.experiments.before_and_after import gain_of_training


def test_the_gain_is_paired_per_dataset_and_variant(rows):
    wrong = rows[rows["episode"] < 7].assign(evaluation="start", **{f"prediction_{t}": -1 for t in range(7)})
    gains, averages = gain_of_training(wrong, rows, ["Simple", "Transductive"], (2, 4))
    assert list(gains["dataset"]) == [*DATASETS, *DATASETS]
    digits = rows[(rows["training"] == "support") & (rows["dataset"] == "digits") & (rows["episode"] < 7)]
    accuracy = (digits["prediction_0"] == digits["label"]).groupby(digits["episode"]).mean()
    row = gains.set_index(["variant", "dataset"]).loc[("Simple", "digits")]
    assert row["difference"] == pytest.approx(accuracy.mean()) and row["n_episodes"] == 7
    assert set(averages["domain"]) == {"in", "out", "all"} and (averages["difference"] > 0).all()
