import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from notebook_files import cell, write_notebook

import tcnaps
from tcnaps.studies import batch
from tcnaps.studies.batch import NotebookFailed, main, notebook_parameters, run_notebook
from tcnaps.studies.run import BatchError, _lock

ROOT = Path(tcnaps.__file__).parents[1]
STUDY = (ROOT / "configs" / "miniature.yaml").read_text()
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT)}


@pytest.fixture
def notebook(tmp_path):
    return write_notebook(
        tmp_path / "notebooks" / "one.ipynb",
        cell("# What is one?", kind="markdown"),
        cell("episodes = 3\ntraining: str = 'support_and_query'\nscales = [0.5, 1.0]\nrate = 0.1", "parameters"),
        cell("from pathlib import Path\nPath('out.txt').write_text(f'{episodes} {training}')"),
        cell("1 / (episodes - 5)"),
    )


# ---- parameters


def test_an_unknown_parameter_is_an_error_before_anything_runs(notebook, tmp_path, capsys):
    defaults = {"episodes": 3, "training": "support_and_query", "scales": [0.5, 1.0], "rate": 0.1}
    assert notebook_parameters(notebook) == defaults
    with pytest.raises(BatchError, match=r"no parameter 'epsiodes'; did you mean 'episodes'\?"):
        run_notebook(notebook, tmp_path / "out.ipynb", {"epsiodes": 1})
    assert main(["notebook", str(notebook), str(tmp_path / "out.ipynb"), "-p", "xyzzy", "1"]) == 2
    error = capsys.readouterr().err
    assert "no parameter 'xyzzy'; known: episodes, training, scales, rate" in error
    assert not (tmp_path / "out.ipynb").exists()


@pytest.mark.parametrize("tags", [(), ("parameters", "parameters")], ids=["none", "two"])
def test_exactly_one_cell_holds_the_parameters(tmp_path, tags):
    path = write_notebook(tmp_path / "n.ipynb", cell("x = 1", *tags[:1]), cell("y = 2", *tags[1:]))
    with pytest.raises(BatchError, match="n.ipynb has (no|2) code cells tagged 'parameters' and needs"):
        run_notebook(path, tmp_path / "out.ipynb", {})


def test_the_executed_notebook_must_not_replace_its_source(notebook):
    with pytest.raises(BatchError, match="is the notebook itself"):
        run_notebook(notebook, notebook, {})


def test_values_of_the_command_line_follow_the_defaults(tmp_path, monkeypatch, capsys):
    code = "count = 3\ntraining = 'x'\nrate = 0.1\nscales = [0.5]\nways = (5,)\nnothing = None\nother = ''"
    path = str(write_notebook(tmp_path / "n.ipynb", cell(code, "parameters")))
    given = {"count": "7", "training": "null", "rate": "2", "scales": "[1, 2]", "ways": "[1]", "nothing": "text"}
    given |= {"other": '"support"'}
    values = []
    monkeypatch.setattr(batch, "run_notebook", lambda notebook, output, read, progress: values.append(read))
    assert main(["notebook", path, "out.ipynb", *(text for pair in given.items() for text in ("-p", *pair))]) == 0
    read = {"count": 7, "training": "null", "rate": 2.0, "scales": [1, 2], "ways": [1], "nothing": "text"}
    assert values == [read | {"other": "support"}] and isinstance(values[0]["rate"], float)
    for name, text, kind in (("count", "many", "int"), ("count", "true", "int"), ("scales", "1", "list")):
        assert main(["notebook", path, "out.ipynb", "-p", name, text]) == 2
        assert f"'{name}' must be {kind}" in capsys.readouterr().err


# ---- execution


def test_a_notebook_runs_in_its_folder_with_its_parameters(notebook, tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_PATH", "/nowhere")
    run_notebook(notebook, tmp_path / "made" / "out.ipynb", {"episodes": 4}, progress=False)
    assert (notebook.parent / "out.txt").read_text() == "4 support_and_query"
    executed = json.loads((tmp_path / "made" / "out.ipynb").read_text())["cells"]
    assert executed[-1]["outputs"][0]["data"]["text/plain"] in ("-1.0", ["-1.0"])
    assert "JUPYTER_PATH" not in os.environ


def test_a_failing_cell_is_named_and_the_executed_notebook_kept(notebook, tmp_path):
    output = tmp_path / "out.ipynb"
    message = r"(?s)one.ipynb failed in cell \[4\], which begins '1 / .*ZeroDivisionError: .*out.ipynb"
    with pytest.raises(NotebookFailed, match=message):
        run_notebook(notebook, output, {"episodes": 5}, progress=False)
    assert "ZeroDivisionError" in output.read_text()


def test_a_dead_kernel_is_an_error(tmp_path):
    path = tmp_path / "n.ipynb"
    write_notebook(path, cell("x = 1", "parameters"), cell("import os\nos._exit(9)"))
    with pytest.raises(NotebookFailed, match="n.ipynb: the kernel died"):
        run_notebook(path, tmp_path / "out.ipynb", {}, progress=False)


def test_nothing_is_left_running_when_the_parent_is_killed(tmp_path):
    path, kernel = tmp_path / "n.ipynb", tmp_path / "kernel"
    waiting = "import os, time\nopen('kernel', 'w').write(str(os.getpid()))\ntime.sleep(60)"
    write_notebook(path, cell("x = 1", "parameters"), cell(waiting))
    command = f"'{sys.executable}' -m tcnaps.studies.batch notebook --parent $$ '{path}' '{path}.out' & wait"
    shell = subprocess.Popen(["bash", "-c", command], env=ENVIRONMENT, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: kernel.exists() and kernel.read_text(), 60)
        family = psutil.Process(shell.pid).children(recursive=True)
        assert int(kernel.read_text()) in {process.pid for process in family}
    finally:
        shell.kill()
        shell.wait()
    wait_for(lambda: not any(alive(process) for process in family), 10)


def wait_for(condition, seconds):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.05)


def alive(process):
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


# ---- studies


@pytest.mark.parametrize(
    ("study", "options", "message"),
    [
        ("nmae: x", (), "nmae: there is no such key; did you mean 'name'?"),
        (STUDY, ("--device", "gpu"), "There is no device 'gpu': name cpu, cuda, or cuda:1"),
        (STUDY, ("--device", "cuda:99"), "GPUs here, so there is no 'cuda:99'"),
        (STUDY, ("--workers", "-1"), "There can't be -1 workers"),
    ],
)
def test_what_is_wrong_is_an_error_before_anything_is_started(tmp_path, monkeypatch, capsys, study, options, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Snakefile").write_text("raise SystemExit('started')")
    (tmp_path / "study.yaml").write_text(study)
    assert main(["study", "study.yaml", *options]) == 2
    error = capsys.readouterr().err
    assert message in error and "started" not in error
    assert not (tmp_path / "results").exists()


def test_one_run_of_a_study_at_a_time_and_a_second_waits_for_one_that_is_ending(tmp_path, monkeypatch):
    code = (
        "import sys, time; from pathlib import Path; from tcnaps.studies.run import _lock\n"
        "with _lock(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", code, tmp_path / "mine"]
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        monkeypatch.setattr("tcnaps.studies.run.LOCK_PATIENCE", 0.3)
        with pytest.raises(BatchError, match=f"'mine' is already being run, by process {holder.pid}"):
            with _lock(tmp_path / "mine"):
                pass
        with _lock(tmp_path / "another"):
            pass
        monkeypatch.undo()
        holder.send_signal(signal.SIGKILL)
        with _lock(tmp_path / "mine"):
            pass


@pytest.mark.parametrize(("failures", "works"), [(2, True), (3, False)])
def test_a_kernel_that_dies_while_it_starts_is_started_again(tmp_path, monkeypatch, failures, works):
    import papermill

    path, calls = tmp_path / "a.ipynb", []
    write_notebook(path, cell("x = 1", "parameters"))

    def execute(*arguments, **options):
        calls.append(arguments)
        if len(calls) <= failures:
            raise RuntimeError("Kernel died before replying to kernel_info")

    monkeypatch.setattr(papermill, "execute_notebook", execute)
    with contextlib.nullcontext() if works else pytest.raises(NotebookFailed, match="the kernel died"):
        run_notebook(path, tmp_path / "out.ipynb", {})
    assert len(calls) == 3
