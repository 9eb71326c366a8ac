"""Runs notebooks, by papermill, and whole studies, by Snakemake, without JupyterLab.

python -m tcnaps_suite.workflow.batch study configs/miniature.yaml --cores 2 -- RULE
python -m tcnaps_suite.workflow.batch notebook notebooks/03-meta-train.ipynb executed.ipynb -p training support
"""

import argparse
import contextlib
import json
import os
import signal
import sys
import tempfile
from pathlib import Path

from tcnaps.config import UserError
from tcnaps.config.errors import nearest
from tcnaps_suite.workflow.notebooks import parameters_of
from tcnaps_suite.workflow.stopping import end_with, stop_on_signals

KEPT = "Finished jobs and the saved states of trainings are kept: the same command goes on from there."


class NotebookFailed(Exception):
    """A notebook was started and failed; the message says where, and where the executed notebook lies."""


def run_notebook(notebook: str | Path, output: str | Path, parameters: dict, progress: bool = True) -> None:
    """Executes a copy of a notebook in the notebook's folder; `output` is kept also when a cell fails."""
    notebook, output = Path(notebook), Path(output).resolve()
    defaults = parameters_of(notebook)
    for name in parameters.keys() - defaults.keys():
        raise UserError(f"{notebook} has no parameter '{name}'{nearest(name, defaults)}")
    if output == notebook.resolve() or output.is_dir():
        raise UserError(f"{output} is {'a folder' if output.is_dir() else 'the notebook itself'}: name another file.")
    output.parent.mkdir(parents=True, exist_ok=True)
    # With either of these set, Jupyter may prefer another installation's python3 kernel to ours.
    for variable in ("JUPYTER_PATH", "JUPYTER_PREFER_ENV_PATH"):
        os.environ.pop(variable, None)
    import papermill
    from nbclient.exceptions import DeadKernelError
    from traitlets.config import Config

    options = {"start_timeout": 120, "kernel_name": "python3", "language": "python", "progress_bar": progress}
    options |= {"extra_arguments": ["--log-level=50"], "cwd": notebook.resolve().parent}
    with tempfile.TemporaryDirectory() as own:  # the kernel's sockets: on TCP other users of the machine could listen
        config = Config(KernelManager={"transport": "ipc", "connection_file": f"{own}/kernel.json"})
        try:
            papermill.execute_notebook(notebook, output, parameters, config=config, **options)
        except papermill.PapermillExecutionError as error:
            what = f"{notebook} failed in cell [{error.exec_count}]: {error.ename}: {error.evalue}"
            raise NotebookFailed(f"{what}\nThe executed notebook, with the traceback: {output}") from error
        except (DeadKernelError, RuntimeError) as error:
            what = f"{notebook}: the kernel died ({error}). Often the machine ran out of memory."
            raise NotebookFailed(f"{what}\nThe notebook as far as it was executed: {output}") from error


def _value(text: str, default: object) -> object:
    """A parameter from the command line: JSON, or bare text."""
    with contextlib.suppress(json.JSONDecodeError):
        return text if isinstance(default, str) else json.loads(text)
    return text


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tcnaps_suite.workflow.batch", description="Runs notebooks and studies.")
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("notebook", help="execute a copy of one notebook")
    one.add_argument("notebook")
    one.add_argument("output", help="where to keep the executed notebook")
    value = {"nargs": 2, "action": "append", "default": [], "metavar": ("NAME", "VALUE")}
    one.add_argument("-p", dest="parameters", **value, help="VALUE is JSON, or bare text where the default is text")
    one.add_argument("--if-parameter", dest="optional", **value, help="the same, if the notebook has this parameter")
    one.add_argument("--quiet", action="store_true", help="no progress bar")
    usage, more = "%(prog)s [options] study [-- ...]", "after --: rules to run, and further options for Snakemake"
    whole = commands.add_parser("study", help="bring a study up to date", usage=usage, epilog=more)
    whole.add_argument("study", help="the study's YAML, for instance configs/miniature.yaml")
    whole.add_argument("--cores", type=int, default=0, help="cores that the jobs share; 0, the default, means all")
    whole.add_argument("--profile", metavar="NAME", help="run jobs elsewhere, as profiles/NAME says: slurm, kubernetes")
    whole.add_argument("--dry-run", action="store_true", help="only list what is stale, and what data is missing")
    whole.add_argument("--device", default="cpu", help="where networks run: cpu (default), cuda, cuda:1, ...")
    whole.add_argument("--processes", type=int, default=1, help="processes per training or evaluation; default: 1")
    for command in (one, whole):
        command.add_argument("--parent", type=int, help="end when this process, which started us, is gone")
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    options = parser.parse_args(arguments[:cut])
    options.targets = arguments[cut + 1 :]
    return options


def main(arguments: list[str] | None = None) -> int:
    """The command line; see the top of this file. Status 1: something failed; 2: a wrong argument or setting."""
    options = _options(sys.argv[1:] if arguments is None else arguments)
    if options.parent:
        end_with(options.parent)
    try:
        if options.command == "study":
            from tcnaps_suite.workflow.run import run_study  # with pandas, which a notebook loads in its own process

            stop_on_signals()
            return run_study(options)
        defaults = parameters_of(Path(options.notebook))
        texts = dict([pair for pair in options.optional if pair[0] in defaults] + options.parameters)
        values = {name: _value(text, defaults.get(name)) for name, text in texts.items()}
        run_notebook(options.notebook, options.output, values, not options.quiet and sys.stderr.isatty())
        return 0
    except (UserError, NotebookFailed) as error:
        print(error, file=sys.stderr)
        return 1 if isinstance(error, NotebookFailed) else 2
    except KeyboardInterrupt as stopped:
        number = stopped.args[0] if stopped.args else signal.SIGINT
        print(f"\nStopped by {number.name}. {KEPT}", file=sys.stderr)
        return 128 + number


if __name__ == "__main__":
    sys.exit(main())
