"""Serves the notebooks with widgets by Voilà. Visitors see no code, can run none, and no file is written.

With --label it serves the page for labelling a folder. That page writes to the folder, so the server asks for a token;
the printed address has it. voila.json holds Voilà's other settings.
"""

import argparse
from pathlib import Path

import nbformat
from jupyter_server.base.handlers import JupyterHandler
from papermill.iorw import load_notebook_node
from papermill.parameterize import parameterize_notebook
from tornado.web import HTTPError
from traitlets.config import Config
from voila.app import Voila

from tcnaps.config import UserError, load_study, project_root
from tcnaps.config.storage import digest_of
from tcnaps_suite.workflow.watch import LOCAL_NAMES

NOTEBOOKS = ("12-stepper", "13-explorer")
LABELLING = "24-label-my-images"
KERNELS = 12  # at once, of up to 700 MB each; voila.json ends those that nobody uses
NOT_SERVED = "not-served"  # tag of cells that make sense only where cells can be run
# Voilà's pages ask other hosts for fonts and scripts that they don't need. Browsers fetch from this server alone.
POLICY = "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; connect-src 'self' ws: wss: data: blob:"


def copy_notebook(name: str, folder: Path, parameters: dict[str, str], above: str = "") -> Path:
    """Copies a notebook with parameters and some text above it, without the cells that are not served."""
    source = load_notebook_node(str(project_root() / "notebooks" / f"{name}.ipynb"))
    notebook = parameterize_notebook(source, parameters)
    served = [cell for cell in notebook.cells if NOT_SERVED not in cell.metadata.get("tags", [])]
    notebook.cells = [nbformat.v4.new_markdown_cell(above), *served]
    folder.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, folder / f"{name}.ipynb")
    return folder / f"{name}.ipynb"


def admit(handler: JupyterHandler, **_: object) -> None:
    """Refuses to start a kernel for a page of another site, or beside `KERNELS` others."""
    if handler.request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
        raise HTTPError(403, "Open this page from its own site, or by its address.")
    if len(handler.kernel_manager.list_kernel_ids()) >= KERNELS:
        raise HTTPError(503, f"{KERNELS} pages are open already. Try again in a few minutes.")


def main(arguments: list[str] | None = None) -> None:
    """Serves until it is interrupted. Exits with status 2 if the arguments or the study are wrong."""
    parser = argparse.ArgumentParser(description="Other options go to Voilà.")
    parser.add_argument("study")
    parser.add_argument("--label", type=Path, metavar="FOLDER", help="serve the page that labels a folder's images")
    parser.add_argument("--backbone", default="", help="with --label: the network")
    given, options = parser.parse_known_args(arguments)
    try:
        results, parameters = load_study(given.study).results_folder, {"study_file": given.study}
        if given.label is None:
            served = results / "served"
            for name in NOTEBOOKS:
                copy_notebook(name, served, parameters, "[← All pages](../..)")
        else:
            parameters |= {"folder": str(given.label.resolve()), "backbone": given.backbone}
            served = copy_notebook(LABELLING, results / "served-labels" / digest_of(parameters)[:8], parameters)
    except UserError as error:
        parser.error(str(error))
    # Requests must name this machine, even those with a token. Otherwise another site could let its own name resolve
    # to this machine and read along (DNS rebinding).
    headers = {"Content-Security-Policy": POLICY}
    guard = {"allow_remote_access": False, "local_hostnames": LOCAL_NAMES, "headers": headers}
    settings = [str(served), f"--Voila.config_file_paths={Path(__file__).parent}"]
    server, hook = {"tornado_settings": guard, "auto_token": given.label is not None}, {"prelaunch_hook": admit}
    Voila.launch_instance(settings + options, config=Config(Voila=server, VoilaConfiguration=hook))


if __name__ == "__main__":
    main()
