"""The harness itself, on a notebook without widgets: what it reads is what the notebook prints."""

import pytest
from playwright.sync_api import expect
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
    with pytest.raises(NotebookError, match="has no evaluation 'none'|KeyError"):
        lab.open(PLAIN, evaluation="none")


def test_a_missing_browser_names_the_remedy(monkeypatch):
    monkeypatch.setenv("TCNAPS_CHROMIUM", "no-such-browser")
    with pytest.raises(FileNotFoundError, match="apt-get install chromium"):
        find_chromium()


@pytest.mark.parametrize(
    ("name", "widget"),
    [("12-stepper", "tcnaps-stepper"), ("13-explorer", "tcnaps-explorer"), ("14-views", "tcnaps-view")],
)
@pytest.mark.parametrize("site", ["notebook7", "voila"])
def test_every_widget_shows_without_an_error(site, name, widget, request):
    """JupyterLab is where the other files test each widget in full."""
    opened = request.getfixturevalue(site)
    page = opened.open(name, height=1100)
    shown = page.locator(f".{widget}")
    expect(shown).to_have_count(3 if name == "14-views" else 1)
    shown.first.scroll_into_view_if_needed()  # the page draws nothing that is out of sight
    expect(shown.first.locator("img:visible, [role=img]:visible").first).to_be_visible()
    for notice in shown.locator(".tcnaps-notice").all():
        expect(notice).to_be_hidden()
    opened.screenshot(page, f"{site}-{name}")


def test_voila_lists_its_notebooks(voila):
    page = voila.new_page()
    page.goto(voila.server.url)
    for name in ("12-stepper", "13-explorer", "14-views"):
        expect(page.get_by_text(name).first).to_be_visible()
    assert "02-pretrain" not in page.content()
    voila.screenshot(page, "voila-list")
