"""Servers of notebooks: JupyterLab, Notebook 7, Voilà. A site's `open(name)` gives a page, run to its end."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from papermill.iorw import load_notebook_node
from papermill.parameterize import parameterize_notebook
from playwright.sync_api import Browser, Error, Locator, Page

REPOSITORY = Path(__file__).parents[1]
TOKEN = "test"
PATIENCE = 120_000  # milliseconds: a kernel that imports PyTorch on a busy machine takes its time


class NotebookError(AssertionError):
    """A cell of the notebook failed; the message is its traceback."""


def find_chromium() -> str:
    """The browser's program: TCNAPS_CHROMIUM, or what is on the path."""
    named = os.environ.get("TCNAPS_CHROMIUM")
    names = [named] if named else ["chromium", "chromium-browser", "google-chrome"]
    found = next((path for path in map(shutil.which, names) if path), None)
    if found is None:
        raise FileNotFoundError(
            f"The tests in a browser need Chromium, and there is no {' or '.join(names)}. On Debian: apt-get install "
            "chromium fonts-dejavu-core. Elsewhere install Chromium or Chrome, and name its program: "
            "TCNAPS_CHROMIUM=/path/to/chrome make test-browser"
        )
    return found


class Server:
    """A process that answers at `url`, with a Jupyter of its own: no setting of the user's is read or written."""

    def __init__(self, module: str, *options: str, folder: Path, scratch: Path, path: str = ""):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.command = [sys.executable, "-m", module, *options, f"--port={port}", "--no-browser"]
        self.url, self.folder, self.scratch, self.path = f"http://127.0.0.1:{port}/", folder, scratch, path

    def __enter__(self) -> "Server":
        kinds = "JUPYTER_CONFIG", "JUPYTER_DATA", "JUPYTER_RUNTIME", "JUPYTERLAB_SETTINGS", "JUPYTERLAB_WORKSPACES"
        folders = {name: self.scratch / name.lower() for name in (*(f"{kind}_DIR" for kind in kinds), "IPYTHONDIR")}
        environment = os.environ | {name: str(folder) for name, folder in folders.items()}
        environment.pop("JUPYTER_PATH", None)
        environment["PYTHONPATH"] = str(REPOSITORY)  # kernels import what is tested
        environment["JUPYTER_CONFIG_PATH"] = str(REPOSITORY / "tcnaps_suite" / "workflow" / "lab")
        expose = {"JupyterNotebookApp": {"expose_app_in_browser": True}, "LabApp": {"expose_app_in_browser": True}}
        files = {f"jupyter_config_dir/jupyter_{app}_config.json": expose for app in ("notebook", "lab", "server")}
        for name, content in files.items():
            file = self.scratch / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(content))
        log = self.scratch / "server.log"
        with open(log, "w") as out:
            options = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": out, "start_new_session": True}
            self.process = subprocess.Popen(self.command, cwd=self.folder, env=environment, **options)
        deadline = time.monotonic() + PATIENCE / 1000
        while True:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.url}{self.path}", timeout=5):
                return self
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.__exit__()
                raise RuntimeError(f"{' '.join(self.command)} does not answer:\n{log.read_text()[-3000:]}")
            time.sleep(0.2)

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # a session of its own: nothing else is in this group
        self.process.wait()


@dataclass
class Site:
    """What opens notebooks of a project's root in a browser and photographs them."""

    browser: Browser
    server: Server
    project: Path
    pictures: Path
    defaults: dict = field(default_factory=dict)
    pages: list[Page] = field(default_factory=list)

    def new_page(self, width: int = 1280, height: int = 900) -> Page:
        context = self.browser.new_context(viewport={"width": width, "height": height}, accept_downloads=True)
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        page.console_errors = []
        page.on("pageerror", lambda error: page.console_errors.append(str(error)))
        self.pages.append(page)
        return page

    def screenshot(self, shown: Page | Locator, name: str) -> Path:
        """Keeps a picture, in the folder TCNAPS_SCREENSHOTS where that is set."""
        path = self.pictures / f"{name}.png"
        shown.screenshot(path=path)
        return path

    def close(self) -> None:
        for page in self.pages:
            with contextlib.suppress(Error):  # closed by the test already
                page.context.close()
        self.pages.clear()


@dataclass
class JupyterSite(Site):
    """JupyterLab or Notebook 7; both put their application into the page."""

    route: str = "lab/workspaces/test/tree/{path}?reset&token={token}"

    def open(self, name: str, width: int = 1280, height: int = 900, **parameters) -> Page:
        """A fresh copy of the notebook, run to its end; a NotebookError says that a cell failed."""
        source = load_notebook_node(str(REPOSITORY / "notebooks" / f"{name}.ipynb"))
        notebook = parameterize_notebook(source, self.defaults | parameters)
        nbformat.write(notebook, self.project / "notebooks" / f"{name}.ipynb")
        page = self.new_page(width, height)
        page.goto(self.server.url + self.route.format(path=f"notebooks/{name}.ipynb", token=TOKEN))
        page.wait_for_function("() => window.jupyterapp?.shell.currentWidget?.sessionContext")
        page.evaluate("""async () => {
            await jupyterapp.restored;
            const panel = jupyterapp.shell.currentWidget;
            await panel.context.ready;
            await panel.sessionContext.ready;
            await panel.sessionContext.session.kernel.info;
            await jupyterapp.commands.execute('notebook:run-all-cells');
        }""")
        # Outputs arrive after the command has returned.
        page.wait_for_function("""() => {
            const cells = [...jupyterapp.shell.currentWidget.content.model.cells].filter(c => c.type === 'code');
            return cells.every(c => c.executionCount || !c.sharedModel.source.trim())
                || cells.some(c => c.outputs.toJSON().some(o => o.output_type === 'error'));
        }""")
        outputs = page.evaluate("""() => [...jupyterapp.shell.currentWidget.content.model.cells]
            .filter(c => c.type === 'code').flatMap(c => c.outputs.toJSON())""")
        for output in outputs:
            if output["output_type"] == "error":
                raise NotebookError(re.sub(r"\x1b\[[\d;]*m", "", "\n".join(output["traceback"])))
        return page

    def close(self) -> None:
        super().close()
        listing = f"{self.server.url}api/kernels?token={TOKEN}"
        with urllib.request.urlopen(listing, timeout=20) as answer:
            kernels = json.load(answer)
        for kernel in kernels:  # each holds PyTorch in memory
            address = f"{self.server.url}api/kernels/{kernel['id']}?token={TOKEN}"
            urllib.request.urlopen(urllib.request.Request(address, method="DELETE"), timeout=60).close()


@dataclass
class VoilaSite(Site):
    """The read-only version, as `make serve` starts it, or the page for labelling, as `make label` starts it."""

    route: str = "voila/render/{name}.ipynb"

    def open(self, name: str = "", width: int = 1280, height: int = 900) -> Page:
        """The notebook's page, once Voilà has executed the notebook."""
        page = self.new_page(width, height)
        page.goto(self.server.url + self.route.format(name=name))
        page.wait_for_selector(".jupyter-widgets")
        return page
