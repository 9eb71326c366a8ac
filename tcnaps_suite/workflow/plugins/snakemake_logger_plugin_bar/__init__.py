"""What Snakemake shows of a study: one bar over all jobs, or in a dry run the jobs that it would run, and why.

Where there is no terminal, it is a line for the start and the end of every job. Times are those of the last run.
"""

import contextlib
import csv
import logging
import sys
import textwrap
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.settings import LogHandlerSettingsBase
from tqdm import tqdm

NO_JOBS = {"all", "all_rivals", "all_active", "all_differences", "total"}


@dataclass
class LogHandlerSettings(LogHandlerSettingsBase):
    """Options of the command line."""

    times: str = field(default="", metadata={"help": "folder with the benchmark of each job's last run"})
    cores: int = field(default=0, metadata={"help": "cores that the jobs share; 0 on a cluster", "type": int})


class LogHandler(LogHandlerBase):
    """Takes the place of Snakemake's own log; of that only warnings and errors are shown."""

    writes_to_stream, writes_to_file, needs_rulegraph = True, False, False
    has_filter, has_formatter = True, True

    def __post_init__(self) -> None:
        self._running: dict[int, tuple[str, float]] = {}  # name and start by Snakemake's number
        self._waiting: set[str] = set()
        self._seconds = last_times(Path(self.settings.times))
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
                print(f"  {record.rule_name}: {textwrap.shorten(record.reason, 120)}")
                return
            self._running[record.jobid] = record.rule_name, time.monotonic()
            self._show(f"Started {record.rule_name}")
        elif event == "job_finished" and record.job_id in self._running:
            name, start = self._running.pop(record.job_id)
            self._waiting.discard(name)
            left = f"{_jobs(len(self._waiting))} left{self._about()}"
            self._show(f"Finished {name} in {time.monotonic() - start:.0f} s, {left}")
        elif event == "job_error":
            self._running.pop(record.jobid, None)
            self._failed = True
        elif record.levelno >= logging.WARNING and getattr(record, "exception", None) != "RuleException":
            print(record.getMessage(), file=sys.stderr, flush=True)  # a job that failed has said why itself
            self._failed |= record.levelno >= logging.ERROR

    def close(self) -> None:
        """Ends the bar."""
        if not self._closed:
            self._closed = True
            self._bar.close()
            if not self._n_jobs and not self._failed:
                print("Nothing to be done: all is up to date.")
            sys.stdout.flush()
        super().close()

    def _begin(self, jobs: Iterable[str]) -> None:
        if not self._n_jobs:  # a dry run says it twice
            self._waiting = set(jobs)
            self._n_jobs = len(self._waiting)
            print(f"{_jobs(self._n_jobs)}{self._about()}", flush=True)
            if sys.stderr.isatty() and not self.common_settings.dryrun:
                self._bar = tqdm(total=self._n_jobs, bar_format="{percentage:3.0f}%|{bar:30}| {elapsed} {desc}")

    def _about(self) -> str:
        """How long the waiting jobs take, if they take as long as in the last run; empty where that is not known."""
        seconds = [self._seconds[name] for name in self._waiting if name in self._seconds]
        if not self._waiting or len(seconds) < len(self._waiting) or not self.settings.cores:
            return ""
        left = max(sum(seconds) / self.settings.cores, *seconds)
        text = f"{left:.0f} s" if left < 90 else f"about {left / 60:.0f} minutes"
        return f": {text} on {self.settings.cores} cores, by the last run"

    def _show(self, line: str) -> None:
        if self._bar.disable:
            print(line, flush=True)
            return
        running = "".join(f"; {name}" for name, _ in self._running.values())
        self._bar.n = self._n_jobs - len(self._waiting)
        self._bar.set_description_str(f"{self._bar.n} of {_jobs(self._n_jobs)}{self._about()}{running}")


def last_times(folder: Path) -> dict[str, float]:
    """How many seconds each job took when it last ran. Benchmarks that can't be read are left out."""
    seconds = {}
    for file in folder.glob("*.tsv"):
        with contextlib.suppress(OSError, StopIteration, KeyError, TypeError, ValueError, csv.Error):
            seconds[file.stem] = float(next(csv.DictReader(file.read_text().splitlines(), delimiter="\t"))["s"])
    return seconds


def _jobs(number: int) -> str:
    return f"{number} job{'s' * (number != 1)}"
