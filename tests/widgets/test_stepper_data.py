"""The logic of the soft k-means stepper, against the clustering it shows and counts made by hand."""

import shutil
from dataclasses import replace
from io import BytesIO

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image
from stepper_study import finish, place, write_networks, write_training

from tcnaps.episodes.loading import load_episode
from tcnaps.episodes.sampling import draw_episode
from tcnaps.evaluation.projection import principal_plane, project, view_in_plane
from tcnaps.method.clustering import class_statistics, one_hot, trajectory
from tcnaps.method.head import Head
from tcnaps.method.variants import VARIANTS
from tcnaps.training.checkpoints import CheckpointError, load_model
from tcnaps.widgets import (
    episode_features as materials,
    stepper_data as stepping,
    stepper_figures as stepping_figures,
    widget_base as parts,
)
from tcnaps.widgets.episode_features import EpisodeFeatures, FeatureCache


def planted(way=3, shot=2, n_query=12, d=8, variant="Transductive", spread=1.5, seed=6):
    """Clusters that overlap enough for labels to change."""
    generator = torch.Generator().manual_seed(seed)
    centres = 2.2 * torch.randn(way, d, generator=generator)
    labels = [torch.arange(way).repeat_interleave(n) for n in (shot, n_query)]
    support, query = (centres[own] + spread * torch.randn(len(own), d, generator=generator) for own in labels)
    pixels = np.random.default_rng(0).integers(0, 255, (way * (shot + n_query), 8, 8, 3), dtype=np.uint8)
    names = tuple(f"class-{k}" for k in range(way))
    return EpisodeFeatures(
        VARIANTS[variant],
        "5-way",
        "planted",
        3,
        names,
        support,
        labels[0],
        query,
        labels[1],
        pixels[: way * shot],
        pixels[way * shot :],
        Head(),
    )


@pytest.fixture(scope="module")
def networks(tmp_path_factory):
    root = tmp_path_factory.mktemp("root")
    with pytest.MonkeyPatch.context() as patch:
        write_networks(place(patch, root))
    return root


@pytest.fixture
def study(networks, monkeypatch):
    return place(monkeypatch, networks)


def test_the_material_of_an_episode_is_what_the_model_computes(study):
    from small_study import blobs

    made = finish(FeatureCache(study).material("Transductive", "variable", "others", 1))
    source = blobs("others", "test")
    draw = draw_episode(source, study.evaluations["variable"].protocol, study.seed, 1)
    with torch.no_grad():
        support, labels, query, _ = load_model(study, "support_and_query").features(load_episode(source, draw))
    torch.testing.assert_close(made.support_features, support, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(made.query_features, query, rtol=1e-4, atol=1e-4)
    assert made.support_labels.tolist() == labels.tolist()
    assert made.class_names == tuple(source.class_names[k] for k in draw.classes) and made.way == len(draw.classes)
    assert (made.support_images == source.images[draw.support_images]).all()
    assert (made.query_images == source.images[draw.query_images]).all()
    assert made.query_labels.tolist() == draw.query_labels.tolist() and made.variant.name == "Transductive"


def test_progress_goes_up_in_chunks_and_yields_between_them(study, monkeypatch):
    monkeypatch.setattr(materials, "CHUNK", 4)
    made, shares = FeatureCache(study).material("Simple", "variable", "blobs", 0), []
    while True:
        try:
            shares.append(next(made)[0])
        except StopIteration as end:
            material = end.value
            break
    images = len(material.support_labels) + len(material.query_labels)
    assert shares == sorted(shares) and all(0 <= share < 1 for share in shares)
    assert len(shares) == 3 + -(-images // 4)


def test_what_was_computed_is_kept_and_a_new_network_is_noticed(study, tmp_path, monkeypatch):
    from tcnaps.config import study as config

    shutil.copytree(study.results_folder, tmp_path / "results" / "small")
    monkeypatch.setattr(config, "project_root", lambda: tmp_path)
    store = FeatureCache(study)
    first = finish(store.material("Simple", "variable", "blobs", 0))
    again = store.material("COT", "variable", "blobs", 0)  # the same networks
    with pytest.raises(StopIteration) as end:
        next(again)  # without a step of work
    assert end.value.value.query_features is first.query_features and end.value.value.variant.name == "COT"
    for episode in range(1, materials.REMEMBERED + 1):
        finish(store.material("Simple", "5-way-1-shot", "blobs", episode))
    assert finish(store.material("Simple", "variable", "blobs", 0)).query_features is not first.query_features
    kept = finish(store.material("Simple", "variable", "blobs", 0))
    torch.manual_seed(5)
    write_training(study, "support")
    assert finish(store.material("Simple", "variable", "blobs", 0)).query_features is not kept.query_features
    (study.results_folder / "checkpoints" / "support.safetensors").unlink()
    with pytest.raises(CheckpointError, match="03-meta-train"):
        finish(store.material("Simple", "variable", "blobs", 0))


def test_wrong_names_are_errors_that_name_what_there_is(study):
    right = {"variant": "Simple", "evaluation": "variable", "dataset": "blobs", "episode": 0}
    materials.check_names(study, **right)
    for change, message in (
        ({"variant": "Simpel"}, "no variant 'Simpel'.*GMM, COT GMM, Simple, FEOT, COT, Transductive"),
        ({"variant": "Transductive+"}, "Study 'small' trains for"),
        ({"evaluation": "none"}, "Study 'small' has: variable, 5-way-1-shot"),
        ({"evaluation": "5-way-1-shot", "dataset": "others"}, "Evaluation '5-way-1-shot' has: blobs"),
        ({"episode": -1}, "counted from 0"),
    ):
        with pytest.raises(ValueError, match=message):
            materials.check_names(study, **right | change)


def test_a_trajectory_is_the_clusterings_own():
    material = planted()
    found = stepping.run(material, steps=6)
    logits = trajectory(material.support_features, material.support_labels, material.query_features, steps=6)
    assert found.last == 6 and (found.labels == logits.argmax(2).numpy()).all()
    np.testing.assert_allclose(found.responsibilities, logits.softmax(2), atol=1e-6)
    truth = material.query_labels.numpy()
    for step in range(7):
        hits = [found.labels[step, j] == truth[j] for j in range(len(truth))]
        assert found.accuracy[step] == pytest.approx(sum(hits) / len(hits)) and found.right[step].tolist() == hits
        most = [found.responsibilities[step, j].max() for j in range(len(truth))]
        assert found.mean_confidence[step] == pytest.approx(sum(most) / len(most), abs=1e-6)
        before = found.labels[max(step - 1, 0)]
        assert found.changed[step].tolist() == [a != b for a, b in zip(found.labels[step], before)]
    assert found.changed[1:].any(), "the planted episode is to change"
    frame = stepping.curves(found)
    assert frame["changed"].tolist() == found.changed.sum(1).tolist() and frame["step"].tolist() == list(range(7))


@pytest.mark.parametrize("name", stepping.HEADS)
def test_every_head_shows_what_the_clustering_does_with_its_settings(name):
    material = planted(variant="Simple")
    head = stepping.with_head(replace(material.head, class_covariance_divisor="n-1"), name, 0.5)
    assert head.identity_weight == 0.5 and head.class_covariance_divisor == "n-1"
    assert stepping.head_name(head) == name
    found = stepping.run(material, head, 3)
    sets = material.support_features, material.support_labels, material.query_features
    logits = trajectory(*sets, head=head, steps=3)
    assert (found.labels == logits.argmax(2).numpy()).all()


@pytest.mark.parametrize("plane", stepping.PLANES)
def test_planes_are_orthonormal_projections_of_the_features(plane):
    material = planted()
    found = stepping.run(material, steps=2, plane=plane)
    features = torch.cat([material.support_features, material.query_features])
    centred = (features - features.mean(0)).numpy()
    directions, *_ = np.linalg.lstsq(centred, found.view.points, rcond=None)
    np.testing.assert_allclose(centred @ directions, found.view.points, atol=1e-4)
    np.testing.assert_allclose(directions.T @ directions, np.eye(2), atol=1e-4)


def test_principal_components_spread_most_and_do_not_depend_on_the_head():
    material = planted()
    features = torch.cat([material.support_features, material.query_features])
    variances = np.linalg.eigvalsh(np.cov(features.T.numpy()))[::-1]
    projected = (features @ principal_plane(features)).var(0)
    np.testing.assert_allclose(projected, variances[:2], rtol=1e-4)
    views = [
        stepping.run(material, stepping.with_head(material.head, name, 1), 2, "principal components").view.points
        for name in ("Mahalanobis", "Euclidean")
    ]
    np.testing.assert_allclose(*views)


@pytest.mark.parametrize(
    "head",
    [
        Head(),
        Head(update="means"),
        Head(metric="euclidean"),
        Head(class_covariance_divisor="n-1"),
        Head(class_covariance_divisor="n-1", task_covariance_divisor="n-1"),
    ],
)
@pytest.mark.parametrize("shot", [1, 3])
def test_drawn_statistics_are_projections_of_those_in_all_dimensions(head, shot):
    material = planted(shot=shot)
    support, labels, query = (
        x.double() if x.is_floating_point() else x
        for x in (material.support_features, material.support_labels, material.query_features)
    )
    features = torch.cat([support, query])
    view = view_in_plane(support, labels, query, head, steps=3)
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


def test_a_given_plane_and_given_responsibilities_are_used():
    material = planted(d=5)
    sets = material.support_features, material.support_labels, material.query_features
    uniform = torch.full((2, 36, 3), 1 / 3)
    plane = torch.eye(5)[:, 1:3]
    view = project(*sets, uniform, plane=plane)
    features = torch.cat([sets[0], sets[2]])
    np.testing.assert_allclose(view.points, (features - features.mean(0))[:, 1:3])
    assert (view.responsibilities[:, 6:] == np.float32(1 / 3)).all()


def test_changes_list_whose_label_changed_and_what_it_was_good_for():
    material = planted()
    found = stepping.run(material, steps=6)
    truth, seen = material.query_labels.numpy(), set()
    for step in range(1, 7):
        frame = stepping.changes(material, found, step)
        assert sorted(frame["query"]) == np.flatnonzero(found.labels[step] != found.labels[step - 1]).tolist()
        for row in frame.itertuples():
            before, after = found.labels[step - 1, row.query], found.labels[step, row.query]
            expected = (
                "became right"
                if after == truth[row.query]
                else "became wrong"
                if before == truth[row.query]
                else "still wrong"
            )
            assert (row.before, row.after, row.true, row.outcome) == (before, after, truth[row.query], expected)
            assert row.confidence_after == found.responsibilities[step, row.query].max()
            assert row.confidence_before == found.responsibilities[step - 1, row.query].max()
            seen.add(row.outcome)
        wrong = stepping.changes(material, found, step, "wrong")
        assert sorted(wrong["query"]) == np.flatnonzero(found.labels[step] != truth).tolist()
        everyone = stepping.changes(material, found, step, "all")
        assert len(everyone) == len(truth) and everyone["outcome"].notna().all()
        gained = (everyone["outcome"] == "became right").sum() - (everyone["outcome"] == "became wrong").sum()
        assert gained / len(truth) == pytest.approx(found.accuracy[step] - found.accuracy[step - 1])
    assert len(seen) >= 2, "the planted episode has changes of several kinds"
    assert stepping.changes(material, found, 0).empty
    first = stepping.changes(material, found, 0, "all")
    assert (first["before"] == -1).all() and first["confidence_before"].isna().all()
    assert set(first["outcome"]) <= {"right", "wrong"}


def test_the_verdict_says_where_and_why_the_rule_stops():
    material = planted()
    found = stepping.run(material, steps=6)
    still = [step for step in range(1, 7) if not found.changed[step].any()]
    assert still and still[0] > 1, "the planted episode is to converge, but not at once"
    early = stepping.verdict(found, 1, 6)
    assert early.step == still[0] and early.converged and "no label changed there." in early.words
    assert stepping.convergence(found).step == still[0] and stepping.convergence(found).converged
    cut = stepping.verdict(found, 1, still[0] - 1)
    count = found.changed[still[0] - 1].sum()
    assert cut.step == still[0] - 1 and not cut.converged and f"though {count} label" in cut.words
    assert stepping.verdict(found, 0, 0).step == 0 and "does not refine" in stepping.verdict(found, 0, 0).words
    assert "acts as the maximum" in stepping.verdict(found, 6, 3).words and stepping.verdict(found, 6, 3).step == 3
    assert "the maximum; no label" in stepping.verdict(found, 1, still[0]).words
    gain = 100 * (found.accuracy[still[0]] - found.accuracy[0])
    assert f"{100 * found.accuracy[still[0]]:.1f}% ({gain:+.1f} points" in early.words
    with pytest.raises(ValueError, match="needs as many recorded"):
        stepping.verdict(found, 2, 7)


def test_a_trajectory_too_short_to_converge_says_so():
    found = stepping.run(planted(), steps=1)
    assert found.changed[1].any() and not stepping.convergence(found).converged
    assert stepping.convergence(found).step == 1 and "still change" in stepping.convergence(found).words
    assert stepping.convergence(stepping.run(planted(), steps=0)).step == 0


def test_words_for_people():
    material = planted()
    found = stepping.run(material, steps=6)
    changed = found.changed[1].sum()
    assert stepping.status(found, 1) == (
        f"Step 1 of 6 · {changed} label{'s' if changed != 1 else ''} changed · "
        f"accuracy {100 * found.accuracy[1]:.1f}% · mean confidence {100 * found.mean_confidence[1]:.1f}%"
    )
    assert "the support set's classes" in stepping.status(found, 0)
    assert stepping.described(material) == "planted, 5-way, episode 3: 3-way, 2-shot, 36 queries."
    uneven = replace(material, support_labels=torch.tensor([0, 0, 0, 1, 1, 2]))
    assert "shots 1 to 3" in stepping.described(uneven)
    assert "where the stopping rule ends" in stepping.about(VARIANTS["Transductive"])
    assert "COT" in stepping.about(VARIANTS["Simple"]) and "step 0" in stepping.about(VARIANTS["Simple"])
    assert "Transductive" in stepping.about(VARIANTS["FEOT"])
    assert stepping.answer_step(material, found, 2, 4) == stepping.verdict(found, 2, 4).step
    assert stepping.answer_step(replace(material, variant=VARIANTS["FEOT"]), found, 2, 4) == 0


def test_wrong_choices_are_errors():
    material = planted()
    found = stepping.run(material, steps=2)
    with pytest.raises(ValueError, match="no plane 'x'. Planes are: classes after the last step"):
        stepping.run(material, plane="x")
    with pytest.raises(ValueError, match="no head 'x'. Heads are: Mahalanobis"):
        stepping.with_head(material.head, "x", 1)
    with pytest.raises(ValueError, match="identity_weight is 0"):
        stepping.with_head(material.head, "Mahalanobis", 0)
    with pytest.raises(ValueError, match="no choice of queries 'x'"):
        stepping.changes(material, found, 1, "x")
    for bad in (-1, 3):
        with pytest.raises(ValueError, match="steps are 0 to 2"):
            stepping.changes(material, found, bad)
        with pytest.raises(ValueError, match="steps are 0 to 2"):
            stepping.status(found, bad)
    assert stepping.head_name(Head(scale=0.3)) is None


def draw(material, found, step, pictures):
    with parts.drawing():
        figure = parts.new_figure(520, 430)
        figure.set_layout_engine("none")
        ax = figure.add_axes((0, 0, 1, 1))
        images = np.concatenate([material.support_images, material.query_images])
        stepping_figures.plane_step(
            ax,
            found.view,
            step,
            found.labels[step],
            found.right[step],
            found.changed[step],
            images if pictures else None,
        )
    return figure, ax


@pytest.mark.parametrize("pictures", [False, True])
def test_the_plane_holds_everything_on_the_same_scale_at_every_step(pictures):
    material = planted()
    found = stepping.run(material, steps=3)
    limits = []
    for step in range(4):
        figure, ax = draw(material, found, step, pictures)
        (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
        assert (found.view.points > (left, bottom)).all() and (found.view.points < (right, top)).all()
        box = ax.get_window_extent()
        assert (right - left) / box.width == pytest.approx((top - bottom) / box.height)
        limits.append((left, right, bottom, top))
        Image.open(BytesIO(parts.picture(figure))).verify()
    assert len(set(limits)) == 1


def test_pictures_stand_upright_where_their_points_are():
    material = planted(way=2, shot=1, n_query=1, spread=0.1)
    halves = np.zeros((4, 8, 8, 3), dtype=np.uint8)
    halves[:, :4] = (255, 0, 255)  # the upper half
    material = replace(material, support_images=halves[:2], query_images=halves[2:])
    found = stepping.run(material, steps=0)
    figure, ax = draw(material, found, 0, True)
    pixels = np.asarray(Image.open(BytesIO(parts.picture(figure))))
    x, y = (2 * ax.transData.transform(found.view.points[2]) * 96 / figure.dpi).astype(int)
    column = pixels[:, x][::-1][y - 24 : y + 25].astype(int)  # from below
    assert (abs(column[-10:-4] - (255, 0, 255)) < 40).all(), column


def test_very_many_images_stay_points_and_very_many_classes_leave_names_out():
    assert stepping_figures.drawn_as_pictures(100, True) and not stepping_figures.drawn_as_pictures(100, False)
    assert not stepping_figures.drawn_as_pictures(stepping_figures.MOST_LETTERED + 1, True)
    material = planted(way=40, shot=1, n_query=8)
    found = stepping.run(material, steps=1)
    figure, ax = draw(material, found, 1, True)
    assert not ax.images
    names = [f"a class with a rather long name, number {k}" for k in range(40)]
    with parts.drawing():
        figure = parts.new_figure(520, stepping_figures.legend_height(names))
        stepping_figures.plane_legend(figure, names, False)
    texts = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    assert texts[-1] == "… and 29 more classes" and texts[5] == "A: a class with a r…number 0"


def test_curves_show_both_measures_and_the_answer():
    material = planted()
    found = stepping.run(material, steps=6)
    ax = Figure().subplots()
    stepping_figures.step_curves(ax, stepping.curves(found), 1, 2, 2, 4)
    lines = {line.get_label(): line for line in ax.lines}
    np.testing.assert_allclose(lines["accuracy"].get_ydata(), 100 * found.accuracy)
    np.testing.assert_allclose(lines["mean confidence"].get_ydata(), 100 * found.mean_confidence)
    assert lines["answer"].get_xdata()[0] == 2
    ticks = [text.get_text() for text in ax.get_xticklabels()]
    assert ticks[0] == "0\n–" and ticks[1] == f"1\n{found.changed[1].sum()}"
