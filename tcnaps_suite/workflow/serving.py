"""Serves the notebooks with widgets by Voilà. Visitors see no code, can run none, and no file is written.

    python -m tcnaps_suite.workflow.serving configs/miniature.yaml --port=8866

Arguments after the study's file go to Voilà. voila.json holds its other settings.
"""

import argparse
import os
import socket
from pathlib import Path

import nbformat
from papermill.iorw import load_notebook_node
from papermill.parameterize import parameterize_notebook
from traitlets.config import Config
from voila.app import Voila

from tcnaps.config import Study, UserError, load_study, project_root
from tcnaps_suite.widgets import READ_ONLY

NOTEBOOKS = ("12-stepper", "13-explorer", "14-views")
NOT_SERVED = "not-served"  # tag of cells that make sense only where cells can be run
# Voilà's pages ask other hosts for fonts and scripts that they don't need. Browsers fetch from this server alone.
POLICY = "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; connect-src 'self' ws: wss: data: blob:"


def copy_notebooks(study: Study, path: str) -> Path:
    """Copies `NOTEBOOKS` with `path`, the study's file, as their parameter; returns the copies' folder."""
    folder = study.results_folder / "served"
    folder.mkdir(parents=True, exist_ok=True)
    for name in NOTEBOOKS:
        source = load_notebook_node(str(project_root() / "notebooks" / f"{name}.ipynb"))
        notebook = parameterize_notebook(source, {"study_file": path})
        served = [cell for cell in notebook.cells if NOT_SERVED not in cell.metadata.get("tags", [])]
        notebook.cells = [nbformat.v4.new_markdown_cell("[← All pages](../..)"), *served]
        nbformat.write(notebook, folder / f"{name}.ipynb")
    return folder


def main(arguments: list[str] | None = None) -> None:
    """Serves until it is interrupted. Exits with status 2 if the arguments or the study are wrong."""
    parser = argparse.ArgumentParser(description="Other options go to Voilà.")
    parser.add_argument("study")
    given, options = parser.parse_known_args(arguments)
    try:
        folder = copy_notebooks(load_study(given.study), given.study)
    except UserError as error:
        parser.error(str(error))
    os.environ[READ_ONLY] = "1"
    # Only this machine's names are answered, with a token, too. Otherwise another site could let its own name resolve
    # to this machine and read along (DNS rebinding).
    names = ["localhost", socket.gethostname().lower(), socket.getfqdn().lower()]
    guard = {"allow_remote_access": False, "local_hostnames": names, "headers": {"Content-Security-Policy": POLICY}}
    settings = [str(folder), f"--Voila.config_file_paths={Path(__file__).parent}"]
    Voila.launch_instance(settings + options, config=Config({"Voila": {"tornado_settings": guard}}))


if __name__ == "__main__":
    main()
