"""A small study in a checkout of its own, run once with real kernels; then dry runs on what it left."""

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import psutil
import pytest
import yaml
from blob_project import picture_study, write_pictures
from notebook_files import cell, write_notebook

from tcnaps_suite.workflow import command
from tcnaps_suite.workflow.stopping import SIGNALS

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.slow  # a minute or two in all

TRAININGS = ["support"]
SMALL = picture_study().model_dump(mode="json", exclude_unset=True) | {"trainings": TRAININGS}
SMALL["evaluations"]["variable"] |= {"trainings": TRAININGS, "episodes": 2}
SMALL["meta_training"] |= {"episodes": 4, "validate_every": 4, "validation_episodes": 1}
NOTEBOOKS = ["02-pretrain", "03-meta-train", "04-evaluate"]
RULES = {"pretrain", "meta_train_support", "evaluate_support", "counting"}

# A new experiment is two files: this notebook, and a module.
EXPERIMENT = "def answer(rows):\n    return len(rows)\n"
DECLARATION = {
    "target": "figures",
    "settings": "figures",
    "reads": {"rows": "all"},
    "shown": [{"trainings": TRAININGS, "parameter": "evaluation"}],
    "writes": {"figures": ["counting"], "tables": ["counting.csv"]},
}
CELLS = [
    cell("# How many rows are there?", kind="markdown"),
    cell('study_file = "configs/miniature.yaml"\nevaluation = ""', "parameters"),
    cell(
        "from tcnaps.config import load_study\nfrom tcnaps.evaluation.result_files import load_rows\n"
        "from tcnaps.figures import style\nfrom tcnaps_suite.experiments.counting import answer\n"
        "study = load_study(study_file)\n"
        "number = answer(load_rows(study, evaluation))\n"
        "_ = (study.results_folder / 'counting.csv').write_text(f'number\\n{number}\\n')\n"
        "with style.figure(study.figures_folder / 'counting', study.origin) as (_, ax):\n    ax.plot([0, number])"
    ),
    cell("from pathlib import Path\nassert not Path('../fail').exists(), 'as the test wants it'"),
    cell("print(number)"),
]
# A notebook that reads nothing and never ends.
WAITING = {"target": "active", "settings": "figures", "writes": {"tables": ["waiting.csv"]}}
WAITING_CELLS = [
    cell("# When does it end?", kind="markdown"),
    cell('study_file = ""', "parameters"),
    cell("import time\nfrom pathlib import Path\nPath('../waits').touch()\ntime.sleep(600)"),
]


def write_study(root, content=SMALL, name="small"):
    (root / "configs" / f"{name}.yaml").write_text(yaml.safe_dump(content))


def start(root, *options, study="small", **more):
    command = [sys.executable, "-m", "tcnaps_suite.workflow.batch", "study", "--cores", "2", f"configs/{study}.yaml"]
    environment = os.environ | {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen([*command, *options], cwd=root, env=environment, **streams, **more)


def run(root, *options, **study):
    with start(root, *options, **study) as process:
        return process.stdout.read(), process.wait()


def stale(root, *options, **study):
    """Names of the rules that a run would execute."""
    printed, status = run(root, "--dry-run", *options, **study)
    assert status == 0, printed
    rules = re.findall(r"^  (\w+): ", printed, flags=re.MULTILINE)
    assert rules or "Nothing to be done" in printed, printed
    return set(rules)


def git(root, *arguments):
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    return subprocess.run(["git", *identity, *arguments], cwd=root, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """The project with a small study, in which nothing has run."""
    root = tmp_path_factory.mktemp("checkout")
    for name in ("tcnaps", "tcnaps_suite"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "results" / "published", root / "results" / "published")
    for name in ("Snakefile", ".gitignore"):
        shutil.copy(ROOT / name, root)
    write_pictures(root)
    (root / "configs").mkdir()
    (root / "notebooks").mkdir()
    for name in NOTEBOOKS:
        shutil.copy(ROOT / "notebooks" / f"{name}.ipynb", root / "notebooks")
    write_notebook(root / "notebooks" / "28-waiting.ipynb", *WAITING_CELLS, tcnaps=WAITING)
    write_study(root)
    return root


@pytest.fixture(scope="module")
def story(checkout):
    """A run that failed in one notebook, and the next one, which went through."""
    root = checkout
    (root / "tcnaps_suite" / "experiments" / "counting.py").write_text(EXPERIMENT)
    write_notebook(root / "notebooks" / "27-counting.ipynb", *CELLS, tcnaps=DECLARATION)
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "all")
    (root / "fail").touch()
    failed = run(root)
    (root / "fail").unlink()
    return SimpleNamespace(root=root, failed=failed, whole=run(root))


@pytest.fixture
def project(story):
    """The finished checkout. What a test adds to it must not make anything of the study stale."""
    assert story.whole[1] == 0, story.whole[0]
    return story.root


def test_a_failing_notebook_stops_nothing_that_does_not_need_it(story):
    printed, status = story.failed
    assert status == 1 and "as the test wants it" in printed
    assert "results/small/notebooks/27-counting.ipynb" in printed
    assert re.findall(r"^Started (\w+)", story.whole[0], flags=re.MULTILINE) == ["counting"]


def test_an_experiment_of_two_files_leaves_its_figure(project):
    rows = pd.read_parquet(project / "results/small/rows/support/variable/others.parquet")
    assert (project / "results/small/counting.csv").read_text().split() == ["number", str(len(rows))]
    assert (project / "figures/small/counting.png").stat().st_size > 2_000


def test_after_a_run_the_checkout_is_clean_and_nothing_is_stale(project):
    assert git(project, "status", "--porcelain") == ""
    printed, status = run(project, "--processes", "2")  # which makes nothing stale
    assert status == 0 and "Nothing to be done" in printed
    assert "figures/small/" in printed


def test_a_clock_that_goes_back_destroys_nothing_and_trains_nothing_again(project):
    files = [*project.glob("results/small/checkpoints/*"), *project.glob("results/small/*.csv")]
    before = {file: file.read_bytes() for file in files}
    for file in files:
        os.utime(file, (time.time() + 3 * 86400,) * 2)
    printed, status = run(project)
    assert status == 0 and not re.search("Started (pretrain|meta_train)", printed), printed
    assert {file: file.read_bytes() for file in files} == before
    assert "Nothing to be done" in run(project)[0]


def test_a_plan_says_what_would_run_and_why_for_how_long_and_what_data_there_is(project):
    assert {file.stem for file in (project / "results/small/times").glob("*.tsv")} == RULES
    shutil.copytree(project / "results/small", project / "results/other", dirs_exist_ok=True)
    (project / "results/other/counting.csv").unlink()
    write_study(project, SMALL | {"name": "other"}, "other")
    printed, status = run(project, "--dry-run", study="other")
    assert status == 0 and "counting: Missing output files" in printed and "others: folder" in printed, printed
    assert re.search(r"jobs?: .* on 2 cores, by the last run", printed), printed


@pytest.mark.parametrize(
    ("section", "values", "expected"),
    [
        ("meta_training", {"learning_rate": 1e-3}, RULES - {"pretrain"}),
        ("refinement", {"recorded_steps": 12}, {"evaluate_support", "counting"}),  # and no training
    ],
)
def test_a_changed_value_makes_stale_what_reads_it(project, section, values, expected):
    write_study(project, SMALL | {section: SMALL[section] | values}, "changed")
    assert stale(project, study="changed") == expected


def test_a_finished_run_becomes_the_reference(project, monkeypatch):
    monkeypatch.chdir(project)
    command.main(["reference", "configs/small.yaml"])
    kept = project / "results/reference/small"
    provenance = json.loads((kept / "provenance.json").read_text())
    assert provenance["seeds of the trainings"] == [0] and "torch" in provenance["versions"]
    names = {"counting.csv", "meta-training", "pretraining.csv", "provenance.json"}
    assert {file.name for file in kept.iterdir()} == names
    assert (project / "figures/reference/small/counting.png").exists()


def test_a_job_that_fails_stays_stale_and_keeps_what_it_wrote(project):
    table, module = project / "results/small/counting.csv", project / "tcnaps_suite/experiments/counting.py"
    module.write_text(EXPERIMENT.replace("len(rows)", "-len(rows)"))
    (project / "fail").touch()
    assert run(project)[1] == 1 and "-" in table.read_text()
    (project / "fail").unlink()
    assert stale(project) == {"counting"}


@pytest.fixture
def waiting(checkout):
    """A run in a terminal, whose only job waits; its processes, and the terminal's other end."""
    (checkout / "waits").unlink(missing_ok=True)
    made = checkout / "results" / "small" / "waiting.csv"  # by an earlier run
    made.parent.mkdir(parents=True, exist_ok=True)
    made.write_text("made before")
    keys, terminal = os.openpty()

    def begin():
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # these tests may run under nohup
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        fcntl.ioctl(0, termios.TIOCSCTTY)

    more = {"stdin": terminal, "start_new_session": True, "preexec_fn": begin}
    process = start(checkout, "--", "all_active", "--forceall", **more)
    os.close(terminal)
    deadline = time.monotonic() + 120
    while not (checkout / "waits").exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)
    family = psutil.Process(process.pid).children(recursive=True)
    yield process, family, keys
    assert made.read_text() == "made before"
    with contextlib.suppress(OSError):
        os.close(keys)
    for member in [process, *family]:
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            member.kill()
    process.communicate()
    (checkout / "waits").unlink()


@pytest.mark.parametrize(("number", "by"), [*((number, "") for number in SIGNALS), (signal.SIGTERM, "systemd")])
def test_a_signal_ends_a_run_and_its_jobs_with_one_line(waiting, number, by):
    process, family, keys = waiting
    begin = time.monotonic()
    if number == signal.SIGTERM:
        for member in [*(family if by == "systemd" else []), process]:  # systemd tells all processes of a service
            member.terminate()
    elif number == signal.SIGINT:
        os.write(keys, b"\x03")  # Ctrl-C
    else:
        os.close(keys)  # the terminal is closed
    printed = process.stdout.read()
    assert process.wait() == 128 + number and time.monotonic() - begin < 10
    assert psutil.wait_procs(family, 2)[1] == []
    assert f"Stopped by {number.name}. Finished jobs" in printed and "Traceback" not in printed


def test_a_run_that_is_killed_outright_leaves_nothing_running(waiting):
    process, family, _ = waiting
    process.kill()
    assert psutil.wait_procs(family, 8)[1] == []


def test_ctrl_c_works_where_the_shell_had_it_ignored():
    code = (
        "import os, signal, time\nfrom tcnaps_suite.workflow.stopping import stop_on_signals\n"
        "stop_on_signals()\ntry:\n  os.kill(os.getpid(), signal.SIGINT)\n  time.sleep(5)\n"
        "except KeyboardInterrupt as stopped:\n  print(stopped.args[0].name)"
    )
    shell = f"trap '' INT; exec {sys.executable} -c \"$0\""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(["bash", "-c", shell, code], env=environment, capture_output=True, text=True, timeout=30)
    assert done.stdout.strip() == "SIGINT"
