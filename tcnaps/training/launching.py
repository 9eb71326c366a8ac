"""Starts several processes with PyTorch's launcher, `torchrun`; each runs `python -m tcnaps.training`."""

import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import torch
from torch import distributed

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
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "job.json")
        file.write_text(json.dumps(job | {"device": str(device), "options": options}))
        launch(processes, ["-m", "tcnaps.training", str(file)])


def launch(processes: int, arguments: Sequence[str]) -> None:
    """Calls `torchrun` on a module or script with arguments, and waits until all processes have ended.

    Each process gets its share of this one's threads, and ends when this one does.

    Raises:
        ProcessError: a process ended early.
    """
    threads = max(1, torch.get_num_threads() // processes)
    with tempfile.TemporaryDirectory() as folder:
        options = ["--standalone", "--nproc-per-node", str(processes), "--log-dir", folder]
        launcher = subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", *options, *arguments],
            stdin=subprocess.PIPE,  # it closes with this process; see `joined`
            stderr=subprocess.PIPE,
            env=os.environ | {"OMP_NUM_THREADS": str(threads)},
        )
        with launcher:
            output = ""
            try:
                while text := launcher.stderr.read1().decode(errors="replace"):
                    sys.stderr.write(text)  # progress bars and warnings
                    output = (output + text)[-REPORT:]
                status = launcher.wait()
            finally:
                launcher.terminate()
    if status:
        reason = output.partition("Root Cause")[2] or output
        raise ProcessError(
            f"One of {processes} processes ended early: {reason}\n"
            "What has been saved stays: running again continues from there, with any number of processes."
        )


@contextmanager
def joined() -> Iterator[None]:
    """Within the block, this process of `torchrun` can reach the others, over the loopback interface alone."""
    Thread(target=_end_with_launcher, args=(os.getppid(),), daemon=True).start()
    os.environ["GLOO_SOCKET_IFNAME"] = "lo0" if sys.platform == "darwin" else "lo"
    distributed.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    try:
        yield
    finally:
        distributed.destroy_process_group()


def _end_with_launcher(launcher: int) -> None:
    """Ends this process once `torchrun` is gone, or whoever holds the other end of standard input."""
    while os.getppid() == launcher and not select.select([0], [], [], 0.5)[0]:
        pass
    os._exit(1)
