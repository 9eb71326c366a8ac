"""The stepper in a real browser: what it shows after clicks, keys and haste is what the library computes."""

import re

import pytest
from playwright.sync_api import expect
from servers import PATIENCE

from tcnaps_suite.widgets import stepper_data
from tcnaps_suite.widgets.episode_table import at_step
from tcnaps_suite.widgets.stepper_data import features_of

NOTEBOOK = "12-stepper"


def trajectory_of(study, features, head=None, identity_weight=1.0):
    if head is not None:
        head = stepper_data.with_head(features.head, head, identity_weight)
    return stepper_data.run(features, head, study.refinement.recorded_steps)


def stepper_of(page):
    """The widget, once it shows something."""
    view = page.locator(".tcnaps-stepper")
    view.locator(".tcnaps-status").filter(has_text=re.compile(r"Step \d+ of")).wait_for()
    view.locator(".tcnaps-plane-picture").scroll_into_view_if_needed()
    return view


def shows(view, features, found, step, minimum, maximum):
    """Waits until the widget says what the library says: status, verdict, and the table of changes."""
    expect(view.locator(".tcnaps-status")).to_have_text(stepper_data.status(found, step), timeout=PATIENCE)
    expect(view.locator(".tcnaps-about")).to_contain_text(stepper_data.described(features))
    expect(view.locator(".tcnaps-verdict")).to_contain_text(stepper_data.verdict(found, minimum, maximum)[1])
    frame = at_step(found.rows, step)
    frame = frame[frame["changed"]].sort_values(["outcome", "query"])
    # The table arrives after the status, and an old one may have as many rows: wait for its numbers.
    parts = [
        (f"{row.confidence_before:.2f}", f"{row.confidence:.2f}", row.outcome, row.query) for row in frame.itertuples()
    ]
    rows = [re.compile(rf"^\s*{query}\b.*" + ".*".join(map(re.escape, rest)), re.DOTALL) for *rest, query in parts]
    expect(view.locator(".tcnaps-changes tbody tr")).to_have_text(rows, use_inner_text=True, timeout=PATIENCE)
    for name in ("plane-picture", "curves"):
        image = view.locator(f".tcnaps-{name} .xstage img")
        assert image.evaluate("image => image.complete && image.naturalWidth > 0 && image.alt"), name
    assert not view.locator(".jupyter-widgets-error-widget").count()


def choose(view, name, label):
    view.locator(f".tcnaps-{name} select").select_option(label=label)


@pytest.mark.parametrize("site", ["lab", "notebook7"])
def test_stepping_through_an_episode(site, study, request):
    opened = request.getfixturevalue(site)
    page = opened.open(
        NOTEBOOK, variant="Transductive", evaluation="variable", dataset="digits", episode=1, height=1000
    )
    view, limits = stepper_of(page), study.refinement.limits
    features = features_of(study, "Transductive", "variable", "digits", 1)
    found = trajectory_of(study, features)
    shows(view, features, found, 0, *limits)
    assert f"accuracy {100 * found.steps['accuracy'][0]:.1f}%" in opened.answer(page)
    for step in range(1, 4):
        before = view.locator(".tcnaps-plane-picture").screenshot(), view.locator(".tcnaps-curves").screenshot()
        view.locator(".tcnaps-forward").click()
        shows(view, features, found, step, *limits)
        assert view.locator(".tcnaps-curves").screenshot() != before[1]
    opened.screenshot(page, f"stepper-{site}")
    view.locator(".tcnaps-back").click()
    shows(view, features, found, 2, *limits)
    view.locator(".tcnaps-converge").click()
    shows(view, features, found, stepper_data.convergence(found), *limits)
    view.locator(".tcnaps-first").click()
    shows(view, features, found, 0, *limits)
    view.locator(".tcnaps-answer").click()
    shows(view, features, found, stepper_data.verdict(found, *limits)[0], *limits)


def test_settings_and_episodes(lab, study):
    page = lab.open(NOTEBOOK, variant="Simple", evaluation="variable", dataset="digits", episode=0, height=1000)
    view, limits = stepper_of(page), study.refinement.limits
    features = features_of(study, "Simple", "variable", "digits", 0)
    view.locator(".tcnaps-forward").click()
    for head in stepper_data.HEADS:
        choose(view, "head", head)
        shows(view, features, trajectory_of(study, features, head), 1, *limits)
    # The keyboard: the slider's handle takes the focus, arrow keys move it.
    view.locator(".tcnaps-identity-weight .noUi-handle").press("ArrowRight")
    choose(view, "head", "Mahalanobis")
    shows(view, features, trajectory_of(study, features, "Mahalanobis", 10**0.1), 1, *limits)
    view.locator(".tcnaps-minimum .noUi-handle").press("ArrowLeft")
    found = trajectory_of(study, features, "Mahalanobis", 10**0.1)
    shows(view, features, found, 1, limits[0] - 1, limits[1])
    view.locator(".tcnaps-step .noUi-handle").press("ArrowRight")
    shows(view, features, found, 2, limits[0] - 1, limits[1])
    # Another episode, by number and by menu; the way to a mixture brings its own head.
    view.locator(".tcnaps-episode input").fill("2")
    view.locator(".tcnaps-episode input").press("Enter")
    features = features_of(study, "Simple", "variable", "digits", 2)
    shows(view, features, trajectory_of(study, features, "Mahalanobis", 10**0.1), 0, limits[0] - 1, limits[1])
    choose(view, "variant", "GMM")
    features = features_of(study, "GMM", "variable", "digits", 2)
    shows(view, features, trajectory_of(study, features), 0, limits[0] - 1, limits[1])
    assert view.locator(".tcnaps-head select").input_value() == "log-determinant"
    # The cell run again shows what it showed.
    lab.run_all(page)
    view = stepper_of(page)
    shows(view, features, trajectory_of(study, features), 0, limits[0] - 1, limits[1])


def test_the_read_only_version_steps_too(voila, study):
    page = voila.open(NOTEBOOK)
    view = stepper_of(page)
    for name, label in (("variant", "FEOT"), ("evaluation", "5-way-1-shot-3"), ("dataset", "digits")):
        choose(view, name, label)
    view.locator(".tcnaps-episode input").fill("1")
    view.locator(".tcnaps-episode input").press("Enter")
    features = features_of(study, "FEOT", "5-way-1-shot-3", "digits", 1)
    expect(view.locator(".tcnaps-about")).to_contain_text(stepper_data.described(features), timeout=PATIENCE)
    view.locator(".tcnaps-first").click()
    view.locator(".tcnaps-forward").click()
    found = trajectory_of(study, features)
    shows(view, features, found, 1, *study.refinement.limits)
    assert not page.console_errors
    voila.screenshot(page, "stepper-voila")


@pytest.mark.parametrize("site", ["lab", "notebook7", "voila"])
def test_the_plane_is_alive(site, request):
    opened = request.getfixturevalue(site)
    page = opened.open(NOTEBOOK, height=1000)
    view = stepper_of(page)
    plane, marked = view.locator(".tcnaps-plane-picture"), view.locator(".tcnaps-changes tr:has(.xmarked)")
    card, stage, pressed = plane.locator(".xcard"), plane.locator(".xstage"), plane.locator("[aria-pressed=true]")
    choose(view, "which", "all")
    # A query that nothing covers: the one farthest to the right.
    query = plane.locator(".xdot[aria-label^=Query]").evaluate_all(
        "dots => dots.sort((a, b) => b.cx.baseVal.value - a.cx.baseVal.value)[0].getAttribute('aria-label')"
    )
    number, dot = re.match(r"Query (\d+)", query)[1], plane.get_by_label(query, exact=True)
    expect(card).to_be_hidden()
    dot.hover()
    expect(card).to_contain_text(f"Query {number}")
    assert card.locator("img").evaluate("image => image.naturalWidth > 0") and card.locator(".xbar i").count() > 1
    # A click marks dot and row, Escape takes the mark away; a click on the row marks the dot.
    dot.click()
    expect(marked).to_contain_text(number)
    expect(marked).to_be_in_viewport()
    expect(plane.locator(".xring")).to_be_visible()
    opened.screenshot(page, f"plane-{site}")
    page.keyboard.press("Escape")
    expect(marked).to_have_count(0)
    expect(pressed).to_have_count(0)
    row = view.locator(".tcnaps-changes tbody tr").last
    last = row.locator("img").get_attribute("alt").removeprefix("query image ")
    row.click()
    expect(marked).to_contain_text(last)
    expect(pressed).to_have_attribute("aria-label", re.compile(rf"Query {last},"))
    # The mark survives steps, which playing takes one after the other.
    view.locator(".tcnaps-play button").first.click()
    expect(view.locator(".tcnaps-status")).to_contain_text(re.compile(r"Step [2-9] of"), timeout=PATIENCE)
    view.locator(".tcnaps-play button").first.click()
    expect(pressed).to_have_attribute("aria-label", re.compile(rf"Query {last},"))
    expect(marked).to_contain_text(last)
    # Zoom: a dot keeps its place over the picture; dragging moves both, and is no click.
    plane.get_by_role("button", name="+", exact=True).click()
    expect(stage).to_have_attribute("style", re.compile(r"scale\(1\.5\)"))
    middle, before = plane.locator(".xframe").bounding_box(), stage.bounding_box()
    page.mouse.move(middle["x"] + middle["width"] / 2, middle["y"] + middle["height"] / 2)
    page.mouse.down()
    page.mouse.move(middle["x"] + middle["width"] / 2 + 40, middle["y"] + middle["height"] / 2 + 30, steps=3)
    page.mouse.up()
    moved = stage.bounding_box()
    assert (moved["x"] - before["x"], moved["y"] - before["y"]) == pytest.approx((40, 30), abs=1)
    expect(pressed).to_have_attribute("aria-label", re.compile(rf"Query {last},"))
    plane.get_by_role("button", name="Reset").click()
    expect(stage).to_have_attribute("style", re.compile(r"scale\(1\)"))
    assert stage.bounding_box()["width"] == pytest.approx(before["width"] / 1.5, abs=1)
    assert site == "notebook7" or not page.console_errors


def test_dots_and_marks_with_the_keyboard_alone(lab):
    page = lab.open(NOTEBOOK, height=1000)
    view = stepper_of(page)
    plane = view.locator(".tcnaps-plane-picture")
    plane.locator(".xdot[tabindex='0']").focus()
    where = "[document.activeElement.cx.baseVal.value, document.activeElement.cy.baseVal.value]"
    for key, axis, sign in (("ArrowRight", 0, 1), ("ArrowRight", 0, 1), ("ArrowLeft", 0, -1), ("ArrowDown", 1, 1)):
        before = page.evaluate(where)
        page.keyboard.press(key)
        assert sign * (page.evaluate(where)[axis] - before[axis]) > 0
        expect(plane.locator(".xcard")).to_be_visible()
    page.keyboard.press("Enter")
    expect(plane.locator("[aria-pressed=true]")).to_be_focused()
    page.keyboard.press("Enter")
    expect(plane.locator("[aria-pressed=true]")).to_have_count(0)
    # Ctrl and the wheel zoom where the mouse is, and a dot that takes the focus comes into sight.
    dot, frame = plane.locator(".xdot").first, plane.locator(".xframe")
    dot.hover(force=True)
    before = dot.bounding_box()
    page.keyboard.down("Control")
    for _ in range(8):
        page.mouse.wheel(0, -100)
    page.keyboard.up("Control")
    expect(plane.locator(".xstage")).to_have_attribute("style", re.compile(r"scale\(7\.38"))
    assert centre(dot.bounding_box()) == pytest.approx(centre(before), abs=7.4)  # a pixel of the mouse, enlarged
    for _ in range(12):
        page.keyboard.press("ArrowDown")
        at, inside = centre(page.locator(":focus").bounding_box()), frame.bounding_box()
        assert 0 <= at[0] - inside["x"] <= inside["width"] and 0 <= at[1] - inside["y"] <= inside["height"]
    # Both pictures stay side by side here, and the plane grows in a larger window.
    curves = view.locator(".tcnaps-curves").bounding_box()
    narrow = plane.bounding_box()
    assert curves["y"] == narrow["y"] and curves["x"] >= narrow["x"] + narrow["width"] and narrow["width"] > 440
    page.set_viewport_size({"width": 1920, "height": 1080})
    page.wait_for_function("document.querySelector('.tcnaps-plane-picture').clientWidth >= 700")


def centre(box):
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
