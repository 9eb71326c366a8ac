"""The stepper as a user drives it, without a browser: buttons, sliders and menus, fast and in odd orders."""

import random
import re
import threading
from io import BytesIO

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from PIL import Image
from stepper_study import place, write_networks
from test_stepper_data import planted

from tcnaps.training.checkpoints import CheckpointError, checkpoint_folder
from tcnaps.widgets import episode_features as materials, stepper, stepper_data as stepping, widget_base as parts
from tcnaps.widgets.stepper_widget import Stepper, changes_table


@pytest.fixture(scope="module")
def networks(tmp_path_factory):
    root = tmp_path_factory.mktemp("root")
    with pytest.MonkeyPatch.context() as patch:
        write_networks(place(patch, root))
    return root


@pytest.fixture
def study(networks, monkeypatch):
    monkeypatch.setattr(parts, "_KEPT", {})
    return place(monkeypatch, networks)


def words(place):
    return re.sub(r"<[^>]+>", "", place.value).replace("&#x27;", "'").replace("&nbsp;", " ")


def check(view):
    """Whatever was done to it: what the widget shows is what the library computes for what is chosen."""
    choice, material, controls = view.choice, view.material, view.controls
    assert view.notice.error is None, view.notice.value
    assert controls.read(choice) == choice and controls.slider.value == choice.step
    assert (material.variant.name, material.evaluation, material.dataset, material.episode) == (
        choice.variant,
        choice.evaluation,
        choice.dataset,
        choice.episode,
    )
    head = stepping.with_head(material.head, choice.head, choice.identity_weight)
    found = stepping.run(material, head, view.study.refinement.recorded_steps, choice.plane)
    assert (view.trajectory.labels == found.labels).all()
    np.testing.assert_allclose(view.trajectory.view.points, found.view.points)
    assert words(view._status) == stepping.status(found, choice.step)
    assert stepping.verdict(found, choice.minimum, choice.maximum).words in words(view._verdict)
    assert stepping.described(material) in words(view._about)
    assert stepping.about(material.variant) in words(view._about)
    assert view._changes.value == changes_table(material, found, choice.step, choice.which)
    for image in (view._plane, view._curves, view._legend):
        assert Image.open(BytesIO(image.value)).width == 2 * int(image.layout.width.removesuffix("px"))


def test_it_opens_the_first_episode_at_step_0(study):
    view = stepper(study)
    assert isinstance(view, Stepper) and "tcnaps-stepper" in view._dom_classes
    choice = view.choice
    assert (choice.variant, choice.evaluation, choice.dataset, choice.episode, choice.step) == (
        "Transductive",
        "variable",
        "blobs",
        0,
        0,
    )
    assert (choice.head, choice.identity_weight, choice.minimum, choice.maximum) == ("Mahalanobis", 1.0, 2, 3)
    assert not view.work.busy
    check(view)


def test_buttons_and_slider_agree(study):
    view = stepper(study)
    controls = view.controls
    shown = view._plane.value
    controls.step.click()
    assert view.choice.step == controls.slider.value == 1 and view._plane.value != shown
    check(view)
    controls.slider.value = 3
    check(view)
    controls.back.click()
    assert controls.slider.value == 2
    controls.first.click()
    assert controls.slider.value == 0
    controls.back.click()  # there is nothing before
    assert controls.slider.value == 0
    for _ in range(9):
        controls.step.click()
    assert controls.slider.value == study.refinement.recorded_steps
    check(view)
    controls.converge.click()
    assert view.choice.step == stepping.convergence(view.trajectory).step
    controls.stop.click()
    assert view.choice.step == stepping.verdict(view.trajectory, 2, 3).step
    check(view)


def test_heads_and_sliders_recompute_at_once(study):
    view = stepper(study, evaluation="5-way-1-shot")
    controls = view.controls
    controls.step.click()
    for name in stepping.HEADS:
        controls.head.value = name
        check(view)
    before = view._plane.value
    controls.identity_weight.value = 10.0
    assert view._plane.value != before and view.choice.step == 1
    check(view)
    for control, values in (
        (controls.minimum, (0, 4, 1)),
        (controls.maximum, (0, 4, 1)),
        (controls.plane, stepping.PLANES),
        (controls.show, (True, False)),
        (controls.which, ("all", "wrong")),
    ):
        for value in values:
            control.value = value
            check(view)


def test_variants_without_refinement_answer_at_step_0_and_bring_their_head(study):
    view = stepper(study, "Simple")
    view.controls.slider.value = 3
    view.controls.stop.click()
    assert view.choice.step == 0 and "does not refine" in words(view._about) and "COT" in words(view._about)
    view.controls.head.value = "Euclidean"
    view.controls.step.click()
    view.controls.variant.value = "COT"  # the same networks: everything else stays
    view.work.wait()
    assert view.choice.head == "Euclidean" and view.choice.step == 1
    view.controls.variant.value = "GMM"  # others: their own head
    view.work.wait()
    assert view.choice.head == "log-determinant" and view.choice.step == 1
    check(view)


def test_another_episode_starts_at_step_0_and_another_evaluation_brings_its_datasets(study):
    view = stepper(study, dataset="others", episode=2)
    view.controls.slider.value = 2
    view.controls.episode.value = 5
    view.work.wait()
    assert view.choice.step == 0 and view.material.episode == 5
    check(view)
    view.controls.evaluation.value = "5-way-1-shot"  # has no dataset 'others'
    view.work.wait()
    assert view.controls.dataset.options == ("blobs",) and view.material.dataset == "blobs"
    check(view)
    view.show_episode("FEOT", "variable", "others", 1)
    view.work.wait()
    check(view)
    assert view.material.variant.name == "FEOT" and view.controls.dataset.options == ("blobs", "others")
    with pytest.raises(ValueError, match="no dataset 'x'"):
        view.show_episode("FEOT", "variable", "x", 1)


def test_a_cell_run_again_shows_what_it_showed(study):
    first = stepper(study, evaluation="5-way-1-shot")
    first.controls.episode.value = 2
    first.work.wait()
    first.controls.slider.value = 3
    first.controls.head.value = "means only"
    first.controls.identity_weight.value = 2.0
    first.controls.show.value = True
    again = stepper(study, evaluation="5-way-1-shot")
    assert again is not first and again.choice == first.choice and again.choice.step == 3
    assert again.material.query_features is first.material.query_features  # not computed again
    check(again)
    again.controls.step.click()
    check(first)  # a view still on the page stays whole
    assert first.choice.step == 3
    other = stepper(study, evaluation="5-way-1-shot", episode=1)
    assert other.choice.step == 0 and other.choice.episode == 1


def test_wrong_arguments_are_errors(study):
    for arguments, message in (
        ({"variant": "Transductve"}, "no variant 'Transductve'"),
        ({"evaluation": "x"}, "no evaluation 'x'"),
        ({"dataset": "x"}, "no dataset 'x'"),
        ({"episode": -2}, "counted from 0"),
    ):
        with pytest.raises(ValueError, match=message):
            stepper(study, **arguments)


def test_a_missing_network_shows_with_the_remedy_and_the_rest_goes_on(study, networks):
    view = stepper(study, "Simple")
    check(view)
    path = checkpoint_folder(study) / "support_log_determinant.safetensors"
    weights = path.read_bytes()
    path.unlink()
    try:
        view.controls.variant.value = "GMM"
        view.work.wait()
        assert isinstance(view.notice.error, CheckpointError) and "03-meta-train" in view.notice.value
        assert view.controls.variant.value == "Simple" and view.choice.variant == "Simple"  # what is shown
        view.controls.step.click()
        check(view)
        broken = stepper(study, "GMM", episode=1)
        assert isinstance(broken.notice.error, CheckpointError) and broken.material is None
        assert "Nothing to show yet" in broken._status.value and broken._body.layout.display == "none"
        for button in (broken.controls.step, broken.controls.converge, broken.controls.stop, broken.controls.first):
            button.click()
        broken.controls.head.value = "Euclidean"
        broken.controls.slider.value = 2
        broken.controls.show.value = True
    finally:
        path.write_bytes(weights)
    broken.controls.variant.value = "COT GMM"
    broken.work.wait()
    check(broken)
    assert broken._body.layout.display == ""


def test_loading_can_be_cancelled_and_the_controls_return_to_what_is_shown(study, monkeypatch):
    view = stepper(study)
    gate, original = threading.Event(), materials.load_episode

    def slow(*arguments):
        assert gate.wait(20)
        return original(*arguments)

    monkeypatch.setattr(materials, "load_episode", slow)
    view.controls.dataset.value = "others"
    assert view.work.busy and view.controls.dataset.value == "others"
    view.controls.step.click()  # what is shown can still be stepped through
    assert view.choice.step == 1
    view.work._cancel.click()
    assert not view.work.busy and view.controls.dataset.value == "blobs"
    gate.set()
    view.work.wait()
    check(view)
    assert view.choice.step == 1 and view.material.dataset == "blobs"


def test_an_error_in_a_callback_shows_and_the_next_success_clears_it(study, monkeypatch):
    view = stepper(study)
    with monkeypatch.context() as patch:
        patch.setattr(stepping, "run", lambda *_: 1 / 0)
        view.controls.head.value = "Euclidean"
        assert isinstance(view.notice.error, ZeroDivisionError)
    view.controls.head.value = "means only"
    check(view)


@pytest.mark.parametrize("seed", range(2))
def test_driven_fast_and_in_odd_orders_it_ends_consistent(study, seed):
    generator, look = random.Random(seed), matplotlib.rcParams["font.size"]
    view = stepper(study, "Simple")
    controls = view.controls
    pick = generator.choice
    actions = [
        *(button.click for button in (controls.first, controls.back, controls.step, controls.converge, controls.stop)),
        lambda: setattr(controls.slider, "value", generator.randint(0, 4)),
        lambda: setattr(controls.identity_weight, "value", 10 ** generator.uniform(-2, 2)),
        lambda: setattr(controls.head, "value", pick(list(stepping.HEADS))),
        lambda: setattr(controls.plane, "value", pick(stepping.PLANES)),
        lambda: setattr(controls.minimum, "value", generator.randint(0, 4)),
        lambda: setattr(controls.maximum, "value", generator.randint(0, 4)),
        lambda: setattr(controls.show, "value", pick([True, False])),
        lambda: setattr(controls.which, "value", pick(["changed", "wrong", "all"])),
        lambda: setattr(controls.variant, "value", pick(controls.variant.options)),
        lambda: setattr(controls.evaluation, "value", pick(controls.evaluation.options)),
        lambda: setattr(controls.dataset, "value", pick(controls.dataset.options)),
        lambda: setattr(controls.episode, "value", generator.randint(0, 3)),
        view.work._cancel.click,
    ]
    for _ in range(40):
        pick(actions)()
        assert view.notice.error is None, view.notice.value
    view.work.wait()
    check(view)
    assert plt.get_fignums() == [] and matplotlib.rcParams["font.size"] == look


def test_the_table_names_classes_confidences_and_outcomes():
    material = planted()
    object.__setattr__(material, "class_names", ("<cats>", "a dog", "mice"))
    found = stepping.run(material, steps=6)
    frame = stepping.changes(material, found, 1)
    table = changes_table(material, found, 1, "changed")
    assert table.count("<tr>") == 1 + len(frame) and table.count("data:image/png;base64,") == len(frame)
    row = frame.iloc[0]
    name = material.class_names[row["true"]].replace("<", "&lt;").replace(">", "&gt;")
    assert f"{'ABC'[row['true']]}:&nbsp;{name}" in table and f"{row['confidence_after']:.2f}" in table
    for outcome, own in frame.groupby("outcome", observed=True):
        sign = "✓" if outcome == "became right" else "✗"  # not by colour alone
        assert table.count(f"{sign}&nbsp;{outcome}") == len(own)
    assert "<cats>" not in table
    assert "Step 0 is the first" in changes_table(material, found, 0, "changed")
    quiet = next(step for step in range(1, 7) if not found.changed[step].any())
    assert "No label changed" in changes_table(material, found, quiet, "changed")


def test_a_long_table_is_cut_and_says_so_and_nothing_wrong_is_said_too():
    material = planted(n_query=30)
    found = stepping.run(material, steps=1)
    assert "… and 30 more" in changes_table(material, found, 1, "all")
    easy = planted(spread=0.01)
    assert "No query is wrong" in changes_table(easy, stepping.run(easy, steps=1), 1, "wrong")


def test_every_control_has_a_description_and_a_tooltip(study):
    controls = stepper(study).controls
    for control in (
        *controls.of_episode,
        *controls.of_head,
        *controls.of_drawing,
        controls.slider,
        controls.first,
        controls.back,
        controls.step,
        controls.converge,
        controls.stop,
    ):
        assert control.description and control.tooltip, control


def test_the_stepper_stays_a_function_whatever_is_imported():
    import tcnaps.widgets.stepper_widget  # noqa: F401
    from tcnaps import widgets

    assert callable(widgets.stepper) and torch.is_grad_enabled()
