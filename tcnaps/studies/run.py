"""Runs a whole study: its data is prepared first, then Snakemake makes all that is stale."""

import contextlib
import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TextIO

from filelock import lock_descriptor

from tcnaps.config import Study, UserError, load_study, project_root
from tcnaps.config.study import study_file

# No lock of Snakemake's: it outlives a killed run and must be removed by hand. The system frees ours.
OPTIONS = "--nolock --rerun-incomplete --rerun-triggers mtime params input code --keep-going --scheduler greedy".split()
OPTIONS += "--quiet host reason rules".split()
LOCK_PATIENCE = 15.0  # seconds that a second run waits: one that was just killed takes a few to let go


class BatchError(UserError):
    """A notebook or study cannot be run as asked; the message says why and what to do."""


def run_study(
    path: str, cores: int, dry_run: bool = False, snakemake: Iterable[str] = (), device: str = "cpu", workers: int = 0
) -> int:
    """Brings everything that a study makes up to date, and says where it lies.

    Args:
        path: the study's YAML.
        cores: how many processor cores the jobs share.
        dry_run: only list what is stale.
        snakemake: rules to run in place of `all`, and further options for Snakemake.
        device, workers: of the notebooks that have these parameters. They make nothing stale.

    Returns:
        The exit status: Snakemake's, or 1 where the study's data can't be prepared.

    Raises:
        ConfigError: the YAML is wrong.
        BatchError: this is not the project's folder, there is no such device, or another process runs the same study.
    """
    root = project_root()
    if not (root / "Snakefile").is_file():
        raise BatchError(f"There is no Snakefile in {root} or above it: run this in the project's folder.")
    study = load_study(path)
    _check_device(device, workers)
    file = study_file(path).resolve()
    file = file.relative_to(root) if file.is_relative_to(root) else file
    settings = [f"study={file}", f"device={device}", f"workers={workers}"]
    command = [sys.executable, "-m", "snakemake", *snakemake, "--config", *settings, "--cores", str(cores), *OPTIONS]
    data = [sys.executable, "-m", "tcnaps.studies.data", str(file)]
    if dry_run:
        status = subprocess.call([*command, "--dry-run"], cwd=root)
        print("", *_damaged(study).values(), "\nData:", sep="\n", flush=True)
        return subprocess.call([*data, "--list"], cwd=root) or status
    started = time.time()
    with _lock(root / "results" / study.name) as lock:
        # Before Snakemake, which sees neither that originals have changed nor what a study asks of them.
        status = _call([*data, "--ready", f"results/{study.name}/.ready"], root, lock.fileno())
        if status == 0:
            for manifest, problem in _damaged(study).items():
                print(problem, file=sys.stderr)
                manifest.unlink()  # so that Snakemake evaluates again, which keeps the files that are whole
            status = _call(command, root, lock.fileno())
            print(_summary(root, study) if status == 0 else _advice(root, study, started), flush=True)
    return status if status >= 0 else 128 - status  # as a shell has it for a killed command


def _damaged(study: Study) -> dict[Path, str]:
    from tcnaps.evaluation.result_files import incomplete_evaluations  # pandas: not needed to refuse a wrong study

    return incomplete_evaluations(study)


def _check_device(device: str, workers: int) -> None:
    if workers < 0:
        raise BatchError(f"There can't be {workers} workers; 0 reads images in the job itself.")
    if not re.fullmatch(r"cpu|cuda(:\d+)?", device):
        raise BatchError(f"There is no device '{device}': name cpu, cuda, or cuda:1 for the second of several GPUs.")
    if device != "cpu":
        import torch  # takes seconds, so only where it is needed

        if int(device.partition(":")[2] or 0) >= torch.cuda.device_count():
            raise BatchError(
                f"PyTorch finds {torch.cuda.device_count()} GPUs here, so there is no '{device}'. Run on "
                "the CPU, or install a PyTorch that supports this machine's GPU."
            )


def _call(command: list[str], root: Path, lock: int) -> int:
    """Runs a command that shares our lock and, on Linux, cannot outlive us."""
    me = os.getpid()
    prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None

    def die_with_parent():
        if prctl:
            prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        if os.getppid() != me:  # the parent died before it was set
            os._exit(1)

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    process = subprocess.Popen(command, cwd=root, pass_fds=[lock], preexec_fn=die_with_parent)
    try:
        return process.wait()
    except KeyboardInterrupt:  # the terminal interrupted Snakemake too, which ends its jobs
        process.wait()
        raise
    finally:
        process.kill()


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[TextIO]:
    """Keeps a second run of the same study out for as long as this process or Snakemake, which inherits it, lives."""
    folder.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + LOCK_PATIENCE
    with open(folder / ".lock", "a+") as file:
        while not lock_descriptor(file.fileno(), blocking=False):
            if time.monotonic() > deadline:
                file.seek(0)
                holder = file.read().strip()
                raise BatchError(
                    f"Study '{folder.name}' is already being run, by process {holder}. Wait "
                    f"for it, or end it with 'kill {holder}', and run this again."
                )
            time.sleep(0.2)
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield file


def _summary(root: Path, study: Study) -> str:
    figures, results = f"figures/{study.name}", f"results/{study.name}"
    count = len(list((root / figures).rglob("*.png")))
    text = f"""
Figures:   {figures}/ ({count}, each as PNG and PDF)
Tables:    {results}/*.csv
Notebooks: {results}/notebooks/, as they were executed"""
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):  # none, or a damaged one
        text += f"\n\n{json.loads((root / results / 'headline.json').read_bytes())['sentence']}"
    return text


def _advice(root: Path, study: Study, started: float) -> str:
    text, folder = "\nNot everything could be made; the errors stand above.", f"results/{study.name}/notebooks"
    for file in sorted((root / folder).glob("*.ipynb")):
        if file.stat().st_mtime >= started and b'"output_type": "error"' in file.read_bytes():
            text += f"\n  {folder}/{file.name} has a traceback"
    return f"{text}\nRunning again continues from here."
