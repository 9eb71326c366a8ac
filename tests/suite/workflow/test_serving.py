"""The served copies of the notebooks, and what the server refuses."""

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from pathlib import Path
from unittest.mock import MagicMock, Mock

import nbformat
import pytest
from jupyter_server.base.handlers import JupyterHandler
from tornado.web import HTTPError

from tcnaps_suite.workflow import serving
from tcnaps_suite.workflow.notebooks import code_cells
from tcnaps_suite.workflow.watch import local_only

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture
def root(root):
    for folder in ("notebooks", "configs"):
        shutil.copytree(REPOSITORY / folder, root / folder)
    return root


def test_copies_open_the_study_and_leave_out_cells_that_are_not_served(root):
    for name in serving.NOTEBOOKS:
        path = serving.copy_notebook(name, root / "served", "[← All pages](../..)", study_file="configs/o'small.yaml")
        nbformat.validate(nbformat.read(path, as_version=4))
        sources = [source for source, _ in code_cells(path)]
        position = next(i for i, (_, tags) in enumerate(code_cells(path)) if "parameters" in tags)
        assert 'study_file = "configs/o\'small.yaml"' in sources[position + 1].splitlines()
        original = code_cells(root / "notebooks" / path.name)
        kept = [source for source, tags in original if serving.NOT_SERVED not in tags]
        assert sources[: position + 1] + sources[position + 2 :] == kept


@pytest.mark.parametrize("arguments", [[], ["--port=1"], ["configs/none.yaml"]])
def test_wrong_arguments_are_refused(root, arguments):
    with pytest.raises(SystemExit) as refusal:
        serving.main(arguments)
    assert refusal.value.code == 2


def test_the_copies_are_served_with_further_options(root, monkeypatch):
    given = []
    monkeypatch.setattr(serving.Voila, "launch_instance", lambda options, config: given.extend(options))
    serving.main(["configs/miniature.yaml", "--port=1234"])
    assert given[0] == str(root / "results" / "miniature" / "served") and given[-1] == "--port=1234"


@pytest.mark.parametrize("site, kernels, status", [("none", 0, None), ("same-origin", 0, None), ("none", 12, 503)])
def test_kernels_start_for_own_pages_and_while_they_are_few(site, kernels, status):
    handler = MagicMock(spec=JupyterHandler, request=Mock(headers={"Sec-Fetch-Site": site}))
    handler.kernel_manager.list_kernel_ids.return_value = ["kernel"] * kernels
    if status is None:
        serving.admit(handler, notebook=None, cwd="")
    else:
        with pytest.raises(HTTPError) as refusal:
            serving.admit(handler, notebook=None, cwd="")
        assert refusal.value.status_code == status


@pytest.mark.parametrize(
    "host, status", [("localhost:6006", "200"), ("127.0.0.1:6006", "200"), ("evil.org:6006", "403")]
)
def test_tensorboard_answers_under_local_names_only(host, status):
    def application(environment, start_response):
        start_response("200 OK", [])
        return [b"page"]

    answers = []
    list(local_only(application)({"HTTP_HOST": host}, lambda line, headers: answers.append(line[:3])))
    assert answers == [status]


@pytest.mark.slow
def test_the_server_answers_under_its_own_names_only(root):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "tcnaps_suite.workflow.serving", "configs/miniature.yaml", f"--port={port}"]
    # Options about a token must not switch the check of host names off.
    command += ["--token=", "--Voila.auto_token=False"]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY), "HOME": str(root), "IPYTHONDIR": str(root / ".ipython")}

    def answer(host, path="/", **headers):
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Host": host} | headers)
        try:
            with urllib.request.urlopen(request, timeout=20) as response:
                return response.status, response.headers, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.headers, ""

    log = root / "log"
    with open(log, "w") as out, subprocess.Popen(command, env=environment, stdout=out, stderr=out) as process:
        try:
            deadline = time.monotonic() + 100
            while "running at" not in log.read_text():
                assert process.poll() is None and time.monotonic() < deadline, log.read_text()
                time.sleep(0.1)
            status, headers, page = answer("localhost")
            assert status == answer(f"127.0.0.1:{port}")[0] == answer("localhost", "/voila/static/voila.js")[0] == 200
            assert all(f"voila/render/{name}.ipynb" in page for name in serving.NOTEBOOKS)
            assert "default-src 'self'" in headers["Content-Security-Policy"]
            for path in ("/voila/files/13-explorer.ipynb", "/voila/render/../../configs/miniature.yaml"):
                assert answer("localhost", path)[0] in (403, 404)
            for path in ("/", "/voila/render/13-explorer.ipynb", f"/api/kernels/{uuid.uuid4()}/channels"):
                assert answer("rebound.example.org", path)[0] == 403
            assert answer("localhost", "/voila/render/13-explorer.ipynb", **{"Sec-Fetch-Site": "cross-site"})[0] == 403
        finally:
            process.terminate()
            process.wait(20)
