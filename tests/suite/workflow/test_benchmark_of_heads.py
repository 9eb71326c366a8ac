"""The bench of heads on planted features in files."""

import sys

import heads
import numpy as np
import pandas as pd
import pytest
import torch
from heads import BASE, SETTINGS, Setting, episodes_of, features_from, features_of_folder, mislabelled
from PIL import Image

from tcnaps_suite.experiments.networks import Network


@pytest.fixture
def file(tmp_path):
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.repeat([f"kind {k}" for k in range(8)], 70))
    means = {name: rng.standard_normal(30) for name in sorted(set(labels))}
    features = np.array([means[name] for name in labels]) + rng.standard_normal((len(labels), 30))
    np.savez(tmp_path / "planted.npz", features=features, labels=labels)
    return tmp_path / "planted.npz"


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["bench", *map(str, arguments)])
    heads.main()


def test_it_writes_a_table_of_all_settings_and_heads_and_a_figure(file, tmp_path, monkeypatch, capsys):
    settings = ["5-way 1-shot", "20-way 1-shot", "5-shot, 1 of 5 classes", "5-shot, wrong labels"]
    options = ["--episodes", 6, "--heads", "Estimator", "Prototypes", "--settings", *settings]
    run(monkeypatch, file, "--out", tmp_path / "out", *options)
    table = pd.read_csv(tmp_path / "out/heads.csv")
    assert set(table["dataset"]) == {"planted", "all"}
    assert set(table["setting"]) == {*settings} - {"20-way 1-shot"}  # eight classes
    assert set(table["head"]) == {BASE, "Estimator", "Prototypes"}
    assert (table.loc[table["head"] == BASE, "difference"] == 0).all()
    refined = table[(table["head"] == "Estimator") & (table["dataset"] == "all")].set_index("setting")
    assert refined.loc["5-way 1-shot", "difference"] > 0.02
    assert refined.loc["5-way 1-shot", "class_interval"] > 0
    assert len(pd.read_csv(tmp_path / "out/heads-episodes.csv")) == 3 * 3 * 6
    assert (tmp_path / "out/heads.png").exists()
    assert "Prototypes" in capsys.readouterr().out


def test_a_folder_of_classes_takes_a_backbone(tmp_path, monkeypatch, capsys):
    for name, value in (("dark", 40), ("light", 200)):
        (tmp_path / "shades" / name).mkdir(parents=True)
        for number in range(3):
            Image.new("RGB", (8, 8), (value + number,) * 3).save(tmp_path / "shades" / name / f"{number}.png")
    (tmp_path / "shades/dark/broken.png").write_text("no image")
    network = Network(lambda image: torch.tensor(np.asarray(image)).float(), lambda batch: batch.mean((1, 2)))
    monkeypatch.setattr(heads, "open_network", lambda name: network)
    source = features_of_folder(tmp_path / "shades", "of a test")
    assert source.class_names == ("dark", "light") and source.class_sizes.tolist() == [3, 3]
    np.testing.assert_allclose(source.images[:, 0], [40, 41, 42, 200, 201, 202])
    assert "broken.png is left out" in capsys.readouterr().err


def test_a_share_of_the_support_labels_is_wrong(file):
    drawn = next(episodes_of(features_from(file), Setting(5, 4), 1))
    labels = mislabelled(drawn, 0.25).numpy()
    assert (labels != drawn.support_labels).sum() == 5 and set(labels) <= set(range(5))
    assert (mislabelled(drawn, 0).numpy() == drawn.support_labels).all()


def test_queries_of_one_class_are_of_one_class(file):
    for drawn in episodes_of(features_from(file), SETTINGS["1-shot, 1 of 5 classes"], 3):
        assert len(set(drawn.query_labels)) == 1 and len(drawn.query_labels) == 50


def test_bad_files_and_names_are_named(tmp_path, file, monkeypatch, capsys):
    np.savez(tmp_path / "short.npz", features=np.ones((3, 2)), labels=[0, 1])
    (tmp_path / "text.npz").write_text("no archive")
    for options, said in (
        ([tmp_path / "short.npz"], "short.npz must be an .npz with 'features'"),
        ([tmp_path / "text.npz"], "text.npz must be"),
        ([file, "--heads", "TIMM"], "there is no 'TIMM'; there are: Step 0, Estimator"),
        ([file, "--settings", "6-way"], "there is no '6-way'"),
    ):
        with pytest.raises(SystemExit):
            run(monkeypatch, *options, "--out", tmp_path / "out")
        assert said in capsys.readouterr().err
