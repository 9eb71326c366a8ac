"""What is made of a finished run: its archive, which loads elsewhere, the reference, and the report in one file."""

import base64
import hashlib
import json
import re
import shutil
import zipfile
from contextlib import chdir
from itertools import product
from pathlib import Path

import pandas as pd
import pytest
import torch
import yaml
from notebook_files import cell, write_notebook
from PIL import Image
from small_study import small_study
from untrained import episode_of_noise

import tcnaps
from tcnaps.config import UserError, load_study
from tcnaps.training.checkpoints import CheckpointError, load_model
from tcnaps_suite.experiments.networks import open_network
from tcnaps_suite.workflow import pages
from tcnaps_suite.workflow.archive import write_archive
from tcnaps_suite.workflow.command import main
from tcnaps_suite.workflow.reference import CHECKED, CHECKSUMS, check, compared, file_of, keep, write_checksums
from tcnaps_suite.workflow.report import write_report

REPOSITORY = Path(__file__).parents[3]
TRAININGS = ("support", "support_and_query")


@pytest.fixture(scope="module")
def project(trained_root, tmp_path_factory):
    """A project with the small study, its networks and some of its tables."""
    root = tmp_path_factory.mktemp("archive") / "project"
    shutil.copytree(REPOSITORY / "notebooks", root / "notebooks")
    shutil.copy(REPOSITORY / "CITATION.cff", root)
    (root / "small.yaml").write_text(yaml.safe_dump(small_study().model_dump(mode="json")))
    shutil.copytree(trained_root / "results/small/checkpoints", root / "results/small/checkpoints")
    row = {"variant": "Simple", "evaluation": "5-way-1-shot", "dataset": "blobs", "accuracy": 0.5, "interval": 0.04}
    pd.DataFrame([row | {"n_episodes": 3}]).to_csv(root / "results/small/accuracy.csv", index=False)
    (root / "results/small/headline.json").write_text(json.dumps({"sentence": "A minus B: +2.5 ± 0.8 points"}))
    return root


@pytest.fixture(scope="module")
def archive(project):
    """The archive alone, in another folder."""
    file = project.parent / "elsewhere" / "archive.zip"
    file.parent.mkdir()
    with chdir(project):
        shutil.move(write_archive("small.yaml"), file)
    return file


def test_an_archive_or_its_folder_loads_as_the_same_network(project, archive, monkeypatch):
    shutil.unpack_archive(archive, archive.parent / "unpacked")
    monkeypatch.chdir(project)
    wanted = {name: load_model(load_study("small.yaml"), name)(episode_of_noise()) for name in TRAININGS}
    monkeypatch.chdir(archive.parent)
    for training, source in product(TRAININGS, (archive, str(archive), archive.parent / "unpacked")):
        assert torch.equal(tcnaps.load(source, training)(episode_of_noise()), wanted[training])
    assert open_network(f"study:{archive}").adapted is not None  # labels a folder of images


def test_an_archive_can_be_checked_and_read_by_people(archive):
    with zipfile.ZipFile(archive) as file:
        contents = {name: file.read(name) for name in file.namelist()}
    sums = dict(reversed(line.split("  ")) for line in contents.pop("SHA256SUMS").decode().splitlines())
    assert sums == {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    card = contents["README.md"].decode()
    assert "A minus B: +2.5 ± 0.8 points" in card and "50.0 ± 4.0" in card
    assert {"CITATION.cff", "study.yaml", "results/small/report.html", "results/small/accuracy.csv"} <= contents.keys()


def test_what_is_no_archive_or_damaged_is_named(archive, tmp_path):
    with pytest.raises(UserError, match="support_and_query"):
        tcnaps.load(archive, "support_half_scale")
    content = archive.read_bytes()
    (tmp_path / "damaged.zip").write_bytes(content[:5000] + bytes(40) + content[5040:])
    for name in ("nothing.zip", "damaged.zip"):
        with pytest.raises(UserError, match=name):
            tcnaps.load(tmp_path / name)
    shutil.unpack_archive(archive, tmp_path)
    weights = tmp_path / "results/small/checkpoints/support.safetensors"
    content = bytearray(weights.read_bytes())
    content[-5] ^= 1
    weights.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"support\.safetensors"):
        tcnaps.load(tmp_path, "support")


GAIN = pd.DataFrame({"evaluation": "5-way-1-shot", "dataset": ["a", "b"], "difference": [0.03, 0.01], "interval": 0.01})


@pytest.fixture
def referenced(root):
    for folder in ("results/small", "results/reference/small", "figures/reference/small"):
        (root / folder).mkdir(parents=True)
    GAIN.to_csv("results/reference/small/gain-at-1-shot.csv", index=False)
    return small_study()


def test_the_runs_file_goes_before_the_references(referenced, root):
    name, reference = "results/small/gain-at-1-shot.csv", root / "results/reference/small/gain-at-1-shot.csv"
    assert file_of(name) == reference and file_of("figures/small/gain.png") is None
    (root / name).touch()
    assert file_of(name) == root / name


def test_contrasts_agree_within_both_intervals(referenced):
    assert compared(referenced) == ""  # nothing has been run
    GAIN.assign(difference=[0.0441, 0.0242]).to_csv("results/small/gain-at-1-shot.csv", index=False)
    line = compared(referenced)
    assert line.startswith("1 of 2 contrasts agree") and line.endswith("not: 5-way-1-shot b.")
    (referenced.results_folder / "gain-at-1-shot.csv").write_text("damaged")
    assert "gain-at-1-shot.csv" in compared(referenced)


def test_the_reference_is_copied_and_what_the_run_did_not_make_is_named(referenced, root):
    for file in ("accuracy.csv", "claims.md", ".partial.0.accuracy.csv"):
        (root / "results/small" / file).touch()
    said = keep(referenced)
    assert said.startswith("3 files in") and "Not of this run: results/reference/small/gain-at-1-shot.csv. " in said


@pytest.mark.parametrize("folder", CHECKED)
def test_committed_tables_have_their_checksums(folder):
    check(folder)
    names = {line.split("  ", 1)[1] for line in (REPOSITORY / CHECKSUMS).read_text().splitlines()}
    there = {file.relative_to(REPOSITORY).as_posix() for file in (REPOSITORY / folder).rglob("*.*") if file.is_file()}
    assert there <= names, f"`make reference` writes {CHECKSUMS}"


def test_a_flipped_bit_a_missing_file_and_a_run_without_tables_are_named(referenced):
    table = Path("results/reference/small/gain-at-1-shot.csv")
    write_checksums()
    check("results/reference")
    content = bytearray(table.read_bytes())
    content[-5] ^= 1
    table.write_bytes(content)
    with pytest.raises(UserError, match="gain-at-1-shot.csv is damaged"):
        check("results/reference")
    table.unlink()
    with pytest.raises(UserError, match="gain-at-1-shot.csv is damaged or missing"):
        check("results/reference")
    with pytest.raises(UserError, match="make figures"):  # nothing has been run
        keep(referenced)


STUDY_FILE = "configs/miniature.yaml"
FIGURES = ["gain", "gain-5-shot"]
TABLES = ["gains.csv", "claims.md", "headline.json", "rows/support.json"]


@pytest.fixture
def study(root):
    """The miniature in a project of one notebook; nothing has been made yet."""
    (root / "configs").mkdir()
    shutil.copy(REPOSITORY / STUDY_FILE, root / STUDY_FILE)
    cells = [
        cell("# Who gains & why?\n\nAll.", kind="markdown"),
        cell(f'study_file = "{STUDY_FILE}"', "parameters"),
        cell("## Paired\n\nThe *gain* $\\beta$.", kind="markdown"),
        cell('with style.figure(study.figures_folder / "gain", study.origin) as (_, ax):'),
        cell("The *other* gains.", kind="markdown"),
        cell('with style.figure(study.figures_folder / f"gain-{shot}-shot", study.origin) as (_, ax):'),
    ]
    declared = {"target": "figures", "settings": "figures", "writes": {"figures": FIGURES, "tables": TABLES}}
    write_notebook(root / "notebooks" / "05-gain.ipynb", *cells, tcnaps=declared)
    return load_study(STUDY_FILE)


@pytest.fixture
def made(study):
    """The same with two figures, a table, claims and a headline."""
    study.figures_folder.mkdir(parents=True)
    for number, name in enumerate(FIGURES):
        Image.new("RGB", (4 + number, 4)).save(study.figures_folder / f"{name}.png")
    study.results_folder.mkdir(parents=True)
    gains = pd.DataFrame({"dataset": ["b<i>rds", "digits"], "gain": [0.1234, -0.05], "n": [7, 8]})
    gains.to_csv(study.results_folder / "gains.csv", index=False)
    (study.results_folder / "claims.md").write_text("| claim | verdict |\n|---|---|\n| **C1 <script>** | holds |\n")
    (study.results_folder / "headline.json").write_text(json.dumps({"sentence": "A minus B: +2.5 ± 0.8 points"}))
    return study


def test_a_report_holds_everything_in_one_file(made):
    text = write_report(STUDY_FILE).read_text()
    addresses = re.findall(r'<[^>]*\s(?:src|href|srcset|data)\s*=\s*"?([^">\s]*)', text)
    assert all(address.startswith(("#", "data:")) for address in addresses) and "@import" not in text
    pictures = [base64.b64decode(a.partition(",")[2]) for a in addresses if a.startswith("data:image/png")]
    assert pictures == [(made.figures_folder / f"{name}.png").read_bytes() for name in FIGURES]
    words = "A minus B: +2.5 ± 0.8 points", "Who gains &amp; why?", "<em>gain</em>", "<em>other</em>", "<math"
    assert all(shown in text for shown in [*words, "<td>holds</td>"])
    assert made.origin["Digest"] in text and "maximum_support_size: 120" in text
    assert "<td>12.3</td>" in text and "<td>-5.0</td>" in text and "<td>7</td>" in text
    assert "b&lt;i&gt;rds" in text and "C1 &lt;script&gt;" in text
    assert "Missing" not in text and "rows/support.json" not in text


def test_the_last_cell_of_an_executed_copy_is_the_answer(made):
    outputs = [{"output_type": "stream", "name": "stdout", "text": ["It gains ", "7 points."]}]
    executed = made.results_folder / "notebooks" / "05-gain.ipynb"
    write_notebook(executed, cell("print(1)") | {"outputs": outputs})
    (executed.parent / "05-gain-damaged.ipynb").write_text(executed.read_text()[:-20])
    assert "<pre>It gains 7 points.</pre>" in write_report(STUDY_FILE).read_text()


@pytest.mark.parametrize("name", ["headline.json", "gains.csv", "claims.md"])
@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe\x00"])
def test_a_missing_or_damaged_file_is_named(made, name, content):
    file = made.results_folder / name
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    text = write_report(STUDY_FILE).read_text()
    if (name, content) != ("claims.md", b""):  # an empty text is no damaged one
        named = f"results/miniature/{name}"
        assert f"Missing: {named}" in text or f"{named} can&#39;t be read" in text


def test_the_references_file_stands_in_for_one_that_a_run_lacks(made):
    reference = Path("figures/reference/miniature")
    reference.mkdir(parents=True)
    (made.figures_folder / "gain.png").rename(reference / "gain.png")
    text = write_report(STUDY_FILE).read_text()
    assert "figures/reference/miniature/gain.png (reference)" in text and "0.8 points\n(reference)" not in text
    Path("results/reference").mkdir()
    made.results_folder.rename("results/reference/miniature")  # the sentence at the top is the reference's, too
    assert "0.8 points\n(reference)</p>" in write_report(STUDY_FILE).read_text()


@pytest.mark.parametrize(
    "arguments", [["report", STUDY_FILE], ["archive", STUDY_FILE], ["report"], ["report", "configs/none.yaml"]]
)
def test_without_results_or_with_wrong_arguments_nothing_is_written(study, capsys, arguments):
    with pytest.raises(SystemExit) as refusal:
        main(arguments)
    assert refusal.value.code == 2 and ("make figures" in capsys.readouterr().err) == (STUDY_FILE in arguments)
    assert not study.results_folder.exists()


@pytest.mark.parametrize("formula", ["$\\mu_k = \\frac{1}{n_k} \\sum_i z_i$", "$$\\lambda_k$$", "$\\no{such}$"])
def test_formulas_need_no_script(formula):
    text = pages.markdown(f"Where {formula} holds.")
    assert ("<math" in text) != ("no{such}" in text) and "holds." in text
