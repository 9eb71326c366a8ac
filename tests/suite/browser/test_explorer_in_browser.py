"""The episode explorer in a browser, as a new user would try it: what it shows against the library's numbers."""

import io

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from playwright.sync_api import expect

from tcnaps.evaluation.result_files import load_rows, needed_trainings
from tcnaps_suite.widgets import episode_table, explorer_data

NAME = "13-explorer"
BETTER, THAN, LIMITS = "Transductive", "FEOT", (2, 4)


@pytest.fixture
def found(study):
    """The rows that the explorer reads, and its table."""
    rows = load_rows(study, "variable", needed_trainings([BETTER, THAN]))
    return rows, explorer_data.episodes(rows, BETTER, THAN, LIMITS)


def status_of(rows, row, variant=BETTER, step=None):
    own = episode_table.rows_of_episode(rows, variant, row["dataset"], int(row["episode"]))
    stop = int(row["step"] if variant == BETTER else row["step_than"])
    return explorer_data.status(row, variant, own, stop if step is None else step, stop)


def choose(page, place):
    """An episode by its place in the list."""
    page.locator(".tcnaps-episodes select").select_option(index=place)


@pytest.mark.parametrize("site", ["lab", "notebook7", "voila"])
def test_the_explorer_shows_and_follows_its_controls(site, found, request):
    rows, table = found
    opened = request.getfixturevalue(site)
    page = opened.open(NAME)
    listed = explorer_data.chosen(table)
    status = page.locator(".tcnaps-status")
    expect(page.locator(".tcnaps-count").first).to_contain_text(explorer_data.in_words(listed, BETTER, THAN))
    expect(status).to_contain_text(status_of(rows, listed.iloc[0]))
    choose(page, 2)
    expect(status).to_contain_text(status_of(rows, listed.iloc[2]))
    page.locator(".tcnaps-variant select").select_option(THAN)
    expect(status).to_contain_text(status_of(rows, listed.iloc[2], THAN))
    page.locator(".tcnaps-step .noUi-handle").press("ArrowRight")
    expect(status).to_contain_text(status_of(rows, listed.iloc[2], THAN, step=1))
    page.locator(".tcnaps-dataset select").select_option(label="All out-of-domain")
    outside = explorer_data.chosen(table, ["digits"])
    expect(page.locator(".tcnaps-count").first).to_contain_text(explorer_data.in_words(outside, BETTER, THAN))
    assert page.locator(".tcnaps-notice:visible").count() == 0
    assert page.locator(".jupyter-widgets-error-widget").count() == 0
    assert site == "notebook7" or not page.console_errors  # Notebook 7 has errors of its own
    page.locator(".tcnaps-explorer").first.scroll_into_view_if_needed()
    opened.screenshot(page, f"explorer-{site}")


def test_images_tables_and_pictures_are_there_and_right(lab, study, found):
    rows, table = found
    page = lab.open(NAME, height=1400)
    row = explorer_data.chosen(table).iloc[0]
    own = episode_table.rows_of_episode(rows, BETTER, row["dataset"], int(row["episode"]))
    step = int(row["step"])
    queries = page.locator(".tcnaps-sheet .xitem")
    expect(queries).to_have_count(len(own))
    at_step = episode_table.at_step(own, step)
    for number in range(len(own)):
        query = at_step.iloc[number]
        shown = queries.nth(number)
        expect(shown).to_contain_text(f"{query['confidence']:.2f}")
        expect(shown).to_contain_text("✓" if query["right"] else "✗")
    # A thumbnail on the page has the colours of the very image.
    images = episode_table.replay(study, own)
    assert mean_colour(page.locator(".tcnaps-sheet .xitem .ximage").nth(1)) == pytest.approx(
        images.query_images[1].reshape(-1, 3).mean(0), abs=6
    )
    lab.screenshot(page.locator(".tcnaps-explorer").first, "explorer-images")
    page.locator(".tcnaps-page").get_by_role("button", name="Confusion", exact=True).click()
    counts = pd.crosstab(at_step["label"], at_step["prediction"]).reindex(columns=range(row["way"]), fill_value=0)
    matrix = page.locator(".tcnaps-sheet .xmatrix tbody tr")
    expect(matrix).to_have_count(len(counts))
    for label in counts.index:
        cells = matrix.nth(label).locator("td").all_inner_texts()[1:]
        assert [0 if cell == "·" else int(cell) for cell in cells] == list(counts.loc[label])
    lab.screenshot(page.locator(".tcnaps-explorer").first, "explorer-confusion")
    assert page.locator(".jupyter-widgets-error-widget").count() == 0
    assert not page.console_errors


def mean_colour(thumbnail):
    """Of what is within a thumbnail's frame."""
    pixels = np.asarray(Image.open(io.BytesIO(thumbnail.screenshot())).convert("RGB"))
    return pixels[5:-5, 5:-5].reshape(-1, 3).mean(0)


@pytest.mark.parametrize("site", ["lab", "notebook7"])
def test_the_keyboard_alone_reaches_an_episode_and_its_steps(site, found, request):
    """Keys are for the control with the focus, not for the notebook around it."""
    rows, table = found
    page = request.getfixturevalue(site).open(NAME)
    listed = explorer_data.chosen(table)
    status = page.locator(".tcnaps-status")
    page.locator(".tcnaps-episodes select").focus()
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    expect(status).to_contain_text(status_of(rows, listed.iloc[3]))
    cells = page.evaluate("jupyterapp.shell.currentWidget.content.widgets.length")
    page.keyboard.type("dd")  # in a notebook: deletes a cell
    page.keyboard.press("Home")
    expect(status).to_contain_text(status_of(rows, listed.iloc[0]))
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('.tcnaps-variant') !== null")
    page.keyboard.press("Tab")
    page.keyboard.press("End")
    expect(status).to_contain_text(status_of(rows, listed.iloc[0], step=10))
    page.locator(".tcnaps-stop").focus()
    page.keyboard.press("Enter")
    expect(status).to_contain_text(status_of(rows, listed.iloc[0]))
    assert page.evaluate("jupyterapp.shell.currentWidget.content.widgets.length") == cells
    counts = "[...jupyterapp.shell.currentWidget.content.model.cells].map(c => c.executionCount ?? 0)"
    before = page.evaluate(f"Math.max(...{counts})")
    page.keyboard.press("Shift+Enter")  # goes on to be the notebook's
    page.wait_for_function(f"before => Math.max(...{counts}) > before", arg=before)


def test_an_episode_opens_in_the_stepper(lab, found):
    _, table = found
    page = lab.open(NAME, height=1000)  # the stepper is below what can be seen
    listed = explorer_data.chosen(table)
    choose(page, 1)
    expect(page.locator(".tcnaps-status").first).to_contain_text(f"episode {listed.iloc[1]['episode']} ")
    page.locator(".tcnaps-open").click()
    stepper = page.locator(".tcnaps-explorer .tcnaps-stepper").first
    expect(stepper).to_be_visible(timeout=120_000)  # milliseconds: it imports PyTorch and loads a network
    status = stepper.locator(".tcnaps-status")
    expect(status).to_contain_text("Step 0")
    expect(page.locator(".tcnaps-opened")).to_contain_text("is open in the stepper, below")
    expect(page.locator(".tcnaps-close")).to_be_in_viewport()
    step = int(listed.iloc[1]["step"])
    for number in range(1, step + 1):
        stepper.locator(".tcnaps-forward").click()
        expect(status).to_contain_text(f"Step {number}")
    expect(status).to_contain_text(f"{100 * listed.iloc[1]['accuracy']:.1f}%")
    lab.screenshot(page, "explorer-stepper")
    page.locator(".tcnaps-close").click()
    expect(page.locator(".tcnaps-stepper")).to_have_count(0)
    assert not page.console_errors
