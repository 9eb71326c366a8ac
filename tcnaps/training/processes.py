"""What several processes of one machine do together: share items, gather values, add up gradients.

Without torch.distributed's default group there is one process, of rank 0. `tcnaps.training.launching` starts several.
"""

from collections.abc import Iterable, Iterator
from itertools import islice

import torch
from torch import distributed, nn


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
