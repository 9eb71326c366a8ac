"""Notebooks and studies from the command line; with the profiles of clusters as dry runs, as no cluster is at hand."""

import json
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
import yaml
from filelock import FileLock
from notebook_files import cell, write_notebook

from tcnaps.config import UserError
from tcnaps_suite.workflow import batch, stopping
from tcnaps_suite.workflow.batch import NotebookFailed, main, run_notebook

ROOT = Path(__file__).parents[3]
STUDY = (ROOT / "configs" / "miniature.yaml").read_text()


@pytest.fixture
def notebook(tmp_path):
    return write_notebook(
        tmp_path / "notebooks" / "one.ipynb",
        cell("# What is one?", kind="markdown"),
        cell("episodes = 3\ntraining: str = 'support_and_query'\nscales = [0.5, 1.0]\nrate = 0.1", "parameters"),
        cell("from pathlib import Path\nPath('out.txt').write_text(f'{episodes} {training}')"),
        cell("1 / (episodes - 5)"),
    )


def test_what_is_asked_for_wrongly_is_an_error_before_anything_runs(notebook, tmp_path, capsys):
    output = tmp_path / "out.ipynb"
    with pytest.raises(UserError, match="'epsiodes'.*'episodes'"):
        run_notebook(notebook, output, {"epsiodes": 1})
    with pytest.raises(UserError, match="one.ipynb"):
        run_notebook(notebook, notebook, {})
    with pytest.raises(UserError, match="is a folder: name another file"):
        run_notebook(notebook, tmp_path, {})
    for tags in ([], ["parameters"]):  # none, and two
        path = write_notebook(tmp_path / "n.ipynb", cell("x = 1", *tags), cell("y = 2", *tags))
        with pytest.raises(UserError, match="n.ipynb"):
            run_notebook(path, output, {})
    assert main(["notebook", str(notebook), str(output), "-p", "xyzzy", "1"]) == 2
    assert "'xyzzy'" in capsys.readouterr().err
    assert not output.exists()


def test_values_of_the_command_line_follow_the_defaults(tmp_path, monkeypatch):
    code = "count: int = 3\ntraining = 'x'\nrate = 0.1\nscales = [0.5]\nnothing = None\ncomputed = 1 + f(3)"
    path = str(write_notebook(tmp_path / "n.ipynb", cell(code, "parameters")))
    given = {"count": "7", "training": "null", "rate": "0.2", "scales": "[1, 2]", "nothing": "text", "computed": "5"}
    values = []
    monkeypatch.setattr(batch, "run_notebook", lambda notebook, output, read, progress: values.append(read))
    assert main(["notebook", path, "out.ipynb", *(text for pair in given.items() for text in ("-p", *pair))]) == 0
    assert values == [given | {"count": 7, "rate": 0.2, "scales": [1, 2], "computed": 5}]
    optional = ["--if-parameter", "count", "4", "--if-parameter", "device", "cuda"]  # it has no `device`
    assert main(["notebook", path, "out.ipynb", *optional]) == 0 and values[1] == {"count": 4}


def test_a_notebook_runs_in_its_folder_with_its_parameters(notebook, tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_PATH", "/nowhere")
    run_notebook(notebook, tmp_path / "made" / "out.ipynb", {"episodes": 4}, progress=False)
    assert (notebook.parent / "out.txt").read_text() == "4 support_and_query"
    executed = json.loads((tmp_path / "made" / "out.ipynb").read_text())["cells"]
    assert {file.name for file in notebook.parent.iterdir()} == {notebook.name, "out.txt"}  # no sockets
    assert executed[-1]["outputs"][0]["data"]["text/plain"] in ("-1.0", ["-1.0"])
    assert "JUPYTER_PATH" not in os.environ


def test_a_failing_cell_is_named_and_the_executed_notebook_kept(notebook, tmp_path):
    output = tmp_path / "out.ipynb"
    message = r"(?s)one.ipynb failed in cell \[4\]: ZeroDivisionError: .*out.ipynb"
    with pytest.raises(NotebookFailed, match=message):
        run_notebook(notebook, output, {"episodes": 5}, progress=False)
    assert "ZeroDivisionError" in output.read_text()


def test_a_dead_kernel_is_an_error(tmp_path):
    path = write_notebook(tmp_path / "n.ipynb", cell("x = 1", "parameters"), cell("import os\nos._exit(9)"))
    with pytest.raises(NotebookFailed, match="n.ipynb"):
        run_notebook(path, tmp_path / "out.ipynb", {}, progress=False)


@pytest.fixture
def project(root):
    """A project's root with the miniature's study, in which nothing may be started."""
    (root / "Snakefile").write_text("raise SystemExit('started')")
    (root / "profiles").symlink_to(ROOT / "profiles")
    (root / "study.yaml").write_text(STUDY)
    return root


@pytest.mark.parametrize(
    ("study", "options", "message"),
    [
        ("nmae: x", (), "'name'"),
        (STUDY, ("--device", "gpu"), "'gpu'"),
        (STUDY, ("--device", "cuda:99"), "'cuda:99'"),
        (STUDY, ("--cores", "2", "--processes", "3"), "processes is 3"),
        (STUDY, ("--dry-run", "--profile", "slrum"), "did you mean 'slurm'?"),
    ],
)
def test_what_is_wrong_is_an_error_before_anything_is_started(project, capsys, study, options, message):
    (project / "study.yaml").write_text(study)
    assert main(["study", "study.yaml", *options]) == 2
    error = capsys.readouterr().err
    assert message in error and "started" not in error
    assert not (project / "results").exists()


def test_one_run_of_a_study_at_a_time(project, monkeypatch, capsys):
    monkeypatch.setattr("tcnaps_suite.workflow.run.LOCK_PATIENCE", 0.3)
    (project / "results" / "miniature").mkdir(parents=True)
    with FileLock(project / "results" / "miniature" / ".lock"):
        assert main(["study", "study.yaml"]) == 2
    assert "'miniature'" in capsys.readouterr().err


def test_results_that_cannot_be_written_are_named(project, monkeypatch, capsys):
    monkeypatch.setattr(FileLock, "acquire", Mock(side_effect=PermissionError(13, "Permission denied")))
    assert main(["study", "study.yaml"]) == 2
    assert "Nothing can be written to results/miniature" in capsys.readouterr().err


def planned(profile):
    """What Snakemake itself prints of the miniature's jobs in a dry run with a profile, by rule."""
    command = [sys.executable, "-m", "snakemake", "--dry-run", "--forceall", "--printshellcmds", "--nolock"]
    command += ["--workflow-profile", f"profiles/{profile}", "--config", "study=configs/miniature.yaml"]
    command += ["device=cuda", "processes=2", "--", "all", "all_differences"]
    path = os.pathsep.join([*stopping.plugins(), str(ROOT)])
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    blocks = re.findall(r"^rule (\w+):\n((?:    .*\n)+\n?.*)", done.stderr + done.stdout, flags=re.MULTILINE)
    return {name: text for name, text in blocks if "batch notebook" in text}


@pytest.mark.slow
def test_jobs_that_train_ask_slurm_for_gpus_and_each_gets_its_own_parameters():
    jobs = planned("slurm")
    assert {"pretrain", "meta_train_support", "evaluate_support", "accuracy", "differences"} <= jobs.keys()
    for name, text in jobs.items():
        gpus = 2 if name.startswith(("pretrain", "meta_train", "evaluate")) else int(name == "differences")
        assert re.findall(r"gpu=(\d)", text) == [str(gpus)] * (gpus > 0), name
        assert "mem_mb=" in text and "runtime=" in text, name
        assert "device cuda" in text and "processes 2" in text, text
    for training in ("support", "support_and_query_refined"):
        assert f"-p training '{training}'" in jobs[f"meta_train_{training}"]
    assert "-p start 'variable-before-training' -p evaluation 'variable'" in jobs["before_and_after"]


@pytest.mark.slow
def test_jobs_of_kubernetes_run_in_the_project_on_the_shared_volume_and_its_executor_knows_that():
    from tcnaps_suite.workflow.plugins.cluster.snakemake_executor_plugin_kubernetes_shared import common_settings

    assert not common_settings.implies_no_shared_fs
    assert "gpu_manufacturer=nvidia" in planned("kubernetes")["meta_train_support"].replace("'", "")
    profile = yaml.safe_load((ROOT / "profiles/kubernetes/config.yaml").read_text())
    claim, path = profile["kubernetes-shared-persistent-volumes"][0].split(":")
    assert profile["precommand"].startswith(f"cd {path}/") and claim


def test_without_the_plugin_of_kubernetes_snakemake_finds_none_that_needs_it(monkeypatch):
    monkeypatch.setattr(stopping, "find_spec", lambda name: None)
    found = [module.name for module in pkgutil.iter_modules(stopping.plugins())]
    assert "snakemake_logger_plugin_bar" in found
    assert not [name for name in found if name.startswith("snakemake_executor")]  # it would be imported, and fail
