"""The logic of the soft k-means stepper, against the clustering it shows and counts made by hand."""

import shutil
from dataclasses import replace
from io import BytesIO

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image
from stepper_study import place, planted, write_networks, write_training

from tcnaps.episodes.loading import load_episode
from tcnaps.episodes.sampling import draw_episode
from tcnaps.figures.style import style
from tcnaps.method.clustering import trajectory
from tcnaps.method.head import Head
from tcnaps.method.variants import VARIANTS
from tcnaps.training.checkpoints import CheckpointError, load_model
from tcnaps.widgets import pictures, stepper_data, stepper_figures
from tcnaps.widgets.stepper_data import features_of


@pytest.fixture(scope="module")
def networks(tmp_path_factory):
    root = tmp_path_factory.mktemp("root")
    with pytest.MonkeyPatch.context() as patch:
        write_networks(place(patch, root))
    return root


@pytest.fixture
def study(networks, monkeypatch):
    return place(monkeypatch, networks)


def test_the_features_of_an_episode_are_what_the_model_computes(study):
    from small_study import blobs

    made = features_of(study, "Transductive", "variable", "others", 1)
    source = blobs("others", "test")
    draw = draw_episode(source, study.evaluations["variable"].protocol, study.seed, 1)
    with torch.no_grad():
        support, labels, query, _ = load_model(study, "support_and_query").features(load_episode(source, draw))
    torch.testing.assert_close(made.support_features, support, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(made.query_features, query, rtol=1e-4, atol=1e-4)
    assert made.support_labels.tolist() == labels.tolist()
    assert made.class_names == tuple(source.class_names[k] for k in draw.classes)
    assert (made.query_images == source.images[draw.query_images]).all()
    assert made.query_labels.tolist() == draw.query_labels.tolist() and made.variant.name == "Transductive"


def test_what_was_computed_is_kept_and_a_new_network_is_noticed(study, tmp_path, monkeypatch):
    from tcnaps.config import study as config

    shutil.copytree(study.results_folder, tmp_path / "results" / "small")
    monkeypatch.setattr(config, "project_root", lambda: tmp_path)
    first = features_of(study, "Simple", "variable", "blobs", 0)
    again = features_of(study, "COT", "variable", "blobs", 0)  # the same networks
    assert again.query_features is first.query_features and again.variant.name == "COT"
    torch.manual_seed(5)
    write_training(study, "support")
    assert features_of(study, "Simple", "variable", "blobs", 0).query_features is not first.query_features
    (study.results_folder / "checkpoints" / "support.safetensors").unlink()
    with pytest.raises(CheckpointError, match="03-meta-train"):
        features_of(study, "Simple", "variable", "blobs", 0)


def test_a_trajectory_is_the_clusterings_own():
    features = planted()
    found = stepper_data.run(features, steps=6)
    logits = trajectory(features.support_features, features.support_labels, features.query_features, steps=6)
    assert found.last == 6 and (found.labels == logits.argmax(2).numpy()).all()
    np.testing.assert_allclose(found.responsibilities, logits.softmax(2), atol=1e-6)
    truth = features.query_labels.numpy()
    for step in range(7):
        hits = [found.labels[step, j] == truth[j] for j in range(len(truth))]
        assert found.accuracy[step] == pytest.approx(sum(hits) / len(hits)) and found.right[step].tolist() == hits
        most = [found.responsibilities[step, j].max() for j in range(len(truth))]
        assert found.mean_confidence[step] == pytest.approx(sum(most) / len(most), abs=1e-6)
        before = found.labels[max(step - 1, 0)]
        assert found.changed[step].tolist() == [a != b for a, b in zip(found.labels[step], before)]
    assert found.changed[1:].any(), "the planted episode is to change"
    frame = stepper_data.curves(found)
    assert frame["changed"].tolist() == found.changed.sum(1).tolist() and frame["step"].tolist() == list(range(7))


@pytest.mark.parametrize("name", stepper_data.HEADS)
def test_every_head_shows_what_the_clustering_does_with_its_settings(name):
    features = planted(variant="Simple")
    head = stepper_data.with_head(replace(features.head, class_covariance_divisor="n-1"), name, 0.5)
    assert head.identity_weight == 0.5 and head.class_covariance_divisor == "n-1"
    assert stepper_data.head_name(head) == name
    found = stepper_data.run(features, head, 3)
    sets = features.support_features, features.support_labels, features.query_features
    logits = trajectory(*sets, head=head, steps=3)
    assert (found.labels == logits.argmax(2).numpy()).all()


@pytest.mark.parametrize("plane", stepper_data.PLANES)
def test_planes_are_orthonormal_projections_of_the_features(plane):
    features = planted()
    found = stepper_data.run(features, steps=2, plane=plane)
    features = torch.cat([features.support_features, features.query_features])
    centred = (features - features.mean(0)).numpy()
    directions, *_ = np.linalg.lstsq(centred, found.view.points, rcond=None)
    np.testing.assert_allclose(centred @ directions, found.view.points, atol=1e-4)
    np.testing.assert_allclose(directions.T @ directions, np.eye(2), atol=1e-4)


def test_changes_list_whose_label_changed_and_what_it_was_good_for():
    features = planted()
    found = stepper_data.run(features, steps=6)
    truth, seen = features.query_labels.numpy(), set()
    for step in range(1, 7):
        frame = stepper_data.changes(features, found, step)
        assert sorted(frame["query"]) == np.flatnonzero(found.labels[step] != found.labels[step - 1]).tolist()
        for row in frame.itertuples():
            before, after = found.labels[step - 1, row.query], found.labels[step, row.query]
            wrong = "became wrong" if before == truth[row.query] else "still wrong"
            outcome = "became right" if after == truth[row.query] else wrong
            assert (row.before, row.after, row.true, row.outcome) == (before, after, truth[row.query], outcome)
            assert row.confidence_after == found.responsibilities[step, row.query].max()
            assert row.confidence_before == found.responsibilities[step - 1, row.query].max()
            seen.add(row.outcome)
        wrong = stepper_data.changes(features, found, step, "wrong")
        assert sorted(wrong["query"]) == np.flatnonzero(found.labels[step] != truth).tolist()
        everyone = stepper_data.changes(features, found, step, "all")
        gained = (everyone["outcome"] == "became right").sum() - (everyone["outcome"] == "became wrong").sum()
        assert gained / len(truth) == pytest.approx(found.accuracy[step] - found.accuracy[step - 1])
    assert len(seen) >= 2, "the planted episode has changes of several kinds"
    assert stepper_data.changes(features, found, 0).empty
    first = stepper_data.changes(features, found, 0, "all")
    assert (first["before"] == -1).all() and first["confidence_before"].isna().all()
    assert set(first["outcome"]) <= {"right", "wrong"}


def test_the_verdict_says_where_and_why_the_rule_stops():
    features = planted()
    found = stepper_data.run(features, steps=6)
    last = next(step for step in range(1, 7) if not found.changed[step].any())
    assert last > 1, "the planted episode is to converge, but not at once"
    assert stepper_data.convergence(found).step == last
    gain = 100 * (found.accuracy[last] - found.accuracy[0])
    for limits, step, words in (
        ((1, 6), last, "no label changed there."),
        ((1, 6), last, f"{100 * found.accuracy[last]:.1f}% ({gain:+.1f} points"),
        ((1, last - 1), last - 1, f"though {found.changed[last - 1].sum()} label"),
        ((1, last), last, "no label"),
        ((0, 0), 0, "does not refine"),
    ):
        verdict = stepper_data.verdict(found, *limits)
        assert verdict.step == step and words in verdict.words
        assert stepper_data.answer_step(features, found, *limits) == step
    assert stepper_data.answer_step(replace(features, variant=VARIANTS["FEOT"]), found, 2, 4) == 0
    with pytest.raises(ValueError, match="needs as many recorded"):
        stepper_data.verdict(found, 2, 7)
    short = stepper_data.run(features, steps=1)
    assert short.changed[1].any()
    assert stepper_data.convergence(short).step == 1 and "still change" in stepper_data.convergence(short).words


def test_words_say_which_episode_it_is_and_what_the_variant_makes_of_the_steps():
    features = planted()
    found = stepper_data.run(features, steps=6)
    status = stepper_data.status(found, 1)
    assert status.startswith("Step 1 of 6 · ") and f"accuracy {100 * found.accuracy[1]:.1f}%" in status
    assert f" {found.changed[1].sum()} label" in status
    uneven = replace(features, support_labels=torch.tensor([0, 0, 0, 1, 1, 2]))
    assert stepper_data.described(uneven) == "planted, 5-way, episode 3: 3-way, shots 1 to 3, 36 queries."
    for variant, refined in (("Simple", "COT"), ("FEOT", "Transductive")):
        assert refined in stepper_data.about(VARIANTS[variant])
    with pytest.raises(ValueError, match="identity_weight is 0"):
        stepper_data.with_head(features.head, "Mahalanobis", 0)
    assert stepper_data.head_name(Head(scale=0.3)) is None  # not in the menu


def test_the_plane_holds_everything_on_the_same_scale_at_every_step():
    found, limits = stepper_data.run(planted(), steps=3), []
    for step in range(4):
        with style():
            figure, ax = pictures.new_figure(520, 430, (0, 0, 1, 1))
            answers = found.labels[step], found.right[step], found.changed[step]
            stepper_figures.plane_step(ax, found.view, step, *answers)
        (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
        assert (found.view.points > (left, bottom)).all() and (found.view.points < (right, top)).all()
        box = ax.get_window_extent()
        assert (right - left) / box.width == pytest.approx((top - bottom) / box.height)
        limits.append((left, right, bottom, top))
        Image.open(BytesIO(pictures.png(figure))).verify()
    assert len(set(limits)) == 1


def test_curves_show_both_measures_and_the_answer():
    features = planted()
    found = stepper_data.run(features, steps=6)
    ax = Figure().subplots()
    stepper_figures.step_curves(ax, stepper_data.curves(found), 1, 2, 2, 4)
    lines = {line.get_label(): line for line in ax.lines}
    np.testing.assert_allclose(lines["accuracy"].get_ydata(), 100 * found.accuracy)
    np.testing.assert_allclose(lines["mean confidence"].get_ydata(), 100 * found.mean_confidence)
    assert lines["answer"].get_xdata()[0] == 2
    ticks = [text.get_text() for text in ax.get_xticklabels()]
    assert ticks[0] == "0\n–" and ticks[1] == f"1\n{found.changed[1].sum()}"
