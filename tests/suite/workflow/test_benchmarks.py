"""The benchmarks on small things: that they run, compare what they say they compare, and keep what was measured."""

import importlib
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from measured import write_measurements

FOLDER = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture
def modules(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module("rows"), importlib.import_module("device_rows")


def test_the_direct_model_is_the_same_model(modules):
    rows, _ = modules
    ours = rows.our_model().eval().double()
    ours.settings = replace(ours.settings, clustering_dtype=torch.float64)
    direct = sys.modules["direct_model"].Model().double()
    with torch.no_grad():
        for parameter in ours.film_generator.parameters():  # far from gamma 1 and beta 0
            parameter.normal_(0, 0.05)
    direct.load_state_dict(ours.state_dict())
    task = rows.episode(3, 2, 4, size=32)
    images = [part.double() for part in (task.support_images, task.query_images)]
    task = type(task)(images[0], task.support_labels, images[1], task.query_labels)
    with torch.no_grad():
        theirs = direct.features(*rows.contents(task))
        support, _, query, _ = ours.features(task)
        labels = direct.classify(*rows.contents(task), 2, 4)
        torch.testing.assert_close(support, theirs[0], rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(query, theirs[1], rtol=1e-9, atol=1e-9)
        assert torch.equal(ours.classify(task, 2, 4).labels, labels)


def test_rows_beside_an_expert_s_clustering_and_scikit_learn_s_models(modules):
    rows, _ = modules
    first = next(rows.GROUPS["cholesky"](32))
    assert rows.labels_and_steps(*(build()() for build in first.calls.values())) == {"same labels": 1, "same steps": 1}
    few = next(rows.GROUPS["estimator"](32))
    right = {name: build()().item() for name, build in few.calls.items()}
    assert min(right.values()) > 0.3 and list(right)[-1] == "self-training"  # of ten classes


def test_an_episode_on_a_device_part_by_part(modules, monkeypatch):
    _, device_rows = modules
    monkeypatch.setattr(device_rows, "matrix_limit", lambda device, dtype: 1e9)
    *rows, loading = device_rows.measure_device(torch.device("cpu"), 32, 1, {"2-way 1-shot": (2, 1, 2)})
    parts = ["task encoder", "backbone", "clustering", "whole", "training step"]
    assert [row["name"].split(": ")[-1] for row in rows] == parts
    assert loading["name"].endswith("loading 6 images")
    for row in rows:
        assert row["group"] == "device" and all(one["seconds"] > 0 for one in row["measured"].values())
    assert {"float32", "bfloat16", "direct"} == set(rows[3]["measured"])


def test_rows_of_groups_not_measured_again_are_kept(modules, monkeypatch, tmp_path):
    run = importlib.import_module("run")
    output = tmp_path / "benchmarks.json"
    old = {"group": "data", "name": "kept", "size": 84, "measured": {}}
    output.write_text(json.dumps({"per_image": {}, "rows": [old, {**old, "group": "variants", "name": "replaced"}]}))
    monkeypatch.setattr(run, "measure", lambda group, *_: [{"group": group, "name": "new", "size": 32, "measured": {}}])
    monkeypatch.setattr(run, "per_image", lambda size: {})
    monkeypatch.setattr(run.measuring, "machine", dict)
    monkeypatch.setattr(sys, "argv", ["run.py", "--only", "variants", "--size", "32", "--output", str(output)])
    run.main()
    assert [row["name"] for row in json.loads(output.read_text())["rows"]] == ["kept", "new"]


def test_results_are_compared_and_what_ends_early_has_a_problem(modules):
    measuring = importlib.import_module("measuring")
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


def test_what_was_measured_becomes_tables_and_figures(modules, tmp_path, capsys):
    drawing, path = importlib.import_module("drawing"), tmp_path / "benchmarks.json"
    with pytest.raises(FileNotFoundError, match="make bench"):
        drawing.load_measurements(path)
    write_measurements(path)
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
