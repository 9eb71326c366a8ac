"""The stepper as a user drives it, without a browser: buttons, sliders and menus, in odd orders, too."""

import random
import re

import numpy as np
import pytest
from driving import click, set_to, words
from stepper_study import place, planted, write_networks

from tcnaps.config import UserError
from tcnaps.figures.clustering import last_step
from tcnaps.training.checkpoints import CheckpointError, checkpoint_folder
from tcnaps_suite.widgets import stepper_data, stepper_widget
from tcnaps_suite.widgets.episode_table import at_step
from tcnaps_suite.widgets.stepper_figures import legend, query_table
from tcnaps_suite.widgets.stepper_widget import stepper

# Random networks make small features, and the tests move identity_weight far up.
pytestmark = pytest.mark.filterwarnings("ignore:The features' total variance")


@pytest.fixture(scope="module")
def networks(tmp_path_factory):
    root = tmp_path_factory.mktemp("root")
    with pytest.MonkeyPatch.context() as patch:
        write_networks(place(patch, root))
    return root


@pytest.fixture
def study(networks, monkeypatch):
    """The study; pictures are left out, as drawing takes most of the time."""
    monkeypatch.setattr(stepper_widget, "on_page", lambda figure, text: f"picture: {text}")
    monkeypatch.setattr(stepper_widget.Stepper, "figure", lambda self: None)
    return place(monkeypatch, networks)


def check(view):
    """Whatever was done to it: what the widget shows is what the library computes for what is chosen."""
    choice, features = view.choice, view.features
    assert view.error is None, view.notice.value
    chosen = choice.variant, (choice.evaluation, choice.dataset, choice.episode)
    assert (features.variant.name, features.place) == chosen
    head = stepper_data.with_head(features.head, choice.head, choice.identity_weight, choice.scale)
    expected = stepper_data.run(features, head, view.study.refinement.recorded_steps)
    assert view.trajectory.rows.equals(expected.rows)
    np.testing.assert_allclose(view.trajectory.view.points, expected.view.points)
    status = stepper_data.status(expected, choice.step)
    assert words(view._status) == status and status in view._picture.value
    assert stepper_data.verdict(expected, choice.minimum, choice.maximum)[1] in words(view._verdict)
    assert stepper_data.described(features) == words(view._about)
    queries = at_step(expected.rows, choice.step)
    shown = features, expected.view, choice.step, queries, choice.which, choice.query
    assert view._table.value == query_table(*shown)


def test_it_opens_at_step_0_with_the_studys_settings_and_buttons_and_slider_agree(study):
    view = stepper(study)
    choice = view.choice
    opened = choice.variant, choice.evaluation, choice.dataset, choice.episode, choice.step
    assert opened == ("Transductive", "5-way-1-shot", "blobs", 0, 0)
    assert (choice.head, choice.identity_weight, choice.minimum, choice.maximum) == ("Mahalanobis", 1.0, 2, 3)
    check(view)
    for names, step in ((["forward"], 1), (["first"], 0), (["back"], 0), (["forward"] * 9, 4), (["back"], 3)):
        click(view, *names)
        assert view.choice.step == step
        check(view)
    click(view, "converge")
    assert view.choice.step == last_step(view.trajectory.view.responsibilities)
    click(view, "answer")
    assert view.choice.step == stepper_data.verdict(view.trajectory, 2, 3)[0]
    check(view)


def test_heads_sliders_and_a_marked_query_recompute_at_once(study):
    view = stepper(study, evaluation="5-way-1-shot")
    set_to(view, step=1, identity_weight=10.0, query=3)
    settings = {"head": stepper_data.HEADS, "minimum": (0, 4), "maximum": (1,), "which": ("all", "wrong")}
    for name, value in ((name, value) for name, values in settings.items() for value in values):
        set_to(view, **{name: value})
        check(view)
    assert view._table.value.count("xmarked") == 1
    set_to(view, episode=1)
    assert view.choice.query is None and view.choice.step == 0
    check(view)


def test_each_head_brings_its_scale_which_the_slider_changes(study):
    view = stepper(study)
    assert view.choice.scale == 1
    before = view.trajectory.rows["confidence_0"]
    set_to(view, scale=0.25)
    assert (view.trajectory.rows["confidence_0"] < before).all()
    check(view)
    set_to(view, head="log-determinant")
    assert view.choice.scale == 0.5
    for scale, head in (("auto", "as in the study"), (0.3, "as in the study")):
        settings = study.clustering.model_copy(update={"scale": scale})
        view = stepper(study.model_copy(update={"clustering": settings}))
        assert view.choice.head == head and view.controls["scale"].disabled == (scale == "auto")
        assert stepper_data.run(view.features, view.features.head, 4).rows.equals(view.trajectory.rows)
    set_to(view, head="Euclidean")
    assert view.choice.scale == 1 and not view.controls["scale"].disabled
    check(view)


def test_variants_without_refinement_answer_at_step_0_and_trainings_bring_their_head(study):
    view = stepper(study, "Simple")
    set_to(view, step=3)
    click(view, "answer")
    assert view.choice.step == 0 and "does not refine" in words(view._about) and "COT" in words(view._about)
    set_to(view, head="Euclidean")
    click(view, "forward")
    set_to(view, variant="COT")  # the same networks: everything else stays
    assert view.choice.head == "Euclidean" and view.choice.step == 1
    set_to(view, variant="GMM")  # others: their own head
    assert view.choice.head == "log-determinant" and view.choice.step == 1
    check(view)


def test_wrong_arguments_are_errors(study):
    for arguments, name in (
        ({"variant": "Simpel"}, "'Simple'"),
        ({"evaluation": "x"}, "variable"),
        ({"evaluation": "5-way-1-shot", "dataset": "others"}, "blobs"),
        ({"episode": -2}, "-2"),
    ):
        with pytest.raises(ValueError, match=name):
            stepper(study, **arguments)


def test_without_checkpoints_a_box_says_what_to_do_and_code_gets_the_same_error(study):
    view = stepper(study.model_copy(update={"name": "empty"}))
    with pytest.raises(UserError, match="empty"):
        view.shown()


def test_a_missing_network_shows_with_the_remedy_and_another_variant_can_be_chosen(study):
    view = stepper(study, "Simple")
    path = checkpoint_folder(study) / "support_log_determinant.safetensors"
    weights = path.read_bytes()
    path.unlink()
    try:
        set_to(view, variant="GMM")
        assert isinstance(view.error, CheckpointError) and "03-meta-train" in view.notice.value
        assert "Nothing is shown" in view._status.value and view._body.layout.display == "none"
        click(view, "forward", "converge", "answer", "first")
        set_to(view, head="Euclidean", step=2)
        assert view.features is None and view.error is None
    finally:
        path.write_bytes(weights)
    set_to(view, variant="COT GMM")
    check(view)
    assert view._body.layout.display == ""


def test_driven_fast_and_in_odd_orders_it_ends_consistent(study):
    chance = random.Random(0)
    view = stepper(study, "Simple")
    names = [name for name in view.controls if name != "identity_weight"]
    for _ in range(30):
        control = view.controls[chance.choice(names)]
        if hasattr(control, "click"):
            control.click()
        elif hasattr(control, "options"):
            control.index = chance.randrange(len(control.options))
        else:
            control.value = chance.randint(0, 4)
        if chance.random() < 0.2:
            view.controls["identity_weight"].value = 10 ** chance.uniform(-2, 2)
        assert view.error is None, view.notice.value
    check(view)


def test_the_picture_is_shown(networks, monkeypatch):
    study = place(monkeypatch, networks)
    view = stepper(study)
    before = view._picture.value
    set_to(view, step=1, query=0)
    assert before.startswith("<img ") and view._picture.value != before


def test_the_table_names_classes_responsibilities_and_outcomes():
    features = planted(names=("<cats>", "a dog", "mice"))
    trajectory = stepper_data.run(features, steps=6)
    queries = at_step(trajectory.rows, 1)
    changed = queries[queries["changed"]]
    table = query_table(features, trajectory.view, 1, queries, "changed")
    assert table.count("<tr") == 1 + len(changed) == 1 + table.count("data:image/png;base64,")
    listed = [int(query) for query in re.findall(r"<br>(\d+)</td>", table)]
    order = changed.set_index("query").loc[listed, "outcome"].cat.codes
    assert sorted(listed) == sorted(changed["query"]) and order.is_monotonic_increasing
    support = len(features.support_labels)
    for row, query in zip(table.split("<tr>")[1:], listed):
        shares = np.sort(trajectory.view.responsibilities[1][support + query])[::-1]
        assert re.findall(r"</span> ([\d.]+)</nobr>", row) == [f"{share:.2f}" for share in shares]
        sign = "✓" if changed.set_index("query").loc[query, "right"] else "✗"  # not by colour alone
        assert sign in row
    shown = legend([*features.class_names, *(f"class {k}" for k in range(27))])
    assert "<cats>" not in table + shown and "&lt;cats&gt;" in shown and ">AD</span> class 26" in shown


def test_a_table_with_nothing_or_too_much_to_show_says_so():
    many, easy = planted(n_query=30), planted(spread=0.01)
    for features, which, message in (
        (easy, "changed", "No label changed"),
        (easy, "wrong", "No query is wrong"),
        (many, "all", "30 more"),
    ):
        trajectory = stepper_data.run(features, steps=2)
        shown = features, trajectory.view, 1, at_step(trajectory.rows, 1), which
        assert message in query_table(*shown)
        assert query_table(*shown, 2).count("xmarked") == 1
