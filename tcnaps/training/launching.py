"""Starts several processes with PyTorch. Each does its share of a task; see `tcnaps.training.processes`."""

import os
import sys
import tempfile
from collections.abc import Callable
from multiprocessing import parent_process
from operator import attrgetter
from threading import Thread

import torch
from torch import distributed
from torch.multiprocessing.spawn import ProcessException, start_processes

from tcnaps.config import Study, UserError


class ProcessError(UserError, RuntimeError):
    """One of several processes ended before its work was done; the message says which and why."""


def run_together(
    processes: int, task: Callable, study: Study, device: torch.device | str, shared: str = "", **options: object
) -> None:
    """Runs `task(study, device=device, **options)` in processes that share this one's threads and end with it.

    `shared` is the study's key that says how many shares there are. A UserError says that there are too few GPUs or
    shares, a ProcessError that a process ended early.
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
    threads = max(1, torch.get_num_threads() // processes)
    with tempfile.TemporaryDirectory() as folder:
        job = (processes, threads, f"file://{folder}/group", task, study, str(device), options)
        started = start_processes(_work, job, processes, join=False)
        try:
            while not started.join():
                pass
        except ProcessException as error:
            raise ProcessError(
                f"One of {processes} processes ended early: {error}\n"
                "What has been saved stays: running again continues from there, with any number of processes."
            ) from error
        finally:
            for process in started.processes:
                process.kill()


def _work(
    rank: int, processes: int, threads: int, meeting: str, task: Callable, study: Study, device: str, options: dict
) -> None:
    """Does this process's share of a task."""
    Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    if device == "cuda":
        torch.cuda.set_device(rank)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo0" if sys.platform == "darwin" else "lo"  # the loopback interface alone
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    distributed.init_process_group(backend, meeting, world_size=processes, rank=rank)
    task(study, device=device, **options)
    distributed.destroy_process_group()


def _end_with_parent() -> None:
    parent_process().join()
    os._exit(1)
