"""The report: what is there stands in it, under the right notebook, and nothing is fetched from elsewhere."""

import base64
import json
import shutil
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from blob_rows import blob_rows
from notebook_files import cell, write_notebook
from PIL import Image
from small_study import blobs, small_study
from synthetic_rows import synthetic_rows

from tcnaps.config import load_study
from tcnaps.evaluation.result_files import rows_file, write_manifest, write_rows
from tcnaps.figures import style
from tcnaps_suite.widgets import episode_table
from tcnaps_suite.workflow import pages
from tcnaps_suite.workflow.report import notebooks, page
from tcnaps_suite.workflow.report.__main__ import main
from tcnaps_suite.workflow.report.striking import striking_episodes

REPOSITORY = Path(__file__).parents[3]
STUDY_FILE = "configs/miniature.yaml"
DRAWING = 'with style.figure(study.figures_folder / f"gain-at-{shot}-shot", study.origin) as (_, ax):'


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A project of one notebook, with a study of which nothing has been made."""
    (tmp_path / "Snakefile").touch()
    (tmp_path / "configs").mkdir()
    shutil.copy(REPOSITORY / STUDY_FILE, tmp_path / STUDY_FILE)
    words = "## Paired\n\nThe *gain* for $\\beta < 1$."
    written = 'write_csv(gains, study.results_folder / "gains.csv")'
    cells = [cell("# Who gains & why?", kind="markdown"), cell(words, kind="markdown"), cell(f"{written}\n{DRAWING}")]
    write_notebook(tmp_path / "notebooks" / "05-gain.ipynb", *cells)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def study(root):
    """The same with a figure, a table, a headline and claims."""
    study = load_study(STUDY_FILE)
    with style.figure(study.figures_folder / "gain-at-1-shot", study.origin) as (figure, ax):
        ax.plot([0, 1])
    plt.close(figure)
    results = study.results_folder
    results.mkdir(parents=True)
    pd.DataFrame({"dataset": ["b<i>rds", "signs"], "gain": [0.1234, -0.05], "n": [7, 8]}).to_csv(results / "gains.csv")
    (results / "headline.json").write_text(json.dumps({"sentence": "A minus B: +2.5 ± 0.8 points"}))
    (results / "claims.md").write_text("| claim | verdict |\n|---|---|\n| **C1: it gains** | holds |\n")
    return study


class Links(HTMLParser):
    """The addresses in a page."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found += [value for name, value in attributes if name in ("src", "href", "srcset", "data")]


def test_a_report_holds_everything_in_one_file(study):
    text = page.write_report(STUDY_FILE).read_text()
    addresses = Links(text).found
    assert all(address.startswith(("#", "data:")) for address in addresses) and "@import" not in text
    pictures = [base64.b64decode(a.partition(",")[2]) for a in addresses if a.startswith("data:image/png")]
    assert pictures == [(study.figures_folder / "gain-at-1-shot.png").read_bytes()]
    for shown in ("A minus B: +2.5 ± 0.8 points", "C1: it gains", "Who gains &amp; why?", "<em>gain</em>", "<math"):
        assert shown in text
    for fact in (study.origin["Digest"], "maximum_support_size: 120", "notebooks/05-gain.ipynb", "torch 2"):
        assert fact in text
    assert "b&lt;i&gt;rds" in text and "<td>12.3</td>" in text and "<td>-5.0</td>" in text and "<td>7</td>" in text


def test_runs_are_told_with_their_command_time_and_answer(study):
    executed = study.results_folder / "notebooks" / "05-gain.ipynb"
    write_notebook(executed, cell("print(1)"))
    content = json.loads(executed.read_text())
    facts = {"start_time": "2026-01-02T03:04:05", "duration": 150.0, "parameters": {"study_file": "a b.yaml", "n": 2}}
    content["metadata"]["papermill"] = facts | {"exception": None}
    content["cells"][-1]["outputs"] = [{"output_type": "stream", "name": "stdout", "text": ["It gains ", "7 points."]}]
    executed.write_text(json.dumps(content))
    (executed.parent / "06-torn.ipynb").write_text(executed.read_text()[:-20])
    text = page.write_report(STUDY_FILE).read_text()
    assert "notebooks/05-gain.ipynb executed.ipynb -p study_file &#39;a b.yaml&#39; -p n 2" in text
    assert "It gains 7 points." in text and "2026-01-02 03:04" in text and "<td>2.5</td>" in text


def test_a_figure_that_is_out_of_date_says_so(study, monkeypatch):
    assert "can't be told whether" in page.write_report(STUDY_FILE).read_text()
    rows = rows_file(study, "support", "variable", "glyphs")
    write_rows(rows, synthetic_rows(["support"], n_episodes=1, datasets={"glyphs": "in"}), "key")
    write_manifest(study, "support", [rows])
    asked = []

    def outdated(path, made):
        asked.append((path, made))
        return {"figures/miniature/gain-at-1-shot.png": "older than the rows"}

    monkeypatch.setattr(page, "outdated", outdated)
    text = page.write_report(STUDY_FILE).read_text()
    assert asked == [(STUDY_FILE, ["figures/miniature/gain-at-1-shot.png", "results/miniature/gains.csv"])]
    assert text.count("older than the rows") == 2 and "can't be told whether" not in text


def test_without_results_one_line_says_what_makes_them(root, capsys):
    assert main([STUDY_FILE]) == 2
    said = capsys.readouterr().err
    assert said == "Study 'miniature' has no results yet: `make figures STUDY=configs/miniature.yaml` makes them.\n"
    assert main([]) == main(["--help"]) == 2
    assert main(["configs/none.yaml"]) == 2


def test_every_figure_and_table_in_git_belongs_to_one_notebook():
    outputs = {file.stem: notebooks.outputs_of(file) for file in sorted((REPOSITORY / "notebooks").glob("*.ipynb"))}
    kept = [file.with_suffix("") for file in (REPOSITORY / "figures" / "miniature").rglob("*.png")]
    kept += (REPOSITORY / "results" / "miniature").glob("*.csv")
    assert len(kept) > 30
    for file in kept:
        folder, _, *below = file.relative_to(REPOSITORY).parts
        makers = [
            name for name, own in outputs.items() if any(o.folder == folder and o.makes("/".join(below)) for o in own)
        ]
        by_the_library = file.name in ("pretraining.csv", "times.csv")
        assert len(makers) == 1 or by_the_library, (file, makers)


def test_a_cells_last_heading_is_the_figures(tmp_path):
    texts = ["# Title?\n\nAll.", "About the first.\n\n## Second part\n\nAbout the second.", "More."]
    cells = [[cell(text, kind="markdown"), cell(f'figures_folder / "{n}"')] for n, text in enumerate(texts)]
    found = notebooks.outputs_of(write_notebook(tmp_path / "n.ipynb", *sum(cells, [])))
    expected = [("Title?", "All."), ("Second part", "About the second."), ("Second part", "More.")]
    assert [(output.heading, output.prose) for output in found] == expected


@pytest.mark.parametrize("formula", ["$\\mu_k = \\frac{1}{n_k} \\sum_i z_i$", "$$\\lambda_k$$", "$\\no{such}$"])
def test_formulas_need_no_script(formula):
    text = pages.markdown(f"Where {formula} holds.")
    assert ("<math" in text) != ("no{such}" in text) and "holds." in text


def test_the_most_striking_episodes_are_those_of_the_largest_gain_and_loss(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Snakefile").touch()
    study = small_study()
    words, ends = striking_episodes(study)
    assert "There are no rows" in words and ends == {}
    for dataset in study.evaluations["variable"].datasets:
        rows = [blob_rows(study, "variable", dataset, index, "support_and_query")[0] for index in range(2)]
        write_rows(rows_file(study, "support_and_query", "variable", dataset), pd.concat(rows), "key")
    words, ends = striking_episodes(study, number=2)
    assert "4 episodes" in words
    (gains, problem), (losses, _) = ends["Largest gains"], ends["Largest losses"]
    assert len(gains) == len(losses) == 2 and gains["gain"].min() >= losses["gain"].max()
    assert (gains["Transductive"] - gains["FEOT"]).to_numpy() == pytest.approx(100 * gains["gain"].to_numpy())
    assert "blobs" in problem or "others" in problem  # the images can't be found
    monkeypatch.setattr(episode_table, "open_split", lambda study, name, split: blobs(name, split))
    picture = striking_episodes(study)[1]["Largest losses"][1]
    assert Image.open(BytesIO(picture)).width > 500
