"""Several processes of one machine that do the work of one, through PyTorch's distributed package.

All of them run the same function on the same arguments, and each does its share: of the episodes of a step or of an
evaluation, of the images of a batch. The caller's process is the first of them, so that progress bars, logs, errors and
the return value are where they are without the others; only it writes files. The others are started anew (not forked,
which hangs once a process has used PyTorch's threads), so that a notebook's kernel can be the first.
"""

import io
import os
import pickle
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import islice
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import psutil
import torch
from torch import Tensor, distributed
from tqdm.auto import tqdm

from tcnaps.config.errors import UserError
from tcnaps.episodes.loading import context_of, end_with_parent

PATIENCE = 10.0  # seconds for a process to end once the connection to it is lost, or once its work is done
LOST = 75  # the status of a process that ended because it could not reach the others
ON_FROM_HERE = "What has been saved stays: running again continues from there, with any number of processes."


class ProcessError(UserError, RuntimeError):
    """One of several processes has ended before its work was done; the message says which and why."""


class _Disconnected(Exception):
    """Another process can no longer be reached."""


@dataclass(frozen=True)
class Team:
    """One of the processes that share some work, from its own point of view.

    Attributes:
        rank: its number, from 0.
        size: how many there are.
        others: processes that this one started.
    """

    rank: int = 0
    size: int = 1
    others: tuple[BaseProcess, ...] = ()

    @property
    def leads(self) -> bool:
        """Whether this is the caller's process, which saves files and shows progress."""
        return self.rank == 0

    def bar(self, description: str, items: Iterable | None = None, **options: object) -> tqdm:
        """A progress bar, which only the first process shows."""
        return tqdm(items, description, disable=not self.leads, **options)

    def share(self, items: Iterable) -> Iterator:
        """Every `size`-th item, from this process' own on. It ends `run_together` where a process has ended early."""
        for item in islice(items, self.rank, None, self.size):
            if any(process.exitcode for process in self.others):
                raise _Disconnected
            yield item

    def gather(self, own: list) -> list:
        """What all processes have made of their shares, in the order of the items that were shared out."""
        if self.size == 1:
            return own
        parts: list = [None] * self.size
        with _connected():
            distributed.all_gather_object(parts, own)
        return [parts[i % self.size][i // self.size] for i in range(sum(map(len, parts)))]

    def add_up(self, tensors: Iterable[Tensor]) -> None:
        """Replaces tensors of one device and type by their sums over all processes; alone, nothing happens."""
        if self.size == 1:
            return
        tensors = list(tensors)
        together = torch.cat([tensor.flatten() for tensor in tensors])
        with _connected():
            distributed.all_reduce(together)
        for tensor, total in zip(tensors, together.split([tensor.numel() for tensor in tensors])):
            tensor.copy_(total.view_as(tensor))

    def add_up_gradients(self, module: torch.nn.Module) -> None:
        """Gradients of all processes added up; one that a process does not have counts as 0."""
        if self.size == 1:
            return
        learned = [parameter for parameter in module.parameters() if parameter.requires_grad]
        for parameter in learned:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        self.add_up(parameter.grad for parameter in learned)

    def average(self, tensors: Iterable[Tensor]) -> None:
        """Replaces tensors of one device and type by their means over all processes."""
        tensors = list(tensors)
        self.add_up(tensors)
        for tensor in tensors if self.size > 1 else ():
            tensor /= self.size

    @contextmanager
    def resuming(self, state: Any) -> Iterator[Any]:
        """A `Resumable` whose file only the first process reads; the others learn from it what it has taken up.

        Only the first may save it.
        """
        with state if self.leads else nullcontext():
            if self.size > 1:
                content = io.BytesIO()
                parts = {name: part.state_dict() for name, part in state.parts.items()}
                torch.save([state.progress, parts], content)
                told = [content.getvalue()]
                with _connected():
                    distributed.broadcast_object_list(told, 0)
                progress, parts = torch.load(io.BytesIO(told[0]), map_location="cpu", weights_only=True)
                if not self.leads:
                    state.progress.update(progress)
                    for name, part in state.parts.items():
                        part.load_state_dict(parts[name])
            yield state


ALONE = Team()


def run_together(
    processes: int,
    function: Callable,
    *arguments: object,
    device: torch.device | str = "cpu",
    limit: tuple[str, int] | None = None,
    **options: object,
) -> Any:
    """Calls a function in several processes; returns what it returns in the first, which is this one.

    Every process gets its share of this one's threads. On GPUs, each process has one of its own.

    Args:
        function: of a module, as processes are started anew. It also gets `device` and, as `team`, a `Team`.
        limit: what each process needs a share of: the name of a study's key and how many there are.

    Raises:
        ProcessError: a process ended early.
        UserError: there are fewer than two processes, or more than the limit or the GPUs.
        Exception: what the function raised in any of the processes.
    """
    if limit and processes > limit[1]:
        raise UserError(f"{processes} processes are more than {limit[0]}, {limit[1]}: each needs a share. Take fewer.")
    devices, threads = own_devices(processes, device), max(1, torch.get_num_threads() // processes)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as ending:
        work = _Work(Path(folder) / "store", devices, threads, function, arguments, options)
        started = _start(processes, work, ending)
        try:
            found = work.done_by(Team(0, processes, tuple(process for process, _ in started)))
        except _Disconnected as error:
            raise _reason(started) from error
        for process, _ in started:
            process.join(PATIENCE)
        return found


@dataclass(frozen=True)
class _Work:
    """What every process is told."""

    store: Path  # a file by which they find each other
    devices: list[str]
    threads: int
    function: Callable
    arguments: tuple
    options: dict

    def done_by(self, team: Team) -> Any:
        threads, device = torch.get_num_threads(), self.devices[team.rank]
        torch.set_num_threads(self.threads)
        try:
            with _joined(self.store, team.rank, self.devices):
                return self.function(*self.arguments, **self.options, device=device, team=team)
        finally:
            torch.set_num_threads(threads)


def own_devices(processes: int, device: torch.device | str) -> list[str]:
    """The device of every process.

    Raises:
        UserError: there are fewer than two processes, or fewer GPUs than processes.
    """
    if processes < 2:
        raise UserError(f"processes is {processes}; it must be 1 (this process alone) or more.")
    kind = torch.device(device)
    if kind.type != "cuda":
        return [str(device)] * processes
    if kind.index is not None or torch.cuda.device_count() < processes:
        count = torch.cuda.device_count()
        raise UserError(
            f"{processes} processes on '{device}': each needs a GPU of its own, from cuda:0 on, and there are {count}. "
            "Take device 'cuda' and at most as many processes."
        )
    return [f"cuda:{rank}" for rank in range(processes)]


def _start(processes: int, work: "_Work", ending: ExitStack) -> list[tuple[BaseProcess, connection.Connection]]:
    """Starts all but the first, and waits until they have loaded the library; `ending` ends them."""
    context, started = context_of(work.function.__module__), []
    for rank in range(1, processes):
        here, there = context.Pipe(duplex=False)
        process = context.Process(
            target=_take_part, args=(rank, there, work), name=f"Process {rank + 1} of {processes}"
        )
        process.start()
        there.close()  # so that the pipe ends with the process
        ending.callback(_end, process, here)
        started.append((process, here))
    for process, pipe in started:
        try:
            pipe.recv()
        except EOFError:
            process.join(PATIENCE)
            guard = "A script has to call this below `if __name__ == '__main__':`."
            raise ProcessError(f"{_how_it_ended(process)} while it was starting. {guard}") from None
    return started


def _end(process: BaseProcess, pipe: connection.Connection) -> None:
    pipe.close()
    process.kill()  # nothing to a process that has ended
    process.join()


def _take_part(rank: int, pipe: connection.Connection, work: "_Work") -> None:
    """What the other processes do. An error is sent to the first; it ends when the first has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # interrupting a notebook reaches all; the first ends the others
    end_with_parent()
    pipe.send(None)
    try:
        work.done_by(Team(rank, len(work.devices)))
    except _Disconnected:
        sys.exit(LOST)
    except BaseException as error:
        where = f"Process {rank + 1} of {len(work.devices)}"
        if not isinstance(error, UserError):
            error.add_note(f"{where}:\n{traceback.format_exc()}")
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:  # some can be pickled but not read
            error = ProcessError(f"{where}: {type(error).__name__}: {error}")
        pipe.send(error)
        sys.exit(1)


@contextmanager
def _joined(store: Path, rank: int, devices: list[str]) -> Iterator[None]:
    """Within the block, this process can talk to the others, over this machine's own network alone."""
    backend = "cpu:gloo,cuda:nccl" if devices[0].startswith("cuda") else "gloo"
    loopback = next(
        name for name, found in psutil.net_if_addrs().items() if any(one.address == "127.0.0.1" for one in found)
    )
    before = os.environ.get("GLOO_SOCKET_IFNAME")
    os.environ["GLOO_SOCKET_IFNAME"] = loopback
    try:
        with _connected():
            distributed.init_process_group(backend, f"file://{store}", rank=rank, world_size=len(devices))
            # None goes on, and perhaps ends, before all are there: others would wait half an hour for their connection.
            distributed.all_reduce(torch.zeros(1))
    finally:
        os.environ.pop("GLOO_SOCKET_IFNAME")
        if before is not None:
            os.environ["GLOO_SOCKET_IFNAME"] = before
    try:
        yield
    finally:
        distributed.destroy_process_group()


@contextmanager
def _connected() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # of many kinds
        raise _Disconnected from error


def _reason(started: list[tuple[BaseProcess, connection.Connection]]) -> BaseException:
    """Why a process can no longer be reached: the error it has sent, or how it ended.

    The others end, too, once they can't reach it, perhaps before it is known to have ended.
    """
    end, running = time.monotonic() + PATIENCE, {process.sentinel: process for process, _ in started}
    ended: list[BaseProcess] = []
    while running and not any(process.exitcode not in (0, LOST) for process in ended):
        found = connection.wait(list(running), max(0.0, end - time.monotonic()))
        if not found:
            break
        ended += [running.pop(sentinel) for sentinel in found]
    for _, pipe in started:
        try:
            if pipe.poll():
                return pipe.recv()
        except EOFError:  # it ended without a word
            continue
    first = next((process for process in ended if process.exitcode not in (0, LOST)), None)
    how = _how_it_ended(first) if first else "The connection between the processes was lost"
    return ProcessError(f"{how}. {ON_FROM_HERE}")


def _how_it_ended(process: BaseProcess) -> str:
    code = process.exitcode
    if code is None or code >= 0:
        return f"{process.name} ended with status {code}"
    memory = ", often because the machine ran out of memory" if code == -signal.SIGKILL else ""
    return f"{process.name} was killed by {signal.Signals(-code).name}{memory}"
