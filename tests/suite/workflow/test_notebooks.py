"""The notebooks: their form, and all of them run by papermill, in reading order, on a study of a few episodes."""

import json
import re
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch
from in_process import InProcess
from notebook_files import cell, write_notebook
from papermill.engines import papermill_engines
from PIL import Image
from tiny_study import STUDY_FILE, train_and_evaluate, write_project

from tcnaps.config import UserError, load_study
from tcnaps.data import open_split
from tcnaps.episodes.loading import load_episode
from tcnaps.episodes.sampling import draw_episode
from tcnaps.training.checkpoints import load_model
from tcnaps_suite.workflow.batch import run_notebook
from tcnaps_suite.workflow.notebooks import code_cells, notebooks, shown

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


def test_every_notebook_that_a_target_runs_writes_something():
    declared = notebooks(ROOT / "notebooks")
    assert list(declared) == [notebook.stem for notebook in NOTEBOOKS]
    files = [name for notebook in declared.values() for name in (*notebook.writes.figures, *notebook.writes.tables)]
    assert len(files) == len(set(files)), "two notebooks write the same file"
    assert all(notebook.writes.figures or notebook.writes.tables for notebook in declared.values() if notebook.target)


@pytest.mark.parametrize(
    ("declared", "key"),
    [
        ({"target": "figurse"}, "target"),
        ({"target": None, "writes": {"figure": []}}, "writes.figure"),
        ({"target": "figures", "settings": "figure"}, "settings"),
        ({"target": None, "shown": [{"parameter": "evaluatoin"}]}, "'evaluation'"),
        ({}, "target"),
    ],
)
def test_a_wrong_declaration_is_an_error_that_names_notebook_and_key(tmp_path, declared, key):
    cells = cell("# Why?", kind="markdown"), cell("evaluation = ''", "parameters")
    write_notebook(tmp_path / "30-new.ipynb", *cells, tcnaps=declared)
    with pytest.raises(UserError, match=f"30-new.ipynb.*{key}"):
        notebooks(tmp_path)
    write_notebook(tmp_path / "30-new.ipynb", *cells)
    with pytest.raises(UserError, match="30-new.ipynb.*tcnaps"):
        notebooks(tmp_path)


def test_notebooks_are_shown_with_the_first_evaluation_of_their_trainings():
    studies = {name: load_study(ROOT / "configs" / f"{name}.yaml") for name in ("miniature", "mini-imagenet", "heads")}
    of = {name: shown(study, ROOT / "notebooks") for name, study in studies.items()}
    start = {"start": "variable-before-training", "evaluation": "variable"}
    assert of["miniature"]["18-before-and-after"] == start
    assert of["miniature"]["06-ablations"] == {"evaluation": "variable"}
    assert of["miniature"]["01-soft-k-means"] == {"evaluation": "5-way-1-shot"}
    assert of["miniature"]["11-differences"] == {"evaluations": ["variable", "5-way-1-shot"]}
    assert of["mini-imagenet"]["07-class-recall"] == {"evaluation": "5-way-1-shot"}  # there is no variable one
    assert {"06-ablations", "10-ways-and-shots", "18-before-and-after"}.isdisjoint(of["mini-imagenet"])
    assert "09-number-of-queries" in of["miniature"] and "09-number-of-queries" not in of["heads"]
    assert "26-heads" in of["heads"] and "26-heads" not in of["miniature"]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project's root with the tiny study, its networks made and evaluated."""
    root = tmp_path_factory.mktemp("project")
    write_project(root)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        patch.setitem(papermill_engines._engines, None, InProcess)  # kernels are test_workflow.py's part
        patch.setitem(sys.modules, "__main__", sys.modules["__main__"])  # IPython puts the notebook's in its place
        train_and_evaluate(load_study(STUDY_FILE))
        yield root


def run(name):
    """Runs a notebook of the project and returns what its last cell printed."""
    executed = Path("results/tiny/notebooks") / f"{name}.ipynb"
    parameters = {"study_file": STUDY_FILE} | EXTRA.get(name, {})
    run_notebook(Path("notebooks") / f"{name}.ipynb", executed, parameters, progress=False)
    outputs = json.loads(executed.read_text())["cells"][-1]["outputs"]
    return "".join("".join(output["text"]) for output in outputs)


def missing(name):
    """The figures and tables that a notebook declares, but has not made."""
    writes = notebooks(Path("notebooks"))[name].writes
    drawn = [f"figures/tiny/{figure}.{kind}" for figure in writes.figures for kind in ("png", "pdf")]
    declared = [*drawn, *(f"results/tiny/{table}" for table in writes.tables)]
    files = {file.format(training="support_and_query") for file in declared}
    return {file for file in files if not Path(file).exists()}


def without_origin(folder):
    """The figures that don't say where they come from."""
    found = []
    for path in Path(folder).rglob("*.png"):
        with Image.open(path) as image:
            found += [] if {"Study", "Digest", "Code", "Seed"} <= image.info.keys() else [path]
    return found


EXTRA = {
    "01-soft-k-means": {"evaluation": "5-way-1-shot-3", "dataset": "textures", "candidates": 2},
    "11-differences": {"evaluations": ["5-way-1-shot-3"], "retrain": False},
    "15-published-cells": {"benchmarks": {"textures": "mini-ImageNet"}},
    "16-precision": {"evaluations": ["5-way-1-shot-3"], "variants": ["Simple"]},
    "19-rivals": {"way": 3, "shots": [1], "queries_per_class": 3, "episodes": 2},
    "20-balance": {"way": 3, "queries": 6, "concentrations": [1], "episodes": 2},
    "21-active-learning": {"labels": 2, "episodes": 2, "pool_per_class": 2, "queries_per_class": 3},
    "22-continual-learning": {"way": 4, "shot": 1, "queries_per_class": 2, "episodes": 2},
    "23-log-determinant": {"trainings": {"support_and_query": "trained with −d²"}, "shots": [1]}
    | {"queries_per_class": 3, "episodes": 2, "scales": [1.0], "scale_settings": [[5, 1]]},
    "24-label-my-images": {"dataset": "digits"},
    "26-heads": {"evaluations": ["5-way-1-shot-3"], "scales": [0.5]},
}
# Figures of parameters that the tests leave out, to be faster.
NOT_DRAWN = {
    name: {f"figures/tiny/{name[3:]}-5-shot.{kind}" for kind in ("png", "pdf")}
    for name in ("19-rivals", "23-log-determinant")
}
ANSWERS = {
    "00-data": r"\d+ classes",
    "02-pretrain": r"Held-out accuracy after 1 epochs: [\d.]+ ± [\d.]+%",
    "03-meta-train": r"support_and_query, best: validation accuracy [\d.]+ ± [\d.]+%",
    "04-evaluate": r"support_and_query, variable, minimum 2, maximum 4: [\d.]+ ± [\d.]+%",
    "12-stepper": r"Accuracy there: [\d.]+% \([-+−]?[\d.]+ points from step 0\)",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", [notebook.stem for notebook in NOTEBOOKS])
def test_a_notebook_runs_and_answers_with_a_number(project, name):
    answer = run(name)
    assert re.search(ANSWERS.get(name, r"\d ?±|95% interval"), answer), answer
    assert missing(name) == NOT_DRAWN.get(name, set())
    assert not without_origin("figures")


@pytest.mark.slow
def test_printed_accuracies_follow_from_the_rows(project):
    """The tables' numbers, recomputed from the rows by hand; the heatmap's cells, from the model stopping early."""
    for name, table in {"05-accuracy": "accuracy", "08-refinement-steps": "refinement-steps"}.items():
        if not (project / f"results/tiny/{table}.csv").exists():
            run(name)
    study = load_study(STUDY_FILE)
    accuracy = pd.read_csv("results/tiny/accuracy.csv").set_index(["variant", "dataset"])["accuracy"]
    for name in study.datasets:
        rows = pd.read_parquet(f"results/tiny/rows/support/variable/{name}.parquet")
        right = (rows["prediction_0"] == rows["label"]).groupby(rows["episode"]).mean()
        assert accuracy["Simple", name] == pytest.approx(right.mean(), abs=1e-5)
    grid = pd.read_csv("results/tiny/refinement-steps.csv")
    model, protocol = load_model(study, "support_and_query"), study.evaluations["variable"].protocol
    for rule in grid.sample(3, random_state=0).itertuples():
        means = []
        for name in study.datasets:
            source = open_split(study, name, "test")
            episodes = [load_episode(source, draw_episode(source, protocol, study.seed, i)) for i in range(2)]
            with torch.no_grad():
                hits = [model.classify(e, rule.minimum, rule.maximum).labels == e.query_labels for e in episodes]
            means.append(sum(own.double().mean().item() for own in hits) / len(hits))
        assert rule.accuracy == pytest.approx(sum(means) / len(means), abs=1e-5)
