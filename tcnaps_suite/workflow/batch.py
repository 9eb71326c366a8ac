"""Runs notebooks and whole studies without JupyterLab.

    python -m tcnaps_suite.workflow.batch study configs/miniature.yaml --cores 2 -- RULE
    python -m tcnaps_suite.workflow.batch notebook notebooks/03-meta-train.ipynb executed.ipynb -p training support

papermill runs a notebook and Snakemake decides which notebooks are stale. This module and `tcnaps_suite.workflow.run`
add what both lack: errors before anything is started, one run of a study at a time, nothing left running when killed.
"""

import argparse
import ast
import contextlib
import json
import os
import sys
import threading
import time
from pathlib import Path

import psutil

from tcnaps.config import UserError
from tcnaps.config.errors import nearest
from tcnaps.config.fingerprint import code_cells, parse


class NotebookFailed(Exception):
    """A notebook was started and failed; the message says where, and where the executed notebook lies."""


def run_notebook(notebook: str | Path, output: str | Path, parameters: dict, progress: bool = True) -> None:
    """Executes a copy of a notebook. Its kernel works in the notebook's folder, as it does in JupyterLab.

    Args:
        notebook: has one cell tagged `parameters`.
        output: where the executed notebook is kept, also when a cell fails.
        parameters: values by name, instead of those in the `parameters` cell.
        progress: whether to show a bar.

    Raises:
        UserError: there is no such notebook or parameter, no `parameters` cell, or `output` is the notebook itself.
        NotebookFailed: a cell raised an exception, or the kernel died.
    """
    notebook, output = Path(notebook), Path(output).resolve()
    defaults = _parameters(notebook)
    for name in parameters.keys() - defaults.keys():
        raise UserError(f"{notebook} has no parameter '{name}'{nearest(name, defaults)}")
    if output == notebook.resolve():
        raise UserError(f"{output} is the notebook itself: name another file for the executed copy.")
    output.parent.mkdir(parents=True, exist_ok=True)
    # With either of these set, Jupyter may prefer another installation's python3 kernel to ours.
    for variable in ("JUPYTER_PATH", "JUPYTER_PREFER_ENV_PATH"):
        os.environ.pop(variable, None)
    _execute(notebook, output, parameters, progress)


def _execute(notebook: Path, output: Path, parameters: dict, progress: bool, attempts: int = 3) -> None:
    # jsonschema would compile a grammar of web addresses, for a second; a notebook has none to be checked.
    sys.modules.setdefault("rfc3987_syntax", None)
    import papermill
    from nbclient.exceptions import DeadKernelError
    from traitlets.config import Config

    # Kernels listen on TCP, where other users of the machine could read along; ipykernel warns of it.
    options = {"config": Config({"KernelManager": {"transport_encryption": "auto"}}), "start_timeout": 120}
    options |= {"kernel_name": "python3", "language": "python", "extra_arguments": ["--log-level=50"]}
    if psutil.Process().nice() > 0:
        options["on_cell_start"] = _hold_back_kernel
    place = notebook.resolve().parent
    try:
        papermill.execute_notebook(notebook, output, parameters, cwd=place, progress_bar=progress, **options)
    except papermill.PapermillExecutionError as error:
        what = f"{notebook} failed in cell [{error.exec_count}]: {error.ename}: {error.evalue}"
        raise NotebookFailed(f"{what}\nThe executed notebook, with the traceback: {output}") from error
    except (DeadKernelError, RuntimeError) as error:
        # Two kernels that start at the same moment may choose the same port. Nothing has been executed then.
        if "before replying" in str(error) and attempts > 1:
            return _execute(notebook, output, parameters, progress, attempts - 1)
        what = f"{notebook}: the kernel died ({error}). Often the machine ran out of memory."
        raise NotebookFailed(f"{what}\nThe notebook as far as it was executed: {output}") from error


def _hold_back_kernel(**_) -> None:
    """Gives the kernel's session the low priority of this process.

    A kernel is a session of its own, and Linux shares the processor between sessions before it looks at `nice`.
    """
    own = psutil.Process()
    for kernel in own.children():
        with contextlib.suppress(OSError):  # another system, or asked more than ten times in a second
            Path(f"/proc/{kernel.pid}/autogroup").write_text(str(own.nice()))


def _parameters(notebook: Path) -> dict[str, object]:
    """Names and default values of a notebook's parameters; None where the default is not a literal."""
    tagged = [source for source, tags in code_cells(notebook) if "parameters" in tags]
    if len(tagged) != 1:
        raise UserError(
            f"{notebook} has {len(tagged) or 'no'} code cells tagged 'parameters' and needs exactly one. In "
            "JupyterLab: select the cell with the defaults, then Property Inspector, Common Tools, Cell Tags."
        )
    found: dict[str, object] = {}
    for node in parse(tagged[0], notebook).body:
        for target in getattr(node, "targets", [getattr(node, "target", None)]):
            if isinstance(target, ast.Name):
                found[target.id] = None
                with contextlib.suppress(ValueError, TypeError):
                    found[target.id] = ast.literal_eval(node.value)
    return found


def _value(name: str, text: str, default: object) -> object:
    """A parameter from the command line: JSON, or bare text where the default is text."""
    if isinstance(default, str):
        return text
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        value = text
    if isinstance(default, float) and type(value) is int:
        return float(value)
    if default is not None and type(value) is not type(default):
        raise UserError(f"Parameter '{name}' must be {type(default).__name__}, like {default!r}; got {text}.")
    return value


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
    parser = argparse.ArgumentParser(
        prog="python -m tcnaps_suite.workflow.batch", description="Runs notebooks and studies."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("notebook", help="execute a copy of one notebook")
    one.add_argument("notebook")
    one.add_argument("output", help="where to keep the executed notebook")
    value = {"nargs": 2, "action": "append", "default": [], "metavar": ("NAME", "VALUE")}
    one.add_argument("-p", dest="parameters", **value, help="VALUE is JSON, or bare text where the default is text")
    one.add_argument("--quiet", action="store_true", help="no progress bar")
    usage, more = "%(prog)s [options] study [-- ...]", "after --: rules to run, and further options for Snakemake"
    whole = commands.add_parser("study", help="bring a study up to date", usage=usage, epilog=more)
    whole.add_argument("study", help="the study's YAML, for instance configs/miniature.yaml")
    whole.add_argument("--cores", type=int, help="default: all of this machine")
    whole.add_argument("--profile", metavar="NAME", help="run jobs elsewhere, as profiles/NAME says: slurm, kubernetes")
    whole.add_argument("--dry-run", action="store_true", help="only list what is stale, and what data is missing")
    whole.add_argument("--device", default="cpu", help="that trains and evaluates: cpu (default), cuda, cuda:1, ...")
    whole.add_argument("--workers", type=int, default=0, help="processes a job that read images ahead; default: none")
    whole.add_argument("--processes", type=int, default=1, help="that share a training or an evaluation; default: 1")
    for command in (one, whole):
        command.add_argument("--parent", type=int, help="end when this process, which started us, is gone")
    given = sys.argv[1:] if arguments is None else arguments
    cut = given.index("--") if "--" in given else len(given)
    options = parser.parse_args(given[:cut])
    options.snakemake = given[cut + 1 :]
    return options


def main(arguments: list[str] | None = None) -> int:
    """The command line; see the top of this file. Status 1: something failed; 2: it was asked for wrongly."""
    options = _options(arguments)
    if options.parent:
        _end_with(options.parent)
    try:
        if options.command == "study":
            from tcnaps_suite.workflow.run import run_study  # with pandas, which a notebook loads in its own process

            asked = options.study, options.cores, options.dry_run, options.snakemake, options.device, options.workers
            return run_study(*asked, options.processes, options.profile)
        notebook, output = Path(options.notebook), Path(options.output)
        defaults = _parameters(notebook)
        values = {name: _value(name, text, defaults.get(name)) for name, text in options.parameters}
        run_notebook(notebook, output, values, not options.quiet and sys.stderr.isatty())
        return 0
    except (UserError, NotebookFailed) as error:
        print(error, file=sys.stderr)
        return 1 if isinstance(error, NotebookFailed) else 2
    except KeyboardInterrupt:
        print("Interrupted. Running again continues from here.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
