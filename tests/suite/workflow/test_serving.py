"""The served copies of the notebooks, and what the server refuses."""

import contextlib
import shutil
import urllib.error
import urllib.request
import uuid
from pathlib import Path
from unittest.mock import MagicMock, Mock
from urllib.parse import urlsplit

import nbformat
import pytest
from jupyter_server.base.handlers import JupyterHandler
from servers import REPOSITORY, Server
from tornado.web import HTTPError

from tcnaps_suite.workflow import serving
from tcnaps_suite.workflow.notebooks import code_cells
from tcnaps_suite.workflow.watch import local_only


@pytest.fixture
def root(root):
    for folder in ("notebooks", "configs"):
        shutil.copytree(REPOSITORY / folder, root / folder)
    return root


def test_copies_open_the_study_and_leave_out_cells_that_are_not_served(root):
    for name in serving.NOTEBOOKS:
        path = serving.copy_notebook(name, root / "served", {"study_file": "configs/o'small.yaml"}, "[Back](..)")
        nbformat.validate(nbformat.read(path, as_version=4))
        sources = [source for source, tags in code_cells(path) if "injected-parameters" not in tags]
        (given,) = (source for source, tags in code_cells(path) if "injected-parameters" in tags)
        assert 'study_file = "configs/o\'small.yaml"' in given.splitlines()
        original = code_cells(root / "notebooks" / path.name)
        assert sources == [source for source, tags in original if serving.NOT_SERVED not in tags]


@pytest.mark.parametrize("arguments", [[], ["--port=1"], ["configs/none.yaml"]])
def test_wrong_arguments_are_refused(root, arguments):
    with pytest.raises(SystemExit) as refusal:
        serving.main(arguments)
    assert refusal.value.code == 2


def test_the_copies_are_served_with_further_options(root, monkeypatch):
    given = []
    monkeypatch.setattr(serving.Voila, "launch_instance", lambda options, config: given.append(options))
    for label in ([], ["--label", "trees"]):
        serving.main(["configs/miniature.yaml", *label, "--port=1234"])
    page, folder = (Path(options[0]).relative_to(root / "results/miniature") for options in given)
    assert page == Path("served") and folder.match(f"served-labels/*/{serving.LABELLING}.ipynb")
    assert all(options[-1] == "--port=1234" for options in given)


@pytest.mark.parametrize("site, kernels, status", [("none", 0, None), ("same-origin", 0, None), ("none", 12, 503)])
def test_kernels_start_for_own_pages_and_while_they_are_few(site, kernels, status):
    handler = MagicMock(spec=JupyterHandler, request=Mock(headers={"Sec-Fetch-Site": site}))
    handler.kernel_manager.list_kernel_ids.return_value = ["kernel"] * kernels
    with pytest.raises(HTTPError, match=str(status)) if status else contextlib.nullcontext():
        serving.admit(handler, notebook=None, cwd="")


@pytest.mark.parametrize("host, status", [("localhost:60", "200"), ("127.0.0.1:60", "200"), ("evil.org:60", "403")])
def test_tensorboard_answers_under_local_names_only(host, status):
    answers = []
    served = local_only(lambda environment, start_response: start_response("200 OK", []) or [b"page"])
    served({"HTTP_HOST": host}, lambda line, headers: answers.append(line[:3]))
    assert answers == [status]


@pytest.mark.slow
def test_the_server_answers_under_its_own_names_only(root, tmp_path_factory):
    # Options about a token must not switch the check of host names off.
    options = "configs/miniature.yaml", "--token=", "--Voila.auto_token=False"

    def answer(host, path="", **headers):
        request = urllib.request.Request(server.url + path, headers={"Host": host} | headers)
        try:
            with urllib.request.urlopen(request, timeout=20) as response:
                return response.status, response.headers, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.headers, ""

    scratch, explorer = tmp_path_factory.mktemp("server"), "voila/render/13-explorer.ipynb"
    with Server(serving.__name__, *options, folder=root, scratch=scratch) as server:
        status, headers, page = answer("localhost")
        assert status == answer(urlsplit(server.url).netloc)[0] == 200
        assert answer("localhost", "voila/static/voila.js")[0] == 200
        assert all(f"voila/render/{name}.ipynb" in page for name in serving.NOTEBOOKS)
        assert "default-src 'self'" in headers["Content-Security-Policy"]
        outside = "configs/miniature.yaml", "voila/render/../../configs/miniature.yaml"
        for path in ("voila/files/13-explorer.ipynb", "voila/render/02-pretrain.ipynb", *outside):
            assert answer("localhost", path)[0] in (403, 404)
        for path in ("", explorer, f"api/kernels/{uuid.uuid4()}/channels"):
            assert answer("rebound.example.org", path)[0] == 403
        assert answer("localhost", explorer, **{"Sec-Fetch-Site": "cross-site"})[0] == 403
