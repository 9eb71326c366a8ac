"""Runs a whole study: its data is prepared first, then Snakemake makes all that is stale."""

import contextlib
import importlib
import json
import logging
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import yaml
from filelock import FileLock, Timeout

from tcnaps.config import Study, UserError, load_study, project_root
from tcnaps.config.errors import nearest
from tcnaps.config.storage import remove_leftovers
from tcnaps.config.study import study_file
from tcnaps.evaluation.result_files import incomplete_evaluations
from tcnaps_suite.workflow import prepare
from tcnaps_suite.workflow.estimate import core_seconds
from tcnaps_suite.workflow.plan import Plan
from tcnaps_suite.workflow.progress import Progress

# No lock of Snakemake's: it outlives a killed run and must be removed by hand. The system frees ours. And no trigger
# `code`, by which another wording of a command would delete trainings: what runs is in each job's key.
OPTIONS = "--nolock --rerun-incomplete --rerun-triggers mtime params input --keep-going --scheduler greedy".split()
OPTIONS += "--quiet host reason rules".split()
MANY = 10_000  # cores: a dry run must be told a number, or it would take 1 for the limit of each job
LOCK_PATIENCE = 5.0  # seconds that a second run waits for one that is ending


def run_study(
    path: str,
    cores: int | None = None,
    dry_run: bool = False,
    snakemake: Sequence[str] = (),
    device: str = "cpu",
    workers: int = 0,
    processes: int = 1,
    profile: str | None = None,
) -> int:
    """Brings everything that a study makes up to date, and says where it lies. Changes to the project's root.

    Args:
        path: the study's YAML.
        cores: how many processor cores the jobs share; default: all of this machine, or all that a profile gives.
        dry_run: only list what is stale, what those jobs ask for, and about how long they take.
        snakemake: rules to run in place of `all`, and further options for Snakemake.
        device, workers, processes: of the notebooks that have these parameters. They make nothing stale.
        profile: a folder of profiles/, which says where jobs run; default: on this machine.

    Returns:
        The exit status: Snakemake's, or 1 where the study's data can't be prepared.

    Raises:
        ConfigError: the YAML is wrong.
        UserError: this is not the project's folder, there is no such device or profile, there are more processes than
            cores, the profile's executor is not installed, or another process runs the same study.
    """
    root = project_root()
    if not (root / "Snakefile").is_file():
        raise UserError(f"There is no Snakefile in {root} or above it: run this in the project's folder.")
    study, file = load_study(path), study_file(path).resolve()
    os.chdir(root)
    elsewhere = _elsewhere(profile)
    if not elsewhere:
        _check_device(device)
        cores = cores or os.cpu_count()
        if not 1 <= processes <= cores:
            raise UserError(f"processes is {processes}; it must be from 1 to {cores}, the number of cores (CORES).")
    name = str(file.relative_to(root) if file.is_relative_to(root) else file)
    settings = [f"study={name}", f"device={device}", f"workers={workers}", f"processes={processes}"]
    if dry_run:
        sizes = prepare.sizes(study)
        plan = Plan(study, sizes)
        limit = ["--cores", str(cores or MANY)]
        options = [*snakemake, *_configured(*settings, sizes=sizes), *elsewhere, *limit, *OPTIONS, "--dry-run"]
        status = _snakemake(options, plan)
        print(plan if not status else "", *incomplete_evaluations(study).values(), "\nData:", sep="\n", flush=True)
        return prepare.main([name, "--list"]) or status
    return _make(study, name, [*snakemake, *elsewhere], settings, cores)


def _make(study: Study, name: str, options: Sequence[str], settings: Sequence[str], cores: int | None) -> int:
    """Prepares the study's data and makes what is stale, while no other process does. Returns the exit status."""
    results = Path("results", study.name)
    results.mkdir(parents=True, exist_ok=True)
    try:
        lock = FileLock(results / ".lock").acquire(timeout=LOCK_PATIENCE)
    except Timeout:
        raise UserError(f"Study '{study.name}' is already being run by another process. Wait for it to end.") from None
    with lock:
        for folder in (results, Path("figures", study.name)):
            remove_leftovers(folder)
        # Before Snakemake, which sees neither that originals have changed nor what a study asks of them.
        if status := prepare.main([name, "--ready", f"{results}/.ready"]):
            return status
        for manifest, problem in incomplete_evaluations(study).items():
            print(problem, file=sys.stderr)
            manifest.unlink()  # so that Snakemake evaluates again, which keeps the files that are whole
        sizes = prepare.sizes(study)
        progress = Progress(results / "times.csv", cores, partial(core_seconds, study, sizes))
        limit = ["--cores", str(cores)] if cores else []
        status = _snakemake([*options, *_configured(*settings, sizes=sizes), *limit, *OPTIONS], progress)
        if not status and not progress.n_jobs:
            print("Nothing to be done: all is up to date.", flush=True)
    failed = "\nNot everything could be made; the errors stand above. Running again continues from here."
    print(failed if status else _summary(study), flush=True)
    return status


def _elsewhere(profile: str | None) -> list[str]:
    """Snakemake's options for a profile, whose executor must be installed."""
    if profile is None:
        return []
    known = {file.parent.name: file for file in sorted(Path("profiles").glob("*/config.yaml"))}
    if profile not in known:
        raise UserError(f"There is no profile '{profile}' in profiles/{nearest(profile, known)}")
    content = yaml.safe_load(known[profile].read_text(encoding="utf-8"))
    package = f"snakemake-executor-plugin-{content['executor']}"
    try:
        plugin = importlib.import_module(package.replace("-", "_"))
    except ImportError:
        raise UserError(f"Profile '{profile}' needs the package {package}: pip install 'tcnaps[cluster]'.") from None
    # Else the executor for Kubernetes takes it that nothing is shared, whatever the profile says.
    if "shared-fs-usage" in content:
        plugin.common_settings.implies_no_shared_fs = False
    return ["--workflow-profile", str(known[profile].parent)]


def _configured(*settings: str, sizes: dict) -> list[str]:
    return ["--config", *settings, f"sizes={json.dumps(sizes)}"]


def _check_device(device: str) -> None:
    if device != "cpu":
        import torch  # takes seconds, so only where it is needed

        count = torch.cuda.device_count()
        there = ["cpu", *["cuda"][:count], *(f"cuda:{number}" for number in range(count))]
        if device not in there:
            raise UserError(f"There is no device '{device}' here; PyTorch finds {', '.join(there)}.")


def _snakemake(options: Sequence[str], progress: logging.Filter) -> int:
    """In this process, so that it can't outlive it. Returns the exit status."""
    from snakemake.cli import main  # takes a second

    logger = logging.getLogger("snakemake.logging")
    logger.addFilter(progress)
    try:
        main(options)
    except SystemExit as end:
        return int(end.code or 0)
    finally:
        logger.removeFilter(progress)


def _summary(study: Study) -> str:
    figures, results = f"figures/{study.name}", f"results/{study.name}"
    text = f"\nFigures: {figures}/, tables: {results}/*.csv, executed notebooks: {results}/notebooks/"
    with contextlib.suppress(OSError, ValueError, LookupError):  # none, or a damaged one
        text += f"\n{json.loads((study.results_folder / 'headline.json').read_bytes())['sentence']}"
    return text
