"""What Snakemake shows of a study: a line for the start and the end of every job, with the time that is left.

In a dry run, a line for every job that it would run, and why. Times are those of the last run.
"""

import contextlib
import csv
import logging
import sys
import textwrap
import time
from dataclasses import dataclass, field
from pathlib import Path

from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.settings import LogHandlerSettingsBase

NO_JOBS = {"all", "all_rivals", "all_active", "all_differences", "total"}


@dataclass
class LogHandlerSettings(LogHandlerSettingsBase):
    times: str = field(default="", metadata={"help": "folder with the benchmark of each job's last run"})
    cores: int = field(default=0, metadata={"help": "cores that the jobs share; 0 on a cluster", "type": int})


class LogHandler(LogHandlerBase):
    """Takes the place of Snakemake's own log; of that only warnings and errors are shown."""

    writes_to_stream, writes_to_file, needs_rulegraph = True, False, False
    has_filter, has_formatter = True, True

    def __post_init__(self) -> None:
        self._running: dict[int, tuple[str, float]] = {}  # name and start by Snakemake's number
        self._waiting: set[str] | None = None  # before the jobs are known
        self._seconds = last_times(Path(self.settings.times))
        self._failed = self._closed = False

    def emit(self, record: logging.LogRecord) -> None:
        event = getattr(record, "event", None)
        if event == "run_info":
            jobs = record.stats.keys() - NO_JOBS
            if self._waiting is None and jobs:  # a dry run says it twice
                self._waiting = jobs
                print(f"{_jobs(len(jobs))}{self._about()}", flush=True)
        elif event == "job_info" and record.rule_name not in NO_JOBS:
            if self.common_settings.dryrun:
                print(f"  {record.rule_name}: {textwrap.shorten(record.reason, 120)}")
                return
            self._running[record.jobid] = record.rule_name, time.monotonic()
            print(f"Started {record.rule_name}", flush=True)
        elif event == "job_finished" and record.job_id in self._running:
            name, start = self._running.pop(record.job_id)
            self._waiting.discard(name)
            left = f"{_jobs(len(self._waiting))} left{self._about()}"
            print(f"Finished {name} in {time.monotonic() - start:.0f} s, {left}", flush=True)
        elif event == "job_error":
            self._running.pop(record.jobid, None)
            self._failed = True
        elif record.levelno >= logging.WARNING and getattr(record, "exception", None) != "RuleException":
            print(record.getMessage(), file=sys.stderr, flush=True)  # a job that failed has said why itself
            self._failed |= record.levelno >= logging.ERROR

    def close(self) -> None:
        if not self._closed and self._waiting is None and not self._failed:
            print("Nothing to be done: all is up to date.", flush=True)
        self._closed = True
        super().close()

    def _about(self) -> str:
        """How long the waiting jobs take, if they take as long as in the last run; empty where that is not known."""
        seconds = [self._seconds[name] for name in self._waiting if name in self._seconds]
        if not self._waiting or len(seconds) < len(self._waiting) or not self.settings.cores:
            return ""
        left = max(sum(seconds) / self.settings.cores, *seconds)
        text = f"{left:.0f} s" if left < 90 else f"about {left / 60:.0f} minutes"
        return f": {text} on {self.settings.cores} cores, by the last run"


def last_times(folder: Path) -> dict[str, float]:
    """How many seconds each job took when it last ran. Benchmarks that can't be read are left out."""
    seconds = {}
    for file in folder.glob("*.tsv"):
        with contextlib.suppress(OSError, StopIteration, KeyError, TypeError, ValueError, csv.Error):
            seconds[file.stem] = float(next(csv.DictReader(file.read_text().splitlines(), delimiter="\t"))["s"])
    return seconds


def _jobs(number: int) -> str:
    return f"{number} job{'s' * (number != 1)}"
