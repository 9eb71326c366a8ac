"""Times implementations of the same thing in turns, each in its own process, and measures the memory that each adds.

They run in separate processes because what one leaves in memory makes the next one faster or slower. They run in turns
so that other load on the machine affects all of them.
"""

import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch

UNIT = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss, in bytes
INFO = Path("/proc/meminfo")


class Implementation:
    """A process that runs `serve` and makes one call for each request.

    Attributes:
        seconds: of the calls so far, without the first, which warms up.
        problem: why there are no more calls.
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
    if INFO.exists():  # an error in this process is better than a machine without memory
        limit = int(0.9 * available_memory())
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
    """The times of all implementations. The others are compared with the last.

    Args:
        patience: seconds after which no further turn begins, once there were two.
        apart: runs one after the other instead of in turns, once each after a warm-up, because they don't fit into
            memory together.

    Returns:
        For each: seconds (the median), times, ratio (last ÷ this; the median of the turns, with ratio_low and
        ratio_high), bytes (added to its process at the peak), problem, compared (its result with the last's).
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


def available_memory() -> int:
    """The machine's available memory in bytes."""
    lines = dict(line.split(":") for line in INFO.read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) * 1024


def machine() -> dict:
    """What the times depend on."""
    model, flags = platform.processor(), ""
    info = Path("/proc/cpuinfo")
    if info.exists():
        flags = info.read_text()
        names = [line.partition(":")[2].strip() for line in flags.splitlines() if "model name" in line]
        model = names[0] if names else model
    return {
        "processor": model,
        "bfloat16": "avx512_bf16" in flags or "amx_bf16" in flags,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory": available_memory() if INFO.exists() else None,
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
        seconds = min(_seconds(convolve) for _ in range(10))
        measured[f"operations_{name}"] = 2 * x.numel() * 512 * 9 / seconds
    block = torch.zeros(1 << 26)
    measured["bytes"] = 2 * block.nbytes / min(_seconds(lambda: block.add_(1)) for _ in range(10))
    measured["fresh_bytes"] = block.nbytes / _seconds(lambda: torch.zeros(1 << 26))
    return measured


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
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
