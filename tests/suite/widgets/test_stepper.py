"""The stepper as a user drives it, without a browser: buttons, sliders and menus, fast and in odd orders."""

import html
import random
import re
from io import BytesIO

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from driving import click, set_to, words
from PIL import Image
from stepper_study import place, planted, write_networks

from tcnaps.config import UserError
from tcnaps.training.checkpoints import CheckpointError, checkpoint_folder
from tcnaps_suite.widgets import stepper, stepper_data, stepper_figures, widget_base
from tcnaps_suite.widgets.episode_table import at_step
from tcnaps_suite.widgets.stepper_figures import changes_table, legend

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
    monkeypatch.setattr(widget_base, "_KEPT", {})
    return place(monkeypatch, networks)


def check(view):
    """Whatever was done to it: what the widget shows is what the library computes for what is chosen."""
    choice, features = view.choice, view.features
    n_support = len(features.support_labels)
    assert view.error is None, view.notice.value
    chosen = choice.variant, (choice.evaluation, choice.dataset, choice.episode)
    assert (features.variant.name, features.place) == chosen
    head = stepper_data.with_head(features.head, choice.head, choice.identity_weight, choice.scale)
    found = stepper_data.run(features, head, view.study.refinement.recorded_steps, choice.plane)
    assert view.trajectory.rows.equals(found.rows)
    np.testing.assert_allclose(view.trajectory.view.points, found.view.points)
    assert words(view._status) == stepper_data.status(found, choice.step)
    assert stepper_data.verdict(found, choice.minimum, choice.maximum)[1] in words(view._verdict)
    assert stepper_data.described(features) == words(view._about)
    at, marked = at_step(found.rows, choice.step), None if choice.mark is None else choice.mark - n_support
    marked = None if marked is None or marked < 0 else marked
    assert view._changes.value == changes_table(features, at, choice.step, choice.which, marked)
    for picture in (view._plane, view._curves):
        assert picture.svg.startswith(b"<?xml") and picture.image.startswith("data:image/svg+xml;base64,")
    assert view._plane.alt == f"The episode's images and classes in a plane. {stepper_data.status(found, choice.step)}"
    assert view._curves.alt == stepper_data.curves_in_words(found.steps)
    cards = stepper_figures.cards(features, found.view, choice.step, at)
    assert [(dot["words"], dot["card"]) for dot in view._plane.dots] == cards
    assert len(view._plane.images) == len(cards) == len(found.view.points)


def test_it_opens_at_step_0_with_the_studys_settings_and_buttons_and_slider_agree(study):
    view = stepper(study)
    choice = view.choice
    place = choice.variant, choice.evaluation, choice.dataset, choice.episode, choice.step
    assert place == ("Transductive", "variable", "blobs", 0, 0)
    assert (choice.head, choice.identity_weight, choice.minimum, choice.maximum) == ("Mahalanobis", 1.0, 2, 3)
    assert all(control.description for name, control in view.controls.items() if name != "mark")
    check(view)
    for names, step in ((["forward"], 1), (["first"], 0), (["back"], 0), (["forward"] * 9, 4), (["back"], 3)):
        shown = view._plane.image
        click(view, *names)
        assert view.choice.step == step and (view._plane.image != shown or names == ["back"])
        check(view)
    click(view, "converge")
    assert view.choice.step == stepper_data.convergence(view.trajectory)
    click(view, "answer")
    assert view.choice.step == stepper_data.verdict(view.trajectory, 2, 3)[0]
    check(view)


def test_heads_and_sliders_recompute_at_once(study):
    view = stepper(study, evaluation="5-way-1-shot")
    click(view, "forward")
    before = view._plane.image
    set_to(view, identity_weight=10.0)
    assert view._plane.image != before and view.choice.step == 1
    settings = {"head": stepper_data.HEADS, "minimum": (0, 4, 1), "maximum": (0, 4, 1), "which": ("all", "wrong")}
    for name, value in ((name, value) for name, values in settings.items() for value in values):
        set_to(view, **{name: value})
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
    check(view)
    own = study.clustering.model_copy(update={"scale": "auto"})
    view = stepper(study.model_copy(update={"clustering": own}))
    assert view.controls["scale"].disabled and view.trajectory is not None
    set_to(view, head="Euclidean")
    assert view.choice.scale == 1 and not view.controls["scale"].disabled
    check(view)


def test_copied_code_makes_the_same_widget_again(study, monkeypatch):
    view = stepper(study, evaluation="5-way-1-shot")
    set_to(view, variant="COT", episode=2, head="Euclidean", identity_weight=3.0, scale=0.5, step=2, maximum=4, mark=9)
    click(view, "copy")
    code, before = view.code(), view.choice
    assert html.escape(code) in view._saved.value and "clipboard" in view._saved.value
    monkeypatch.setattr(widget_base, "_KEPT", {})
    names = {"study": study}
    exec(code, names)
    assert names["view"] is not view and names["view"].choice == before
    check(names["view"])


def test_a_marked_query_has_its_row_at_every_step_until_another_episode_comes(study):
    view = stepper(study, evaluation="5-way-1-shot")
    n_support, unmarked = len(view.features.support_labels), view._changes.value
    assert "data-dot" not in unmarked  # at step 0 no label changes
    set_to(view, mark=n_support + 3)
    for step in range(3):
        set_to(view, step=step)
        assert marked_rows(view) == [n_support + 3]
        check(view)
    set_to(view, which="all")
    assert marked_rows(view) == [n_support + 3]
    assert view._changes.value.count("data-dot") == len(view.features.query_labels)
    set_to(view, mark=0)  # a support image: no row
    assert marked_rows(view) == []
    check(view)
    set_to(view, mark=n_support, variant="COT")  # the same images
    assert view.choice.mark == n_support
    set_to(view, episode=1)
    assert view.choice.mark is None and marked_rows(view) == []
    check(view)


def marked_rows(view):
    """The dots of the rows of the table that are marked."""
    rows = view._changes.value.split("<tr>")
    return [int(re.search(r'data-dot="(\d+)"', row)[1]) for row in rows if "marked" in row]


def test_dots_lie_where_matplotlib_draws_their_points(study):
    view = stepper(study)
    points, (width, height) = view.trajectory.view.points, view._plane.size
    dots = np.array([(dot["x"], dot["y"]) for dot in view._plane.dots])
    saved = view.figure()  # the same plane at the left of a wider figure
    at = saved.axes[0].transData.transform(points) / saved.bbox.height
    np.testing.assert_allclose(dots / height, at * (1, -1) + (0, 1), atol=1e-5)
    assert (dots > 0).all() and (dots < (width, height)).all()


def test_what_is_seen_is_saved_as_png_and_pdf(study):
    view = stepper(study)
    set_to(view, step=1, save_name="of mine")
    click(view, "save")
    folder = study.figures_folder / "views"
    assert (
        Image.open(BytesIO((folder / "of mine.png").read_bytes())).width > 1000
        and (folder / "of mine.pdf").stat().st_size > 5000
    )
    assert "figures/small/views" in view._saved.value and view._saved.value.count("download=") == 2
    set_to(view, save_name="../x")
    click(view, "save")
    assert "no name of a file" in str(view.error)


def test_a_studys_own_scale_is_not_replaced_by_the_papers(study):
    view = stepper(study.model_copy(update={"clustering": study.clustering.model_copy(update={"scale": 0.3})}))
    assert view.choice.head == "as in the study" and view.features.head.scale == 0.3
    assert stepper_data.run(view.features, view.features.head, 4).rows.equals(view.trajectory.rows)


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


def test_another_episode_starts_at_step_0(study):
    view = stepper(study, dataset="others", episode=2)
    set_to(view, step=2, episode=5)
    assert view.choice.step == 0 and view.features.place[2] == 5
    set_to(view, step=2, evaluation="5-way-1-shot")
    assert view.choice.step == 0 and len(view.features.class_names) == 5
    check(view)


def test_a_cell_run_again_shows_what_it_showed_and_notices_new_networks(study):
    view = stepper(study, evaluation="5-way-1-shot")
    set_to(view, episode=2, step=3, head="means only", identity_weight=2.0)
    before, features = view.choice, view.features
    again = stepper(study, evaluation="5-way-1-shot")
    assert again is view and again.choice == before
    assert again.features.query_features is features.query_features  # not computed again
    assert stepper(study, evaluation="5-way-1-shot", episode=1).choice.step == 0
    (checkpoint_folder(study) / "support_and_query.safetensors").touch()
    assert stepper(study, evaluation="5-way-1-shot").features.query_features is not features.query_features


def test_wrong_arguments_are_errors(study):
    for arguments, message in (
        ({"variant": "Simpel"}, "no variant 'Simpel'; did you mean 'Simple'?"),
        ({"evaluation": "x"}, "no evaluation 'x'; known: variable, 5-way-1-shot"),
        ({"evaluation": "5-way-1-shot", "dataset": "others"}, "no dataset 'others'; known: blobs"),
        ({"episode": -2}, "counted from 0"),
    ):
        with pytest.raises(ValueError, match=message):
            stepper(study, **arguments)


def test_without_checkpoints_a_box_says_what_to_do_and_code_gets_the_same_error(study):
    view = stepper(study.model_copy(update={"name": "empty"}))
    with pytest.raises(UserError, match="has no checkpoints yet"):
        view.shown()


def test_a_missing_network_shows_with_the_remedy_and_another_variant_can_be_chosen(study):
    view = stepper(study, "Simple")
    path = checkpoint_folder(study) / "support_log_determinant.safetensors"
    weights = path.read_bytes()
    path.unlink()
    try:
        set_to(view, variant="GMM")
        assert isinstance(view.error, CheckpointError) and "03-meta-train" in view.notice.value
        assert "Nothing to show" in view._status.value and view._body.layout.display == "none"
        click(view, "forward", "converge", "answer", "first")
        set_to(view, head="Euclidean", step=2)
        assert view.features is None and view.error is None
    finally:
        path.write_bytes(weights)
    set_to(view, variant="COT GMM")
    check(view)
    assert view._body.layout.display == ""


@pytest.mark.parametrize("seed", range(2))
def test_driven_fast_and_in_odd_orders_it_ends_consistent(study, seed):
    chance, look = random.Random(seed), matplotlib.rcParams["font.size"]
    view = stepper(study, "Simple")
    names = [name for name in view.controls if name not in ("identity_weight", "save_name", "save")]
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
    assert plt.get_fignums() == [] and matplotlib.rcParams["font.size"] == look and torch.is_grad_enabled()


def test_the_table_names_classes_confidences_and_outcomes():
    features = planted(names=("<cats>", "a dog", "mice"))
    rows = stepper_data.run(features, steps=6).rows
    found = at_step(rows, 1)
    changed = found[found["changed"]]
    table = changes_table(features, found, 1, "changed")
    assert table.count("<tr") == 1 + len(changed) == 1 + table.count("data:image/png;base64,")
    listed = [int(query) for query in re.findall(r"<br>(\d+)</td>", table)]
    order = changed.set_index("query").loc[listed, "outcome"].cat.codes
    assert sorted(listed) == sorted(changed["query"]) and order.is_monotonic_increasing
    for row in changed.itertuples():
        name = features.class_names[row.label].replace("<", "&lt;").replace(">", "&gt;")
        assert f"{'ABC'[row.label]}:&nbsp;<span" in table and f">{name}</span>" in table
        assert f"{row.confidence:.2f}" in table and f"{row.confidence_before:.2f}" in table
        sign = "✓" if row.outcome == "became right" else "✗"  # not by colour alone
        assert f"{sign}&nbsp;{row.outcome}" in table
    assert changes_table(features, at_step(rows, 0), 0, "all").count("<td>–</td>") == len(rows)
    shown = legend([*features.class_names, *(f"class {k}" for k in range(27))])
    assert "<cats>" not in table + shown and "&lt;cats&gt;" in shown and ">AD</span> class 26" in shown


def test_cards_hold_the_classes_and_the_highest_responsibilities():
    features = planted(way=7, names=("<cats>", *(f"class-{k}" for k in range(6))))
    found = stepper_data.run(features, steps=2)
    at, n_support = at_step(found.rows, 1), len(features.support_labels)
    told = stepper_figures.cards(features, found.view, 1, at)
    assert told[0][0] == "Support image of <cats>" and told[0][1].endswith("&lt;cats&gt;")
    for query, (said, card) in zip(at.itertuples(), told[n_support:], strict=True):
        label, prediction = (features.class_names[k] for k in (query.label, query.prediction))
        assert said == f"Query {query.query}, {query.outcome}: {label}, predicted {prediction}"
        shares = np.sort(found.view.responsibilities[1][n_support + query.query])[:-6:-1]
        assert re.findall(r"</i>([\d.]+)<", card) == [f"{share:.2f}" for share in shares]
        bars = re.findall(r">([A-G])</span><i", card)
        assert len(bars) == 5 and bars[0] == "ABCDEFG"[query.prediction] and "<cats>" not in card


def test_a_table_with_nothing_or_too_much_to_show_says_so():
    many, easy = planted(n_query=30), planted(spread=0.01)
    for features, step, which, message in (
        (easy, 1, "changed", "No label changed"),
        (easy, 1, "wrong", "No query is wrong"),
        (many, 1, "all", "… and 30 more"),
    ):
        found = at_step(stepper_data.run(features, steps=2).rows, step)
        assert message in changes_table(features, found, step, which)
        assert changes_table(features, found, step, which, 89 if features is many else 1).count("marked") >= 1
