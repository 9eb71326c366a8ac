"""Which figures and tables of a study are older than what they were made from: the Snakefile's own answer."""

import subprocess
import sys

from tcnaps.config import project_root

TRIGGERS = "--nolock --rerun-triggers mtime params input".split()
REASONS = {
    "updated input files": "older than the rows or other files that it was made from",
    "params changed": "made with other settings, images or code",
    "set of input files changed": "made from other files",
}


def outdated(path: str, made: list[str]) -> dict[str, str] | None:
    """What `make figures` would make anew although it is there.

    Args:
        path: the study's YAML, from the project's root.
        made: figures and tables that are there, from the project's root; those of `make rivals` and the like, too.

    Returns:
        file → why; None where Snakemake can't tell.
    """
    # A file that no rule makes any more is an error. Then at least those of `make figures` can be told.
    for targets in (["all", *made], ["all"]):
        command = [sys.executable, "-m", "snakemake", *targets, "--summary", "--config", f"study={path}", *TRIGGERS]
        answer = subprocess.run(command, cwd=project_root(), capture_output=True, text=True)
        if answer.returncode == 0:
            lines = [line.split("\t") for line in answer.stdout.splitlines()]
            told = {line[0]: line[4] for line in lines if len(line) == 6}
            return {file: REASONS[told[file]] for file in made if told.get(file) in REASONS}
    return None
