"""One bar over all jobs of a study: what runs, how much is done, and about how long the rest will take."""

import csv
import logging
import math
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tqdm import tqdm

from tcnaps.config.storage import replacing, write_text

Arithmetic = Callable[[str], float | None]
COLUMNS = ("job", "seconds", "threads", "arithmetic")


class Progress(logging.Filter):
    """Stands in front of Snakemake's log: shows the jobs in its place, and lets only warnings and errors pass.

    On a terminal it is a bar; elsewhere one line for the start and one for the end of every job. How long jobs take is
    noted beside the study's tables, and read at the next run. A job that goes on where an earlier run was interrupted
    keeps the time that is known of it, for only its last piece was seen.

    Args:
        table: a CSV of `COLUMNS`; made if it does not exist.
        cores: that the jobs share; None on a cluster, where nobody knows when a job gets its turn.
        arithmetic: as for `read_times`.

    Attributes:
        n_jobs: how many there are to be run; 0 as long as Snakemake has found none.
    """

    def __init__(self, table: Path, cores: int | None, arithmetic: Arithmetic = lambda job: None):
        super().__init__()
        self._table, self._cores, self._arithmetic = table, cores, arithmetic
        self._known = read_times(table, arithmetic)
        self._begun = table.with_name(".begun")  # the jobs that have begun and not ended, of this run and earlier ones
        self._interrupted = set(self._begun.read_text(errors="replace").split()) if self._begun.exists() else set()
        self._waiting: set[str] = set()
        self._running: dict[int, tuple[str, float, int]] = {}  # name, start and threads by Snakemake's number
        self.n_jobs, self._expected = 0, None  # jobs, and seconds for all of them where that is known
        self._bar: tqdm | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        event = getattr(record, "event", None)
        if event == "run_info":
            self._begin(set(record.stats) - {"all", "total"})
        elif event == "job_info" and record.rule_name != "all":
            self._running[record.jobid] = record.rule_name, time.monotonic(), record.threads
            self._note_begun()
            self._show(f"Started {record.rule_name}")
        elif event == "job_finished" and record.job_id in self._running:
            self._finish(*self._running.pop(record.job_id))
        elif event == "job_error":
            self._interrupted.update(self._running.pop(record.jobid, ())[:1])
        # A job that failed has said why itself.
        own = event == "job_error" or getattr(record, "exception", None) == "RuleException"
        return record.levelno >= logging.WARNING and not own

    def _begin(self, jobs: set[str]) -> None:
        self._waiting, self.n_jobs = set(jobs), len(jobs)
        self._expected = self._left() if self._is_known() else None
        about = "" if self._expected is None else f": {_time(self._expected)} on {self._cores} cores, by the last times"
        print(_jobs(self.n_jobs) + about, flush=True)
        look = "{percentage:3.0f}%|{bar:30}| {desc}"
        self._bar = tqdm(total=1.0, bar_format=look, disable=not sys.stderr.isatty())
        if not self._bar.disable:
            threading.Thread(target=self._keep_moving, daemon=True).start()

    def _finish(self, name: str, start: float, threads: int) -> None:
        self._waiting.discard(name)
        took = time.monotonic() - start
        if name not in self._interrupted:
            self._known[name] = took, threads, self._arithmetic(name)
            with replacing(self._table) as temporary, open(temporary, "w", newline="") as file:
                rows = [
                    (job, f"{seconds:.0f}", number, "" if by_arithmetic is None else f"{by_arithmetic:.4g}")
                    for job, (seconds, number, by_arithmetic) in sorted(self._known.items())
                ]
                csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows])
        self._interrupted.discard(name)
        self._note_begun()
        self._show(f"Finished {name} in {_time(took)}, {_jobs(len(self._waiting))} left")

    def _note_begun(self) -> None:
        write_text(self._begun, "\n".join(sorted(self._interrupted | {name for name, *_ in self._running.values()})))

    def _show(self, line: str) -> None:
        left = f": {_time(self._left())} left" if self._waiting and self._expected is not None else ""
        if self._bar.disable:
            print(line + left, flush=True)
            return
        done = self.n_jobs - len(self._waiting)
        self._bar.n = 1 - self._left() / self._expected if self._expected else done / self.n_jobs
        running = "".join(f"; {name}" for name, _, _ in list(self._running.values()))
        self._bar.set_description_str(f"{done} of {_jobs(self.n_jobs)}{left}{running}")
        if not self._waiting:
            self._bar.close()

    def _keep_moving(self) -> None:
        while not time.sleep(1) and self._waiting:
            self._show("")

    def _is_known(self) -> bool:
        return self._cores is not None and self._waiting <= self._known.keys()

    def _left(self) -> float:
        """Seconds, if jobs take as long as the last time and all cores are busy."""
        now, seconds = time.monotonic(), 0.0
        starts = {name: start for name, start, _ in list(self._running.values())}
        for name in self._waiting & self._known.keys():
            expected, threads, _ = self._known[name]
            seconds += max(expected - (now - starts.get(name, now)), 0) * min(threads, self._cores)
        return seconds / self._cores


def read_times(table: Path, arithmetic: Arithmetic) -> dict[str, tuple[float, int, float | None]]:
    """How long each job takes: seconds, threads, and the arithmetic's seconds.

    That is as long as when it last ran, times what it has grown by since, according to the arithmetic. Without a table
    nothing is known, nor from a damaged one, which is told: nothing but forecasts depends on it.

    Args:
        arithmetic: about how many seconds a job takes with the present settings; None where that is not known.
    """
    try:
        with open(table, newline="", encoding="utf-8") as file:
            rows, known = list(csv.DictReader(file)), {}
        for row in rows:
            now, then = arithmetic(row["job"]), float(row.get("arithmetic") or 0)
            seconds, threads = float(row["seconds"]) * (now / then if now and then else 1), int(row["threads"])
            if not (0 <= seconds < math.inf and threads > 0):
                raise ValueError("times and threads must be positive")
            known[row["job"]] = seconds, threads, now
        return known
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, KeyError, csv.Error) as error:
        print(f"{table} is damaged and ignored ({error}): how long this takes is not known.", file=sys.stderr)
        return {}


def _jobs(number: int) -> str:
    return f"{number} job{'s' * (number != 1)}"


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"about {seconds / 60:.0f} minutes"
