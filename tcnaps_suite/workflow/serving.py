"""Serves the notebooks with widgets to colleagues, by Voilà: no code is shown, none can be run, no file is written.

    python -m tcnaps_suite.workflow.serving configs/miniature.yaml --port=8866

What follows the study's file goes to Voilà. Without a `--token`, pages are served under the machine's own names only.
"""

import os
import shutil
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import nbformat
import papermill
import psutil
from jupyter_server.utils import url_path_join
from tornado import web
from traitlets.config import Config
from voila.app import Voila
from voila.handler import BaseVoilaHandler

from tcnaps.config import Study, UserError, load_study, project_root
from tcnaps.evaluation.result_files import rows_folder
from tcnaps_suite.widgets import READ_ONLY
from tcnaps_suite.workflow.pages import render
from tcnaps_suite.workflow.report.notebooks import opening

NOTEBOOKS = {  # with a figure that stands for each
    "12-stepper": "soft-k-means-episode",
    "13-explorer": "episode-images",
    "14-views": "class-recall",
}
NOT_SERVED = "not-served"  # tag of cells that make sense only where cells can be run
# No file of the project is served, and kernels that nobody looks at are ended: with PyTorch they fill the memory.
OPTIONS = (
    "--MappingKernelManager.cull_idle_timeout=600",
    "--MappingKernelManager.cull_interval=60",
    "--Voila.open_browser=False",
    "--VoilaConfiguration.file_allowlist=^$",
    "--VoilaConfiguration.show_tracebacks=True",
)
# Voilà's pages ask other hosts for symbols that they don't need; the browser is told to fetch from here alone.
POLICY = "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; connect-src 'self' ws: wss: data: blob:"


class Index(BaseVoilaHandler):
    """The page that all others are reached from."""

    @web.authenticated
    def get(self) -> None:
        """Also sets the cookie with which a page may end its kernel when it is closed."""
        _ = self.xsrf_token
        self.finish(self.settings["index"])


class Server(Voila):
    """Voilà with our index in place of its list of files."""

    def init_handlers(self) -> list:
        """Ours come first."""
        given = {"voila_configuration": self.voila_configuration}
        addresses = self.server_url, url_path_join(self.server_url, "/voila/tree.*")
        return [*((address, Index, given) for address in addresses), *super().init_handlers()]


def copy_notebooks(study: Study, path: str) -> Path:
    """Copies `NOTEBOOKS`, none of which trains, with this study as their parameter; each server has its own copies.

    Args:
        path: the study's file, as the notebooks' parameter `study_file` takes it.

    Returns:
        Their folder, results/<study>/served/<number of this process>.
    """
    place = study.results_folder / "served"
    folder = place / str(os.getpid())
    for left in place.glob("*"):  # by servers that were killed
        if left == folder or not (left.name.isdigit() and psutil.pid_exists(int(left.name))):
            shutil.rmtree(left) if left.is_dir() else left.unlink()
    folder.mkdir(parents=True)
    for name in (f"{stem}.ipynb" for stem in NOTEBOOKS):
        source, values = project_root() / "notebooks" / name, {"study_file": str(path)}
        papermill.execute_notebook(source, folder / name, values, prepare_only=True, progress_bar=False)
        notebook = nbformat.read(folder / name, as_version=4)
        shown = [cell for cell in notebook.cells if NOT_SERVED not in cell.metadata.get("tags", [])]
        notebook.cells = [nbformat.v4.new_markdown_cell("[← All pages](../..)"), *shown]
        nbformat.write(notebook, folder / name)
    return folder


def index_page(study: Study, path: str) -> str:
    """What there is to see, with a picture of each where the study's figures have been drawn."""
    pages = []
    for stem, figure in NOTEBOOKS.items():
        question, prose = opening(project_root() / "notebooks" / f"{stem}.ipynb")
        picture = study.figures_folder / f"{figure}.png"
        page = {"address": f"voila/render/{stem}.ipynb", "question": question, "prose": prose}
        pages.append(page | {"picture": picture if picture.is_file() else None})
    return render("index.html", study=study, path=path, pages=pages, has_rows=any(rows_folder(study).glob("*.json")))


def main(arguments: Sequence[str] | None = None) -> int:
    """Serves until it is interrupted. Status 2: it was asked for wrongly."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if not given or given[0].startswith("-"):
        print("Usage: python -m tcnaps_suite.workflow.serving STUDY [options of Voilà]", file=sys.stderr)
        return 2
    path, *options = given
    try:
        study = load_study(path)
        folder, index = copy_notebooks(study, path), index_page(study, path)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    for variable in ("JUPYTER_PATH", "JUPYTER_PREFER_ENV_PATH"):  # may prefer another installation's kernel
        os.environ.pop(variable, None)
    os.environ[READ_ONLY] = "1"
    # A page of someone else's could have its own name resolved to this machine and read along (DNS rebinding).
    names = ["localhost", socket.gethostname().lower(), socket.getfqdn().lower()]
    guard = {"allow_remote_access": any("token" in option for option in options), "local_hostnames": names}
    guard |= {"index": index, "headers": {"Content-Security-Policy": POLICY}}
    try:
        Server.launch_instance([str(folder), *OPTIONS, *options], config=Config({"Voila": {"tornado_settings": guard}}))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
