"""What several processes of one machine do together: share items, gather values, add up gradients.

The functions ask torch.distributed's default group which process they are in. Without a group there is one process,
rank 0, and nothing is sent anywhere. `tcnaps.training.launching` starts several.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice

import torch
from torch import Tensor, distributed, nn

PATIENCE = 10.0  # seconds that a process which has lost the others waits for the launcher to end it


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
    with _waiting_for_launcher():
        distributed.all_gather_object(parts, values)
    return [parts[i % size()][i // size()] for i in range(sum(map(len, parts)))]


def add_up_gradients(module: nn.Module) -> None:
    """Replaces each gradient by its sum over all processes; a missing gradient counts as 0."""
    learned = [parameter for parameter in module.parameters() if parameter.requires_grad]
    for parameter in learned if size() > 1 else ():
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        _add_up(parameter.grad)


def average_buffers(module: nn.Module) -> None:
    """Replaces running averages by their means over all processes."""
    for buffer in module.buffers() if size() > 1 else ():
        if buffer.is_floating_point():
            _add_up(buffer)
            buffer /= size()


def _add_up(tensor: Tensor) -> None:
    with _waiting_for_launcher():
        distributed.all_reduce(tensor)


@contextmanager
def _waiting_for_launcher() -> Iterator[None]:
    """After a lost connection, waits for the launcher, which then reports the process that died and not this one."""
    try:
        yield
    except RuntimeError:
        time.sleep(PATIENCE)
        raise
