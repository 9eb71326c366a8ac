"""Serves the notebooks with widgets to colleagues, by Voilà: no code is shown, none can be run, no file is written.

    python -m tcnaps.studies.serving configs/miniature.yaml --port=8866

What follows the study's file goes to Voilà.
"""

import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import nbformat

from tcnaps.config import ConfigError, Study, load_study, project_root
from tcnaps.config.fingerprint import SourceError
from tcnaps.studies.batch import BatchError, notebook_parameters

NOTEBOOKS = ("12-stepper", "13-explorer", "14-views")
READ_ONLY = "TCNAPS_READ_ONLY"  # set in the served kernels: widgets then offer downloads and write no file
# No file of the project, and no kernel that nobody looks at: those with PyTorch fill the memory.
OPTIONS = (
    "--VoilaConfiguration.classic_tree=True",
    "--MappingKernelManager.cull_idle_timeout=600",
    "--MappingKernelManager.cull_interval=60",
    "--Voila.open_browser=False",
    "--VoilaConfiguration.file_allowlist=^$",
    "--VoilaConfiguration.show_tracebacks=True",
)


def copy_notebooks(study: Study, path: str, names: Sequence[str] = NOTEBOOKS) -> Path:
    """Copies of the notebooks with this study in their `parameters` cell, apart from those that train.

    Args:
        path: the study's file, as the notebooks' parameter `study` takes it.

    Returns:
        Their folder, results/<study>/served.

    Raises:
        BatchError: a notebook has no parameter `study`.
        SourceError: there is no such notebook.
    """
    root = project_root()
    folder = study.results_folder / "served"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in names:
        source = root / "notebooks" / f"{name}.ipynb"
        if "study" not in notebook_parameters(source):
            raise BatchError(f"{source} has no parameter 'study'.")
        content = nbformat.read(source, as_version=4)
        tagged = next(i for i, cell in enumerate(content.cells) if "parameters" in cell.metadata.get("tags", ()))
        chosen = nbformat.v4.new_code_cell(f"study = {json.dumps(str(path))}")
        content.cells.insert(tagged + 1, chosen)
        nbformat.write(content, folder / source.name)
    return folder


def read_only() -> bool:
    """Whether this kernel serves colleagues, who must not write files."""
    return os.environ.get(READ_ONLY) == "1"


def main(arguments: Sequence[str] | None = None) -> int:
    """Turns this process into Voilà's; returns only on an error."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if not given or given[0].startswith("-"):
        print("Usage: python -m tcnaps.studies.serving STUDY [options of Voilà]", file=sys.stderr)
        return 2
    path, *options = given
    try:
        folder = copy_notebooks(load_study(path), path)
    except (BatchError, ConfigError, SourceError) as error:
        print(error, file=sys.stderr)
        return 2
    if shutil.which("voila", path=str(Path(sys.executable).parent)) is None:
        print("Voilà is not installed: .venv/bin/python -m pip install -c constraints.txt voila", file=sys.stderr)
        return 2
    for variable in ("JUPYTER_PATH", "JUPYTER_PREFER_ENV_PATH"):  # may prefer another installation's kernel
        os.environ.pop(variable, None)
    os.environ[READ_ONLY] = "1"
    os.execv(sys.executable, [sys.executable, "-m", "voila", str(folder), *OPTIONS, *options])


if __name__ == "__main__":
    sys.exit(main())
