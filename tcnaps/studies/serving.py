"""Serves the notebooks with widgets to colleagues, by Voilà: no code is shown, none can be run, no file is written.

    python -m tcnaps.studies.serving configs/miniature.yaml --port=8866

What follows the study's file goes to Voilà. Pages are served under the machine's own names only; others, such as that
of a proxy, are given by --ServedPages.names=pages.example.org.
"""

import ipaddress
import json
import os
import shutil
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import nbformat

from tcnaps.config import Study, UserError, load_study, project_root
from tcnaps.studies.batch import notebook_parameters
from tcnaps.studies.run import BatchError
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


def copy_notebooks(study: Study, path: str, names: Sequence[str] = NOTEBOOKS) -> Path:
    """Copies of the notebooks with this study in their `parameters` cell, apart from those that train.

    Args:
        path: the study's file, as the notebooks' parameter `study_file` takes it.

    Returns:
        Their folder, results/<study>/served.

    Raises:
        BatchError: a notebook has no parameter `study_file`.
        SourceError: there is no such notebook.
    """
    root = project_root()
    folder = study.results_folder / "served"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in names:
        source = root / "notebooks" / f"{name}.ipynb"
        if "study_file" not in notebook_parameters(source):
            raise BatchError(f"{source} has no parameter 'study_file'.")
        content = nbformat.read(source, as_version=4)
        tagged = next(i for i, cell in enumerate(content.cells) if "parameters" in cell.metadata.get("tags", ()))
        chosen = nbformat.v4.new_code_cell(f"study_file = {json.dumps(str(path))}")
        content.cells.insert(tagged + 1, chosen)
        nbformat.write(content, folder / source.name)
    return folder


def is_served(host: str, ip: str, names: Sequence[str] = ()) -> bool:
    """Whether a request for a host is meant for this server.

    A page of someone else's could have its own name resolved to this machine and read along (DNS rebinding): then the
    browser sends that name.

    Args:
        host: of the request, without its port.
        ip: that the server listens on; "" and 0.0.0.0 are all of the machine's.
        names: more names that it is served under.
    """
    host = host.lower().strip("[]")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host in {"localhost", socket.gethostname().lower(), socket.getfqdn().lower(), ip.lower(), *names}
    return address.is_loopback or ip in ("", "0.0.0.0", "::", host)


def served_pages() -> type:
    """Voilà's application, which refuses requests for hosts that are not its own."""
    from tornado.web import ErrorHandler
    from traitlets import List, Unicode
    from voila.app import Voila

    class ServedPages(Voila):
        names = List(Unicode(), help="Names under which the pages are served, besides the machine's own.").tag(
            config=True
        )

        def listen(self) -> None:
            find_handler = self.app.find_handler

            def find(request, **options):
                if is_served(request.host_name, self.ip, self.names):
                    return find_handler(request, **options)
                return self.app.get_handler_delegate(request, ErrorHandler, {"status_code": 403})

            self.app.find_handler = find
            super().listen()

    return ServedPages


def main(arguments: Sequence[str] | None = None) -> int:
    """Serves until it is interrupted. Status 2: it was asked for wrongly."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if not given or given[0].startswith("-"):
        print("Usage: python -m tcnaps.studies.serving STUDY [options of Voilà]", file=sys.stderr)
        return 2
    path, *options = given
    try:
        folder = copy_notebooks(load_study(path), path)
        pages = served_pages()
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    except ImportError:
        print("Voilà is not installed: .venv/bin/python -m pip install -c constraints.txt voila", file=sys.stderr)
        return 2
    for variable in ("JUPYTER_PATH", "JUPYTER_PREFER_ENV_PATH"):  # may prefer another installation's kernel
        os.environ.pop(variable, None)
    os.environ[READ_ONLY] = "1"
    pages.launch_instance([str(folder), *OPTIONS, *options])
    return 0


if __name__ == "__main__":
    sys.exit(main())
