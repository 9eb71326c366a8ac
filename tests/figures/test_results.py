"""Figures: the numbers they draw, their units and legibility; files that come out whole and the same."""

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402
import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
import pytest  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.text import Text  # noqa: E402
from synthetic_rows import DATASETS, synthetic_rows  # noqa: E402

from tcnaps.evaluation.recall import class_recall, recall_by_shot, shot_frequencies, way_frequencies  # noqa: E402
from tcnaps.evaluation.statistics import (  # noqa: E402
    accuracy_by_step,
    accuracy_summary,
    domain_averages,
    episode_accuracies,
    paired_difference,
    paired_episodes,
    refinement_grid,
)
from tcnaps.evaluation.stopped_rows import variant_predictions  # noqa: E402
from tcnaps.figures import (
    clustering as clustering_figures,  # noqa: E402
    differences as difference_figures,
    results as figures,
    training as training_figures,
)
from tcnaps.figures.style import COLUMN_WIDTH, TEXT_WIDTH, VARIANT_STYLES, save, style, subplots, variant_style  # noqa: E402
from tcnaps.figures.tables import read_published_averages  # noqa: E402
from tcnaps.method.variants import VARIANTS  # noqa: E402


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
        context = style()
        context.__enter__()
        figure, axes = subplots(1, columns, **{"width": TEXT_WIDTH if columns > 1 else COLUMN_WIDTH, **options})
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


# The experiments' figures.


def test_accuracy_by_dataset_draws_percent_and_intervals(panels, episodes):
    names = ["Simple", "FEOT", "COT", "Transductive"]
    summary = accuracy_summary(episodes[episodes["variant"].isin(names)])
    ax = panels(height=3.2)
    figures.accuracy_by_dataset(ax, summary)
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
    figures.paired_gain(ax, differences, averages)
    written = [text.get_text() for text in ax.texts]
    for row in [*differences.itertuples(), *averages.itertuples()]:
        assert f"{100 * row.difference:+.1f} ± {100 * row.interval:.1f}" in written
    assert len(written) == len(differences) + 3
    assert ax.get_xlabel() == "Paired difference in accuracy (points)"
    assert any(np.array_equal(line.get_xdata(), [0, 0]) for line in ax.lines)


def test_paired_gain_without_averages(panels, episodes):
    a, b = (episodes[episodes["variant"] == name] for name in ("Transductive", "Simple"))
    ax = panels()
    figures.paired_gain(ax, paired_difference(a, b))
    assert len(ax.texts) == len(DATASETS)


def test_ablations_show_the_paper_hollow(panels, episodes):
    averages = domain_averages(accuracy_summary(episodes))
    published = read_published_averages(3).rename(columns={"model": "variant"})
    axes = panels(3, height=3, sharey=True)
    figures.ablations(axes, averages, published)
    for ax, domain in zip(axes, ("in", "out", "all")):
        hollow = [line for line in ax.lines if line.get_markerfacecolor() == "white"]
        ours = averages[averages["domain"] == domain].set_index("variant")["accuracy"]
        np.testing.assert_allclose([c.lines[0].get_xdata()[0] for c in ax.containers], 100 * ours[list(VARIANTS)])
        paper = published[published["domain"] == domain].set_index("variant")["accuracy"]
        np.testing.assert_allclose([line.get_xdata()[0] for line in hollow], 100 * paper[list(VARIANTS)])
    assert [label.get_text() for label in axes[0].get_yticklabels()] == list(VARIANTS)


def test_cost_of_differences_has_a_row_a_switch_and_a_marker_a_variant(panels):
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
    difference_figures.cost_of_differences(axes, pd.DataFrame(cells, columns=columns).astype({"row": "Int64"}))
    assert [label.get_text() for label in axes[0].get_yticklabels()] == [
        "1  task covariance: n − 1",
        "–  arithmetic: plain",
    ]
    for ax, title in zip(axes, ("variable", "5-way-1-shot"), strict=True):
        assert ax.get_title() == title and "points" in ax.get_xlabel()
        drawn = np.concatenate([container[0].get_xdata() for container in ax.containers])
        assert np.allclose(np.sort(drawn), [-1, 0.3, 2])
    assert len(axes[0].get_lines()) > 0 and len(axes[0].figure.legends[0].get_texts()) == 2


def test_class_recall_and_its_gain(panels, predictions):
    recalls = class_recall(predictions[predictions["variant"].isin(["Simple", "Transductive"])])
    table = recall_by_shot(recalls)
    axes = panels(3, sharey=True)
    figures.class_recall(axes, table)
    line = axes[1].lines[0]
    own = table[(table["domain"] == "out") & (table["variant"] == line.get_label())].sort_values("shot")
    np.testing.assert_allclose(line.get_xydata(), own[["shot", "recall"]] * [1, 100])
    assert axes[0].get_ylabel() == "Class recall (%)" and axes[0].get_xscale() == "log"
    a, b = (recalls[recalls["variant"] == name] for name in ("Transductive", "Simple"))
    gains = recall_by_shot(paired_episodes(a, b, "recall", ["label"]), ["evaluation"], "difference")
    axes = panels(3, sharey=True)
    figures.recall_gain(axes, gains)
    own = gains[gains["domain"] == "all"].sort_values("shot")
    np.testing.assert_allclose(axes[2].containers[0].lines[0].get_xydata()[:, 1], 100 * own["difference"])


def test_a_study_of_one_domain_and_one_shot_has_one_panel_with_an_interval(panels, predictions):
    own = predictions[(predictions["variant"] == "Simple") & (predictions["domain"] == "in")].assign(shot=1)
    table = recall_by_shot(class_recall(own))
    assert figures.domains_shown(table) == ["in"] and figures.domains_shown(predictions) == ["in", "out", "all"]
    axes = [panels(1)]
    figures.class_recall(axes, table)
    assert axes[0].get_title() == "In-domain" and axes[0].get_xlabel()
    (drawn,) = axes[0].containers
    low, high = drawn.lines[2][0].get_segments()[0][:, 1]
    shown = table[table["domain"] == "in"].iloc[0]
    np.testing.assert_allclose([low, high], 100 * (shown["recall"] + shown["interval"] * np.array([-1, 1])))


@pytest.mark.parametrize(("value", "form"), [("accuracy", ".1f"), ("gain", "+.2f")])
def test_heatmap_writes_every_cell_and_no_other(panels, rows, value, form):
    grid = refinement_grid(rows, "support_and_query", range(6), range(7))
    ax = panels(height=2.8)
    figures.refinement_heatmap(ax, grid, value)
    written = sorted(text.get_text() for text in ax.texts)
    assert written == sorted(f"{100 * v:{form}}" for v in grid[value])
    [outline] = ax.patches
    assert outline.get_xy() == (4, 2)  # column 4 = maximum, row 2 = minimum
    assert ax.get_legend().get_texts()[0].get_text() == "minimum 2, maximum 4"
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("Maximum refinement steps", "Minimum refinement steps")
    assert ax.figure.axes[1].get_ylabel().endswith("(%)" if value == "accuracy" else "(points)")


def test_heatmap_without_the_papers_cell_marks_nothing(panels, rows):
    ax = panels()
    figures.refinement_heatmap(ax, refinement_grid(rows, "support_and_query", [0, 1], [1, 2]))
    assert not ax.patches and ax.get_legend() is None


def test_accuracy_by_step(panels, rows):
    frame = pd.concat(
        [accuracy_by_step(rows, "support_and_query", range(7), domain) for domain in ("in", "out", "all")]
    )
    ax = panels()
    figures.accuracy_by_step(ax, frame, "domain", "gain")
    line = ax.lines[0]
    assert line.get_label() == "In-domain" and ax.get_ylabel() == "Gain over step 0 (points)"
    np.testing.assert_allclose(line.get_ydata(), 100 * frame.loc[frame["domain"] == "in", "gain"])
    ax = panels()
    figures.accuracy_by_step(ax, frame[frame["domain"] == "out"], "domain")
    assert ax.get_title() == "Out-of-domain" and ax.get_legend() is None
    ax = panels()
    figures.accuracy_by_step(ax, accuracy_by_step(rows, "support_and_query", range(7)))
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
    figures.number_of_queries(axes, frame)
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
    figures.number_of_queries([ax], frame)
    assert ax.get_ylim() == (-1, 101)


def test_class_recall_of_some_domains_and_as_a_gain(panels, predictions):
    recalls = class_recall(predictions[predictions["variant"].isin(["Simple", "COT", "Transductive"])])
    a, b = (recalls[recalls["variant"] == name] for name in ("Transductive", "Simple"))
    gains = recall_by_shot(paired_episodes(a, b, "recall", ["label"]), value="difference")
    axes = panels(2, sharey=True)
    figures.class_recall(axes, gains[gains["domain"] != "out"], ["out", "all"], "difference")
    assert [ax.get_title() for ax in axes] == ["Out-of-domain", "All datasets"]
    assert [text.get_text() for text in axes[0].texts] == ["no classes"] and not axes[1].texts
    assert axes[0].get_ylabel() == "Gain in recall (points)" and all(ax.get_xlabel() for ax in axes)
    own = gains[gains["domain"] == "all"].sort_values("shot")
    np.testing.assert_allclose(axes[1].lines[0].get_xydata(), own[["shot", "difference"]] * [1, 100])


def test_a_ring_marks_a_point_and_its_interval(panels):
    ax = panels(1)
    figures.ring(ax, 2.0, 50.0, 4.0)
    figures.ring(ax, 3.0, 60.0)
    bar, *circles = (line.get_xydata().tolist() for line in ax.lines)
    assert bar == [[2, 46], [2, 54]] and circles == [[[2, 50]], [[3, 60]]]


def test_panels_must_be_as_many_as_protocols(panels):
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
        figures.number_of_queries(panels(2), frame)


def test_frequencies_stack_to_the_counts(panels, rows):
    axes = panels(2)
    figures.frequencies(axes[0], way_frequencies(rows), "way")
    figures.frequencies(axes[1], shot_frequencies(rows), "shot")
    assert sum(bar.get_height() for bar in axes[0].patches) == 6 * len(DATASETS)
    assert axes[0].get_xlabel() == "Classes per episode (way)"
    assert axes[1].get_xlabel() == "Support images per class (shot)"


def test_training_curves(panels):
    curve = pd.DataFrame(
        {"epoch": [1, 2], "loss": [2.0, 1.0], "train_accuracy": [0.2, 0.6], "valid_accuracy": [0.1, 0.5]}
    )
    axes = panels(2)
    training_figures.pretraining(axes, curve)
    np.testing.assert_allclose(axes[1].lines[1].get_ydata(), [10, 50])
    steps = pd.DataFrame(
        {"episode": np.arange(1, 41), "loss": np.linspace(2, 1, 40), "train_accuracy": np.linspace(0.2, 0.6, 40)}
    )
    validation = pd.DataFrame(
        {"episode": [20, 20, 40, 40], "dataset": ["a", "b"] * 2, "accuracy": [0.2, 0.4, 0.4, 0.6]}
    )
    axes = panels(3)
    training_figures.meta_training(axes, steps, validation)
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
    clustering_figures.clustering_step(ax, points, is_support, responsibilities[0], means[0], covariances[0])
    for patch, (k, distance) in zip(ax.patches, [(0, 1), (0, 2), (1, 1), (1, 2)], strict=True):
        edge = patch.get_patch_transform().transform(np.column_stack([np.cos(t := np.linspace(0, 6, 50)), np.sin(t)]))
        centred = edge - means[0][k]
        squared = np.einsum("ni,ij,nj->n", centred, np.linalg.inv(covariances[0][k]), centred)
        np.testing.assert_allclose(squared, distance**2)


def test_strip_rings_the_labels_that_changed(panels, toy):
    points, is_support, responsibilities, means, covariances = toy
    axes = panels(3, height=2)
    clustering_figures.steps_strip(axes, points, is_support, responsibilities, means, covariances)
    clustering_figures.clustering_legend(axes[0].figure, 2)
    labels = responsibilities.argmax(axis=2)
    assert axes[0].get_title() == "Step 0"
    for step in (1, 2):
        changed = points[labels[step] != labels[step - 1]]
        assert axes[step].get_title() == f"Step {step} · {len(changed)} changed"
        assert any(np.array_equal(c.get_offsets(), changed) for c in axes[step].collections)
    assert len({(ax.get_xlim(), ax.get_ylim()) for ax in axes}) == 1


def test_query_colours_mix_the_classes(panels, toy):
    points, is_support, _, means, _ = toy
    mostly_first = np.tile([0.75, 0.25], (20, 1))
    ax = panels()
    clustering_figures.clustering_step(ax, points, is_support, mostly_first, means[0])
    colours = clustering_figures.class_colours(2)
    np.testing.assert_allclose(ax.collections[0].get_facecolor()[0, :3], 0.75 * colours[0] + 0.25 * colours[1])


def test_many_classes_get_distinct_colours():
    colours = clustering_figures.class_colours(24)
    assert len(np.unique(colours.round(3), axis=0)) == 24
    assert (colours >= 0).all() and (colours <= 1).all()


def test_confidence_and_gain_by_scale(panels):
    frame = pd.DataFrame({"scale": np.repeat([0.25, 1.0], 40), "step": np.tile([0, 1], 40), "confidence": 0.72})
    axes = panels(2, sharey=True)
    clustering_figures.confidence_by_scale(axes, frame)
    assert [ax.get_title() for ax in axes] == ["Scale 0.25", "Scale 1"]
    peak = axes[0].patches[0].get_xy()
    assert peak[:, 1].max() == pytest.approx(1) and peak[peak[:, 1].argmax(), 0] == pytest.approx(0.7)
    gains = pd.DataFrame(
        {"dataset": list("aabb"), "scale": [0.25, 1, 0.25, 1], "gain": [0.04, 0.02, 0.03, 0.01], "interval": 0.01}
    )
    ax = panels()
    clustering_figures.gain_by_scale(ax, gains)
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
    clustering_figures.episode_images(ax, support, query, predicted, true)
    assert len(ax.images) == 8
    assert sum(line.get_marker() == "x" for line in ax.lines) == 2  # one wrong query: a cross on its white halo
    ax = panels(height=1.6)
    clustering_figures.episode_images(ax, support)
    assert len(ax.images) == 4


# Style and files.


def test_every_variant_has_a_look_of_its_own():
    assert set(VARIANT_STYLES) == set(VARIANTS)
    assert len(set(VARIANT_STYLES.values())) == len(VARIANTS)
    others = [variant_style(f"rule {i}", i) for i in range(8)]
    assert len(set(others)) == 8


def test_style_ends_with_its_block():
    before = plt.rcParams["font.size"]
    with style():
        assert plt.rcParams["font.size"] == 8
    assert plt.rcParams["font.size"] == before


def drawing():
    with style():
        figure, ax = subplots(height=1.5)
        ax.plot([1, 2], [3, 4], label="±")
        ax.set_xlabel("Accuracy (%)")
        ax.legend()
    return figure


def test_saved_twice_gives_the_same_bytes(tmp_path):
    written = [save(figure, tmp_path / name / "deep" / "plot") for name in "ab" for figure in [drawing()]]
    plt.close("all")
    assert [path.name for path in written[0]] == ["plot.png", "plot.pdf"]
    for one, other in zip(*written, strict=True):
        assert one.read_bytes() == other.read_bytes()
        assert b"CreationDate" not in one.read_bytes()
    assert sorted(p.name for p in (tmp_path / "a" / "deep").iterdir()) == ["plot.pdf", "plot.png"]
    image = plt.imread(written[0][0])
    assert image.shape[1] == round(COLUMN_WIDTH * 200)


def test_a_dotted_name_keeps_its_dots(tmp_path):
    figure = drawing()
    assert [path.name for path in save(figure, tmp_path / "v1.5-plot")] == ["v1.5-plot.png", "v1.5-plot.pdf"]
    plt.close(figure)


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    figure = drawing()
    save(figure, tmp_path / "plot")
    before = (tmp_path / "plot.png").read_bytes()

    def fail(self, path, **options):
        path.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(Figure, "savefig", fail)
    with pytest.raises(OSError, match="disk full"):
        save(figure, tmp_path / "plot")
    plt.close(figure)
    assert (tmp_path / "plot.png").read_bytes() == before and len(list(tmp_path.iterdir())) == 2
