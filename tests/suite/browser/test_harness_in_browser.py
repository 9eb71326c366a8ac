"""The harness itself, on a notebook without widgets: what it reads is what the notebook prints."""

import re
import shutil

import pytest
from servers import REPOSITORY, TOKEN, NotebookError, find_chromium

PLAIN = "10-ways-and-shots"


@pytest.mark.parametrize("site", ["lab", "notebook7"])
def test_a_notebook_runs_to_its_end(site, study, request):
    from tcnaps.evaluation.result_files import load_rows

    opened = request.getfixturevalue(site)
    page = opened.open(PLAIN)
    rows = load_rows(study, "variable", ["support"]).drop_duplicates(["dataset", "episode"])
    assert f"Mean way: {rows['way'].mean():.1f}" in opened.answer(page)
    opened.screenshot(page, f"harness-{site}")


def test_a_failing_cell_fails_the_test(lab):
    with pytest.raises(NotebookError, match="none"):
        lab.open(PLAIN, evaluation="none")


def test_a_missing_browser_names_the_remedy(monkeypatch):
    monkeypatch.setenv("TCNAPS_CHROMIUM", "no-such-browser")
    with pytest.raises(FileNotFoundError, match="no-such-browser"):
        find_chromium()


def test_the_start_page_is_shown_as_text_its_links_lead_somewhere_and_nobody_asks_for_news(lab):
    links = re.findall(r"\]\((.*?)\)", (REPOSITORY / "notebooks" / "START.md").read_text())
    assert len(links) > 8 and all((REPOSITORY / "notebooks" / link).is_file() for link in links)
    shutil.copy(REPOSITORY / "notebooks" / "START.md", lab.project / "notebooks")
    page = lab.new_page()
    page.goto(lab.server.url + lab.route.format(path="notebooks/START.md", token=TOKEN))
    page.get_by_role("heading", name="Where to start").wait_for()
    page.wait_for_timeout(5000)
    assert page.get_by_role("link", name="12-stepper").is_visible()
    assert page.get_by_text("Jupyter news").count() == 0
