"""Figures: the numbers they draw, their units and legibility; files that come out whole and the same."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from synthetic_rows import DATASETS, synthetic_rows

from tcnaps.evaluation.csv_tables import read_published_averages
from tcnaps.evaluation.recall import class_recall, recall_by_shot, shot_frequencies, way_frequencies
from tcnaps.evaluation.statistics import (
    accuracy_by_step,
    accuracy_summary,
    domain_averages,
    episode_accuracies,
    paired_difference,
    paired_episodes,
    refinement_grid,
)
from tcnaps.evaluation.stopped_rows import variant_predictions
from tcnaps.figures import clustering, images, learning_curves, results, style
from tcnaps.method.variants import VARIANTS

plt.switch_backend("Agg")


@pytest.fixture(scope="module")
def rows():
    return synthetic_rows(tuple({variant.training for variant in VARIANTS.values()}), n_episodes=6)


@pytest.fixture(scope="module")
def predictions(rows):
    return variant_predictions(rows, list(VARIANTS), 2, 4)


@pytest.fixture(scope="module")
def episodes(predictions):
    return episode_accuracies(predictions)


@pytest.fixture
def panels():
    """Axes in the shared style; at the end every text of the figure must lie inside it."""
    made = []

    def make(columns=1, **options):
        context = style.style()
        context.__enter__()
        width = style.TEXT_WIDTH if columns > 1 else style.COLUMN_WIDTH
        figure, axes = plt.subplots(1, columns, figsize=(width, options.pop("height", 2.4)), **options)
        made.append((context, figure))
        return axes

    yield make
    for context, figure in reversed(made):
        try:
            legible(figure)
        finally:
            plt.close(figure)
            context.__exit__(None, None, None)


def legible(figure: Figure):
    figure.draw_without_rendering()
    box, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
    assert box.x0 > -0.01 and box.y0 > -0.01 and box.x1 < width + 0.01 and box.y1 < height + 0.01
    sizes = [text.get_fontsize() for text in figure.findobj(Text) if text.get_text()]
    assert min(sizes, default=6) >= 6


def dots(ax):
    """What errorbar drew: label → (x, y) of the dots, without the bars."""
    return {c.get_label(): c.lines[0].get_xydata() for c in ax.containers}


# The experiments' results.


def test_accuracy_by_dataset_draws_percent_and_intervals(panels, episodes):
    names = ["Simple", "FEOT", "COT", "Transductive"]
    summary = accuracy_summary(episodes[episodes["variant"].isin(names)])
    ax = panels(height=3.2)
    results.accuracy_by_dataset(ax, summary)
    assert ax.get_xlabel() == "Accuracy (%)"
    drawn = dots(ax)
    assert set(drawn) == set(names)
    for container in ax.containers:
        own = summary[summary["variant"] == container.get_label()]
        np.testing.assert_allclose(drawn[container.get_label()][:, 0], 100 * own["accuracy"])
        [bars] = container.lines[2]
        widths = [segment[1, 0] - segment[0, 0] for segment in bars.get_segments()]
        np.testing.assert_allclose(widths, 200 * own["interval"])
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert set(labels) == {*DATASETS, "In-domain", "Out-of-domain"}
    # Rows run down the page, in-domain first.
    heights = {label.get_text(): label.get_position()[1] for label in ax.get_yticklabels()}
    assert (
        heights["In-domain"] < heights["letters"] < heights["textures"] < heights["Out-of-domain"] < heights["digits"]
    )
    assert ax.get_ylim()[0] > ax.get_ylim()[1]


def test_paired_gain_writes_its_values(panels, episodes):
    a, b = (episodes[episodes["variant"] == name] for name in ("Transductive", "Simple"))
    differences = paired_difference(a, b)
    averages = domain_averages(differences, ["evaluation"], "difference")
    ax = panels(height=2.8)
    results.paired_gain(ax, differences, averages)
    written = [text.get_text() for text in ax.texts]
    for row in [*differences.itertuples(), *averages.itertuples()]:
        assert f"{100 * row.difference:+.1f} ± {100 * row.interval:.1f}" in written
    assert len(written) == len(differences) + 3
    assert ax.get_xlabel() == "Paired difference in accuracy (points)"
    assert any(np.array_equal(line.get_xdata(), [0, 0]) for line in ax.lines)


def test_the_gain_on_one_dataset_has_no_mean_below(panels, episodes):
    a, b = (episodes[(episodes["variant"] == name) & (episodes["dataset"] == "digits")] for name in ("COT", "Simple"))
    differences = paired_difference(a, b)
    ax = panels()
    results.paired_gain(ax, differences, domain_averages(differences, ["evaluation"], "difference"))
    assert len(ax.texts) == 1


def test_ablations_show_the_paper_hollow(panels, episodes):
    averages = domain_averages(accuracy_summary(episodes))
    published = read_published_averages(3).rename(columns={"model": "variant"})
    axes = panels(3, height=3, sharey=True)
    results.ablations(axes, averages, published)
    for ax, domain in zip(axes, ("in", "out", "all")):
        hollow = [line for line in ax.lines if line.get_markerfacecolor() == "white"]
        ours = averages[averages["domain"] == domain].set_index("variant")["accuracy"]
        np.testing.assert_allclose([c.lines[0].get_xdata()[0] for c in ax.containers], 100 * ours[list(VARIANTS)])
        paper = published[published["domain"] == domain].set_index("variant")["accuracy"]
        np.testing.assert_allclose([line.get_xdata()[0] for line in hollow], 100 * paper[list(VARIANTS)])
    assert [label.get_text() for label in axes[0].get_yticklabels()] == list(VARIANTS)


def test_cost_of_differences_has_one_row_per_switch_and_one_marker_per_variant(panels):
    columns = ["row", "label", "trains", "evaluation", "variant", "difference", "interval"]
    cells = [
        (1, "task covariance: n − 1", "nothing", evaluation, variant, difference, 0.004)
        for evaluation in ("variable", "5-way-1-shot")
        for variant, difference in (("Simple", -0.01), ("Transductive", 0.02))
    ]
    cells += [
        (None, "arithmetic: plain", "adaptation", evaluation, "Transductive", 0.003, 0.001)
        for evaluation in ("variable", "5-way-1-shot")
    ]
    axes = panels(2, sharey=True)
    results.cost_of_differences(axes, pd.DataFrame(cells, columns=columns).astype({"row": "Int64"}))
    assert [label.get_text() for label in axes[0].get_yticklabels()] == [
        "1  task covariance: n − 1",
        "–  arithmetic: plain",
    ]
    for ax, title in zip(axes, ("variable", "5-way-1-shot"), strict=True):
        assert ax.get_title() == title and "points" in ax.get_xlabel()
        drawn = np.concatenate([container[0].get_xdata() for container in ax.containers])
        assert np.allclose(np.sort(drawn), [-1, 0.3, 2])
    assert len(axes[0].get_lines()) > 0 and len(axes[0].figure.legends[0].get_texts()) == 2


def test_class_recall_draws_a_line_per_variant(panels, predictions):
    table = recall_by_shot(class_recall(predictions[predictions["variant"].isin(["Simple", "Transductive"])]))
    axes = panels(3, sharey=True)
    results.class_recall(axes, table)
    line = axes[1].lines[0]
    own = table[(table["domain"] == "out") & (table["variant"] == line.get_label())].sort_values("shot")
    np.testing.assert_allclose(line.get_xydata(), own[["shot", "recall"]] * [1, 100])
    assert axes[0].get_ylabel() == "Class recall (%)" and axes[0].get_xscale() == "log"


def test_a_study_of_one_domain_and_one_shot_has_one_panel_with_an_interval(panels, predictions):
    own = predictions[(predictions["variant"] == "Simple") & (predictions["domain"] == "in")].assign(shot=1)
    table = recall_by_shot(class_recall(own))
    assert results.domains_shown(table) == ["in"] and results.domains_shown(predictions) == ["in", "out", "all"]
    axes = [panels(1)]
    results.class_recall(axes, table)
    assert axes[0].get_title() == "In-domain" and axes[0].get_xlabel()
    (drawn,) = axes[0].containers
    low, high = drawn.lines[2][0].get_segments()[0][:, 1]
    shown = table[table["domain"] == "in"].iloc[0]
    np.testing.assert_allclose([low, high], 100 * (shown["recall"] + shown["interval"] * np.array([-1, 1])))


@pytest.mark.parametrize(("value", "form"), [("accuracy", ".1f"), ("gain", "+.2f")])
def test_heatmap_writes_every_cell_and_no_other(panels, rows, value, form):
    grid = refinement_grid(rows, "support_and_query", range(6), range(7))
    ax = panels(height=2.8)
    results.refinement_heatmap(ax, grid, value)
    written = sorted(text.get_text() for text in ax.texts)
    assert written == sorted(f"{100 * v:{form}}" for v in grid[value])
    [outline] = ax.patches
    assert outline.get_xy() == (4, 2)  # column 4 = maximum, row 2 = minimum
    assert ax.get_legend().get_texts()[0].get_text() == "minimum 2, maximum 4"
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("Maximum refinement steps", "Minimum refinement steps")
    assert ax.figure.axes[1].get_ylabel().endswith("(%)" if value == "accuracy" else "(points)")


def test_heatmap_without_the_papers_cell_marks_nothing(panels, rows):
    ax = panels()
    results.refinement_heatmap(ax, refinement_grid(rows, "support_and_query", [0, 1], [1, 2]))
    assert not ax.patches and ax.get_legend() is None


def test_accuracy_by_step(panels, rows):
    frame = pd.concat(
        [accuracy_by_step(rows, "support_and_query", range(7), domain) for domain in ("in", "out", "all")]
    )
    ax = panels()
    results.accuracy_by_step(ax, frame, "domain", "gain")
    line = ax.lines[0]
    assert line.get_label() == "In-domain" and ax.get_ylabel() == "Gain over step 0 (points)"
    np.testing.assert_allclose(line.get_ydata(), 100 * frame.loc[frame["domain"] == "in", "gain"])
    ax = panels()
    results.accuracy_by_step(ax, frame[frame["domain"] == "out"], "domain")
    assert ax.get_title() == "Out-of-domain" and ax.get_legend() is None
    ax = panels()
    results.accuracy_by_step(ax, accuracy_by_step(rows, "support_and_query", range(7)))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("Refinement steps", "Accuracy (%)")


def test_number_of_queries(panels):
    frame = pd.DataFrame(
        [
            {
                "variant": variant,
                "evaluation": f"5-way {shot}-shot",
                "queries_per_class": n,
                "accuracy": 0.5 + n / 1000,
                "interval": 0.01,
            }
            for variant in ("Simple", "Transductive")
            for shot in (1, 5)
            for n in (10, 20, 50)
        ]
    )
    axes = panels(2)
    results.number_of_queries(axes, frame)
    assert [ax.get_title() for ax in axes] == ["5-way 1-shot", "5-way 5-shot"]
    simple, transductive = dots(axes[1])["Simple"], dots(axes[1])["Transductive"]
    np.testing.assert_allclose(simple[:, 1], [51, 52, 55])
    np.testing.assert_allclose((simple + transductive)[:, 0] / 2, [10, 20, 50])  # side by side, a hair apart
    np.testing.assert_allclose((transductive - simple)[:, 0], 0.48)


def test_cutting_keeps_percentages_in_range(panels):
    frame = pd.DataFrame(
        {
            "variant": "Simple",
            "evaluation": "5-way 1-shot",
            "queries_per_class": [10, 20],
            "accuracy": [0.1, 0.9],
            "interval": [0.4, 0.4],
        }
    )
    (ax,) = panels(1, squeeze=False)[0]
    results.number_of_queries([ax], frame)
    assert ax.get_ylim() == (-1, 101)


def test_class_recall_of_some_domains_and_as_a_gain(panels, predictions):
    recalls = class_recall(predictions[predictions["variant"].isin(["Simple", "COT", "Transductive"])])
    a, b = (recalls[recalls["variant"] == name] for name in ("Transductive", "Simple"))
    gains = recall_by_shot(paired_episodes(a, b, "recall", ["label"]), value="difference")
    axes = panels(2, sharey=True)
    results.class_recall(axes, gains[gains["domain"] != "out"], ["out", "all"], "difference")
    assert [ax.get_title() for ax in axes] == ["Out-of-domain", "All datasets"]
    assert [text.get_text() for text in axes[0].texts] == ["no classes"] and not axes[1].texts
    assert axes[0].get_ylabel() == "Gain in recall (points)" and all(ax.get_xlabel() for ax in axes)
    own = gains[gains["domain"] == "all"].sort_values("shot")
    np.testing.assert_allclose(axes[1].lines[0].get_xydata(), own[["shot", "difference"]] * [1, 100])


def test_a_ring_marks_a_point_and_its_interval(panels):
    ax = panels(1)
    results.ring(ax, 2.0, 50.0, 4.0)
    results.ring(ax, 3.0, 60.0)
    bar, *circles = (line.get_xydata().tolist() for line in ax.lines)
    assert bar == [[2, 46], [2, 54]] and circles == [[[2, 50]], [[3, 60]]]


def test_panels_must_be_as_many_as_evaluations(panels):
    frame = pd.DataFrame(
        {
            "variant": ["Simple"],
            "evaluation": ["5-way 1-shot"],
            "queries_per_class": [10],
            "accuracy": [0.5],
            "interval": [0.1],
        }
    )
    with pytest.raises(ValueError, match="zip"):
        results.number_of_queries(panels(2), frame)


def test_frequencies_stack_to_the_counts(panels, rows):
    axes = panels(2)
    results.frequencies(axes[0], way_frequencies(rows), "way")
    results.frequencies(axes[1], shot_frequencies(rows), "shot")
    assert sum(bar.get_height() for bar in axes[0].patches) == 6 * len(DATASETS)
    assert axes[0].get_xlabel() == "Classes per episode (way)"
    assert axes[1].get_xlabel() == "Support images per class (shot)"


def test_training_curves(panels):
    curve = pd.DataFrame(
        {"epoch": [1, 2], "loss": [2.0, 1.0], "train_accuracy": [0.2, 0.6], "valid_accuracy": [0.1, 0.5]}
    )
    axes = panels(2)
    learning_curves.pretraining(axes, curve)
    np.testing.assert_allclose(axes[1].lines[1].get_ydata(), [10, 50])
    steps = pd.DataFrame(
        {"episode": np.arange(1, 41), "loss": np.linspace(2, 1, 40), "train_accuracy": np.linspace(0.2, 0.6, 40)}
    )
    validation = pd.DataFrame(
        {"episode": [20, 20, 40, 40], "dataset": ["a", "b"] * 2, "accuracy": [0.2, 0.4, 0.4, 0.6]}
    )
    axes = panels(3)
    learning_curves.meta_training(axes, steps, validation)
    lines = {line.get_label(): line.get_xydata() for line in axes[2].lines}
    np.testing.assert_allclose(lines["mean"], [[20, 30], [40, 50]])
    np.testing.assert_allclose(lines["b"], [[20, 40], [40, 60]])
    # The running mean of a straight line is the line, away from its ends.
    np.testing.assert_allclose(axes[0].lines[1].get_ydata()[2:-2], steps["loss"][2:-2], atol=0.02)


# Clustering.


@pytest.fixture
def toy():
    random = np.random.default_rng(0)
    points = random.normal(size=(20, 2)) + np.repeat([[0, 0], [4, 1]], 10, axis=0)
    is_support = np.zeros(20, dtype=bool)
    is_support[[0, 10]] = True
    responsibilities = random.dirichlet([1, 1], size=(3, 20))
    means = np.array([[[0.0, 0.0], [4.0, 1.0]]] * 3)
    covariances = np.array([[[[2.0, 0.8], [0.8, 1.0]], [[1.0, 0.0], [0.0, 3.0]]]] * 3)
    return points, is_support, responsibilities, means, covariances


def test_ellipses_lie_at_the_mahalanobis_distance(panels, toy):
    points, is_support, responsibilities, means, covariances = toy
    ax = panels()
    clustering.clustering_step(ax, points, is_support, responsibilities[0], means[0], covariances[0])
    for patch, (k, distance) in zip(ax.patches, [(0, 1), (0, 2), (1, 1), (1, 2)], strict=True):
        edge = patch.get_patch_transform().transform(np.column_stack([np.cos(t := np.linspace(0, 6, 50)), np.sin(t)]))
        centred = edge - means[0][k]
        squared = np.einsum("ni,ij,nj->n", centred, np.linalg.inv(covariances[0][k]), centred)
        np.testing.assert_allclose(squared, distance**2)


def test_strip_rings_the_labels_that_changed(panels, toy):
    points, is_support, responsibilities, means, covariances = toy
    axes = panels(3, height=2)
    clustering.steps_strip(axes, points, is_support, responsibilities, means, covariances)
    clustering.clustering_legend(axes[0].figure, 2)
    labels = responsibilities.argmax(axis=2)
    assert axes[0].get_title() == "Step 0"
    for step in (1, 2):
        changed = points[labels[step] != labels[step - 1]]
        assert axes[step].get_title() == f"Step {step} · {len(changed)} changed"
        assert any(np.array_equal(c.get_offsets(), changed) for c in axes[step].collections)
    assert len({(ax.get_xlim(), ax.get_ylim()) for ax in axes}) == 1


def test_query_colours_mix_the_classes(panels, toy):
    points, is_support, _, means, covariances = toy
    mostly_first = np.tile([0.75, 0.25], (20, 1))
    ax = panels()
    clustering.clustering_step(ax, points, is_support, mostly_first, means[0], covariances[0])
    colours = clustering.class_colours(2)
    np.testing.assert_allclose(ax.collections[0].get_facecolor()[0, :3], 0.75 * colours[0] + 0.25 * colours[1])


def test_many_classes_get_distinct_colours():
    colours = clustering.class_colours(24)
    assert len(np.unique(colours.round(3), axis=0)) == 24
    assert (colours >= 0).all() and (colours <= 1).all()


def test_confidence_and_gain_by_scale(panels):
    frame = pd.DataFrame({"scale": np.repeat([0.25, 1.0], 40), "step": np.tile([0, 1], 40), "confidence": 0.72})
    axes = panels(2, sharey=True)
    clustering.confidence_by_scale(axes, frame)
    assert [ax.get_title() for ax in axes] == ["Scale 0.25", "Scale 1"]
    peak = axes[0].patches[0].get_xy()
    assert peak[:, 1].max() == pytest.approx(1) and peak[peak[:, 1].argmax(), 0] == pytest.approx(0.7)
    gains = pd.DataFrame(
        {"dataset": list("aabb"), "scale": [0.25, 1, 0.25, 1], "gain": [0.04, 0.02, 0.03, 0.01], "interval": 0.01}
    )
    ax = panels()
    clustering.gain_by_scale(ax, gains)
    np.testing.assert_allclose(dots(ax)["a"][:, 1], [4, 2])
    assert [label.get_text() for label in ax.get_xticklabels()] == ["¼", "1"]


def test_episode_images_cross_the_errors(panels):
    random = np.random.default_rng(0)
    support = {
        "cat": random.integers(0, 255, (1, 8, 8, 3), dtype=np.uint8),
        "dog": random.integers(0, 255, (3, 8, 8, 3), dtype=np.uint8),
    }
    query = random.integers(0, 255, (4, 8, 8, 3), dtype=np.uint8)
    true, predicted = np.array([0, 1, 0, 1]), np.array([0, 0, 0, 1])
    ax = panels(height=1.6)
    images.episode_images(ax, support, query, predicted, true)
    assert len(ax.images) == 8
    assert sum(line.get_marker() == "x" for line in ax.lines) == 2  # one wrong query: a cross on its white halo
    ax = panels(height=1.6)
    images.episode_images(ax, support)
    assert len(ax.images) == 4


def test_contact_sheets_show_every_dataset_and_leave_the_rest_empty(panels):
    pixels = np.zeros((5, 8, 8, 3), dtype=np.uint8)
    axes = panels(3)
    images.contact_sheets(axes, {"letters": [pixels, pixels[:4]], "digits": [pixels[:2]]})
    assert [ax.get_title() for ax in axes] == ["letters", "digits", ""]
    assert [ax.images[0].get_array().shape for ax in axes if ax.images] == [(16, 32, 3), (8, 16, 3)]


# Style and files.


def test_every_variant_has_a_look_of_its_own():
    assert set(style.VARIANT_STYLES) == set(VARIANTS)
    assert len(set(style.VARIANT_STYLES.values())) == len(VARIANTS)
    others = [style.variant_style(f"rule {i}", i) for i in range(8)]
    assert len(set(others)) == 8


def test_style_ends_with_its_block():
    before = plt.rcParams["font.size"]
    with style.style():
        assert plt.rcParams["font.size"] == 8
    assert plt.rcParams["font.size"] == before


def draw(path):
    with style.figure(path, height=1.5) as (figure, ax):
        ax.plot([1, 2], [3, 4], label="±")
        ax.set_xlabel("Accuracy (%)")
        ax.legend()
    return figure


def test_a_figure_is_saved_with_the_same_bytes_each_time(tmp_path):
    for name in "ab":
        plt.close(draw(tmp_path / name / "deep" / "v1.5-plot"))
    for suffix in ("png", "pdf"):
        one, other = ((tmp_path / name / "deep" / f"v1.5-plot.{suffix}").read_bytes() for name in "ab")
        assert one == other and b"CreationDate" not in one
    assert len(list((tmp_path / "a" / "deep").iterdir())) == 2
    assert plt.imread(tmp_path / "a" / "deep" / "v1.5-plot.png").shape[1] == round(style.COLUMN_WIDTH * 200)


def test_a_figure_has_one_axes_or_an_array_of_panels(tmp_path):
    with style.figure(tmp_path / "one", columns=1) as (figure, axes):
        assert axes.shape == (1,) and figure.get_size_inches()[0] == style.COLUMN_WIDTH
    with style.figure(tmp_path / "many", columns=3, rows=2, height=3) as (other, axes):
        assert axes.shape == (6,) and tuple(other.get_size_inches()) == (style.TEXT_WIDTH, 3)
    plt.close(figure)
    plt.close(other)


def test_nothing_is_saved_when_drawing_fails(tmp_path):
    with pytest.raises(RuntimeError, match="no data"), style.figure(tmp_path / "plot"):
        raise RuntimeError("no data")
    plt.close("all")
    assert not list(tmp_path.iterdir())


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    figure = draw(tmp_path / "plot")
    before = (tmp_path / "plot.png").read_bytes()

    def fail(self, path, **options):
        path.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(Figure, "savefig", fail)
    with pytest.raises(OSError, match="disk full"):
        style.save(figure, tmp_path / "plot")
    plt.close(figure)
    assert (tmp_path / "plot.png").read_bytes() == before and len(list(tmp_path.iterdir())) == 2
