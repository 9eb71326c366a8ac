"""The benchmarks on small things: that they run, compare what they say they compare, and keep what was measured."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import coverage_of_intervals
import device_rows
import direct_model
import drawing
import dropped
import heads
import measuring
import numpy as np
import pandas as pd
import pytest
import rows
import run
import tables_of_numbers
import torch
from heads import BASE, SETTINGS, Setting, episodes_of, features_from, features_of_folder, mislabelled
from PIL import Image
from planted_folders import planted

from tcnaps.estimator import normalisation
from tcnaps_suite.experiments.networks import Network

FOLDER = Path(__file__).parents[3] / "benchmarks"
LIMITS = {"operations_float32": 1e11, "operations_bfloat16": 2e11, "bytes": 1e10, "fresh_bytes": 1e9}
MACHINE = {"processor": "a processor", "threads": 2, "torch": "2.9", "limits": LIMITS}


def test_refinement_gains_on_tables_of_many_dimensions_and_loses_on_none_of_few():
    known, gain = tables_of_numbers.known, tables_of_numbers.gain
    assert min(gain(*known("digits", seed)) for seed in range(2)) > 0
    assert min(gain(*known("breast_cancer", seed)) for seed in range(4)) > -0.01


def test_the_direct_model_is_the_same_model():
    ours = rows.our_model().eval().double()
    ours.settings = replace(ours.settings, clustering_dtype=torch.float64)
    direct = direct_model.Model().double()
    with torch.no_grad():
        for parameter in ours.film_generator.parameters():  # far from gamma 1 and beta 0
            parameter.normal_(0, 0.05)
    direct.load_state_dict(ours.state_dict())
    task = rows.episode(3, 2, 4, size=32)
    task = replace(task, support_images=task.support_images.double(), query_images=task.query_images.double())
    with torch.no_grad():
        theirs = direct.features(*rows.contents(task))
        torch.testing.assert_close(ours.features(task)[::2], theirs, rtol=1e-9, atol=1e-9)
        assert torch.equal(ours.classify(task, 2, 4).labels, direct.classify(*rows.contents(task), 2, 4))


@pytest.mark.filterwarnings("ignore:Best performing initialization")  # it starts at random, and has 20 iterations
def test_rows_beside_an_expert_s_clustering_and_scikit_learn_s_models():
    first = next(rows.GROUPS["cholesky"](32))
    assert rows.labels_and_steps(*(build()() for build in first.calls.values())) == {"same labels": 1, "same steps": 1}
    compared = {row.name: row for row in rows.GROUPS["estimator"](32)}
    for name, least in {"2,000 rows": 0.3, "55 rows of 1,280": 0.1}.items():  # of ten and five classes
        right = {name: build()().item() for name, build in compared[name].calls.items()}
        assert min(right.values()) > least and list(right)[-1] == "self-training"


def test_coverage_of_intervals_writes_a_row_for_each_setting(tmp_path, monkeypatch):
    settings = {"n_classes": (12,), "way": ["5"], "n_episodes": [9], "class_spread": (0, 1)}
    monkeypatch.setattr(coverage_of_intervals, "OF_CLASSES", settings)
    monkeypatch.setattr(sys, "argv", ["coverage_of_intervals.py", "--out", str(tmp_path), "--cases", "4"])
    coverage_of_intervals.main()
    of_classes, of_trainings = (pd.read_csv(tmp_path / f"{name}.csv") for name in ("classes", "trainings"))
    assert (len(of_classes), len(of_trainings)) == (2, 60) and set(of_trainings["cases"]) == {16}
    assert of_classes["class_interval"].between(0.25, 1).all() and of_trainings["interval"].between(0.5, 1).all()


def test_an_episode_on_a_device_part_by_part(monkeypatch):
    monkeypatch.setattr(device_rows, "matrix_limit", lambda device, dtype: 1e9)
    *measured, loading = device_rows.measure_device(torch.device("cpu"), 32, 1, {"2-way 1-shot": (2, 1, 2)})
    parts = ["task encoder", "backbone", "clustering", "whole", "training step"]
    assert [row["name"].split(": ")[-1] for row in measured] == parts
    assert loading["name"].endswith("loading 6 images")
    for row in measured:
        assert row["group"] == "device" and all(one["seconds"] > 0 for one in row["measured"].values())
    assert {"float32", "bfloat16", "direct"} == set(measured[3]["measured"])


def test_rows_of_groups_not_measured_again_are_kept(monkeypatch, tmp_path):
    output = tmp_path / "benchmarks.json"
    old = {"group": "data", "name": "kept", "size": 84, "measured": {}}
    output.write_text(json.dumps({"per_image": {}, "rows": [old, {**old, "group": "variants", "name": "replaced"}]}))
    monkeypatch.setattr(run, "measure", lambda group, *_: [{"group": group, "name": "new", "size": 32, "measured": {}}])
    monkeypatch.setattr(run, "per_image", lambda size: {})
    monkeypatch.setattr(run.measuring, "machine", dict)
    monkeypatch.setattr(sys, "argv", ["run.py", "--only", "variants", "--size", "32", "--output", str(output)])
    run.main()
    assert [row["name"] for row in json.loads(output.read_text())["rows"]] == ["kept", "new"]


def test_results_are_compared_and_what_ends_early_has_a_problem():
    start = f"import sys, torch; sys.path.insert(0, {str(FOLDER)!r}); import measuring; "
    serve = start + "measuring.serve(lambda: lambda: torch.tensor({}), 1)"
    commands = {
        "with a space": [sys.executable, "-c", serve.format("3.0")],
        "broken": [sys.executable, "-c", start + "sys.exit(5)"],
        "last": [sys.executable, "-c", serve.format("1.0")],
    }
    measured = measuring.compare(commands, 2, 60, False, lambda ours, other: {"difference": float(ours - other)})
    first, broken, last = measured.values()
    assert first["compared"] == {"difference": 2.0} and len(first["times"]) == 2
    assert broken["problem"] == "ended with 5" and broken["seconds"] is None
    assert "ratio" in first and "ratio" not in last


def one(seconds, ratio=None, n_bytes=None, problem=None):
    row = {"seconds": seconds, "times": [seconds], "bytes": n_bytes, "problem": problem}
    return row if ratio is None else row | {"ratio": ratio, "ratio_low": 0.9 * ratio, "ratio_high": 1.2 * ratio}


@pytest.fixture
def measurements():
    """The content of a file as `make bench` writes it, with made-up times."""
    rows = []  # group, name, measured
    for episode, factor in (("5-way 5-shot", 1), ("20-way 10-shot", 4)):
        for part, seconds in (("task encoder", 0.2), ("backbone", 0.5), ("clustering", 0.1)):
            fast = {"float32": one(factor * seconds / 2, 2.0), "bfloat16": one(factor * seconds / 4, 4.0)}
            rows.append(("parts", f"{episode}: {part}", fast | {"direct": one(factor * seconds)}))
        rows.append(("test", episode, {"float32": one(0.4, 2.0, 3 * 10**8), "direct": one(0.8, None, 10**9)}))
    lost = {"float32": one(9.0, None, 4 * 10**9), "direct": one(None, problem="out of memory")}
    rows.append(("training", "1000 images", lost))
    counts = {"set encoder": (2 * 10**8, 3 * 10**6), "backbone": (2 * 10**9, 9 * 10**6)}
    per_image = {name: dict(zip(("operations", "bytes"), numbers)) for name, numbers in counts.items()}
    rows = [dict(zip(("group", "name", "measured"), row)) | {"size": 84, "machine": MACHINE} for row in rows]
    return {"per_image": per_image, "rows": rows}


def test_what_was_measured_becomes_tables_and_figures(measurements, tmp_path, capsys):
    path = tmp_path / "benchmarks.json"
    with pytest.raises(FileNotFoundError, match="make bench"):
        drawing.load_measurements(path)
    for content in ("no JSON", "[1]"):
        path.write_text(content)
        with pytest.raises(SystemExit):
            drawing.main([str(path)])
        assert "benchmarks.json can't be drawn" in capsys.readouterr().err
    path.write_text(json.dumps(measurements))
    table = drawing.load_measurements(path).set_index(["group", "name", "implementation"])
    row = table.loc["test", "5-way 5-shot", "float32"]
    assert (row["seconds"], row["ratio"], row["gigabytes"], row["threads"]) == (0.4, 2.0, 0.3, 2)
    assert table.loc["training", "1000 images", "direct"]["problem"] == "out of memory"
    limits = drawing.distance_from_the_limit(path).set_index(["episode", "part", "implementation"])
    row = limits.loc["5-way 5-shot", "backbone", "bfloat16"]
    assert row["share"] == pytest.approx(75 * 2e9 / 0.125 / 2e11)
    assert row["bytes_share"] == pytest.approx(75 * 4.5e6 / 1e10 / 0.125)
    drawing.main([str(path), "--figures", str(tmp_path / "figures")])
    assert {file.stem for file in (tmp_path / "figures").iterdir()} == {"time-of-an-episode", "ratios-and-memory"}
    assert "backbone" in capsys.readouterr().out


@pytest.fixture
def file(tmp_path):
    features, _, labels = planted(0, way=8, shot=0, others=70)
    order = np.random.default_rng(0).permutation(len(labels))
    np.savez(tmp_path / "planted.npz", features=features[order], labels=labels[order].astype(str))
    return tmp_path / "planted.npz"


def run_heads(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["bench", *map(str, arguments)])
    heads.main()


def test_it_writes_a_table_of_all_settings_and_heads_and_a_figure(file, tmp_path, monkeypatch, capsys):
    settings = ["5-way 1-shot", "20-way 1-shot", "5-shot, 1 of 5 classes", "5-shot, wrong labels"]
    options = ["--episodes", 6, "--heads", "Estimator", "Prototypes", "--settings", *settings]
    run_heads(monkeypatch, file, "--out", tmp_path / "out", *options)
    table = pd.read_csv(tmp_path / "out/heads.csv")
    assert set(table["dataset"]) == {"planted", "all"}
    assert set(table["setting"]) == {*settings} - {"20-way 1-shot"}  # eight classes
    assert set(table["head"]) == {BASE, "Estimator", "Prototypes"}
    assert (table.loc[table["head"] == BASE, "difference"] == 0).all()
    refined = table[(table["head"] == "Estimator") & (table["dataset"] == "all")].set_index("setting")
    assert (refined.loc["5-way 1-shot", ["difference", "class_interval"]] > [0.02, 0]).all()
    rows, leads = (pd.read_csv(tmp_path / f"out/{name}.csv") for name in ("heads-episodes", "leads"))
    accuracy = rows.pivot_table("accuracy", "setting", "head")
    assert len(rows) == 3 * 3 * 6 and set(leads["rival"]) == {"Prototypes"}
    lead = leads[leads["dataset"] == "all"].set_index("setting")["difference"]
    np.testing.assert_allclose(lead, (accuracy["Estimator"] - accuracy["Prototypes"])[lead.index], atol=1e-6)
    assert (tmp_path / "out/heads.png").exists() and "Prototypes" in capsys.readouterr().out


def test_the_best_rival_is_chosen_on_other_episodes():
    index = pd.MultiIndex.from_product([["1-shot"], ["birds"], range(4)], names=["setting", "dataset", "episode"])
    rivals = pd.DataFrame({"a": [0.9, 0.1, 0.9, 0.1], "b": [0.2, 0.8, 0.3, 0.7]}, index)
    assert heads.best_on_other_episodes(rivals).tolist() == [0.2, 0.1, 0.3, 0.1]


def test_dropped_settings_are_compared_with_the_estimators_own(file, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["bench", str(file), "--out", str(tmp_path), "--episodes", "2"])
    dropped.main()
    table = pd.read_csv(tmp_path / "dropped.csv").set_index(["head", "setting"])["difference"]
    assert len(table) == 5 * len(dropped.REPLACED | dropped.ALWAYS) and normalisation.POWER == 0.7
    alone, shared = (table[:, setting] for setting in ("1-shot, 1 of 5 classes", "5-way 1-shot"))
    assert alone["the paper's refinement always"] < -0.05 and (shared.drop("pushes always") != 0).sum() > 5


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


def test_a_share_of_the_support_labels_is_wrong_and_queries_of_one_class_are_of_one_class(file):
    drawn = next(episodes_of(features_from(file), Setting(5, 4), 1))
    labels = mislabelled(drawn, 0.25).numpy()
    assert (labels != drawn.support_labels).sum() == 5 and set(labels) <= set(range(5))
    assert (mislabelled(drawn, 0).numpy() == drawn.support_labels).all()
    for drawn in episodes_of(features_from(file), SETTINGS["1-shot, 1 of 5 classes"], 3):
        assert len(set(drawn.query_labels)) == 1 and len(drawn.query_labels) == 50


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["short.npz"], "short.npz must be an .npz with 'features'"),
        (["text.npz"], "text.npz must be"),
        (["empty.npz"], "empty.npz must be"),
        (["column.npz"], "column.npz must be"),
        (["planted.npz", "--heads", "Step 0"], "needs one besides Step 0"),
        (["planted.npz", "--episodes", "0"], "--episodes must be 1 at least"),
        (["planted.npz", "--heads", "TIMM"], "there is no 'TIMM'; there are: Step 0, Estimator"),
        (["planted.npz", "--settings", "6-way"], "there is no '6-way'"),
        (["planted.npz", "planted.npz"], "the same name"),
        (["few.npz"], "has enough classes"),
        (["planted.npz"], "needs the package easyfsl: pip install tcnaps[rivals]"),
        (["--help"], "tcnaps_suite.experiments.rivals"),
    ],
)
def test_bad_files_and_names_are_named(root, file, monkeypatch, capsys, options, said):
    np.savez("short.npz", features=np.ones((3, 2)), labels=[0, 1])
    np.savez("few.npz", features=np.ones((30, 2)), labels=np.arange(30))
    np.savez("empty.npz", features=np.ones((0, 2)), labels=[])
    np.savez("column.npz", features=np.ones((2, 2)), labels=[[0], [1]])
    (root / "text.npz").write_text("no archive")
    if "rivals" in said:
        monkeypatch.setitem(sys.modules, "easyfsl", None)
    with pytest.raises(SystemExit):
        run_heads(monkeypatch, *options, "--out", "out")
    assert said in "".join(capsys.readouterr())
