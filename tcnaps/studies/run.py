"""Runs a whole study: its data is prepared first, then Snakemake makes all that is stale."""

import contextlib
import json
import logging
import os
import sys
from collections.abc import Sequence

from filelock import FileLock, Timeout

from tcnaps.config import Study, UserError, load_study, project_root
from tcnaps.config.study import study_file
from tcnaps.evaluation.result_files import incomplete_evaluations
from tcnaps.studies import data
from tcnaps.studies.progress import Progress

# No lock of Snakemake's: it outlives a killed run and must be removed by hand. The system frees ours.
OPTIONS = "--nolock --rerun-incomplete --rerun-triggers mtime params input code --keep-going --scheduler greedy".split()
OPTIONS += "--quiet host reason rules".split()
LOCK_PATIENCE = 5.0  # seconds that a second run waits for one that is ending


def run_study(
    path: str,
    cores: int,
    dry_run: bool = False,
    snakemake: Sequence[str] = (),
    device: str = "cpu",
    workers: int = 0,
    processes: int = 1,
) -> int:
    """Brings everything that a study makes up to date, and says where it lies. Changes to the project's root.

    Args:
        path: the study's YAML.
        cores: how many processor cores the jobs share.
        dry_run: only list what is stale.
        snakemake: rules to run in place of `all`, and further options for Snakemake.
        device, workers, processes: of the notebooks that have these parameters. They make nothing stale.

    Returns:
        The exit status: Snakemake's, or 1 where the study's data can't be prepared.

    Raises:
        ConfigError: the YAML is wrong.
        UserError: this is not the project's folder, there is no such device, there are more processes than cores, or
            another process runs the same study.
    """
    root = project_root()
    if not (root / "Snakefile").is_file():
        raise UserError(f"There is no Snakefile in {root} or above it: run this in the project's folder.")
    study, file = load_study(path), study_file(path).resolve()
    _check_device(device)
    if not 1 <= processes <= cores:
        raise UserError(f"processes is {processes}; it must be from 1 to {cores}, the number of cores (CORES).")
    os.chdir(root)
    name = str(file.relative_to(root) if file.is_relative_to(root) else file)
    settings = [f"study={name}", f"device={device}", f"workers={workers}", f"processes={processes}"]
    options = [*snakemake, "--config", *settings, "--cores", str(cores), *OPTIONS]
    if dry_run:
        status = _snakemake([*options, "--dry-run"])
        print("", *incomplete_evaluations(study).values(), "\nData:", sep="\n", flush=True)
        return data.main([name, "--list"]) or status
    results = root / "results" / study.name
    results.mkdir(parents=True, exist_ok=True)
    try:
        lock = FileLock(results / ".lock").acquire(timeout=LOCK_PATIENCE)
    except Timeout:
        raise UserError(f"Study '{study.name}' is already being run by another process. Wait for it to end.") from None
    with lock:
        # Before Snakemake, which sees neither that originals have changed nor what a study asks of them.
        if status := data.main([name, "--ready", f"results/{study.name}/.ready"]):
            return status
        for manifest, problem in incomplete_evaluations(study).items():
            print(problem, file=sys.stderr)
            manifest.unlink()  # so that Snakemake evaluates again, which keeps the files that are whole
        progress = Progress(results / "times.csv", cores)
        status = _snakemake(options, progress)
        if not status and not progress.n_jobs:
            print("Nothing to be done: all is up to date.", flush=True)
    failed = "\nNot everything could be made; the errors stand above. Running again continues from here."
    print(failed if status else _summary(study), flush=True)
    return status


def _check_device(device: str) -> None:
    if device != "cpu":
        import torch  # takes seconds, so only where it is needed

        count = torch.cuda.device_count()
        there = ["cpu", *["cuda"][:count], *(f"cuda:{number}" for number in range(count))]
        if device not in there:
            raise UserError(f"There is no device '{device}' here; PyTorch finds {', '.join(there)}.")


def _snakemake(options: Sequence[str], progress: logging.Filter | None = None) -> int:
    """In this process, so that it can't outlive it. Returns the exit status."""
    from snakemake.cli import main  # takes a second

    if progress:
        logging.getLogger("snakemake.logging").addFilter(progress)
    try:
        main(options)
    except SystemExit as end:
        return int(end.code or 0)


def _summary(study: Study) -> str:
    figures, results = f"figures/{study.name}", f"results/{study.name}"
    text = f"\nFigures: {figures}/, tables: {results}/*.csv, executed notebooks: {results}/notebooks/"
    with contextlib.suppress(OSError, ValueError, LookupError):  # none, or a damaged one
        text += f"\n{json.loads((study.results_folder / 'headline.json').read_bytes())['sentence']}"
    return text
