"""Each widget and the page for labelling in each host, used as a person would; and the start page."""

import json
import re
import shutil

import pandas as pd
import pytest
from playwright.sync_api import expect
from servers import PATIENCE, REPOSITORY, TOKEN

from tcnaps.evaluation.result_files import load_rows, needed_trainings
from tcnaps_suite.experiments.networks import PACKAGED
from tcnaps_suite.experiments.study_episodes import features_of
from tcnaps_suite.widgets import episode_table, explorer_data, stepper_data

SITES = pytest.mark.parametrize("site", ["lab", "notebook7", "voila"])
BETTER, THAN, LIMITS = "Transductive", "FEOT", (2, 4)


def choose(view, name, label):
    view.locator(f".tcnaps-{name} select").select_option(label=label)


def no_errors(page, site):
    assert page.locator(".tcnaps-notice:visible").count() == 0
    assert page.locator(".jupyter-widgets-error-widget").count() == 0
    assert site == "notebook7" or not page.console_errors  # Notebook 7 has errors of its own


@SITES
def test_the_stepper(site, study, request):
    opened = request.getfixturevalue(site)
    page = opened.open("12-stepper", height=1000)
    view = page.locator(".tcnaps-stepper")
    status = view.locator(".tcnaps-status")
    expect(status).to_contain_text("Step 0 of", timeout=PATIENCE)
    for name, label in (("variant", "FEOT"), ("evaluation", "5-way-1-shot-3"), ("dataset", "digits")):
        choose(view, name, label)
    view.locator(".tcnaps-episode input").fill("1")
    view.locator(".tcnaps-episode input").press("Enter")
    features = features_of(study, "FEOT", "5-way-1-shot-3", "digits", 1)
    trajectory = stepper_data.run(features, steps=study.refinement.recorded_steps)
    expect(view.locator(".tcnaps-about")).to_contain_text(stepper_data.described(features), timeout=PATIENCE)
    view.locator(".tcnaps-first").click()
    for step in (1, 2):
        picture = view.locator(".tcnaps-picture img")
        before = picture.get_attribute("src")
        view.locator(".tcnaps-forward").click()
        expect(status).to_have_text(stepper_data.status(trajectory, step), timeout=PATIENCE)
        expect(picture).not_to_have_attribute("src", before, timeout=PATIENCE)
    choose(view, "which", "all")
    expect(view.locator(".tcnaps-queries tbody tr")).to_have_count(len(features.query_labels))
    choose(view, "query", "3")
    expect(view.locator(".tcnaps-queries tr:has(.xmarked)")).to_have_count(1)
    view.locator(".tcnaps-play button").first.click()
    expect(status).to_contain_text(re.compile(r"Step ([4-9]|10) of"), timeout=PATIENCE)
    no_errors(page, site)
    opened.screenshot(page, f"stepper-{site}")


@SITES
def test_the_explorer(site, study, request):
    rows = load_rows(study, "variable", needed_trainings([BETTER, THAN]))
    table = explorer_data.episodes(rows, BETTER, THAN, LIMITS)
    opened = request.getfixturevalue(site)
    page = opened.open("13-explorer", height=1000)
    view = page.locator(".tcnaps-explorer").first
    status, count = view.locator(".tcnaps-status").first, view.locator(".tcnaps-count")
    listed = explorer_data.chosen(table)
    expect(count).to_contain_text(explorer_data.in_words(listed, BETTER, THAN))
    view.locator(".tcnaps-episodes select").select_option(index=2)
    row = listed.iloc[2]
    own = episode_table.rows_of_episode(rows, BETTER, row["dataset"], int(row["episode"]))
    stop = int(row["step"])
    expect(status).to_contain_text(explorer_data.status(row, BETTER, own, stop, stop))
    assert view.locator(".tcnaps-picture img").evaluate("image => image.complete && image.naturalWidth > 0")
    choose(view, "dataset", "All out-of-domain")
    expect(count).to_contain_text(explorer_data.in_words(explorer_data.chosen(table, ["digits"]), BETTER, THAN))
    no_errors(page, site)
    opened.screenshot(page, f"explorer-{site}")


@pytest.mark.parametrize("site", ["lab", "notebook7"])
def test_keys_are_for_the_control_with_the_focus_not_for_the_notebook(site, study, request):
    page = request.getfixturevalue(site).open("13-explorer")
    episodes = page.locator(".tcnaps-episodes select")
    episodes.focus()
    page.keyboard.press("ArrowDown")
    assert episodes.evaluate("list => list.selectedIndex") == 1
    cells = page.evaluate("jupyterapp.shell.currentWidget.content.widgets.length")
    page.keyboard.type("dd")  # in a notebook: deletes a cell
    assert page.evaluate("jupyterapp.shell.currentWidget.content.widgets.length") == cells
    counts = "[...jupyterapp.shell.currentWidget.content.model.cells].map(c => c.executionCount ?? 0)"
    before = page.evaluate(f"Math.max(...{counts})")
    page.keyboard.press("Shift+Enter")  # remains the notebook's
    page.wait_for_function(f"before => Math.max(...{counts}) > before", arg=before)


def test_the_list_leads_to_a_page_without_code_and_back_and_nothing_comes_from_elsewhere(voila):
    page, loaded = voila.new_page(), []
    page.context.on("requestfinished", lambda request: loaded.append(request.url))
    page.goto(voila.server.url)
    with page.context.expect_page() as opened:  # the list opens each page in a tab of its own
        page.locator("a[href*='13-explorer']").click()
    page = opened.value
    page.locator(".tcnaps-explorer").wait_for()
    assert page.locator(".jp-CodeCell .jp-InputArea-editor").count() == 0 and "load_study" not in page.content()
    page.get_by_text("All pages").click()
    expect(page).to_have_url(voila.server.url)
    assert all(url.startswith((voila.server.url, "data:", "blob:")) for url in loaded)


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


@pytest.mark.parametrize("site", ["label", "lab"])
def test_images_are_corrected_labelled_again_and_exported(site, trees, request):
    (trees / "corrections.csv").unlink(missing_ok=True)
    opened = request.getfixturevalue(site)
    parameters = {"folder": str(trees), "backbone": PACKAGED} if site == "lab" else {}
    page = opened.open("24-label-my-images", **parameters)
    view = page.locator(".tcnaps-labels")
    pile, figures = view.locator(".tcnaps-pile select"), view.locator("figure")
    expect(view.locator(".tcnaps-status")).to_contain_text("0 corrections", timeout=PATIENCE)
    assert view.locator("figure img").first.evaluate("image => image.complete && image.naturalWidth > 0")
    pile.select_option(label="ash (9)")
    expect(figures).to_have_count(9)
    opened.screenshot(page, f"labels-{site}")
    first, second = (figures.nth(number).get_attribute("title").partition(":")[0] for number in (3, 4))

    figures.nth(3).click()
    view.get_by_role("button", name=re.compile("beech$")).click()
    expect(figures.nth(3).locator("b")).to_have_text("→ beech")
    expect(figures.nth(4)).to_have_attribute("aria-selected", "true")
    figures.nth(3).click()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("n")
    expect(figures.nth(4).locator("b")).to_have_text("→ none of these")
    page.keyboard.press("u")
    expect(figures.nth(4).locator("b")).to_have_text("")
    for _ in range(3):
        page.keyboard.down("n")  # held
    expect(figures.nth(4).locator("b")).to_have_text("→ none of these")
    kept = pd.read_csv(trees / "corrections.csv")
    assert dict(zip(kept["file"], kept["label"])) == {first: "beech", second: "none of these"}

    view.locator(".tcnaps-again").click()
    expect(view.locator(".tcnaps-saved")).to_contain_text("Labelled again", timeout=PATIENCE)
    expect(figures).not_to_have_count(9)
    pile.select_option(index=1)
    expect(figures.filter(has_text="corrected")).to_have_attribute("title", re.compile(f"^{first}"))
    opened.screenshot(page, f"labels-{site}-corrected")

    view.locator(".tcnaps-table").click()
    expect(view.locator(".tcnaps-saved")).to_contain_text("Wrote")
    table = pd.read_csv(trees / "labels.csv", keep_default_na=False).set_index("file")
    assert table.loc[[first, second], "label"].tolist() == ["beech", ""]
    view.locator(".tcnaps-tasks").click()
    expect(view.locator(".tcnaps-saved")).to_contain_text("label-studio.json")
    assert sum(bool(task["annotations"]) for task in json.loads((trees / "label-studio.json").read_text())) == 11
    assert not page.console_errors and page.locator(".tcnaps-notice:visible").count() == 0


def test_the_page_fits_a_telephone_and_asks_for_its_token(label):
    page = label.open(width=390, height=800)
    expect(page.locator(".tcnaps-labels .tcnaps-status")).to_contain_text("corrections", timeout=PATIENCE)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    label.screenshot(page, "labels-telephone")
    answer = label.new_page().goto(label.server.url)
    assert answer.status == 403 or "login" in answer.url
