"""The stepper in a real browser: what it shows after clicks, keys and haste is what the library computes."""

import random
import re

import pytest
from playwright.sync_api import expect
from servers import PATIENCE

from tcnaps.widgets import stepper_data as stepping
from tcnaps.widgets.episode_features import FeatureCache

NOTEBOOK = "12-stepper"


def material_of(study, variant, evaluation, dataset, episode):
    making = FeatureCache(study).material(variant, evaluation, dataset, episode)
    while True:
        try:
            next(making)
        except StopIteration as end:
            return end.value


def trajectory_of(study, material, head=None, identity_weight=1.0):
    if head is not None:
        head = stepping.with_head(material.head, head, identity_weight)
    return stepping.run(material, head, study.refinement.recorded_steps)


def stepper_of(page):
    """The widget, once it shows something."""
    view = page.locator(".tcnaps-stepper")
    view.locator(".tcnaps-status").filter(has_text=re.compile(r"Step \d+ of")).wait_for()
    view.locator(".tcnaps-plane").scroll_into_view_if_needed()
    return view


def shows(view, material, found, step, minimum, maximum):
    """Waits until the widget says what the library says: status, verdict, and the table of changes."""
    expect(view.locator(".tcnaps-status")).to_have_text(stepping.status(found, step), timeout=PATIENCE)
    expect(view.locator(".tcnaps-about")).to_contain_text(stepping.described(material))
    expect(view.locator(".tcnaps-verdict")).to_contain_text(stepping.verdict(found, minimum, maximum).words)
    frame = stepping.changes(material, found, step)
    rows = view.locator(".tcnaps-changes tbody tr")
    expect(rows).to_have_count(len(frame))
    for row, text in zip(frame.itertuples(), rows.all_inner_texts(), strict=True):
        words = re.sub(r"\s+", " ", text)
        assert words.startswith(str(row.query)) and row.outcome in words, words
        assert f"{row.confidence_before:.2f}" in words and f"{row.confidence_after:.2f}" in words, words
    for name in ("plane", "curves", "legend"):
        image = view.locator(f".tcnaps-{name}")
        assert image.evaluate("image => image.complete && image.naturalWidth > 0"), name
    assert not view.locator(".jupyter-widgets-error-widget").count()


def choose(view, name, label):
    view.locator(f".tcnaps-{name} select").select_option(label=label)


@pytest.mark.parametrize("site", ["lab", "notebook7"])
def test_stepping_through_an_episode(site, study, request):
    opened = request.getfixturevalue(site)
    page = opened.open(
        NOTEBOOK, variant="Transductive", evaluation="variable", dataset="digits", episode=1, episodes=2, height=1000
    )
    view, rule = stepper_of(page), study.refinement
    limits = rule.minimum_steps, rule.maximum_steps
    material = material_of(study, "Transductive", "variable", "digits", 1)
    found = trajectory_of(study, material)
    shows(view, material, found, 0, *limits)
    assert f"accuracy {100 * found.accuracy[0]:.1f}%" in opened.answer(page)
    for step in range(1, 4):
        before = view.locator(".tcnaps-plane").screenshot(), view.locator(".tcnaps-curves").screenshot()
        view.locator(".tcnaps-step").click()
        shows(view, material, found, step, *limits)
        assert view.locator(".tcnaps-curves").screenshot() != before[1]
    opened.screenshot(page, f"stepper-{site}")
    view.locator(".tcnaps-back").click()
    shows(view, material, found, 2, *limits)
    view.locator(".tcnaps-converge").click()
    shows(view, material, found, stepping.convergence(found).step, *limits)
    view.locator(".tcnaps-first").click()
    shows(view, material, found, 0, *limits)
    view.locator(".tcnaps-answer").click()
    shows(view, material, found, stepping.verdict(found, *limits).step, *limits)


def test_settings_episodes_and_pictures(lab, study):
    page = lab.open(
        NOTEBOOK, variant="Simple", evaluation="variable", dataset="digits", episode=0, episodes=2, height=1000
    )
    view, rule = stepper_of(page), study.refinement
    limits = rule.minimum_steps, rule.maximum_steps
    material = material_of(study, "Simple", "variable", "digits", 0)
    view.locator(".tcnaps-step").click()
    for head in stepping.HEADS:
        choose(view, "head", head)
        shows(view, material, trajectory_of(study, material, head), 1, *limits)
    plane = view.locator(".tcnaps-plane").screenshot()
    choose(view, "show", "pictures")
    page.wait_for_function(
        "size => document.querySelector('.tcnaps-stepper .tcnaps-plane').src !== size",
        arg=view.locator(".tcnaps-plane").get_attribute("src"),
    )
    page.wait_for_timeout(300)
    assert view.locator(".tcnaps-plane").screenshot() != plane
    lab.screenshot(page, "stepper-pictures")
    # The keyboard: the slider's handle takes the focus, arrow keys move it.
    view.locator(".tcnaps-identity-weight .noUi-handle").press("ArrowRight")
    choose(view, "head", "Mahalanobis")
    shows(view, material, trajectory_of(study, material, "Mahalanobis", 10**0.1), 1, *limits)
    view.locator(".tcnaps-minimum .noUi-handle").press("ArrowLeft")
    found = trajectory_of(study, material, "Mahalanobis", 10**0.1)
    shows(view, material, found, 1, limits[0] - 1, limits[1])
    view.locator(".tcnaps-slider .noUi-handle").press("ArrowRight")
    shows(view, material, found, 2, limits[0] - 1, limits[1])
    # Another episode, by number and by menu; the way to a mixture brings its own head.
    view.locator(".tcnaps-episode input").fill("2")
    view.locator(".tcnaps-episode input").press("Enter")
    material = material_of(study, "Simple", "variable", "digits", 2)
    shows(view, material, trajectory_of(study, material, "Mahalanobis", 10**0.1), 0, limits[0] - 1, limits[1])
    choose(view, "variant", "GMM")
    material = material_of(study, "GMM", "variable", "digits", 2)
    shows(view, material, trajectory_of(study, material), 0, limits[0] - 1, limits[1])
    assert view.locator(".tcnaps-head select").input_value() == "log-determinant"
    # The cell run again shows what it showed.
    lab.run_all(page)
    view = stepper_of(page)
    shows(view, material, trajectory_of(study, material), 0, limits[0] - 1, limits[1])


def test_clicked_in_haste_and_in_odd_orders(lab, study):
    page = lab.open(NOTEBOOK, variant="Transductive", evaluation="variable", dataset="digits", episode=0, episodes=2)
    view, generator = stepper_of(page), random.Random(1)
    for _ in range(25):
        view.locator(f".tcnaps-{generator.choice(['first', 'back', 'step', 'step', 'converge', 'answer'])}").click()
        if generator.random() < 0.3:
            choose(view, "head", generator.choice(list(stepping.HEADS)))
        if generator.random() < 0.2:
            choose(view, "dataset", generator.choice(["textures", "digits"]))
    choose(view, "dataset", "textures")
    choose(view, "head", "Euclidean")
    material = material_of(study, "Transductive", "variable", "textures", 0)
    found = trajectory_of(study, material, "Euclidean")
    expect(view.locator(".tcnaps-about")).to_contain_text("textures, variable, episode 0", timeout=PATIENCE)
    expect(view.locator(".tcnaps-work")).to_be_hidden()
    view.locator(".tcnaps-first").click()
    view.locator(".tcnaps-step").click()
    shows(view, material, found, 1, study.refinement.minimum_steps, study.refinement.maximum_steps)
    assert not page.console_errors


def test_the_read_only_version_steps_too(voila, study):
    page = voila.open(NOTEBOOK)
    view = stepper_of(page)
    for name, label in (("variant", "FEOT"), ("evaluation", "5-way-1-shot-3"), ("dataset", "digits")):
        choose(view, name, label)
    view.locator(".tcnaps-episode input").fill("1")
    view.locator(".tcnaps-episode input").press("Enter")
    material = material_of(study, "FEOT", "5-way-1-shot-3", "digits", 1)
    expect(view.locator(".tcnaps-about")).to_contain_text(stepping.described(material), timeout=PATIENCE)
    view.locator(".tcnaps-first").click()
    view.locator(".tcnaps-step").click()
    found = trajectory_of(study, material)
    shows(view, material, found, 1, study.refinement.minimum_steps, study.refinement.maximum_steps)
    voila.screenshot(page, "stepper-voila")
