"""What the stepper computes and draws, against the clustering that it shows and counts made by hand."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from small_study import blobs
from stepper_study import place, planted, write_networks, write_training

from tcnaps.episodes.loading import load_episode
from tcnaps.episodes.sampling import draw_episode
from tcnaps.figures.clustering import last_step
from tcnaps.method.clustering import trajectory
from tcnaps.method.head import Head
from tcnaps.method.variants import VARIANTS
from tcnaps.training.checkpoints import CheckpointError, load_model
from tcnaps_suite.experiments import study_episodes
from tcnaps_suite.experiments.study_episodes import features_of
from tcnaps_suite.widgets import stepper_data, stepper_figures
from tcnaps_suite.widgets.episode_table import OUTCOMES, at_step


@pytest.fixture
def study(tmp_path, monkeypatch):
    monkeypatch.setattr(study_episodes, "_NETWORK", {})
    study = place(monkeypatch, tmp_path)
    write_networks(study)
    return study


@pytest.fixture(scope="module")
def found():
    return stepper_data.run(planted(), steps=6)


def test_the_features_are_the_models_which_is_loaded_again_when_it_is_new(study):
    made = features_of(study, "FEOT", "variable", "others", 1)
    source = blobs("others", "test")
    draw = draw_episode(source, study.evaluations["variable"].protocol, study.seed, 1)
    with torch.no_grad():
        support, labels, query, _ = load_model(study, "support_and_query").features(load_episode(source, draw))
    torch.testing.assert_close(made.support_features, support, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(made.query_features, query, rtol=1e-4, atol=1e-4)
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
    (study.results_folder / "checkpoints" / "support_and_query.safetensors").unlink()
    with pytest.raises(CheckpointError, match="03-meta-train"):
        features_of(study, "FEOT", "variable", "others", 1)


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
    features, changed = planted(), found.steps["changed"]
    last = next(step for step in range(1, 7) if not changed[step])
    assert last > 1, "the planted episode is to converge, but not at once"
    assert last_step(found.view.responsibilities) == last
    accuracy = 100 * found.steps["accuracy"]
    for limits, step, words in (
        ((1, 6), last, "no label changed there."),
        ((1, 6), last, f"{accuracy[last]:.1f}% ({accuracy[last] - accuracy[0]:+.1f} points"),
        ((1, last - 1), last - 1, f"though {changed[last - 1]} label"),
        ((1, last), last, "no label"),
        ((0, 0), 0, "does not refine"),
    ):
        ended, why = stepper_data.verdict(found, *limits)
        assert ended == step and words in why
        assert stepper_data.answer_step(features, found, *limits) == step
    assert stepper_data.answer_step(replace(features, variant=VARIANTS["FEOT"]), found, 2, 4) == 0
    with pytest.raises(ValueError):
        stepper_data.verdict(found, 2, 7)
    assert last_step(found.view.responsibilities[:2]) == 1  # still changing


def test_words_say_which_episode_it_is_and_what_the_variant_makes_of_the_steps(found):
    status, changed = stepper_data.status(found, 1), found.steps["changed"][1]
    assert status.startswith(f"Step 1 of 6 · {changed} label")
    assert f"accuracy {100 * found.steps['accuracy'][1]:.1f}%" in status
    uneven = replace(planted(), support_labels=torch.tensor([0, 0, 0, 1, 1, 2]))
    assert stepper_data.described(uneven).startswith("planted, 5-way, episode 3: 3-way, shots 1 to 3, 36 queries. ")
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
