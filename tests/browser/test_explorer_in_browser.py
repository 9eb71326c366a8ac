"""The episode explorer in a browser, as a new user would try it: what it shows against the library's numbers."""

import re

import pytest
from playwright.sync_api import expect
from servers import NotebookError

NAME = "13-explorer"
BETTER, THAN, LIMITS = "Transductive", "Simple", (2, 4)


@pytest.fixture
def found(study):
    """The rows that the explorer reads, and its table."""
    from tcnaps.widgets import explorer_data as exploring

    rows = exploring.read(study, "variable", [BETTER, THAN])
    return rows, exploring.episodes(rows, BETTER, THAN, LIMITS)


def status_of(rows, row, variant=BETTER, step=None):
    from tcnaps.widgets import episode_table as episode_rows

    own = episode_rows.rows_of_episode(rows, variant, row["dataset"], int(row["episode"]))
    stop = int(row["step"] if variant == BETTER else row["step_than"])
    return episode_rows.status(row, variant, own, stop if step is None else step, stop)


def choose(page, place):
    """An episode by its place in the list."""
    page.locator(".tcnaps-episodes select").select_option(index=place)


@pytest.mark.parametrize("site", ["lab", "notebook7", "voila"])
def test_the_explorer_shows_and_follows_its_controls(site, found, request):
    from tcnaps.widgets import explorer_data as exploring

    rows, table = found
    opened = request.getfixturevalue(site)
    page = opened.open(NAME)
    listed = exploring.chosen(table)
    status = page.locator(".tcnaps-status")
    expect(page.locator(".tcnaps-count").first).to_contain_text(exploring.in_words(listed, BETTER, THAN))
    expect(status).to_contain_text(status_of(rows, listed.iloc[0]))
    choose(page, 2)
    expect(status).to_contain_text(status_of(rows, listed.iloc[2]))
    page.locator(".tcnaps-variant select").select_option(THAN)
    expect(status).to_contain_text(status_of(rows, listed.iloc[2], THAN))
    page.locator(".tcnaps-slider .noUi-handle").press("ArrowRight")
    expect(status).to_contain_text(status_of(rows, listed.iloc[2], THAN, step=1))
    page.locator(".tcnaps-filter-dataset select").select_option(label="All out-of-domain")
    outside = exploring.chosen(table, ["digits"])
    expect(page.locator(".tcnaps-count").first).to_contain_text(exploring.in_words(outside, BETTER, THAN))
    assert page.locator(".tcnaps-notice:visible").count() == 0
    assert page.locator(".jupyter-widgets-error-widget").count() == 0
    assert site == "notebook7" or not page.console_errors  # Notebook 7 has errors of its own
    page.locator(".tcnaps-explorer").first.scroll_into_view_if_needed()
    opened.screenshot(page, f"explorer-{site}")


def test_images_tables_and_pictures_are_there_and_right(lab, study, found):
    from tcnaps.widgets import episode_table as episode_rows, explorer_data as exploring, replay as reopening

    rows, table = found
    page = lab.open(NAME, height=1400)
    row = exploring.chosen(table).iloc[0]
    own = episode_rows.rows_of_episode(rows, BETTER, row["dataset"], int(row["episode"]))
    step = int(row["step"])
    queries = page.locator(".tcnaps-sheet .xitem")
    expect(queries).to_have_count(len(own))
    at_step = episode_rows.at_step(own, step)
    for number in range(len(own)):
        query = at_step.iloc[number]
        shown = queries.nth(number)
        expect(shown).to_contain_text(f"{query['confidence']:.2f}")
        expect(shown).to_contain_text("✓" if query["right"] else "✗")
    # A thumbnail on the page has the colours of the very image.
    images = reopening.reopen(study, own)
    assert reopening.reopen(study, own).query_images.shape[0] == len(own)
    assert mean_colour(page.locator(".tcnaps-sheet .xitem .ximage").nth(1)) == pytest.approx(
        images.query_images[1].reshape(-1, 3).mean(0), abs=6
    )
    lab.screenshot(page.locator(".tcnaps-explorer").first, "explorer-images")
    page.get_by_role("tab", name="Step by step", exact=True).click()
    page.locator(".tcnaps-filter-queries select").select_option("all")
    expect(page.locator(".tcnaps-steps tbody tr")).to_have_count(len(own))
    cells = page.locator(".tcnaps-steps tbody tr").first.locator("td").all_inner_texts()[3:]
    first = episode_rows.queries(own).query("query == 0")
    assert [re.search(r"\d\.\d\d", cell).group() for cell in cells] == [f"{x:.2f}" for x in first["confidence"]]
    lab.screenshot(page.locator(".tcnaps-explorer").first, "explorer-steps")
    page.get_by_role("tab", name="Confusion", exact=True).click()
    counts = episode_rows.confusion(own, step)
    matrix = page.locator(".tcnaps-confusion tbody tr")
    expect(matrix).to_have_count(len(counts))
    for label in counts.index:
        cells = matrix.nth(label).locator("td").all_inner_texts()[1:]
        assert [0 if cell == "·" else int(cell) for cell in cells] == list(counts.loc[label])
    lab.screenshot(page.locator(".tcnaps-explorer").first, "explorer-confusion")
    for tab, place in (("Class recall", ".tcnaps-classes"), ("Recall against shot", ".tcnaps-curves")):
        page.get_by_role("tab", name=tab, exact=True).click()
        picture = page.locator(f"img{place}")
        expect(picture).to_be_visible()
        page.wait_for_function("place => document.querySelector(`img${place}`).naturalWidth > 1000", arg=place)
        assert picture.bounding_box()["width"] < 900
        lab.screenshot(page.locator(".tcnaps-explorer").first, f"explorer-{place[8:]}")
    assert page.locator(".jupyter-widgets-error-widget").count() == 0
    assert not page.console_errors


def mean_colour(thumbnail):
    """Of what is within a thumbnail's frame."""
    import io

    import numpy as np
    from PIL import Image

    pixels = np.asarray(Image.open(io.BytesIO(thumbnail.screenshot())).convert("RGB"))
    return pixels[5:-5, 5:-5].reshape(-1, 3).mean(0)


@pytest.mark.parametrize("site", ["lab", "notebook7"])
def test_the_keyboard_alone_reaches_an_episode_and_its_steps(site, found, request):
    """Keys are for the control with the focus, not for the notebook around it."""
    from tcnaps.widgets import explorer_data as exploring

    rows, table = found
    page = request.getfixturevalue(site).open(NAME)
    listed = exploring.chosen(table)
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


def test_driven_fast_the_last_word_is_shown(lab, found):
    from tcnaps.widgets import explorer_data as exploring

    rows, table = found
    page = lab.open(NAME)
    select = page.locator(".tcnaps-episodes select")
    order = page.locator(".tcnaps-filter-sort select")
    for turn in range(4):
        order.select_option("Largest loss first" if turn % 2 == 0 else "Dataset and episode")
        select.focus()
        for _ in range(5):
            page.keyboard.press("ArrowDown" if turn % 2 == 0 else "ArrowUp")
        page.locator(".tcnaps-slider .noUi-handle").press("End")
        page.get_by_role("tab", name=("Confusion", "Images")[turn % 2], exact=True).click()
    page.locator(".tcnaps-filter-dataset select").select_option(label="digits (out-of-domain)")
    listed = exploring.chosen(table, ["digits"], sort="Dataset and episode")
    expect(select.locator("option")).to_have_count(len(listed))
    page.wait_for_timeout(1500)  # whatever is still under way
    choose(page, 2)
    expect(page.locator(".tcnaps-status")).to_contain_text(status_of(rows, listed.iloc[2]))
    expect(page.locator(".tcnaps-sheet .xitem")).to_have_count(int(listed.iloc[2]["n_query"]))
    assert page.locator(".tcnaps-notice:visible").count() == 0
    assert not page.console_errors


def test_running_the_cells_again_keeps_what_was_chosen(lab, found):
    from tcnaps.widgets import explorer_data as exploring

    rows, table = found
    page = lab.open(NAME)
    page.locator(".tcnaps-filter-sort select").select_option("Largest loss first")
    listed = exploring.chosen(table, sort="Largest loss first")
    choose(page, 1)
    status = page.locator(".tcnaps-status")
    expect(status).to_contain_text(status_of(rows, listed.iloc[1]))
    lab.run_all(page)
    expect(status).to_have_count(1)
    expect(status).to_contain_text(status_of(rows, listed.iloc[1]))
    page.locator(".tcnaps-filter-dataset select").select_option(label="digits (out-of-domain)")
    few = exploring.chosen(table, ["digits"])
    expect(page.locator(".tcnaps-count")).to_contain_text(exploring.in_words(few, BETTER, THAN))
    lab.run_all(page)  # the answer is of what is listed
    page.wait_for_timeout(1000)
    assert exploring.in_words(few, BETTER, THAN) in lab.answer(page)


def test_missing_rows_show_the_command_that_makes_them(lab, study):
    file = study.results_folder / "rows" / "support_and_query" / "variable" / "digits.parquet"
    aside = file.with_suffix(".aside")
    file.rename(aside)
    try:
        with pytest.raises(NotebookError, match="No episodes have been compared"):  # of the last cell
            lab.open(NAME)
        page = lab.pages[-1]
        notice = page.locator(".tcnaps-notice")
        expect(notice).to_contain_text("make figures STUDY=configs/tiny.yaml")
        lab.screenshot(notice, "explorer-missing-rows")
    finally:
        aside.rename(file)


def test_an_episode_opens_in_the_stepper(lab, found):
    from tcnaps.widgets import explorer_data as exploring

    _, table = found
    page = lab.open(NAME, height=1800)
    listed = exploring.chosen(table)
    choose(page, 1)
    expect(page.locator(".tcnaps-status").first).to_contain_text(f"episode {listed.iloc[1]['episode']} ")
    page.locator(".tcnaps-open").click()
    stepper = page.locator(".tcnaps-explorer .tcnaps-stepper").first
    expect(stepper).to_be_visible(timeout=120_000)  # milliseconds: it imports PyTorch and loads a network
    status = stepper.locator(".tcnaps-status")
    expect(status).to_contain_text("Step 0")
    step = int(listed.iloc[1]["step"])
    for number in range(1, step + 1):
        stepper.locator(".tcnaps-step").click()
        expect(status).to_contain_text(f"Step {number}")
    expect(status).to_contain_text(f"{100 * listed.iloc[1]['accuracy']:.1f}%")
    lab.screenshot(page.locator(".tcnaps-explorer").first, "explorer-stepper")
    page.locator(".tcnaps-close").click()
    expect(page.locator(".tcnaps-stepper")).to_have_count(0)
    assert not page.console_errors
