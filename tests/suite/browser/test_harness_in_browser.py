"""The harness itself, on a notebook without widgets: what it reads is what the notebook prints."""

import pytest
from servers import NotebookError, find_chromium

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
