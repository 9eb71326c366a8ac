"""What a run would do: a table of all jobs, what each asks for and about how long it takes, with the arithmetic."""

import logging

from tcnaps.config import Study
from tcnaps_suite.workflow.estimate import GPU, LAST_RUN, Estimate, Sizes, estimate, last_times

HEADINGS = ("job", "threads", "memory", "time limit", "GPUs", "core hours", "GPU hours", "from")


class Plan(logging.Filter):
    """Stands in front of the log of a dry run and collects its jobs; only warnings and errors pass.

    As text it is the table.

    Args:
        sizes: classes and images of the datasets, as far as they are known.
    """

    def __init__(self, study: Study, sizes: Sizes):
        super().__init__()
        self._study, self._sizes, self._times = study, sizes, last_times(study, sizes)
        self._jobs: dict[str, tuple[int, dict]] = {}  # threads and resources by name

    def filter(self, record: logging.LogRecord) -> bool:
        if getattr(record, "event", None) == "job_info" and record.rule_name != "all":
            self._jobs[record.rule_name] = record.threads, dict(record.resources.items())
        return record.levelno >= logging.WARNING

    def __str__(self) -> str:
        if not self._jobs:
            return "Nothing to be done: all is up to date."
        estimates = {name: estimate(self._study, name, self._sizes, self._times) for name in self._jobs}
        reasons = list(dict.fromkeys(found.arithmetic for found in estimates.values() if found))
        marks = {
            text: text if text == LAST_RUN else f"({k})"
            for k, text in enumerate(sorted(reasons, key=LAST_RUN.__eq__), 1)
        }
        rows = [HEADINGS]
        for name, (threads, asked) in self._jobs.items():
            found = estimates[name]
            hours = ("", "", "") if found is None else (*_hours(found), marks[found.arithmetic])
            rows.append((name, *_asked(threads, asked), *hours))
        widths = [max(map(len, column)) for column in zip(*rows)]
        lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip() for row in rows]
        notes = [f"{mark} {text}" for text, mark in marks.items() if text != LAST_RUN]
        return "\n".join([*lines, "", *self._totals(list(estimates.values())), "", *notes])

    def _totals(self, estimates: list[Estimate | None]) -> list[str]:
        known = [found for found in estimates if found]
        core = sum(found.core_hours or 0 for found in known)
        gpu = sum(found.gpu_hours or 0 for found in known)
        unknown = sum(found.core_hours is None for found in known)
        size = f"{self._study.image_size} pixels, {self._study.precision}"
        lines = [f"{len(estimates)} jobs: {core:,.1f} hours of one core, or {gpu:,.1f} of one GPU, at {size}."]
        if unknown:
            lines.append(f"To be added: {unknown} whose images can't be counted before their data is there.")
        lines.append(
            f"Rates are images per second on one core, measured; a GPU is assumed to do {GPU:.3g} operations per"
        )
        lines.append("second, which was not measured (docs/scaling.md). Jobs without hours draw, or are not estimated.")
        return lines


def _asked(threads: int, asked: dict) -> tuple[str, ...]:
    memory, minutes = asked.get("mem_mb"), asked.get("runtime")
    limit = "" if minutes is None else f"{minutes // 60}:{minutes % 60:02d} h"
    return str(threads), "" if memory is None else f"{memory / 1000:.1f} GB", limit, str(asked.get("gpu", 0))


def _hours(found: Estimate) -> tuple[str, str]:
    gpu = "" if found.arithmetic == LAST_RUN else "?"
    return _hour(found.core_hours, "?"), _hour(found.gpu_hours, gpu)


def _hour(hours: float | None, unknown: str) -> str:
    return unknown if hours is None else f"{hours:,.2f}"
