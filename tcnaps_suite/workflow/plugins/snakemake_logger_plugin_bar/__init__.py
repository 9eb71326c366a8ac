"""What Snakemake shows of a study: one bar over all jobs, or in a dry run the jobs that it would run, and why.

On a terminal it is a bar; elsewhere one line for the start and one for the end of every job. The times of the last run
are those that Snakemake's `benchmark:` has written.
"""

import contextlib
import logging
import sys
import textwrap
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.settings import LogHandlerSettingsBase
from tqdm import tqdm

NO_JOBS = {"all", "all_rivals", "all_active", "all_differences", "total"}


@dataclass
class LogHandlerSettings(LogHandlerSettingsBase):
    """Options of the command line. `cores` is 0 on a cluster, where nobody knows when a job gets its turn."""

    times: str = field(default="", metadata={"help": "folder of benchmarks of the last run"})
    cores: int = field(default=0, metadata={"help": "cores that the jobs share", "type": int})


class LogHandler(LogHandlerBase):
    """Takes the place of Snakemake's own log; of that only warnings and errors are shown."""

    writes_to_stream, writes_to_file, needs_rulegraph = True, False, False
    has_filter, has_formatter = True, True

    def __post_init__(self) -> None:
        self._seconds = last_times(Path(self.settings.times))
        self._waiting: set[str] = set()
        self._running: dict[int, tuple[str, float]] = {}  # name and start by Snakemake's number
        self._reasons: dict[str, str] = {}
        self._n_jobs = 0
        self._failed = self._closed = False
        self._bar = tqdm(disable=True)

    def emit(self, record: logging.LogRecord) -> None:
        """Follows the events of a run."""
        event = getattr(record, "event", None)
        if event == "run_info":
            self._begin(record.stats.keys() - NO_JOBS)
        elif event == "job_info" and record.rule_name not in NO_JOBS:
            if self.common_settings.dryrun:
                self._reasons[record.rule_name] = record.reason
                return
            self._running[record.jobid] = record.rule_name, time.monotonic()
            self._show(f"Started {record.rule_name}")
        elif event == "job_finished" and record.job_id in self._running:
            self._finish(*self._running.pop(record.job_id))
        elif event == "job_error":
            self._running.pop(record.jobid, None)
            self._failed = True
        elif record.levelno >= logging.WARNING and getattr(record, "exception", None) != "RuleException":
            print(record.getMessage(), file=sys.stderr, flush=True)  # a job that failed has said why itself
            self._failed |= record.levelno >= logging.ERROR

    def close(self) -> None:
        """Ends the bar, or lists the jobs of a dry run."""
        if not self._closed:
            self._closed = True
            self._bar.close()
            for name, reason in self._reasons.items():
                print(f"  {name}: {textwrap.shorten(reason, 120)}")
            if not self._n_jobs and not self._failed:
                print("Nothing to be done: all is up to date.")
            sys.stdout.flush()
        super().close()

    def _begin(self, jobs: set[str]) -> None:
        if self._n_jobs:  # a dry run says it twice
            return
        self._waiting, self._n_jobs = set(jobs), len(jobs)
        left = self._left()
        about = "" if left is None else f": {_time(left)} on {self.settings.cores} cores, by the last run"
        print(f"{_jobs(len(jobs))}{about}", flush=True)
        if sys.stderr.isatty() and not self.common_settings.dryrun:
            self._bar = tqdm(total=len(jobs), bar_format="{percentage:3.0f}%|{bar:30}| {desc}")
            threading.Thread(target=self._keep_moving, daemon=True).start()

    def _finish(self, name: str, start: float) -> None:
        self._waiting.discard(name)
        self._show(f"Finished {name} in {_time(time.monotonic() - start)}, {_jobs(len(self._waiting))} left")

    def _show(self, line: str) -> None:
        seconds = self._left() if self._waiting else None
        left = "" if seconds is None else f": {_time(seconds)} left"
        if self._bar.disable:
            print(line + left, flush=True)
            return
        self._bar.n = self._n_jobs - len(self._waiting)
        running = "".join(f"; {name}" for name, _ in list(self._running.values()))
        self._bar.set_description_str(f"{self._bar.n} of {_jobs(self._n_jobs)}{left}{running}")

    def _keep_moving(self) -> None:
        while self._waiting:
            time.sleep(1)
            self._show("")

    def _left(self) -> float | None:
        """Seconds until all is done, if jobs take as long as in the last run; None where that is not known."""
        now = time.monotonic()
        starts = dict(list(self._running.values()))
        if not self.settings.cores or not self._waiting <= self._seconds.keys():
            return None
        left = [max(self._seconds[name] - (now - starts.get(name, now)), 0) for name in self._waiting]
        return max([sum(left) / self.settings.cores, *left])


def last_times(folder: Path) -> dict[str, float]:
    """How many seconds each job took when it last ran. Benchmarks that can't be read are left out."""
    seconds = {}
    for file in folder.glob("*.tsv"):
        with contextlib.suppress(OSError, ValueError, LookupError):
            names, values = (line.split("\t") for line in file.read_text(encoding="utf-8").splitlines()[:2])
            seconds[file.stem] = float(values[names.index("s")])
    return seconds


def _jobs(number: int) -> str:
    return f"{number} job{'s' * (number != 1)}"


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"about {seconds / 60:.0f} minutes"
