"""The report in a real browser: headings sort their tables, and it fits a phone."""

import shutil

import pandas as pd
import pytest
from notebook_files import cell, write_notebook
from playwright.sync_api import expect
from servers import REPOSITORY

from tcnaps.config import load_study
from tcnaps_suite.workflow.report import write_report

STUDY_FILE = "configs/miniature.yaml"
TABLE = pd.DataFrame(
    {
        "dataset": ["set 10", "set 9", "set 1", "set 2", "set 3"],
        "gain": ["+6.1 ± 0.5", "+12.0 ± 1.5", None, "\u22123.5 ± 2.0", "0.0"],
        "episodes": [700, 1000, 90, 8, 80],
        "a_long_name_without_any_space_" * 3: range(5),
    }
)


@pytest.fixture
def page(browser, root):
    """A report of one table, opened as a file on a phone."""
    (root / "configs").mkdir()
    shutil.copy(REPOSITORY / STUDY_FILE, root / STUDY_FILE)
    parameters = cell('study_file = "configs/miniature.yaml"', "parameters")
    declared = {"target": None, "writes": {"tables": ["gains.csv"]}}
    cells = cell("# Who gains?", kind="markdown"), parameters
    write_notebook(root / "notebooks" / "05-gain.ipynb", *cells, tcnaps=declared)
    results = load_study(STUDY_FILE).results_folder
    results.mkdir(parents=True)
    TABLE.to_csv(results / "gains.csv", index=False)
    page = browser.new_page(viewport={"width": 390, "height": 800})
    page.goto(write_report(STUDY_FILE).absolute().as_uri())
    yield page
    page.close()


def test_it_fits_a_phone_and_a_heading_sorts_its_column_and_sorts_again_the_other_way(page):
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    table = page.locator("table.sortable").first
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
