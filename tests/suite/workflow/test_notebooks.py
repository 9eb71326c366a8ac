"""The notebooks: their form, and all of them run by papermill, in reading order, on a study of a few episodes."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest
import yaml
from measured import write_measurements
from PIL import Image
from tiny_study import STUDY

from tcnaps.config.fingerprint import code_cells

ROOT = Path(__file__).parents[3]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda n: n.stem)
def test_the_form_of_a_notebook(notebook):
    content = json.loads(notebook.read_text())
    first = "".join(content["cells"][0]["source"])
    assert re.match(r"# .*\?", first), "the title asks a question"
    cells = code_cells(notebook)
    assert sum("parameters" in tags for _, tags in cells) == 1
    assert all(len(source.splitlines()) <= 15 for source, _ in cells)
    assert not any(re.search(r"^\s*(def|class) |sys\.path|^[!%]", source, re.MULTILINE) for source, _ in cells)
    code = [cell for cell in content["cells"] if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] or cell["execution_count"] for cell in code)
    assert "print(" in cells[-1][0], "the last cell answers"


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project's root with the tiny study, its networks trained: one training by notebook, the others directly."""
    root = tmp_path_factory.mktemp("project")
    shutil.copytree(ROOT / "notebooks", root / "notebooks")
    shutil.copytree(ROOT / "results" / "published", root / "results" / "published")
    shutil.copy(ROOT / "Snakefile", root)
    write_measurements(root / "results" / "benchmarks.json")
    (root / "configs").mkdir()
    (root / "configs" / "tiny.yaml").write_text(yaml.safe_dump(STUDY, sort_keys=False))
    before = Path.cwd()
    os.chdir(root)
    try:
        from tcnaps.config import load_study
        from tcnaps.evaluation.evaluate import evaluate
        from tcnaps.training.meta_training import meta_train

        run("02-pretrain")
        run("03-meta-train")
        study = load_study("configs/tiny.yaml")
        for training in study.trainings:
            if training != "support_and_query":
                meta_train(study, training)
                evaluate(study, training)
        run("04-evaluate")
    finally:
        os.chdir(before)
    return root


def run(name):
    """Runs a notebook of the project in the working folder and returns what its last cell printed."""
    from tcnaps_suite.workflow.batch import run_notebook

    executed = Path("results/tiny/notebooks") / f"{name}.ipynb"
    parameters = {} if name == "15-speed" else {"study_file": "configs/tiny.yaml"} | EXTRA.get(name, {})
    run_notebook(Path("notebooks") / f"{name}.ipynb", executed, parameters, progress=False)
    outputs = json.loads(executed.read_text())["cells"][-1]["outputs"]
    return "".join("".join(output.get("text", "")) for output in outputs)


def figures_drawn(name):
    return sum(source.count("style.figure(") for source, _ in code_cells(Path("notebooks") / f"{name}.ipynb"))


def without_origin(folder):
    """The figures that don't say where they come from."""
    found = []
    for path in Path(folder).rglob("*.png"):
        with Image.open(path) as image:
            found += [] if {"Study", "Digest", "Code", "Seed"} <= image.info.keys() else [path]
    return found


def images_shown(name):
    """How many pictures the executed notebook displays; those inside widgets do not count."""
    cells = json.loads((Path("results/tiny/notebooks") / f"{name}.ipynb").read_text())["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    return sum("image/png" in output.get("data", {}) for output in outputs)


EXTRA = {
    "01-soft-k-means": {"evaluation": "5-way-1-shot-3", "dataset": "textures", "candidates": 3}
    | {"scale_episodes": 2, "scales": [0.25, 1.0]},
    "11-differences": {"evaluations": ["5-way-1-shot-3"], "retrain": False},
    "16-precision": {"evaluations": ["5-way-1-shot-3"]},
    "19-rivals": {"shots": [1], "queries_per_class": 3, "episodes": 2},
    "20-balance": {"queries": 6, "concentrations": [1], "episodes": 2},
    "21-active-learning": {"labels": 3, "episodes": 2},
    "22-continual-learning": {"way": 4, "shot": 2, "queries_per_class": 3, "episodes": 2},
    "23-log-determinant": {"trainings": {"support_and_query": "trained with −d²"}, "shots": [1]}
    | {"queries_per_class": 3, "episodes": 2, "scales": [1.0], "scale_settings": [[5, 1]]},
    "25-scale-in-training": {"parts": [0, 1], "scales": [0.5, 1.0], "queries_per_class": 3, "episodes": 2},
    "26-heads": {"evaluations": ["5-way-1-shot-3"], "scales": [0.5]},
}
WITHOUT_INTERVAL = ("00-data", "15-speed")
LOOKING = [n.stem for n in NOTEBOOKS if n.stem[:2] not in ("02", "03", "04")]


@pytest.mark.slow
def test_the_training_notebooks_answer_and_leave_their_figures(project, monkeypatch):
    for name, pattern in {
        "02-pretrain": r"Held-out accuracy after 1 epochs: [\d.]+ ± [\d.]+%",
        "03-meta-train": r"support_and_query, best: validation accuracy [\d.]+ ± [\d.]+%",
        "04-evaluate": r"support_and_query, variable, minimum 2, maximum 4: [\d.]+ ± [\d.]+%",
    }.items():
        executed = json.loads((project / "results/tiny/notebooks" / f"{name}.ipynb").read_text())
        monkeypatch.chdir(project)
        assert images_shown(name) == figures_drawn(name)
        assert re.search(pattern, "".join(executed["cells"][-1]["outputs"][0]["text"])), name
    for figure in ("pretraining.png", "pretraining.pdf", "meta-training/support_and_query.png"):
        assert (project / "figures/tiny" / figure).stat().st_size > 2_000


@pytest.mark.slow
@pytest.mark.parametrize("name", LOOKING)
def test_a_notebook_runs_and_answers_with_a_number(project, name, monkeypatch):
    monkeypatch.chdir(project)
    answer = run(name)
    assert re.search(r"\d", answer) and ("±" in answer or "95% interval" in answer or name in WITHOUT_INTERVAL), answer
    assert images_shown(name) == figures_drawn(name)
    assert not without_origin("figures")


@pytest.mark.slow
def test_printed_accuracies_follow_from_the_rows(project, monkeypatch):
    """The tables' numbers, recomputed from the rows by hand; the heatmap's cells, from the model stopping early."""
    import pandas as pd
    import torch

    from tcnaps.config import load_study
    from tcnaps.data import open_split
    from tcnaps.episodes.loading import load_episode
    from tcnaps.episodes.sampling import draw_episode
    from tcnaps.training.checkpoints import load_model

    monkeypatch.chdir(project)
    for name, table in {"05-accuracy": "accuracy", "08-refinement-steps": "refinement-steps"}.items():
        if not (project / f"results/tiny/{table}.csv").exists():
            run(name)
    study = load_study("configs/tiny.yaml")
    accuracy = pd.read_csv("results/tiny/accuracy.csv").set_index(["variant", "dataset"])["accuracy"]
    for name in study.datasets:
        rows = pd.read_parquet(f"results/tiny/rows/support/variable/{name}.parquet")
        right = (rows["prediction_0"] == rows["label"]).groupby(rows["episode"]).mean()
        assert accuracy["Simple", name] == pytest.approx(right.mean(), abs=1e-5)
    grid = pd.read_csv("results/tiny/refinement-steps.csv")
    model, protocol = load_model(study, "support_and_query"), study.evaluations["variable"].protocol
    for cell in grid.sample(6, random_state=0).itertuples():
        means = []
        for name in study.datasets:
            source = open_split(study, name, "test")
            episodes = [load_episode(source, draw_episode(source, protocol, study.seed, i)) for i in range(3)]
            with torch.no_grad():
                hits = [model.classify(e, cell.minimum, cell.maximum).labels == e.query_labels for e in episodes]
            means.append(sum(own.double().mean().item() for own in hits) / len(hits))
        assert cell.accuracy == pytest.approx(sum(means) / len(means), abs=1e-5)
