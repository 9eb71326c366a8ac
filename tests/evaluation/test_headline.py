"""The sentence that a study ends with, from planted accuracies."""

import json

import pandas as pd
import pytest
from small_study import small_study

from tcnaps.config import study as config
from tcnaps.evaluation.headline import headline, write_headline
from tcnaps.evaluation.statistics import EPISODE, paired_difference


def episodes_of(datasets):
    rows = [
        (variant, "5-way", dataset, "in", "test", 10, episode, 0.5 + gain + growth * episode)
        for variant, gain, growth in (("Simple", 0.0, 0.0), ("Transductive", 0.1, 0.01))
        for dataset in datasets
        for episode in range(5)
    ]
    return pd.DataFrame(rows, columns=["variant", *EPISODE, "accuracy"])


def test_the_headline_is_the_paired_gain(tmp_path, monkeypatch):
    monkeypatch.setattr(config, "project_root", lambda: tmp_path)
    episodes = episodes_of(["blobs"])
    found = headline(episodes, "Transductive", "Simple", "5-way")
    own = dict(list(episodes.groupby("variant")))
    gain = paired_difference(own["Transductive"], own["Simple"]).iloc[0]
    assert found["difference"] == pytest.approx(0.12) == gain["difference"] and found["interval"] == gain["interval"]
    assert found["sentence"] == "Transductive minus Simple, 5-way, paired, blobs: +12.0 ± 2.0 points"
    assert json.loads(write_headline(small_study(), found).read_text(encoding="utf-8")) == found


def test_the_headline_of_several_datasets_is_their_mean():
    found = headline(episodes_of(["blobs", "others"]), "Transductive", "Simple", "5-way")
    assert "mean of 2 datasets: +12.0 ± 1.4 points" in found["sentence"]
