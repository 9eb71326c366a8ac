"""The report's tables in a real browser: a heading sorts its column, by mouse and by keys."""

import shutil

import pandas as pd
import pytest
from notebook_files import cell, write_notebook
from playwright.sync_api import expect
from servers import REPOSITORY

from tcnaps.config import load_study
from tcnaps_suite.workflow.report import page as report

STUDY_FILE = "configs/miniature.yaml"
TABLE = pd.DataFrame(
    {
        "dataset": ["set 10", "set 9", "set 1", "set 2", "set 3"],
        "gain": ["+6.1 ± 0.5", "+12.0 ± 1.5", None, "\u22123.5 ± 2.0", "0.0"],
        "episodes": [700, 1000, 90, 8, 80],
    }
)


@pytest.fixture
def table(browser, tmp_path, monkeypatch):
    """The only table of a report, opened as a file."""
    (tmp_path / "configs").mkdir()
    for name in ("Snakefile", STUDY_FILE):
        shutil.copy(REPOSITORY / name, tmp_path / name)
    made = cell('write_csv(gains, study.results_folder / "gains.csv")')
    write_notebook(tmp_path / "notebooks" / "05-gain.ipynb", cell("# Who gains?", kind="markdown"), made)
    monkeypatch.chdir(tmp_path)
    results = load_study(STUDY_FILE).results_folder
    results.mkdir(parents=True)
    TABLE.to_csv(results / "gains.csv", index=False)
    page = browser.new_page()
    page.goto(report.write_report(STUDY_FILE).absolute().as_uri())
    yield page.locator("table.sortable").first
    page.close()


def test_a_heading_sorts_its_column_and_sorts_again_the_other_way(table):
    for column, order in {"gain": [3, 4, 0, 1, 2], "episodes": [3, 4, 2, 0, 1], "dataset": [2, 3, 4, 1, 0]}.items():
        heading = table.get_by_role("columnheader", name=column)
        heading.click()
        expect(heading).to_have_attribute("aria-sort", "ascending")
        assert shown(table) == [TABLE["dataset"][k] for k in order]
        heading.press("Space")
        expect(heading).to_have_attribute("aria-sort", "descending")
        back = [3, 2, 1, 0, 4] if column == "gain" else [4, 3, 2, 1, 0]  # an empty cell stays last
        assert shown(table) == [TABLE["dataset"][order[k]] for k in back]
        expect(table.locator("[aria-sort]")).to_have_count(1)


def shown(table):
    return table.locator("tbody tr td:first-child").all_inner_texts()
