"""Serves the notebooks with widgets to colleagues, by Voilà: no code is shown, none can be run, no file is written.

    python -m tcnaps.studies.serving configs/miniature.yaml --port=8866

What follows the study's file goes to Voilà. Without a `--token`, pages are served under the machine's own names only.
"""

import os
import shutil
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import papermill
from traitlets.config import Config
from voila.app import Voila

from tcnaps.config import Study, UserError, load_study, project_root
from tcnaps.widgets import READ_ONLY

NOTEBOOKS = ("12-stepper", "13-explorer", "14-views")
# No file of the project is served, and kernels that nobody looks at are ended: with PyTorch they fill the memory.
OPTIONS = (
    "--VoilaConfiguration.classic_tree=True",
    "--MappingKernelManager.cull_idle_timeout=600",
    "--MappingKernelManager.cull_interval=60",
    "--Voila.open_browser=False",
    "--VoilaConfiguration.file_allowlist=^$",
    "--VoilaConfiguration.show_tracebacks=True",
)


def copy_notebooks(study: Study, path: str) -> Path:
    """Copies `NOTEBOOKS`, none of which trains, with this study as their parameter.

    Args:
        path: the study's file, as the notebooks' parameter `study_file` takes it.

    Returns:
        Their folder, results/<study>/served.
    """
    folder = study.results_folder / "served"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in (f"{stem}.ipynb" for stem in NOTEBOOKS):
        source, values = project_root() / "notebooks" / name, {"study_file": str(path)}
        papermill.execute_notebook(source, folder / name, values, prepare_only=True, progress_bar=False)
    return folder


def main(arguments: Sequence[str] | None = None) -> int:
    """Serves until it is interrupted. Status 2: it was asked for wrongly."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if not given or given[0].startswith("-"):
        print("Usage: python -m tcnaps.studies.serving STUDY [options of Voilà]", file=sys.stderr)
        return 2
    path, *options = given
    try:
        folder = copy_notebooks(load_study(path), path)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    for variable in ("JUPYTER_PATH", "JUPYTER_PREFER_ENV_PATH"):  # may prefer another installation's kernel
        os.environ.pop(variable, None)
    os.environ[READ_ONLY] = "1"
    # A page of someone else's could have its own name resolved to this machine and read along (DNS rebinding).
    names = ["localhost", socket.gethostname().lower(), socket.getfqdn().lower()]
    guard = {"allow_remote_access": any("token" in option for option in options), "local_hostnames": names}
    Voila.launch_instance([str(folder), *OPTIONS, *options], config=Config({"Voila": {"tornado_settings": guard}}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
