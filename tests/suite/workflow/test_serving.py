"""The served copies of the notebooks; what is refused before anything is served."""

import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from pathlib import Path

import pytest
from small_study import small_study

from tcnaps.config.fingerprint import code_cells
from tcnaps_suite.widgets import READ_ONLY
from tcnaps_suite.workflow import serving

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture
def root(tmp_path, monkeypatch):
    shutil.copytree(REPOSITORY / "notebooks", tmp_path / "notebooks")
    (tmp_path / "Snakefile").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_copies_hold_the_study_and_nothing_that_trains_or_asks_for_cells_to_be_run(root):
    stray = root / "results" / "small" / "served" / "02-pretrain.ipynb"
    stray.parent.mkdir(parents=True)
    stray.touch()
    folder = serving.copy_notebooks(small_study(), "configs/o'small.yaml")
    assert folder.parent == stray.parent and not stray.exists()
    assert sorted(path.stem for path in folder.iterdir()) == sorted(serving.NOTEBOOKS)
    for path in folder.iterdir():
        sources = [source for source, _ in code_cells(path)]
        position = next(i for i, (_, tags) in enumerate(code_cells(path)) if "parameters" in tags)
        assert 'study_file = "configs/o\'small.yaml"' in sources[position + 1].splitlines()
        original = code_cells(root / "notebooks" / path.name)
        kept = [source for source, tags in original if serving.NOT_SERVED not in tags]
        assert sources[: position + 1] + sources[position + 2 :] == kept
        assert not any("train(" in source or "evaluate(" in source for source in sources)
        assert not re.search(r"[Rr]un (all|this)|is run again|JupyterLab", path.read_text())


def test_servers_keep_to_their_own_copies_and_clear_those_of_killed_ones(root):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        place = root / "results" / "small" / "served"
        (place / str(other.pid)).mkdir(parents=True)
        folder = serving.copy_notebooks(small_study(), "configs/small.yaml")
        assert {path.name for path in place.iterdir()} == {folder.name, str(other.pid)}
        other.communicate(b"\n")
    serving.copy_notebooks(small_study(), "configs/small.yaml")
    assert list(place.iterdir()) == [folder]


def test_the_index_names_the_pages_and_shows_what_has_been_drawn(root):
    study = small_study()
    page = serving.index_page(study, "configs/small.yaml")
    assert re.findall(r'<a href="(.*?)">', page) == [f"voila/render/{name}.ipynb" for name in serving.NOTEBOOKS]
    assert "In which episodes does refinement help" in page and "<img" not in page
    assert "make figures STUDY=configs/small.yaml" in page
    study.figures_folder.mkdir(parents=True)
    (study.figures_folder / "class-recall.png").write_bytes(b"PNG")
    assert serving.index_page(study, "configs/small.yaml").count("<img") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [([], "Usage"), (["--port=1"], "Usage"), (["configs/none.yaml"], "No study at configs/none.yaml")],
)
def test_the_command_says_what_is_wrong(root, capsys, arguments, message):
    assert serving.main(arguments) == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_a_served_page_refuses_other_hosts(root):
    (root / "configs").mkdir()
    shutil.copy(REPOSITORY / "configs" / "miniature.yaml", root / "configs")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "tcnaps_suite.workflow.serving", "configs/miniature.yaml", f"--port={port}"]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY), "HOME": str(root), "IPYTHONDIR": str(root / ".ipython")}

    def status(host, path="/"):
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Host": host})
        try:
            return urllib.request.urlopen(request, timeout=20).status
        except urllib.error.HTTPError as error:
            return error.code

    with open(root / "log", "w") as log, subprocess.Popen(command, env=environment, stdout=log, stderr=log) as process:
        try:
            wait_for(lambda: "running at" in (root / "log").read_text(), 60, process)
            assert status(f"127.0.0.1:{port}") == status("localhost") == 200
            asset = "/voila/static/voila.js"
            assert status("localhost", asset) == 200
            for path in ("/", "/voila/tree"):
                with urllib.request.urlopen(f"http://localhost:{port}{path}", timeout=20) as answer:
                    assert b"Study <em>miniature</em>" in answer.read()
                    assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
            for path in ("/", "/voila/render/14-views.ipynb", f"/api/kernels/{uuid.uuid4()}/channels"):
                assert status("rebound.example.org", path) == status(f"rebound.example.org:{port}", path) == 403
        finally:
            process.terminate()
            process.wait(20)
    assert not list((root / "results" / "miniature" / "served").iterdir())


def wait_for(condition, seconds, process):
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)


def test_the_served_kernels_write_no_files(root, monkeypatch):
    (root / "configs").mkdir()
    shutil.copy(REPOSITORY / "configs" / "miniature.yaml", root / "configs")
    monkeypatch.setenv(READ_ONLY, "0")
    started = []

    monkeypatch.setattr(serving.Server, "launch_instance", lambda options, config: started.extend(options))
    assert serving.main(["configs/miniature.yaml", "--port=1234"]) == 0
    assert started[0] == str(root / "results" / "miniature" / "served" / str(os.getpid()))
    assert started[-1] == "--port=1234"
    assert os.environ[READ_ONLY] == "1"
