"""The notebooks: their form, what makes their jobs stale, and all run by papermill, in order, on a few episodes."""

import json
import re
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from nbformat.v4 import new_output
from notebook_files import cell, write_notebook
from papermill.engines import Engine, papermill_engines
from PIL import Image
from record_files import write
from small_study import small_study
from tiny_study import STUDY_FILE, train_and_evaluate, write_project
from traitlets.config import Config

from tcnaps.config import UserError, fingerprint, load_study
from tcnaps.data import open_split
from tcnaps.episodes.loading import load_episode
from tcnaps.episodes.sampling import draw_episode
from tcnaps.training.checkpoints import load_model
from tcnaps_suite.workflow import jobs, notebooks as declared
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
    (tmp_path / "30-new.ipynb").write_text("{}")
    with pytest.raises(UserError, match="30-new.ipynb is not a notebook"):
        notebooks(tmp_path)


def test_notebooks_are_shown_with_the_first_evaluation_of_their_trainings():
    names = "miniature", "mini-imagenet", "heads", "mini-imagenet-heads"
    of = {name: shown(load_study(ROOT / "configs" / f"{name}.yaml"), ROOT / "notebooks") for name in names}
    assert of["miniature"]["18-before-and-after"] == {"start": "variable-before-training", "evaluation": "variable"}
    assert of["miniature"]["06-ablations"] == {"evaluation": "variable"}
    assert of["miniature"]["01-soft-k-means"] == {"evaluation": "5-way-1-shot"}
    assert of["miniature"]["11-differences"] == {"evaluations": ["variable", "5-way-1-shot"]}
    assert of["mini-imagenet"]["07-class-recall"] == {"evaluation": "5-way-1-shot"}  # there is no variable one
    assert {"06-ablations", "10-ways-and-shots", "18-before-and-after"}.isdisjoint(of["mini-imagenet"])
    assert "09-number-of-queries" in of["miniature"] and "09-number-of-queries" not in of["heads"]
    assert [name for name in of if "26-heads" in of[name]] == ["heads", "mini-imagenet-heads"]
    assert [name for name in of if "21-active-learning" in of[name]] == ["miniature", "mini-imagenet"]
    study = load_study(ROOT / "configs/miniature.yaml")
    changed = study.evaluations["5-way-1-shot"].model_copy(update={"before_training": True})
    other = {name: each for name, each in study.evaluations.items() if not each.before_training} | {"early": changed}
    pair = shown(study.model_copy(update={"evaluations": other}), ROOT / "notebooks")["18-before-and-after"]
    assert pair == {"start": "early", "evaluation": "5-way-1-shot"}


class InProcess(Engine):
    """Runs cells in this process: no kernel has to start and load PyTorch. Keeps what a cell prints to stdout."""

    @classmethod
    def execute_managed_notebook(cls, nb_man, kernel_name, **options):
        shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
        shell.reset(new_session=False)
        for code in (each for each in nb_man.nb.cells if each.cell_type == "code"):
            with capture_output() as captured:
                result = shell.run_cell(code.source)
            result.raise_error()
            code.outputs = [new_output("stream", name="stdout", text=captured.stdout)]
        plt.close("all")


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
    return "".join("".join(output["text"]) for output in json.loads(executed.read_text())["cells"][-1]["outputs"])


def missing(name):
    """The figures and tables that a notebook declares, but has not made."""
    writes = notebooks(Path("notebooks"))[name].writes
    declared = [f"figures/tiny/{figure}.{kind}" for figure in writes.figures for kind in ("png", "pdf")]
    declared += [f"results/tiny/{table}" for table in writes.tables]
    return {file for file in declared if not Path(file.format(training="support_and_query")).exists()}


EXTRA = {
    "01-soft-k-means": {"evaluation": "5-way-1-shot-3", "dataset": "textures", "candidates": 2},
    "11-differences": {"evaluations": ["5-way-1-shot-3"], "retrain": False},
    "15-published-cells": {"benchmarks": {"textures": "mini-ImageNet"}},
    "16-precision": {"evaluations": ["5-way-1-shot-3"], "variants": ["Simple"]},
    "19-rivals": {"way": 3, "shots": [1], "queries_per_class": 3, "episodes": 2},
    "20-balance": {"way": 3, "queries": 6, "concentrations": [1], "episodes": 2}
    | {"left_out_classifiers": ["α-TIM", "PT-MAP", "TIM", "LaplacianShot", "BD-CSPN"]},
    "21-active-learning": {"labels": 2, "episodes": 2, "pool_per_class": 2, "queries_per_class": 3},
    "22-continual-learning": {"way": 4, "shot": 1, "queries_per_class": 2, "episodes": 2},
    "23-log-determinant": {"trainings": {"support_and_query": "trained with −d²"}, "shots": [1]}
    | {"queries_per_class": 3, "episodes": 2, "scales": [1.0], "scale_settings": [[5, 1]]},
    "24-label-my-images": {"dataset": "digits", "backbone": "study"},
    "26-heads": {"evaluations": ["variable"], "scales": [0.5]},
}
# Figures of parameters that the tests leave out, to be faster.
NOT_DRAWN = {
    name: {f"figures/tiny/{name[3:]}-5-shot.{kind}" for kind in ("png", "pdf")}
    for name in ("19-rivals", "23-log-determinant")
}
ANSWERS = {
    "00-data": r"\d+ classes",
    "02-pretrain": r"Held-out accuracy after 1 epochs: [\d.]+ ± [\d.]+%",
    "03-meta-train": r"support_and_query, highest: validation accuracy [\d.]+ ± [\d.]+%",
    "04-evaluate": r"support_and_query, variable, minimum 2, maximum 4: [\d.]+ ± [\d.]+%",
    "12-stepper": r"Accuracy there: [\d.]+% \([-+−]?[\d.]+ points from step 0\)",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", [notebook.stem for notebook in NOTEBOOKS])
def test_a_notebook_runs_and_answers_with_a_number(project, name):
    answer = run(name)
    assert re.search(ANSWERS.get(name, r"\d ?±|95% interval"), answer), answer
    assert missing(name) == NOT_DRAWN.get(name, set())
    for path in Path("figures").rglob("*.png"):
        with Image.open(path) as image:
            assert {"Study", "Digest", "Code", "Seed"} <= image.info.keys(), path


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
            means += [own.double().mean().item() for own in hits]
        assert rule.accuracy == pytest.approx(sum(means) / len(means), abs=1e-5)


ONE, HELPER, OTHER = (f"tcnaps_suite/{name}.py" for name in ("experiments/one", "widgets/helper", "experiments/other"))
IMPORTS = ("from tcnaps_suite.experiments.one import answer", "from tcnaps_suite.experiments import one as first")


@pytest.fixture
def code(tmp_path, monkeypatch):
    """A project with three modules of the suite, of which one imports another, and with one of figures."""
    assert all((fingerprint.HOME / place).exists() for place in jobs.FIGURES_CODE)
    for module in (fingerprint, declared):
        monkeypatch.setattr(module, "HOME", tmp_path)
    monkeypatch.setattr(jobs, "FIGURES_CODE", ("tcnaps/figures",))
    write(tmp_path, ONE, HELPER, OTHER, "tcnaps/figures/style.py")
    (tmp_path / ONE).write_text("from tcnaps_suite.widgets import helper")
    return tmp_path


def keys(path):
    """The notebook's keys, where it draws and where it computes with other code."""
    fingerprint.module_code.cache_clear()
    notebook = declared.Notebook(path=path, title="", parameters={}, target="figures")
    return [jobs.key(notebook, small_study(), [job], []) for job in ({"job": "figures"}, {"code": "of training"})]


@pytest.mark.parametrize("imports", IMPORTS)
def test_a_notebooks_code_counts_but_not_outputs_and_prose(code, imports):
    source = f"%matplotlib inline\n{imports}\nanswer(1)"
    path = write_notebook(code / "n.ipynb", cell("# Why?", kind="markdown"), cell(source))
    before = keys(path)
    output = {"output_type": "stream", "name": "stdout", "text": "1"}
    saved = cell(source) | {"outputs": [output], "execution_count": 9}
    write_notebook(path, cell("# How?", kind="markdown"), saved)
    assert keys(path) == before
    write_notebook(path, cell(source.replace("1", "2")))
    assert not set(keys(path)) & set(before)


@pytest.mark.parametrize("imports", IMPORTS)
@pytest.mark.parametrize(
    ("place", "stale"),
    [(ONE, [True, True]), (HELPER, [True, True]), (OTHER, [False, False]), ("tcnaps/figures/style.py", [True, False])],
)
def test_code_makes_stale_what_runs_it(code, imports, place, stale):
    path = write_notebook(code / "n.ipynb", cell(imports))
    before, file = keys(path), code / place
    file.write_text(file.read_text() + "\nnew = 1\n")
    assert [old != new for old, new in zip(before, keys(path))] == stale
