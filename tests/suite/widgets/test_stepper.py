"""The stepper as a user drives it, without a browser; what it computes and draws, against the clustering and counts."""

import random
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from clusters import clusters
from driving import click, set_to, words
from matplotlib.figure import Figure
from small_study import blobs, small_study
from untrained import write_networks, write_training

from tcnaps.config import UserError
from tcnaps.episodes.loading import load_episode
from tcnaps.episodes.sampling import draw_episode
from tcnaps.method.class_statistics import class_statistics, one_hot
from tcnaps.method.clustering import trajectory
from tcnaps.method.head import Head
from tcnaps.method.variants import VARIANTS
from tcnaps.training.checkpoints import CheckpointError, checkpoint_folder, load_model
from tcnaps_suite import episodes
from tcnaps_suite.experiments import study_episodes
from tcnaps_suite.experiments.study_episodes import ShownEpisode, features_of
from tcnaps_suite.widgets import stepper_data, stepper_figures, stepper_widget
from tcnaps_suite.widgets.episode_table import OUTCOMES, at_step
from tcnaps_suite.widgets.projection import discriminative_plane, view_in_plane
from tcnaps_suite.widgets.stepper_figures import legend, query_table
from tcnaps_suite.widgets.stepper_widget import stepper


def place(patch, root):
    """The small study, its results in `root`, its datasets blobs."""
    patch.chdir(root)
    patch.setattr(episodes, "open_split", lambda study, name, split: blobs(name, split))
    return small_study(trainings=["support", "support_and_query", "support_log_determinant"])


@pytest.fixture(scope="module")
def networks(tmp_path_factory):
    root = tmp_path_factory.mktemp("root")
    with pytest.MonkeyPatch.context() as patch:
        write_networks(place(patch, root))
    return root


def planted(shot=2, n_query=12, variant="Transductive", spread=1.5, names=("class-0", "class-1", "class-2")):
    """Features in clusters that overlap enough for labels to change."""
    sets = clusters([shot] * 3, [n_query] * 3, 8, 2.2, spread, seed=6, dtype=torch.float32)
    pixels = np.random.default_rng(0).integers(0, 255, (3 * n_query, 8, 8, 3), dtype=np.uint8)
    return ShownEpisode(VARIANTS[variant], ("5-way", "planted", 3), names, *sets, pixels[: 3 * shot], pixels, Head())


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
    queries = at_step(expected.rows, choice.step), choice.which, choice.query
    assert view._table.value == query_table(features, expected.view, choice.step, *queries)


def test_it_opens_at_step_0_with_the_studys_settings_and_buttons_and_slider_agree(study):
    view = stepper(study)
    opened = {"variant": "Transductive", "evaluation": "5-way-1-shot", "dataset": "blobs", "episode": 0, "step": 0}
    opened |= {"head": "Mahalanobis", "identity_weight": 1.0, "minimum": 2, "maximum": 3}
    assert opened.items() <= vars(view.choice).items()
    check(view)
    for names, step in ((["forward"], 1), (["first"], 0), (["back"], 0), (["forward"] * 9, 4), (["back"], 3)):
        click(view, *names)
        assert view.choice.step == step
    check(view)
    click(view, "converge")
    assert view.choice.step == view.trajectory.view.end
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
    by_step = replace(view.features.head, scale=(1.0, 0.5))
    view.features = replace(view.features, head=by_step)
    set_to(view, head="as in the study")
    assert view.controls["scale"].disabled
    assert stepper_data.run(view.features, by_step, 4).rows.equals(view.trajectory.rows)


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


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"variant": "Simpel"}, "'Simple'"),
        ({"evaluation": "x"}, "variable"),
        ({"evaluation": "5-way-1-shot", "dataset": "others"}, "blobs"),
        ({"episode": -2}, "-2"),
    ],
)
def test_wrong_arguments_are_errors(study, arguments, name):
    with pytest.raises(ValueError, match=name):
        stepper(study, **arguments)


def test_a_missing_network_shows_with_the_remedy_and_another_variant_can_be_chosen(study):
    with pytest.raises(UserError, match="empty"):  # code gets the error that a box shows
        stepper(study.model_copy(update={"name": "empty"})).shown()
    view = stepper(study, "GMM")
    path = checkpoint_folder(study) / "support_log_determinant.safetensors"
    weights = path.read_bytes()
    path.unlink()
    try:
        set_to(view, variant="COT GMM")  # by the network in memory, whose file is gone
        assert isinstance(view.error, CheckpointError) and "03-meta-train" in view.notice.value
        assert "Nothing is shown" in view._status.value and view._body.layout.display == "none"
        click(view, "forward", "converge", "answer", "first")
        set_to(view, head="Euclidean", step=2)
        assert view.features is None and view.error is None
    finally:
        path.write_bytes(weights)
    set_to(view, variant="Simple")
    check(view)
    assert view._body.layout.display == ""


def test_driven_fast_and_in_odd_orders_it_ends_consistent(study):
    chance = random.Random(0)
    view = stepper(study, "Simple")
    names = [name for name in view.controls if name != "identity_weight"]
    for _ in range(20):
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
    view = stepper(place(monkeypatch, networks))
    before = view._picture.value
    set_to(view, step=1, query=0)
    assert before.startswith("<img ") and view._picture.value != before


def test_the_table_names_classes_responsibilities_and_outcomes():
    features = planted(names=("<cats>", "a dog", "mice"))
    trajectory = stepper_data.run(features, steps=6)
    queries = at_step(trajectory.rows, 1)
    table = query_table(features, trajectory.view, 1, queries, "changed")
    listed = [int(query) for query in re.findall(r"<br>(\d+)</td>", table)]
    changed = queries[queries["changed"]].set_index("query").loc[listed]
    assert len(set(listed)) == queries["changed"].sum() == table.count("data:image/png;base64,")
    assert changed["outcome"].cat.codes.is_monotonic_increasing
    for row, query, right in zip(table.split("<tr>")[1:], listed, changed["right"], strict=True):
        shares = np.sort(trajectory.view.responsibilities[1][len(features.support_labels) + query])[::-1]
        assert re.findall(r"</span> ([\d.]+)</nobr>", row) == [f"{share:.2f}" for share in shares]
        assert ("✓" if right else "✗") in row  # not by colour alone
    shown = legend([*features.class_names, *(f"class {k}" for k in range(27))])
    assert "<cats>" not in table + shown and "&lt;cats&gt;" in shown and ">AD</span> class 26" in shown


@pytest.mark.parametrize(
    ("many", "which", "message"),
    [(False, "changed", "No label changed"), (False, "wrong", "No query is wrong"), (True, "all", "30 more")],
)
def test_a_table_with_nothing_or_too_much_to_show_says_so(many, which, message):
    features = planted(n_query=30) if many else planted(spread=0.01)
    trajectory = stepper_data.run(features, steps=2)
    shown = features, trajectory.view, 1, at_step(trajectory.rows, 1), which
    assert message in query_table(*shown) and query_table(*shown, 2).count("xmarked") == 1


@pytest.fixture(scope="module")
def found():
    return stepper_data.run(planted(), steps=6)


def test_the_features_are_the_models_which_is_loaded_again_when_it_is_new(study, monkeypatch):
    monkeypatch.setattr(study_episodes, "_NETWORK", {})
    made = features_of(study, "FEOT", "variable", "others", 1)
    source = blobs("others", "test")
    draw = draw_episode(source, study.evaluations["variable"].protocol, study.seed, 1)
    with torch.no_grad():
        support, labels, query, _ = load_model(study, "support_and_query").features(load_episode(source, draw))
    torch.testing.assert_close([made.support_features, made.query_features], [support, query], rtol=1e-4, atol=1e-4)
    assert made.support_labels.tolist() == labels.tolist()
    assert made.class_names == tuple(source.class_names[k] for k in draw.classes)
    assert (made.query_images == source.images[draw.query_images]).all()
    assert made.query_labels.tolist() == draw.query_labels.tolist() and made.variant.name == "FEOT"
    again = features_of(study, "Transductive", "variable", "others", 1)  # the same networks
    assert again.query_features.equal(made.query_features) and again.variant.name == "Transductive"
    before = list(study_episodes._NETWORK)
    write_training(study, "support_and_query")
    features_of(study, "FEOT", "variable", "others", 1)
    assert len(before) == 1 and list(study_episodes._NETWORK) != before


@pytest.mark.parametrize("name", stepper_data.HEADS)
def test_every_head_shows_what_the_clustering_does_with_its_settings(name):
    features = planted(variant="Simple")
    of_study = replace(features.head, class_covariance_divisor="n-1", scale=0.3)
    head = stepper_data.with_head(of_study, name, 0.5)
    assert head.identity_weight == 0.5 and head.class_covariance_divisor == "n-1"
    assert stepper_data.head_name(head) == name and (head.scale == 0.3) == (name == "as in the study")
    found = stepper_data.run(features, head, 3)
    sets = features.support_features, features.support_labels, features.query_features
    responsibilities = trajectory(*sets, head=head, steps=3).softmax(2)
    for step in range(4):
        now = at_step(found.rows, step)
        assert now["prediction"].tolist() == responsibilities[step].argmax(1).tolist()
        np.testing.assert_allclose(now["confidence"], responsibilities[step].max(1).values)
    assert found.steps["mean_confidence"].to_numpy() == pytest.approx(responsibilities.amax(2).mean(1).numpy())
    with pytest.raises(ValueError, match="identity_weight"):
        stepper_data.with_head(Head(), name, 0)


def test_a_step_says_what_it_did_to_every_query_and_the_steps_count_it(found):
    truth, seen = planted().query_labels.tolist(), set()
    for step in range(7):
        now, before = (found.rows[f"prediction_{t}"].tolist() for t in (step, max(step - 1, 0)))
        for row in at_step(found.rows, step).itertuples():
            a, b, k = before[row.query], now[row.query], truth[row.query]
            outcome = {(False, True): "became right", (True, False): "became wrong"}.get((a == k, b == k))
            outcome = outcome or ("right" if b == k else "still wrong" if a != b else "wrong")
            assert (row.before, row.prediction, row.label, row.outcome) == (a, b, k, outcome)
            assert (row.right, row.changed, row.class_name) == (b == k, a != b, f"class-{k}")
            assert row.confidence == pytest.approx(found.rows[f"confidence_{step}"][row.query])
            seen.add(row.outcome)
        steps = found.steps.loc[step]
        assert steps["accuracy"] == pytest.approx(np.mean([b == k for b, k in zip(now, truth)]))
        assert steps["changed"] == sum(a != b for a, b in zip(before, now)) and steps["step"] == step
    assert len(seen) >= 4 and seen <= set(OUTCOMES), "the planted episode has changes of several kinds"


def test_the_verdict_says_where_and_why_the_rule_stops(found):
    changed = found.steps["changed"]
    last = next(step for step in range(1, 7) if not changed[step])
    assert last > 1, "the planted episode is to converge, but not at once"
    assert found.view.end == last
    accuracy = 100 * found.steps["accuracy"]
    for limits, step, reason in (
        ((1, 6), last, "no label changed there."),
        ((1, 6), last, f"{accuracy[last]:.1f}% ({accuracy[last] - accuracy[0]:+.1f} points"),
        ((1, last - 1), last - 1, f"though {changed[last - 1]} label"),
        ((1, last), last, "no label"),
        ((0, 0), 0, "does not refine"),
    ):
        ended, why = stepper_data.verdict(found, *limits)
        assert ended == step and reason in why
    with pytest.raises(ValueError):
        stepper_data.verdict(found, 2, 7)


def test_words_say_which_episode_it_is_and_what_the_variant_makes_of_the_steps(found):
    status, step = stepper_data.status(found, 1), found.steps.loc[1]
    assert f"{step['changed']:.0f} label" in status and f"accuracy {100 * step['accuracy']:.1f}%" in status
    uneven = replace(planted(), support_labels=torch.tensor([0, 0, 0, 1, 1, 2]))
    assert "planted, 5-way, episode 3: 3-way, shots 1 to 3, 36 queries" in stepper_data.described(uneven)
    for variant, refined in (("Simple", "COT"), ("FEOT", "Transductive")):
        assert refined in stepper_data.described(replace(uneven, variant=VARIANTS[variant]))


def test_the_plane_holds_everything_on_the_same_scale_at_every_step(found):
    limits = []
    for step in range(4):
        ax = Figure((5.2, 4.3)).add_axes((0, 0, 1, 1))
        stepper_figures.plane_step(ax, found.view, step, at_step(found.rows, step), marked=0)
        (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
        assert (found.view.points > (left, bottom)).all() and (found.view.points < (right, top)).all()
        box = ax.get_window_extent()
        assert (right - left) / box.width == pytest.approx((top - bottom) / box.height)
        limits.append((left, right, bottom, top))
    assert len(set(limits)) == 1


def test_curves_show_both_measures_and_the_answer(found):
    ax = Figure().subplots()
    stepper_figures.step_curves(ax, found.steps, 1, 2, 2, 4)
    lines = {line.get_label(): line for line in ax.lines}
    for name in ("accuracy", "mean confidence"):
        np.testing.assert_allclose(lines[name].get_ydata(), 100 * found.steps[name.replace(" ", "_")])
    assert lines["answer"].get_xdata()[0] == 2
    ticks = [text.get_text() for text in ax.get_xticklabels()]
    assert ticks[0] == "0\n–" and ticks[1] == f"1\n{found.steps['changed'][1]}"


def planted_in_two_dimensions():
    """Three classes that differ in the first two of ten dimensions only; the others are noisier."""
    first = torch.arange(10) < 2
    return clusters([4] * 3, [30] * 3, 10, 8.0 * first, torch.where(first, 0.7, 3.0))


def test_the_plane_is_orthonormal_and_shows_what_tells_classes_apart():
    *_, query, truth = planted_in_two_dimensions()
    plane = discriminative_plane(query, one_hot(truth, 3, query))
    torch.testing.assert_close(plane.T @ plane, torch.eye(2, dtype=torch.float64))
    assert plane[:2].square().sum() > 1.7  # of 2: the two planted directions


def test_a_view_repeats_what_the_clustering_does():
    support, labels, query, _ = planted_in_two_dimensions()
    logits = trajectory(support, labels, query, steps=3)
    view = view_in_plane(support, labels, query, logits.softmax(2))
    np.testing.assert_allclose(view.responsibilities[:, 12:], logits.softmax(2), atol=1e-9)
    assert (view.responsibilities[:, :12] == torch.nn.functional.one_hot(labels, 3).numpy()).all()
    assert view.is_support.sum() == 12 and view.points.shape == (102, 2)
    assert (np.linalg.eigvalsh(view.covariances) >= 1 - 1e-9).all()  # identity_weight is 1


HEADS = [Head(), Head(update="means"), Head("euclidean")]
HEADS += [Head(class_covariance_divisor="n-1", task_covariance_divisor=of_task) for of_task in ("n", "n-1")]


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("shot", [1, 3])
def test_drawn_statistics_are_projections_of_those_in_all_dimensions(head, shot):
    episode = planted(shot=shot)
    support, labels, query = episode.support_features.double(), episode.support_labels, episode.query_features.double()
    features = torch.cat([support, query])
    responsibilities = trajectory(support, labels, query, head=head, steps=3).softmax(2)
    view = view_in_plane(support, labels, query, responsibilities, head)
    fixed = one_hot(labels, 3, features)
    statistics = [class_statistics(support, fixed, head)]
    for step in range(3):
        weights = torch.cat([fixed, torch.from_numpy(view.responsibilities[step, len(fixed) :])])
        own = class_statistics(features, weights, replace(head, class_covariance_divisor="n"))
        if head.update == "means":
            own = replace(own, covariances=statistics[0].covariances)
        statistics.append(own)
    centred = features - features.mean(0)
    plane = torch.linalg.lstsq(centred, torch.from_numpy(view.points), driver="gelsd").solution  # centred @ plane
    for step, own in enumerate(statistics):
        np.testing.assert_allclose(view.means[step], (own.means - features.mean(0)) @ plane, atol=1e-8)
        np.testing.assert_allclose(view.covariances[step], plane.T @ own.covariances @ plane, atol=1e-8)
