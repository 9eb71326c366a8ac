"""The report: it shows what notebooks declare, in one file that fetches nothing and renders nothing out of tables."""

import base64
import json
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
from notebook_files import cell, write_notebook
from PIL import Image

from tcnaps.config import load_study
from tcnaps_suite.workflow import command, pages, report

REPOSITORY = Path(__file__).parents[3]
STUDY_FILE = "configs/miniature.yaml"
WRITES = {"figures": ["gain"], "tables": ["gains.csv", "claims.md", "headline.json", "rows/support.json"]}


@pytest.fixture
def study(root):
    """The miniature in a project of one notebook; nothing has been made yet."""
    (root / "configs").mkdir()
    shutil.copy(REPOSITORY / STUDY_FILE, root / STUDY_FILE)
    cells = [
        cell("# Who gains & why?\n\nAll.", kind="markdown"),
        cell('study_file = "configs/miniature.yaml"', "parameters"),
        cell("## Paired\n\nThe *gain* $\\beta$.", kind="markdown"),
        cell('with style.figure(study.figures_folder / "gain", study.origin) as (_, ax):'),
    ]
    declared = {"target": "figures", "settings": "figures", "writes": WRITES}
    write_notebook(root / "notebooks" / "05-gain.ipynb", *cells, tcnaps=declared)
    return load_study(STUDY_FILE)


@pytest.fixture
def made(study):
    """The same with a figure, a table, claims and a headline."""
    study.figures_folder.mkdir(parents=True)
    Image.new("RGB", (4, 4)).save(study.figures_folder / "gain.png")
    study.results_folder.mkdir(parents=True)
    gains = pd.DataFrame({"dataset": ["b<i>rds", "digits"], "gain": [0.1234, -0.05], "n": [7, 8]})
    gains.to_csv(study.results_folder / "gains.csv", index=False)
    claims = "| claim | verdict |\n|---|---|\n| **C1 <script>** | holds |\n"
    (study.results_folder / "claims.md").write_text(claims)
    (study.results_folder / "headline.json").write_text(json.dumps({"sentence": "A minus B: +2.5 ± 0.8 points"}))
    return study


class Addresses(HTMLParser):
    """The addresses in a page."""

    def __init__(self, text):
        super().__init__()
        self.addresses = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.addresses += [value for name, value in attributes if name in ("src", "href", "srcset", "data")]


def test_a_report_holds_everything_in_one_file(made):
    text = report.write_report(STUDY_FILE).read_text()
    addresses = Addresses(text).addresses
    assert all(address.startswith(("#", "data:")) for address in addresses) and "@import" not in text
    pictures = [base64.b64decode(a.partition(",")[2]) for a in addresses if a.startswith("data:image/png")]
    assert pictures == [(made.figures_folder / "gain.png").read_bytes()]
    for shown in ("A minus B: +2.5 ± 0.8 points", "Who gains &amp; why?", "<em>gain</em>", "<math", "<td>holds</td>"):
        assert shown in text
    assert made.origin["Digest"] in text and "maximum_support_size: 120" in text
    assert "<td>12.3</td>" in text and "<td>-5.0</td>" in text and "<td>7</td>" in text
    assert "b&lt;i&gt;rds" in text and "C1 &lt;script&gt;" in text
    assert "Missing" not in text and "rows/support.json" not in text


def test_the_last_cell_of_an_executed_copy_is_the_answer(made):
    outputs = [{"output_type": "stream", "name": "stdout", "text": ["It gains ", "7 points."]}]
    executed = made.results_folder / "notebooks" / "05-gain.ipynb"
    write_notebook(executed, cell("print(1)") | {"outputs": outputs})
    (executed.parent / "05-gain-damaged.ipynb").write_text(executed.read_text()[:-20])
    assert "<pre>It gains 7 points.</pre>" in report.write_report(STUDY_FILE).read_text()


@pytest.mark.parametrize("name", ["headline.json", "gains.csv", "claims.md"])
@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe\x00"])
def test_a_missing_or_damaged_file_is_named(made, name, content):
    file = made.results_folder / name
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    text = report.write_report(STUDY_FILE).read_text()
    if (name, content) != ("claims.md", b""):  # an empty text is no damaged one
        named = f"results/miniature/{name}"
        assert f"Missing: {named}" in text or f"{named} can&#39;t be read" in text


def test_the_references_file_stands_in_for_one_that_a_run_lacks(made):
    reference = Path("figures/reference/miniature")
    reference.mkdir(parents=True)
    (made.figures_folder / "gain.png").rename(reference / "gain.png")
    assert "figures/reference/miniature/gain.png (reference)" in report.write_report(STUDY_FILE).read_text()


@pytest.mark.parametrize("arguments", [[STUDY_FILE], [], ["configs/none.yaml"]])
def test_without_results_or_with_wrong_arguments_nothing_is_written(study, capsys, arguments):
    with pytest.raises(SystemExit) as refusal:
        command.main(["report", *arguments])
    assert refusal.value.code == 2 and capsys.readouterr().err
    assert not study.results_folder.exists()


@pytest.mark.parametrize("formula", ["$\\mu_k = \\frac{1}{n_k} \\sum_i z_i$", "$$\\lambda_k$$", "$\\no{such}$"])
def test_formulas_need_no_script(formula):
    text = pages.markdown(f"Where {formula} holds.")
    assert ("<math" in text) != ("no{such}" in text) and "holds." in text
