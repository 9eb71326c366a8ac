"""The sentence that a study ends with, from planted accuracies."""

import json

import pandas as pd
import pytest
from small_study import small_study

from tcnaps.evaluation.statistics import EPISODE, accuracy_summary
from tcnaps_suite.experiments.main_result import main_result, write_main_result


def gain_of(datasets):
    rows = [
        (0, "5-way", dataset, "in", "test", 10, episode, 0.1 + 0.01 * episode, tuple("abcdefg"[episode : episode + 3]))
        for dataset in datasets
        for episode in range(5)
    ]
    return pd.DataFrame(rows, columns=["replicate", *EPISODE, "difference", "classes"])


def test_the_main_result_is_the_paired_gain(root):
    pairs = gain_of(["blobs"])
    result = main_result(pairs, "A minus B")
    (gain,), row = result["gains"], accuracy_summary(pairs, ["evaluation"], "difference").iloc[0]
    assert gain["difference"] == pytest.approx(0.12) == row["difference"] and gain["interval"] == row["interval"]
    assert gain["class_interval"] > gain["interval"]
    assert result["sentence"].startswith("A minus B: blobs: +12.0 ± 2.0 points (for other classes: ± ")
    assert result["sentence"].endswith("± is for other episodes, of this one training")
    assert json.loads(write_main_result(small_study(), result).read_text(encoding="utf-8")) == result


def test_real_and_rendered_images_are_apart():
    pairs = gain_of(["blobs", "others", "photographs"])
    real = pairs["dataset"].eq("photographs")
    pairs = pairs.assign(
        images=real.map({True: "real", False: "rendered"}), difference=pairs["difference"] + 0.1 * real
    )
    result = main_result(pairs, "A minus B")
    assert [gain["images"] for gain in result["gains"]] == ["real", "rendered"]
    assert "real images, photographs: +22.0" in result["sentence"]
    assert "rendered images, mean of 2 datasets: +12.0 ± 1.2 points" in result["sentence"]
