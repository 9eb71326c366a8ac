"""Runs notebooks and whole studies without JupyterLab.

    python -m tcnaps.batch study configs/miniature.yaml --cores 2
    python -m tcnaps.batch notebook notebooks/03-meta-train.ipynb executed.ipynb -p training simple

papermill runs a notebook and Snakemake decides which notebooks are stale. This module adds what both lack:
errors before anything is started, one run of a study at a time, nothing left running when a run is killed.
"""

import argparse
import ast
import contextlib
import ctypes
import difflib
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TextIO

import psutil

from tcnaps.config import ConfigError, Study, load_study, project_root
from tcnaps.fingerprint import SourceError, code_cells, parse

LOCK_PATIENCE = 15.0    # seconds that a second run waits: one that was just killed takes a few to let go


class BatchError(Exception):
    """A notebook or study cannot be run as asked; the message says why and what to do."""


class NotebookFailed(Exception):
    """A notebook was started and failed; the message says where, and where the executed notebook lies."""


# ---- notebooks


def run_notebook(notebook: str | Path, output: str | Path, parameters: dict, progress: bool = True) -> None:
    """Executes a copy of a notebook. Its kernel works in the notebook's folder, as it does in JupyterLab.

    Args:
        notebook: has one cell tagged `parameters`.
        output: where the executed notebook is kept, also when a cell fails.
        parameters: values by name, instead of those in the `parameters` cell.
        progress: whether to show a bar.

    Raises:
        BatchError: there is no such parameter, no `parameters` cell, or `output` is the notebook itself.
        SourceError: there is no such notebook.
        NotebookFailed: a cell raised an exception, or the kernel died.
    """
    notebook, output = Path(notebook), Path(output)
    defaults = notebook_parameters(notebook)
    for name in parameters:
        if name not in defaults:
            near = difflib.get_close_matches(name, defaults, n=1)
            hint = f"; did you mean '{near[0]}'?" if near else "."
            known = ", ".join(defaults) or "none"
            raise BatchError(f"{notebook} has no parameter '{name}'{hint} Its parameters: {known}.")
    if output.resolve() == notebook.resolve():
        raise BatchError(f"{output} is the notebook itself: name another file for the executed copy.")
    output.parent.mkdir(parents=True, exist_ok=True)
    # With either of these set, Jupyter may prefer another installation's python3 kernel to ours.
    for variable in ("JUPYTER_PATH", "JUPYTER_PREFER_ENV_PATH"):
        os.environ.pop(variable, None)
    import papermill
    from nbclient.exceptions import DeadKernelError
    from traitlets.config import Config

    # Kernels listen on TCP, where other users of the machine could read along; ipykernel warns of it.
    encrypted = Config({"KernelManager": {"transport_encryption": "auto"}})
    try:
        papermill.execute_notebook(notebook, output.resolve(), parameters, cwd=notebook.resolve().parent,
                                   kernel_name="python3", language="python", progress_bar=progress,
                                   start_timeout=120, config=encrypted, extra_arguments=["--log-level=50"])
    except papermill.PapermillExecutionError as error:
        line = next((line.strip() for line in error.source.splitlines() if line.strip()), "")
        raise NotebookFailed(f"{notebook} failed in cell [{error.exec_count}], which begins '{line}':\n"
                             f"  {error.ename}: {error.evalue}\n"
                             f"The executed notebook, with the traceback: {output}") from error
    except (DeadKernelError, RuntimeError) as error:
        raise NotebookFailed(f"{notebook}: the kernel died ({error}). Often the machine ran out of memory.\n"
                             f"The notebook as far as it was executed: {output}") from error


def notebook_parameters(notebook: str | Path) -> dict[str, object]:
    """Names and default values of a notebook's parameters; None where the default is not a literal.

    Raises:
        BatchError: not exactly one cell is tagged `parameters`.
        SourceError: there is no such notebook.
    """
    tagged = [source for source, tags in code_cells(notebook) if "parameters" in tags]
    if len(tagged) != 1:
        count = len(tagged) or "no"
        raise BatchError(f"{notebook} has {count} code cells tagged 'parameters' and needs exactly one. "
                         "In JupyterLab: select the cell with the defaults, then Property Inspector, "
                         "Common Tools, Cell Tags.")
    found: dict[str, object] = {}
    for node in parse(tagged[0], notebook).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for name in (target.id for target in targets if isinstance(target, ast.Name)):
            try:
                found[name] = ast.literal_eval(node.value)
            except (ValueError, TypeError):
                found[name] = None
    return found


def _value(notebook: str, name: str, text: str, default: object) -> object:
    """A parameter from the command line: JSON, or bare text where the default is text."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        value = text
    if isinstance(default, str) and not isinstance(value, str):
        return text     # 007 and null stay what was typed
    if isinstance(default, float) and type(value) is int:
        return float(value)
    if default is not None and type(value) is not (list if isinstance(default, tuple) else type(default)):
        kind = type(default).__name__
        raise BatchError(f"{notebook}: parameter '{name}' must be {kind}, like {default!r}; "
                         f"got {text}.")
    return value


# ---- studies


def run_study(path: str, cores: int, dry_run: bool = False, snakemake: Iterable[str] = ()) -> int:
    """Brings everything that a study makes up to date, and says where it lies.

    Args:
        path: the study's YAML.
        cores: how many processor cores the jobs share.
        dry_run: only list what is stale.
        snakemake: rules to run in place of `all`, and further options for Snakemake.

    Returns:
        The exit status of Snakemake.

    Raises:
        ConfigError: the YAML is wrong.
        BatchError: this is not the project's folder, or another process runs the same study.
    """
    root = project_root()
    if not (root / "Snakefile").is_file():
        raise BatchError(f"There is no Snakefile in {root} or above it: run this in the project's folder.")
    study = load_study(path)
    file = next(f for f in (Path(path), root / path) if f.is_file()).resolve()
    file = file.relative_to(root) if file.is_relative_to(root) else file
    # No lock of Snakemake's: it outlives a killed run and must be removed by hand. The system frees ours.
    command = [sys.executable, "-m", "snakemake", *snakemake, "--config", f"study={file}", "--cores", str(cores),
               "--nolock", "--rerun-incomplete", "--rerun-triggers", "mtime", "params", "input", "code",
               "--keep-going", "--scheduler", "greedy", "--quiet", "host", "reason", "rules"]
    if dry_run:
        return subprocess.call([*command, "--dry-run"], cwd=root)
    started = time.time()
    with _lock(root / "results" / study.name) as lock:
        status = _call(command, root, lock.fileno())
    print(_summary(root, study) if status == 0 else _advice(root, study, started), flush=True)
    return status if status >= 0 else 128 - status      # as a shell has it for a killed command


def _call(command: list[str], root: Path, lock: int) -> int:
    """Runs a command that shares our lock and, on Linux, cannot outlive us."""
    me = os.getpid()
    prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None

    def die_with_parent():
        if prctl:
            prctl(1, signal.SIGKILL)    # PR_SET_PDEATHSIG
        if os.getppid() != me:          # the parent died before it was set
            os._exit(1)

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    process = subprocess.Popen(command, cwd=root, pass_fds=[lock], preexec_fn=die_with_parent)
    try:
        return process.wait()
    except KeyboardInterrupt:       # the terminal interrupted Snakemake too, which ends its jobs
        process.wait()
        raise
    finally:
        process.kill()


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[TextIO]:
    """Keeps a second run of the same study out for as long as this process or Snakemake lives."""
    folder.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + LOCK_PATIENCE
    with open(folder / ".lock", "a+") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    file.seek(0)
                    holder = file.read().strip()
                    raise BatchError(f"Study '{folder.name}' is already being run, by process {holder}. Wait "
                                     f"for it, or end it with 'kill {holder}', and run this again.") from None
                time.sleep(0.2)
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield file


def _summary(root: Path, study: Study) -> str:
    figures, results = f"figures/{study.name}", f"results/{study.name}"
    count = len(list((root / figures).rglob("*.png")))
    lines = [f"\nFigures:   {figures}/ ({count}, each as PNG and PDF)", f"Tables:    {results}/*.csv",
             f"Notebooks: {results}/notebooks/, as they were executed"]
    headline = root / results / "headline.json"
    if headline.is_file():
        lines.append(f"\n{json.loads(headline.read_text())['sentence']}")
    return "\n".join(lines)


def _advice(root: Path, study: Study, started: float) -> str:
    folder = f"results/{study.name}/notebooks"
    failed = [f"\n  {folder}/{file.name} has a traceback" for file in sorted((root / folder).glob("*.ipynb"))
              if file.stat().st_mtime >= started and '"output_type": "error"' in file.read_text("utf-8")]
    return "".join(["\nNot everything could be made; the errors stand above.", *failed,
                    "\nRunning again continues from here."])


# ---- command line


def _end_with(parent: int) -> None:
    """Ends this process, and all that it started, within about a second of the end of its parent.

    Killing a process outright (kill -9) leaves its children running, and an orphaned kernel may still write.
    """
    def watch():
        while os.getppid() == parent:
            time.sleep(0.5)
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                child.kill()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tcnaps.batch", description="Runs notebooks and studies.")
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("notebook", help="execute a copy of one notebook")
    one.add_argument("notebook")
    one.add_argument("output", help="where to keep the executed notebook")
    one.add_argument("-p", dest="parameters", nargs=2, action="append", default=[], metavar=("NAME", "VALUE"),
                     help="set a parameter; VALUE is JSON, or bare text where the default is text")
    one.add_argument("--quiet", action="store_true", help="one line instead of a progress bar")
    whole = commands.add_parser("study", help="bring all figures and tables of a study up to date")
    whole.add_argument("study", help="the study's YAML, for instance configs/miniature.yaml")
    whole.add_argument("--cores", type=int, default=os.cpu_count(), help="default: all")
    whole.add_argument("--dry-run", action="store_true", help="only list what is stale")
    whole.add_argument("snakemake", nargs="*", help="rules and further options for Snakemake, after --")
    for command in (one, whole):
        command.add_argument("--parent", type=int, help="end when this process, which started us, is gone")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """The command line; see the top of this file. Status 1: something failed; 2: it was asked for wrongly."""
    options = _options(arguments)
    if options.parent:
        _end_with(options.parent)
    try:
        if options.command == "study":
            return run_study(options.study, options.cores, options.dry_run, options.snakemake)
        defaults = notebook_parameters(options.notebook)
        values = {name: _value(options.notebook, name, text, defaults.get(name))
                  for name, text in options.parameters}
        if options.quiet:
            print(f"Started {Path(options.output).stem}", file=sys.stderr)
        run_notebook(options.notebook, options.output, values, not options.quiet and sys.stderr.isatty())
        return 0
    except (BatchError, SourceError, ConfigError, NotebookFailed) as error:
        print(error, file=sys.stderr)
        return 1 if isinstance(error, NotebookFailed) else 2
    except KeyboardInterrupt:
        print("Interrupted. Running again continues from here.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
