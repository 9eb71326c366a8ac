"""Starts several processes with PyTorch's launcher, `torchrun`; each runs this module on a file that names the task."""

import json
import os
import select
import subprocess
import sys
import tempfile
from operator import attrgetter
from pathlib import Path
from pkgutil import resolve_name
from threading import Thread

import torch
from torch import distributed
from torch.distributed.elastic.multiprocessing.errors import record

from tcnaps.config import Study, UserError

REPORT = 20_000  # characters at the end of the launcher's output that hold its report of a failure


class ProcessError(UserError, RuntimeError):
    """One of several processes ended before its work was done; the message says which and why."""


def run_together(
    processes: int, task: str, study: Study, device: torch.device | str, shared: str = "", **options: object
) -> None:
    """Runs a task on a study in several processes, which share this one's threads and end when it ends.

    Args:
        task: a function by its module and name, such as "tcnaps.training.pretraining:pretrain".
        shared: the study's key that says how many shares there are.

    Raises:
        ProcessError: a process ended early.
        UserError: there are fewer GPUs or shares than processes, or the number of processes is not positive.
    """
    if processes < 1:
        raise UserError(f"processes is {processes}; it must be 1 or more.")
    if shared and processes > (shares := attrgetter(shared)(study)):
        raise UserError(f"{processes} processes are more than {shared}, {shares}: each needs a share. Take fewer.")
    gpus = torch.cuda.device_count()
    if str(device).startswith("cuda") and (str(device) != "cuda" or gpus < processes):
        needs = f"each needs a GPU of its own, and there are {gpus}"
        raise UserError(
            f"{processes} processes on '{device}': {needs}. Take device 'cuda' and at most as many processes."
        )
    job = {"task": task, "study": study.model_dump(mode="json"), "replicate": study.replicate}
    job |= {"device": str(device), "options": options}
    threads, output = max(1, torch.get_num_threads() // processes), ""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "job.json")
        file.write_text(json.dumps(job))
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
        launcher = subprocess.Popen(
            [*torchrun, "--log-dir", folder, "-m", __name__, str(file)],
            stdin=subprocess.PIPE,  # it closes with this process, as `_end_with_launcher` notices
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
        raise ProcessError(
            f"One of {processes} processes ended early: {output.partition('Failures:')[2] or output}\n"
            "What has been saved stays: running again continues from there, with any number of processes."
        )


@record
def main(file: str) -> None:
    """Does this process's share of a job; an error is passed on to the launcher."""
    Thread(target=_end_with_launcher, args=(os.getppid(),), daemon=True).start()
    job = json.loads(Path(file).read_text())
    study = Study.model_validate(job["study"], strict=False).of_replicate(job["replicate"])
    if job["device"] == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    os.environ["GLOO_SOCKET_IFNAME"] = "lo0" if sys.platform == "darwin" else "lo"  # the loopback interface alone
    distributed.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    try:
        resolve_name(job["task"])(study, device=job["device"], **job["options"])
    finally:
        distributed.destroy_process_group()


def _end_with_launcher(launcher: int) -> None:
    """Ends this process once `torchrun` is gone, or whoever holds the other end of standard input."""
    while os.getppid() == launcher and not select.select([0], [], [], 0.5)[0]:
        pass
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1])
