"""Ends a process together with everything that it started: when it is told to stop, and when its parent is killed.

python -m tcnaps_suite.workflow.stopping PARENT MODULE ...    runs a module, and ends when the process PARENT is gone
"""

import contextlib
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import psutil

PLUGINS = Path(__file__).parent / "plugins"  # of Snakemake; those in cluster/ need one that may not be installed
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
PATIENCE = 4.0  # seconds for processes to end by themselves


def stop_on_signals() -> None:
    """Turns each of `SIGNALS` into a KeyboardInterrupt whose argument is the signal.

    A shell sets SIGINT to be ignored by what it starts in the background; here it is not. `nohup` is respected.
    """

    def stop(number: int, frame: object) -> None:
        for other in SIGNALS:
            signal.signal(other, signal.SIG_IGN)  # while children are ended
        raise KeyboardInterrupt(signal.Signals(number))

    for number in SIGNALS:
        if not (number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN):
            signal.signal(number, stop)


def run_snakemake(options: Sequence[str]) -> int:
    """Runs Snakemake in a session of its own and ends it, and all its jobs, when this process is stopped."""
    path = os.pathsep.join(filter(None, [*plugins(), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", __spec__.name, str(os.getpid()), "snakemake", *options]
    process = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": path}, start_new_session=True)
    try:
        return process.wait()
    except BaseException:
        end(process.pid)
        raise


def plugins() -> list[str]:
    """Where Snakemake finds this project's plugins. It imports all that it finds, and fails where one can't be."""
    return [str(PLUGINS), *[str(PLUGINS / "cluster")] * bool(find_spec("snakemake_executor_plugin_kubernetes"))]


def end(engine: int) -> None:
    """Ends Snakemake and its jobs: they are told first, and killed when they have not ended in time."""
    with contextlib.suppress(psutil.NoSuchProcess):
        first = psutil.Process(engine)
        jobs = first.children(recursive=True)
        first.send_signal(signal.SIGINT)  # it cancels jobs on a cluster, and starts no others
        for job in jobs:
            with contextlib.suppress(psutil.NoSuchProcess):
                job.terminate()
        for process in psutil.wait_procs([first, *jobs], PATIENCE)[1]:
            with contextlib.suppress(psutil.NoSuchProcess):
                jobs += process.children(recursive=True)
                process.kill()
        for job in jobs:
            with contextlib.suppress(psutil.NoSuchProcess):
                job.kill()


def end_with(parent: int) -> None:
    """Ends this process and all that it started soon after its parent, which may be killed outright (kill -9)."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                child.kill()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    end_with(int(sys.argv[1]))
    sys.argv = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
