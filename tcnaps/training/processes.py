"""Several processes of one machine: what starts them with PyTorch, and what they share, gather and add up.

Without torch.distributed's default group there is one process, of rank 0.
"""

import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from multiprocessing import parent_process
from operator import attrgetter
from threading import Thread

import torch
from torch import distributed, nn
from torch.multiprocessing.spawn import ProcessException, start_processes

from tcnaps.config import Study, UserError


def rank() -> int:
    """The number of this process, from 0. Process 0 writes files and shows progress."""
    return distributed.get_rank() if distributed.is_initialized() else 0


def size() -> int:
    """How many processes share the work."""
    return distributed.get_world_size() if distributed.is_initialized() else 1


def share(items: Iterable) -> Iterator:
    """This process's items: every `size()`-th, starting with item `rank()`."""
    return islice(items, rank(), None, size())


def gather(values: list) -> list:
    """The values that all processes computed for their shares, in the order of the shared items."""
    if size() == 1:
        return values
    parts: list = [None] * size()
    distributed.all_gather_object(parts, values)
    return [parts[i % size()][i // size()] for i in range(sum(map(len, parts)))]


def add_up_gradients(module: nn.Module) -> None:
    """Replaces each gradient by its sum over all processes; a missing gradient counts as 0."""
    learned = [parameter for parameter in module.parameters() if parameter.requires_grad]
    for parameter in learned if size() > 1 else ():
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        distributed.all_reduce(parameter.grad)


def average_buffers(module: nn.Module) -> None:
    """Replaces running averages by their means over all processes."""
    for buffer in module.buffers() if size() > 1 else ():
        if buffer.is_floating_point():
            distributed.all_reduce(buffer)
            buffer /= size()


class ProcessError(UserError, RuntimeError):
    """One of several processes ended before its work was done; the message says which and why."""


def run_together(
    processes: int, task: Callable, study: Study, device: torch.device | str, shared: str = "", **options: object
) -> None:
    """Runs `task(study, device=device, **options)` in processes that share this one's threads and end with it.

    `shared` is the study's key that says how many shares there are. A UserError says that they or the GPUs are too few.
    """
    if processes < 1:
        raise UserError(f"processes is {processes}; it must be 1 or more.")
    if shared and processes > (shares := attrgetter(shared)(study)):
        raise UserError(f"{processes} processes are more than {shared}, {shares}: each needs a share. Take fewer.")
    gpus = torch.cuda.device_count()
    if str(device).startswith("cuda") and (str(device) != "cuda" or gpus < processes):
        needs = f"each needs its own GPU, and there are {gpus}. Set device to 'cuda' and processes to at most {gpus}"
        raise UserError(f"{processes} processes on '{device}': {needs}.")
    threads = max(1, torch.get_num_threads() // processes)
    with tempfile.TemporaryDirectory() as folder:
        job = (processes, threads, f"file://{folder}/group", task, study, str(device), options)
        started = start_processes(_work, job, processes, join=False)
        try:
            while not started.join():
                pass
        except ProcessException as error:
            saved = "What has been saved stays: running again continues from there, with any number of processes."
            raise ProcessError(f"One of {processes} processes ended early: {error}\n{saved}") from error
        finally:
            for process in started.processes:
                process.kill()


def _work(
    rank: int, processes: int, threads: int, meeting: str, task: Callable, study: Study, device: str, options: dict
) -> None:
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
