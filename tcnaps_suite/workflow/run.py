"""Runs a whole study: prepares its data, then lets Snakemake make all that is stale."""

import contextlib
import json
import os
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from filelock import FileLock, Timeout

from tcnaps.config import Study, UserError, load_study, project_root
from tcnaps.config.errors import nearest
from tcnaps.config.study import study_file
from tcnaps.evaluation.result_files import incomplete_evaluations
from tcnaps_suite.workflow.notebooks import notebooks
from tcnaps_suite.workflow.prepare import prepare
from tcnaps_suite.workflow.reference import compared
from tcnaps_suite.workflow.stopping import run_snakemake

# Snakemake's own lock outlives a killed run and must be removed by hand; the system frees ours. The trigger `code`
# would delete trainings when a command is worded differently; what runs is in each job's key.
OPTIONS = "--nolock --rerun-incomplete --rerun-triggers mtime params input --keep-going --scheduler greedy".split()
OPTIONS += "--logger bar".split()
LOCK_PATIENCE = 5.0  # seconds that a second run waits for one that is ending


def run_study(given: Namespace) -> int:
    """Brings everything that a study makes up to date, and says where it lies. Changes to the project's root.

    Takes the options of `tcnaps_suite.workflow.batch study`. Returns Snakemake's exit status, or 1 where the data can't
    be prepared.
    """
    root = project_root()
    if not (root / "Snakefile").is_file():
        raise UserError(f"There is no Snakefile in {root} or above it: run this in the project's folder.")
    study, file = load_study(given.study), study_file(given.study).resolve()
    os.chdir(root)
    if study.results_folder == root / "results/demonstration":
        raise UserError(f"{file} is the demonstration's, whose results are in git: copy it, with another name.")
    notebooks()  # wrong declarations are errors before anything runs
    name = str(file.relative_to(root) if file.is_relative_to(root) else file)
    cores, options = given.cores, [*given.targets, *OPTIONS]
    if given.profile:
        known = sorted(file.parent.name for file in Path("profiles").glob("*/config.yaml"))
        if given.profile not in known:  # Snakemake would run the jobs here
            raise UserError(f"There is no profile '{given.profile}' in profiles/{nearest(given.profile, known)}")
        options += ["--workflow-profile", f"profiles/{given.profile}"]
    else:
        _check_device(given.device)
        cores = cores or os.cpu_count()
        if not 1 <= given.processes <= cores:
            raise UserError(f"processes is {given.processes}; it must be 1 to {cores}, the number of cores (CORES).")
    if cores or given.dry_run:
        options += ["--cores", str(cores or os.cpu_count())]
    values = {"study": name, "device": given.device, "processes": given.processes}
    options += ["--config", *(f"{key}={value}" for key, value in values.items())]
    options += ["--logger-bar-times", f"results/{study.name}/times", "--logger-bar-cores", str(cores)]
    if given.dry_run:
        status = run_snakemake([*options, "--dry-run"])
        print(*incomplete_evaluations(study).values(), "Data:", sep="\n", flush=True)
        prepare(study, only_list=True)
        return status
    return _make(study, options)


def _make(study: Study, options: Sequence[str]) -> int:
    """Prepares the study's data and makes what is stale, while no other process does. Returns the exit status."""
    results = Path("results", study.name)
    try:
        results.mkdir(parents=True, exist_ok=True)
        lock = FileLock(results / ".lock").acquire(timeout=LOCK_PATIENCE)
    except Timeout:
        raise UserError(f"Study '{study.name}' is already being run by another process. Wait for it to end.") from None
    except OSError as error:
        raise UserError(f"Nothing can be written to {results} ({error}). Change its permissions, or move it.") from None
    with lock:
        # Before Snakemake, which sees neither that originals have changed nor what a study needs of them.
        if status := prepare(study):
            return status
        for manifest, problem in incomplete_evaluations(study).items():
            print(problem, file=sys.stderr)
            manifest.unlink()  # so that Snakemake evaluates again, which keeps the files that are whole
        _without_future(results, Path("figures", study.name), Path("results/published"))
        status = run_snakemake(options)
    if status:
        print("\nNot everything could be made; the errors stand above. Running again continues from here.", flush=True)
        return status
    print(f"\nFigures: figures/{study.name}/, tables: {results}/*.csv, executed notebooks: {results}/notebooks/")
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):  # none, or a damaged one
        print(json.loads((study.results_folder / "headline.json").read_bytes())["sentence"])
    print(compared(study), flush=True)
    return 0


def _without_future(results: Path, *others: Path) -> None:
    """If some files are dated in the future, as after a clock was set back, gives all files the present time.

    Otherwise jobs that read such files would fail. Evaluations run again, and keep the rows that fit.
    """
    now = time.time_ns()
    files = [file for place in (results, *others) for file in place.rglob("*") if file.is_file()]
    if any(file.stat().st_mtime_ns > now for file in files):
        for file in files:
            os.utime(file, ns=(now, now))
        for manifest in results.glob("**/rows/*.json"):
            manifest.unlink()


def _check_device(device: str) -> None:
    if device != "cpu":
        import torch  # takes seconds, so only where it is needed

        count = torch.cuda.device_count()
        there = ["cpu", *["cuda"][:count], *(f"cuda:{number}" for number in range(count))]
        if device not in there:
            raise UserError(f"There is no device '{device}' here; PyTorch finds {', '.join(there)}.")
