"""The views in a real browser: what is shown is what the library says, in JupyterLab, Notebook 7 and Voilà."""

import re

import pytest
from playwright.sync_api import expect

from tcnaps_suite.widgets.figure_views import RecallView, RefinementView

NOTEBOOK = "14-views"


def view_of(page, kind):
    """A view, once it shows something."""
    view = page.locator(f".tcnaps-{kind}")
    view.locator(".tcnaps-status").filter(has_text="·").wait_for()
    view.scroll_into_view_if_needed()
    return view


def seen_by(kind, study, datasets=None, **choices):
    """What a view of the same choices shows here."""
    view = kind(study)
    view.load()
    for name, box in view.controls["datasets"].boxes.items():
        box.value = datasets is None or name in datasets
    for name, value in choices.items():
        view.controls[name].value = value
    return view.seen


def shows(view, seen):
    """Waits until the view says what the library says, and compares the numbers of all points."""
    expect(view.locator(".tcnaps-status")).to_have_text(seen.title)
    texts = set()
    for _ in range(100):
        lines = "span => [...span.childNodes].filter(n => n.nodeType === 3).map(n => n.textContent)"
        texts = set(view.locator(".tcnaps-spot span").evaluate_all(f"spans => spans.flatMap({lines})"))
        if texts == set(seen.points["text"]):
            return
        view.page.wait_for_timeout(100)
    assert texts == set(seen.points["text"])


def choose(view, filter_name, option):
    view.locator(f".tcnaps-{filter_name} select").select_option(label=option)


def box(view, filter_name, name):
    return view.locator(f".tcnaps-{filter_name}").get_by_label(name, exact=True)


def test_class_recall_in_jupyterlab(lab, study):
    page = lab.open(NOTEBOOK, height=1000)
    view = view_of(page, "class-recall")
    shows(view, seen_by(RecallView, study))
    lab.screenshot(page, "views-class-recall")

    before = view.locator(".tcnaps-picture").screenshot()
    box(view, "datasets", "digits (out)").uncheck()
    shows(view, seen_by(RecallView, study, datasets=["textures"]))
    assert view.locator(".tcnaps-picture").screenshot() != before
    box(view, "datasets", "digits (out)").check()

    choose(view, "value", "gain over Simple")
    seen = seen_by(RecallView, study, value="Simple")
    shows(view, seen)

    point = seen.points.iloc[0]
    view.locator(".tcnaps-points select").select_option(label=point["name"])
    expect(view.locator(".tcnaps-readout")).to_contain_text(point["text"])
    assert view.locator(".tcnaps-spot.chosen").count() == 1
    lab.screenshot(page, "views-class-recall-gain")

    choose(view, "value", "recall")
    shows(view, seen_by(RecallView, study))
    view.locator(".tcnaps-shots .noUi-handle-upper").press("ArrowLeft")
    highest = int(seen.frame["shot_high"].max())
    shows(view, seen_by(RecallView, study, shots=(1, highest - 1)))


@pytest.mark.parametrize("site", ["lab", "notebook7"])
def test_hovering_shows_n_mean_and_interval(site, study, request):
    opened = request.getfixturevalue(site)
    page = opened.open(NOTEBOOK, height=1000)
    shows(view_of(page, "class-recall"), seen_by(RecallView, study))
    view = view_of(page, "number-of-queries")
    spot = view.locator(".tcnaps-spot").first
    expect(spot.locator("span")).to_be_hidden()
    spot.hover(force=True)
    shown = view.locator(".tcnaps-spot:hover span")
    expect(shown).to_be_visible()
    assert re.search(r"queries per class: accuracy [\d.]+±[\d.]+%, n = 4 episodes of 2 datasets", shown.inner_text())
    opened.screenshot(page, f"views-hover-{site}")


def test_keys_alone_choose_and_save(lab, study):
    page = lab.open(NOTEBOOK, height=1000)
    view = view_of(page, "refinement-steps")
    seen = seen_by(RefinementView, study)
    shows(view, seen)
    lab.screenshot(page, "views-refinement")
    readout = view.locator(".tcnaps-readout")
    expect(readout).to_contain_text("minimum 2, maximum 4: accuracy")
    view.locator(".tcnaps-rule .noUi-handle-upper").focus()
    page.keyboard.press("ArrowRight")
    expect(readout).to_contain_text(seen.points.set_index("name").loc["minimum 2, maximum 5", "text"])
    page.keyboard.press("Tab")
    box(view, "datasets", "digits (out)").focus()
    page.keyboard.press("Space")
    expect(view.locator(".tcnaps-status")).to_contain_text("1 dataset ·")
    view.locator(".tcnaps-save").focus()
    page.keyboard.press("Enter")
    expect(view.locator(".tcnaps-saved")).to_contain_text("figures/tiny/views")
    for kind in ("png", "pdf"):
        assert (study.figures_folder / "views" / f"refinement-steps.{kind}").stat().st_size > 5_000
    with page.expect_download() as download:
        view.locator(".tcnaps-saved a", has_text="PDF").click()
    assert download.value.suggested_filename == "refinement-steps.pdf"


def test_voila_shows_no_code_and_writes_no_file(voila, study):
    page = voila.open(NOTEBOOK, height=1000)
    view = view_of(page, "class-recall")
    shows(view, seen_by(RecallView, study))
    box(view, "datasets", "digits (out)").uncheck()
    shows(view, seen_by(RecallView, study, datasets=["textures"]))
    assert page.locator(".jp-CodeCell .jp-InputArea-editor").count() == 0
    assert "load_study" not in page.content()
    voila.screenshot(page, "views-voila")
    view.locator(".tcnaps-save-name input").fill("from-voila")
    view.locator(".tcnaps-save").click()
    expect(view.locator(".tcnaps-saved")).to_contain_text("Download:")
    assert not list(study.figures_folder.rglob("from-voila*"))


@pytest.mark.parametrize(
    "path", ["voila/render/02-pretrain.ipynb", "voila/files/14-views.ipynb", "voila/render/../../../configs/tiny.yaml"]
)
def test_voila_serves_nothing_else(voila, path):
    page = voila.new_page()
    answer = page.goto(voila.server.url + path)
    assert answer.status in (403, 404)


def test_the_index_leads_to_a_page_and_back_and_nothing_comes_from_elsewhere(voila):
    page = voila.new_page()
    loaded = []
    page.on("requestfinished", lambda request: loaded.append(request.url))
    page.goto(voila.server.url)
    page.locator("a[href*='14-views']").click()
    page.locator(".tcnaps-class-recall").wait_for()
    page.get_by_text("All pages").click()
    expect(page).to_have_url(voila.server.url)
    assert all(url.startswith((voila.server.url, "data:", "blob:")) for url in loaded)
