"""The sentence that a study ends with, from planted accuracies."""

import json

import pandas as pd
import pytest
from small_study import small_study

from tcnaps.config import study as config
from tcnaps.evaluation.main_result import main_result, write_main_result
from tcnaps.evaluation.statistics import EPISODE, accuracy_summary, paired_episodes


def episodes_of(datasets):
    rows = [
        (variant, 0, "5-way", dataset, "in", "test", 10, episode, 0.5 + gain + growth * episode)
        for variant, gain, growth in (("Simple", 0.0, 0.0), ("Transductive", 0.1, 0.01))
        for dataset in datasets
        for episode in range(5)
    ]
    return pd.DataFrame(rows, columns=["variant", "replicate", *EPISODE, "accuracy"])


def test_the_main_result_is_the_paired_gain(tmp_path, monkeypatch):
    monkeypatch.setattr(config, "project_root", lambda: tmp_path)
    episodes = episodes_of(["blobs"])
    result = main_result(episodes, "Transductive", "Simple", "5-way")
    simple, transductive = (frame for _, frame in episodes.groupby("variant"))
    gain = accuracy_summary(paired_episodes(transductive, simple), ["evaluation"], "difference").iloc[0]
    assert result["difference"] == pytest.approx(0.12) == gain["difference"] and result["interval"] == gain["interval"]
    assert result["sentence"] == "Transductive minus Simple, 5-way, paired, blobs: +12.0 ± 2.0 points"
    assert json.loads(write_main_result(small_study(), result).read_text(encoding="utf-8")) == result


def test_the_main_result_of_several_datasets_is_their_mean():
    result = main_result(episodes_of(["blobs", "others"]), "Transductive", "Simple", "5-way")
    assert "mean of 2 datasets: +12.0 ± 1.4 points" in result["sentence"]
