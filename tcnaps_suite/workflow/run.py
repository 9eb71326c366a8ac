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
from tcnaps_suite.workflow.stopping import run_engine

# Snakemake's own lock outlives a killed run and must be removed by hand; the system frees ours. The trigger `code`
# would delete trainings when a command is worded differently; what runs is in each job's key.
OPTIONS = "--nolock --rerun-incomplete --rerun-triggers mtime params input --keep-going --scheduler greedy".split()
OPTIONS += "--logger bar".split()
PLUGINS = Path(__file__).parent / "plugins"
LOCK_PATIENCE = 5.0  # seconds that a second run waits for one that is ending


def run_study(given: Namespace) -> int:
    """Brings everything that a study makes up to date, and says where it lies. Changes to the project's root.

    Takes the options of `tcnaps_suite.workflow.batch study`. Returns Snakemake's exit status, or 1 where the data can't
    be prepared. Options that are wrong, and another process that runs the same study, are UserErrors.
    """
    root = project_root()
    if not (root / "Snakefile").is_file():
        raise UserError(f"There is no Snakefile in {root} or above it: run this in the project's folder.")
    study, file = load_study(given.study), study_file(given.study).resolve()
    os.chdir(root)
    notebooks()  # wrong declarations are errors before anything runs
    name = str(file.relative_to(root) if file.is_relative_to(root) else file)
    cores, options = given.cores, [*given.targets, *OPTIONS]
    if given.profile:
        known = {file.parent.name: str(file.parent) for file in Path("profiles").glob("*/config.yaml")}
        if given.profile not in known:
            raise UserError(
                f"There is no profile '{given.profile}' in profiles/{nearest(given.profile, sorted(known))}"
            )
        options += ["--workflow-profile", known[given.profile]]
    else:
        _check_device(given.device)
        cores = cores or os.cpu_count()
        if not 1 <= given.processes <= cores:
            raise UserError(
                f"processes is {given.processes}; it must be from 1 to {cores}, the number of cores (CORES)."
            )
    if cores or given.dry_run:
        options += ["--cores", str(cores or os.cpu_count())]
    values = {"study": name, "device": given.device, "processes": given.processes}
    options += ["--config", *(f"{key}={value}" for key, value in values.items())]
    options += ["--logger-bar-times", f"results/{study.name}/times", "--logger-bar-cores", str(cores)]
    if given.dry_run:
        status = _snakemake([*options, "--dry-run"])
        print(*incomplete_evaluations(study).values(), "Data:", sep="\n", flush=True)
        prepare(study, only_list=True)
        return status
    return _make(study, options)


def _make(study: Study, options: Sequence[str]) -> int:
    """Prepares the study's data and makes what is stale, while no other process does. Returns the exit status."""
    results = Path("results", study.name)
    results.mkdir(parents=True, exist_ok=True)
    try:
        lock = FileLock(results / ".lock").acquire(timeout=LOCK_PATIENCE)
    except Timeout:
        raise UserError(f"Study '{study.name}' is already being run by another process. Wait for it to end.") from None
    except OSError as error:
        raise UserError(f"Nothing can be written to {results} ({error}). Change its permissions, or move it.") from None
    with lock:
        # Before Snakemake, which sees neither that originals have changed nor what a study needs of them.
        if status := prepare(study, f"{results}/.ready"):
            return status
        for manifest, problem in incomplete_evaluations(study).items():
            print(problem, file=sys.stderr)
            manifest.unlink()  # so that Snakemake evaluates again, which keeps the files that are whole
        _without_future(results, Path("figures", study.name))
        status = _snakemake(options)
    if status:
        print("\nNot everything could be made; the errors stand above. Running again continues from here.", flush=True)
        return status
    print(f"\nFigures: figures/{study.name}/, tables: {results}/*.csv, executed notebooks: {results}/notebooks/")
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):  # none, or a damaged one
        print(json.loads((study.results_folder / "headline.json").read_bytes())["sentence"])
    print(compared(study), flush=True)
    return 0


def _without_future(results: Path, figures: Path) -> None:
    """Gives files that are newer than now, as after a clock went back, the time of what they are made from.

    Snakemake would delete what it makes of them. Evaluations of weights from the future run again and keep what fits.
    """
    now = time.time_ns()
    times = {
        file: file.stat().st_mtime_ns for place in (results, figures) for file in place.rglob("*") if file.is_file()
    }
    latest = min(times.values(), default=now)  # of all that a file may be made from
    for stage in range(4):
        files = {file: when for file, when in times.items() if _stage(file) == stage}
        future = [file for file, when in files.items() if when > now]
        for file in future:
            os.utime(file, ns=(latest, latest))
        for manifest in results.glob("**/rows/*.json") if future and stage < 2 else ():
            manifest.unlink()
        latest = max([latest, *(when for when in files.values() if when <= now)])


def _stage(file: Path) -> int:
    """Backbones are stage 0, trainings 1, rows 2 and all else 3."""
    if file.name in ("backbone.safetensors", "pretraining.csv") or file.stem == "pretraining":
        return 0
    return next(
        (stage for stage, part in ((1, "checkpoints"), (1, "meta-training"), (2, "rows")) if part in file.parts), 3
    )


def _snakemake(options: Sequence[str]) -> int:
    path = os.pathsep.join(filter(None, [str(PLUGINS), os.environ.get("PYTHONPATH")]))
    return run_engine(["snakemake", *options], os.environ | {"PYTHONPATH": path})


def _check_device(device: str) -> None:
    if device != "cpu":
        import torch  # takes seconds, so only where it is needed

        count = torch.cuda.device_count()
        there = ["cpu", *["cuda"][:count], *(f"cuda:{number}" for number in range(count))]
        if device not in there:
            raise UserError(f"There is no device '{device}' here; PyTorch finds {', '.join(there)}.")
