"""Times implementations of the same thing in turns, each in its own process, and measures the memory that each adds.

They run in separate processes because what one leaves in memory makes the next one faster or slower. They run in turns
so that other load on the machine affects all of them.
"""

import json
import os
import platform
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import torch

UNIT = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss, in bytes
CPU = torch.device("cpu")


class Implementation:
    """A process that runs `serve` and makes one call for each request.

    `seconds` are those of the calls so far, without the first, which warms up; `problem` is why there are no more.
    """

    def __init__(self, command: Sequence[str]):
        self.seconds: list[float] = []
        self.problem = None
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._answer()

    def request(self, command: str) -> dict:
        if self.problem is None:
            try:
                print(command, file=self.process.stdin, flush=True)
            except BrokenPipeError:
                pass
        return self._answer()

    def _answer(self) -> dict:
        line = self.process.stdout.readline() if self.problem is None else ""
        if not line and self.problem is None:
            code = self.process.wait()
            self.problem = "out of memory" if code in (3, -9) else f"ended with {code}"
        return json.loads(line) if line else {}

    def end(self) -> None:
        self.process.communicate()  # closes its input, on which it ends


def serve(build: Callable[[], Callable[[], object]], inner: int) -> None:
    """Builds something to call, and answers each line of input: `time`, `memory` or `result <file>`."""
    if sys.platform == "linux":  # an error in this process is better than a machine without memory
        limit = int(0.9 * psutil.virtual_memory().available)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    call = build()
    before, result = memory(reset=True), None
    print("{}", flush=True)
    for line in sys.stdin:
        command, _, file = line.rstrip("\n").partition(" ")
        answer = {}
        try:
            if command == "time":
                start = time.perf_counter()
                for _ in range(inner):
                    result = call()
                answer = {"seconds": (time.perf_counter() - start) / inner}
            elif command == "memory":
                answer = {"bytes": memory() - before}
            else:
                torch.save(result, file)
        except (RuntimeError, MemoryError) as error:
            print(error, file=sys.stderr)
            os._exit(3 if "memory" in str(error) else 1)
        print(json.dumps(answer), flush=True)


def compare(
    commands: dict[str, Sequence[str]],
    repetitions: int,
    patience: float,
    apart: bool,
    differences: Callable[[object, object], dict[str, float]] | None,
) -> dict[str, dict]:
    """Of each: median seconds, times, ratio (last ÷ this; the median of the turns, with ratio_low and ratio_high),
    bytes (added to its process at the peak), problem, compared (its result with the last's).

    No further turn begins after `patience` seconds, once there were two. `apart` runs one after the other instead of in
    turns, once each after a warm-up, because they don't fit into memory together.
    """
    measured = {}
    with tempfile.TemporaryDirectory() as folder:
        if apart:
            for name, command in commands.items():
                measured |= _turns({name: command}, 1, patience, Path(folder))
        else:
            measured = _turns(commands, repetitions, patience, Path(folder))
        reference = list(commands)[-1]
        for name, row in measured.items():
            if name != reference and row["times"] and measured[reference]["times"]:
                row |= ratio(row["times"], measured[reference]["times"])
            results = [Path(folder) / which for which in (name, reference)]
            if differences is not None and name != reference and all(file.exists() for file in results):
                row["compared"] = differences(*(torch.load(file) for file in results))
    return measured


def ratio(times: Sequence[float], others: Sequence[float]) -> dict[str, float]:
    """How many times as fast as `others` in the same turns: the median, the smallest and the largest."""
    ratios = [other / seconds for seconds, other in zip(times, others)]
    return {"ratio": statistics.median(ratios), "ratio_low": min(ratios), "ratio_high": max(ratios)}


def _turns(commands: dict[str, Sequence[str]], repetitions: int, patience: float, folder: Path) -> dict[str, dict]:
    running = {name: Implementation(command) for name, command in commands.items()}
    start = time.perf_counter()
    for turn in range(repetitions + 1):
        if turn > 2 and time.perf_counter() - start > patience:
            break
        for implementation in running.values():
            if (answer := implementation.request("time")) and turn > 0:
                implementation.seconds.append(answer["seconds"])
    measured = {}
    for name, implementation in running.items():
        implementation.request(f"result {folder / name}")
        seconds = implementation.seconds
        measured[name] = {
            "seconds": statistics.median(seconds) if seconds else None,
            "times": seconds,
            "bytes": implementation.request("memory").get("bytes"),
            "problem": implementation.problem,
        }
        implementation.end()
    return measured


def memory(reset: bool = False) -> int:
    """The peak of this process's memory in bytes. `reset` starts the count anew, where the system can do that."""
    try:
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        return int(lines["VmHWM"].split()[0]) * 1024
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * UNIT


def machine() -> dict:
    """What the times depend on."""
    info = Path("/proc/cpuinfo")
    flags = info.read_text() if info.exists() else ""
    names = re.findall(r"model name\s*: (.*)", flags)
    return {
        "processor": names[0] if names else platform.processor(),
        "bfloat16": "avx512_bf16" in flags or "amx_bf16" in flags,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory": psutil.virtual_memory().available,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "limits": limits(),
    }


def limits() -> dict:
    """The machine's measured limits: arithmetic in operations per second, memory in bytes per second."""
    measured = {}
    for name, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        # A convolution, because matrix products can be slower where they go through another library.
        x = torch.randn(64, 512, 8, 8).to(dtype).contiguous(memory_format=torch.channels_last)
        weight = torch.randn(512, 512, 3, 3).to(dtype).contiguous(memory_format=torch.channels_last)
        convolve = torch.no_grad()(partial(torch.conv2d, x, weight, padding=1))
        seconds = min(seconds_of(convolve) for _ in range(10))
        measured[f"operations_{name}"] = 2 * x.numel() * 512 * 9 / seconds
    block = torch.zeros(1 << 26)
    measured["bytes"] = 2 * block.nbytes / min(seconds_of(lambda: block.add_(1)) for _ in range(10))
    measured["fresh_bytes"] = block.nbytes / seconds_of(lambda: torch.zeros(1 << 26))
    return measured


def in_turns(calls: dict[Any, Callable[[], object]], repetitions: int, device: torch.device = CPU) -> dict[Any, dict]:
    """For each call: its times without the first turn, their median, and the bytes it adds to a GPU's memory."""
    times: dict[Any, list[float]] = {name: [] for name in calls}
    peaks = dict.fromkeys(calls)
    for turn in range(repetitions + 1):
        for name, call in calls.items():
            if device.type == "cuda":
                torch.cuda.reset_peak_memory_stats(device)
                before = torch.cuda.memory_allocated(device)
            seconds = seconds_of(call, device)
            if device.type == "cuda":
                peaks[name] = torch.cuda.max_memory_allocated(device) - before
            if turn > 0:
                times[name].append(seconds)
    return {key: {"seconds": statistics.median(own), "times": own, "bytes": peaks[key]} for key, own in times.items()}


def seconds_of(call: Callable[[], object], device: torch.device = CPU) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    call()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start


def report(group: str, name: str, measured: dict[str, dict]) -> str:
    """The lines of the report, one per implementation."""
    lines = []
    for number, (implementation, row) in enumerate(measured.items()):
        text = f"{group if number == 0 else '':>10} {name if number == 0 else '':<24} {implementation:<22}"
        text += f"{1e3 * row['seconds']:>10.1f} ms" if row["seconds"] else f"{row['problem'] or 'no time':>13}"
        if row["bytes"]:
            text += f" {row['bytes'] / 1e9:>6.2f} GB"
        if "ratio" in row:
            text += f" {row['ratio']:>7.2f}× ({row['ratio_low']:.2f}–{row['ratio_high']:.2f})"
        for what, value in row.get("compared", {}).items():
            text += f"  {what} {100 * value:.4g}%"
        lines.append(text)
    return "\n".join(lines)
