"""Times two things alternately in one process, and the peak memory of each in a process of its own."""

import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch


def seconds(function: Callable[[], object], repetitions: int = 1) -> float:
    """Seconds a call, the mean of some."""
    start = time.perf_counter()
    for _ in range(repetitions):
        function()
    return (time.perf_counter() - start) / repetitions


def alternately(ours: Callable, other: Callable, repetitions: int, inner: int = 1) -> dict:
    """Both after a warm-up, in turns, so that whatever else the machine does meets both.

    Args:
        inner: calls of ours at a time, where one is too short to be timed.

    Returns:
        seconds: medians of both; ratio: other ÷ ours, the median of the turns, with the smallest and the largest.
    """
    ours(), other()
    times = [(seconds(ours, inner), seconds(other)) for _ in range(repetitions)]
    ratios = [theirs / own for own, theirs in times]
    return {
        "seconds": statistics.median(own for own, _ in times),
        "other_seconds": statistics.median(theirs for _, theirs in times),
        "ratio": statistics.median(ratios),
        "ratio_low": min(ratios),
        "ratio_high": max(ratios),
        "repetitions": repetitions,
    }


def peak_memory(script: Path, *arguments: str) -> int | None:
    """Bytes that a call adds, at its peak, to a fresh process that is ready for it; None where it can't be had."""
    command = [sys.executable, str(script), "--peak", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    return int(ended.stdout.split()[-1]) if ended.returncode == 0 else None


def report_peak(call: Callable[[], object]) -> None:
    """The other end of `peak_memory`."""
    unit = 1 if sys.platform == "darwin" else 1024
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    call()
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * unit)


def machine() -> dict:
    """What the times depend on."""
    model = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line.partition(":")[2].strip() for line in info.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    return {
        "processor": model,
        "bfloat16": _has_bfloat16(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def _has_bfloat16() -> bool:
    info = Path("/proc/cpuinfo")
    flags = info.read_text() if info.exists() else ""
    return "avx512_bf16" in flags or "amx_bf16" in flags


def printed(row: dict) -> str:
    """A line of the report."""
    spread = f"({row['ratio_low']:.2f}–{row['ratio_high']:.2f})"
    memory = ""
    if row.get("peak"):
        other = f"{row['other_peak'] / 1e9:.2f} GB" if row.get("other_peak") else "–"
        memory = f"  memory {row['peak'] / 1e9:.2f} GB against {other}"
    same = "" if row.get("same") is None else "  same" if row["same"] else "  NOT THE SAME"
    times = f"{1e3 * row['seconds']:>9.1f} ms {1e3 * row['other_seconds']:>9.1f} ms"
    return (f"{row['group']:>10} {row['name']:<34} {times} {row['ratio']:>7.2f}× {spread:<16}{memory}{same}")


def write(rows: list[dict], file: Path) -> None:
    """One JSON of everything measured, with the machine."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n")
