"""Starts several processes with PyTorch's launcher, `torchrun`; each runs `python -m tcnaps.training`."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from tcnaps.config import Study, UserError

REPORT = 20_000  # characters at the end of the launcher's output that hold its report of a failure


class ProcessError(UserError, RuntimeError):
    """One of several processes ended before its work was done; the message says which and why."""


def check_shares(processes: int, key: str, shares: int) -> None:
    """Raises UserError if there are more processes than shares; `key` is the study's key that says how many."""
    if processes > shares:
        raise UserError(f"{processes} processes are more than {key}, {shares}: each needs a share. Take fewer.")


def run_together(processes: int, task: str, study: Study, device: torch.device | str, **options: object) -> None:
    """Runs a task on a study in several processes; returns when its results are on the disk.

    Each process gets its share of this one's threads, and ends when this one does.

    Args:
        task: a function by its module and name, such as "tcnaps.training.pretraining:pretrain".
        device: on GPUs, each process takes one.
        options: further arguments of the task, as JSON can hold them.

    Raises:
        ProcessError: a process ended early.
        UserError: there are fewer GPUs than processes, or the number of processes is not positive.
    """
    if processes < 1:
        raise UserError(f"processes is {processes}; it must be 1 or more.")
    if str(device).startswith("cuda") and (str(device) != "cuda" or torch.cuda.device_count() < processes):
        raise UserError(
            f"{processes} processes on '{device}': each needs a GPU of its own, and there are "
            f"{torch.cuda.device_count()}. Take device 'cuda' and at most as many processes."
        )
    job = {"task": task, "study": study.model_dump(mode="json"), "replicate": study.replicate}
    threads, output = max(1, torch.get_num_threads() // processes), ""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "job.json")
        file.write_text(json.dumps(job | {"device": str(device), "options": options}))
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
        launcher = subprocess.Popen(
            [*torchrun, "--log-dir", folder, "-m", "tcnaps.training", str(file)],
            stdin=subprocess.PIPE,  # it closes with this process; see tcnaps/training/__main__.py
            stderr=subprocess.PIPE,
            env=os.environ | {"OMP_NUM_THREADS": str(threads)},
        )
        with launcher:
            try:
                while text := launcher.stderr.read1().decode(errors="replace"):
                    sys.stderr.write(text)  # progress bars and warnings
                    output = (output + text)[-REPORT:]
                launcher.wait()
            finally:
                launcher.terminate()
    if launcher.returncode:
        reason = output.partition("Root Cause")[2] or output
        raise ProcessError(
            f"One of {processes} processes ended early: {reason}\n"
            "What has been saved stays: running again continues from there, with any number of processes."
        )
