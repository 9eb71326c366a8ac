"""Figures: the numbers they draw, their units, and that every text lies inside and is large enough to read."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.text import Text
from synthetic_rows import DATASETS, synthetic_rows

from tcnaps.evaluation import statistics
from tcnaps.evaluation.claims import claims_table
from tcnaps.evaluation.result_files import read_published_averages
from tcnaps.evaluation.stopped_rows import variant_predictions
from tcnaps.figures import results, style
from tcnaps.method.variants import VARIANTS
from tcnaps_suite.experiments import curves, differences

plt.switch_backend("Agg")
SUMMARISE = statistics.accuracy_summary, statistics.domain_averages


@pytest.fixture(scope="module")
def rows():
    return synthetic_rows(tuple({variant.training for variant in VARIANTS.values()}), n_episodes=4)


@pytest.fixture(scope="module")
def predictions(rows):
    return variant_predictions(rows, list(VARIANTS), 2, 4)


@pytest.fixture(scope="module")
def episodes(predictions):
    return statistics.episode_accuracies(predictions)


@pytest.fixture
def panels():
    """Axes in the shared style; at the end every text of the figure must lie inside it."""
    with style.style():
        yield lambda columns=1, height=2.4, **options: plt.subplots(
            1, columns, figsize=(style.TEXT_WIDTH if columns > 1 else style.COLUMN_WIDTH, height), **options
        )[1]
        for figure in map(plt.figure, plt.get_fignums()):
            figure.draw_without_rendering()
            box, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
            assert box.x0 > -0.01 and box.y0 > -0.01 and box.x1 < width + 0.01 and box.y1 < height + 0.01
            assert min((text.get_fontsize() for text in figure.findobj(Text) if text.get_text()), default=6) >= 6
    plt.close("all")


def dots(ax):
    """What errorbar drew: label → (x, y) of the dots, without the bars."""
    return {c.get_label(): c.lines[0].get_xydata() for c in ax.containers}


def texts(labels):
    return [label.get_text() for label in labels]


def pairs(episodes, better="Transductive", than="Simple", value="accuracy", extra=()):
    return statistics.paired_episodes(*(episodes[episodes["variant"] == name] for name in (better, than)), value, extra)


def test_accuracy_by_dataset_draws_percent_and_intervals(panels, episodes):
    shown = episodes[episodes["variant"].isin(["Simple", "FEOT", "COT", "Transductive"])]
    summary, averages = statistics.accuracy_summary(shown), statistics.domain_averages(shown)
    ax = panels(height=3.2)
    results.accuracy_by_dataset(ax, summary, averages)
    drawn = pd.concat([summary, averages])
    for container in ax.containers:
        cells = drawn[drawn["variant"] == container.get_label()]
        np.testing.assert_allclose(container.lines[0].get_xdata(orig=False), 100 * cells["accuracy"])
        widths = [segment[1, 0] - segment[0, 0] for segment in container.lines[2][0].get_segments()]
        np.testing.assert_allclose(widths, 200 * cells["interval"])
    # Rows run down the page, in-domain first.
    rows = sorted((label.get_position()[1], label.get_text()) for label in ax.get_yticklabels())
    datasets = ["In-domain", "letters", "textures", "Out-of-domain", "digits"]
    means = ["Mean over datasets", "In-domain", "Out-of-domain", "All datasets"]
    assert [name for _, name in rows] == [*datasets, *means]
    assert ax.get_ylim()[0] > ax.get_ylim()[1] and ax.get_xlabel() == "Accuracy (%)"


def test_paired_gain_writes_its_values_and_one_wide_bar_flattens_none(panels, episodes):
    paired = pairs(episodes)
    differences, averages = (summarise(paired, ["evaluation"], "difference") for summarise in SUMMARISE)
    differences.loc[1, "interval"] = 0.9
    ax = panels(height=2.8)
    results.paired_gain(ax, differences, averages)
    written = texts(ax.texts)
    for row in [*differences.itertuples(), *averages.itertuples()]:
        assert f"{100 * row.difference:+.1f} ± {100 * row.interval:.1f}".replace("-", "−") in written
    assert len(written) == len(differences) + 3
    usual = np.median([*differences["interval"], *averages["interval"]])
    assert np.diff(ax.get_xlim()).item() < 100 * (8 * usual + np.ptp(differences["difference"]))


def test_one_dataset_has_no_means_below(panels, episodes):
    paired = pairs(episodes[episodes["dataset"] == "digits"])
    ax = panels()
    results.paired_gain(ax, *(summarise(paired, value="difference") for summarise in SUMMARISE))
    assert len(ax.texts) == 1 and "digits" in texts(ax.get_yticklabels())


def test_ablations_stand_beside_the_papers_differences(panels, episodes):
    names = [name for name in VARIANTS if name != "Simple"]
    gains = statistics.domain_averages(pd.concat([pairs(episodes, name) for name in names]), value="difference")
    printed = read_published_averages(3).rename(columns={"model": "variant"})
    printed = printed.assign(difference=printed["accuracy"] - 0.7)
    ax = panels(height=4)
    results.ablations(ax, gains, printed)
    papers = [line for line in ax.lines if line.get_marker() == "D" and len(line.get_xdata())]
    for domain, label, paper in zip(("in", "out", "all"), ("In-domain", "Out-of-domain", "All datasets"), papers):
        ours = gains[gains["domain"] == domain].set_index("variant")["difference"]
        np.testing.assert_allclose(dots(ax)[label][:, 0], 100 * ours[names])
        theirs = printed[(printed["domain"] == domain) & (printed["variant"] != "Simple")]
        np.testing.assert_allclose(paper.get_xdata(), 100 * theirs["difference"])
    assert texts(ax.get_yticklabels()) == names


def test_claims_show_each_training_and_the_paper(panels, rows):
    rows = rows[rows["training"].isin(["support", "support_and_query"])]
    table = claims_table(pd.concat([rows.assign(replicate=0), rows.assign(replicate=1)]))
    ax = panels(2, height=5)[0]
    results.claims([ax], table)
    evaluated = table[table["verdict"] != "not evaluated"]
    drawn = [c.lines[0].get_xdata()[0] for c in ax.containers if len(c.lines[0].get_xdata())]
    np.testing.assert_allclose(drawn, 100 * evaluated["difference"])
    bars = [line.get_xdata() for line in ax.lines if line.get_linewidth() == 3]  # for other episodes alone
    np.testing.assert_allclose([(high - low) / 200 for low, high in bars], evaluated["episode_interval"])
    ticks = [line for line in ax.lines if line.get_marker() == "|" and len(line.get_xdata())]
    assert [len(tick.get_xdata()) for tick in ticks] == [2] * len(evaluated) == [2] * len(ax.get_yticklabels())


def test_cost_of_differences_has_one_row_per_switch_and_one_marker_per_variant(panels):
    columns = ["row", "label", "trains", "evaluation", "domain", "variant", "difference", "interval"]
    cells = [
        (row, label, trains, evaluation, domain, variant, difference, 0.004)
        for evaluation, domain in (("variable", "all"), ("5-way-1-shot", "real"))
        for row, label, trains, variant, difference in (
            (1, "task covariance: n − 1", "nothing", "Simple", -0.01),
            (1, "task covariance: n − 1", "nothing", "Transductive", 0.02),
            (None, "arithmetic: plain", "adaptation", "Transductive", 0.003),
        )
    ]
    axes = panels(2, sharey=True)
    differences.cost_panels(axes, pd.DataFrame(cells, columns=columns).astype({"row": "Int64"}))
    assert texts(axes[0].get_yticklabels()) == ["1  task covariance: n − 1", "–  arithmetic: plain"]
    for ax, title in zip(axes, ("variable way and shot", "5-way, 1-shot\nreal images"), strict=True):
        drawn = np.concatenate([container[0].get_xdata() for container in ax.containers])
        assert ax.get_title() == title and np.allclose(np.sort(drawn), [-1, 0.3, 2])


def test_class_recall_draws_a_line_per_variant_with_bands_inside_percent(panels, predictions):
    of_two = predictions[predictions["variant"].isin(["Simple", "Transductive"])]
    table = statistics.recall_by_shot(statistics.class_recall(of_two))
    axes = panels(3, sharey=True)
    results.class_recall(axes, table)
    line = axes[1].lines[0]
    line_rows = table[(table["domain"] == "out") & (table["variant"] == line.get_label())].sort_values("shot")
    np.testing.assert_allclose(line.get_xydata(), line_rows[["shot", "recall"]] * [1, 100])
    assert axes[0].get_ylabel() == "Class recall (%)" and axes[0].get_xscale() == "log"
    paths = [path for ax in axes for band in ax.collections for path in band.get_paths()]
    heights = np.concatenate([path.vertices[:, 1] for path in paths])
    assert 0 <= heights.min() and heights.max() <= 100
    axes = panels(3, sharey=True)
    paired = pairs(statistics.class_recall(predictions), value="recall", extra=["label"])
    gains = statistics.recall_by_shot(paired, value="difference")
    results.class_recall(axes, gains, "difference")
    gains = gains[gains["domain"] == "all"].sort_values("shot")
    np.testing.assert_allclose(axes[2].lines[0].get_xydata(), gains[["shot", "difference"]] * [1, 100])


@pytest.mark.parametrize(("value", "form"), [("accuracy", ".1f"), ("gain", "+.2f")])
def test_heatmap_writes_every_cell_and_fades_what_is_within_its_interval(panels, rows, value, form):
    grid = statistics.refinement_grid(rows, "support_and_query", range(6), range(7))
    grid.loc[3:, "beyond_interval"] = 0.9
    ax = panels(2, height=2.8)[0]
    results.refinement_heatmap(ax, grid, value)
    written = sorted(text for text in texts(ax.texts) if text)
    assert written == sorted(f"{100 * v:{form}}".replace("-", "−") for v in grid[value])
    [outline] = ax.patches
    assert outline.get_xy() == (4, 2)  # column 4 = maximum, row 2 = minimum
    sure = grid["beyond"].abs() > grid["beyond_interval"]
    assert (np.asarray(ax.collections[0].get_alpha()) == 1).sum() == sure.sum()
    dark = grid[sure & (grid["beyond"].abs() > 0.6 * grid["beyond"].abs().max())]
    white = {tuple(int(x) for x in text.get_position()) for text in ax.texts if text.get_color() == "white"}
    assert white == set(zip(dark["maximum"], dark["minimum"])) and white


def test_the_gain_by_step(panels, rows):
    frame = statistics.refinement_grid(rows, "support_and_query", range(7), range(7), "in").query("minimum == maximum")
    ax = panels()
    results.gain_by_step(ax, frame)
    assert ax.get_title() == "In-domain" and ax.get_ylabel() == "Gain over step 0 (points)"
    np.testing.assert_allclose(ax.lines[0].get_xydata(), np.column_stack([range(7), 100 * frame["gain"]]))


def test_number_of_queries_side_by_side_on_one_axis(panels):
    columns = ["variant", "evaluation", "domain", "queries_per_class", "difference", "interval"]
    names, settings, counts = ("Simple", "Transductive"), ("5-way 1-shot", "5-way 5-shot"), (10, 20, 50)
    cells = [(name, setting, "all", n, n / 1000, 0.1) for name in names for setting in settings for n in counts]
    axes = panels(2)
    results.number_of_queries(axes, pd.DataFrame(cells, columns=columns))
    assert [ax.get_title() for ax in axes] == ["5-way, 1-shot", "5-way, 5-shot"]
    assert axes[0].get_ylim() == axes[1].get_ylim()
    simple, transductive = (dots(axes[1])[name] for name in names)
    np.testing.assert_allclose(simple[:, 1], [1, 2, 5])
    np.testing.assert_allclose((simple + transductive)[:, 0] / 2, counts)  # a hair apart
    np.testing.assert_allclose((transductive - simple)[:, 0], 0.48)


def test_frequencies_stack_to_the_counts(panels, rows):
    axes = panels(2)
    results.frequencies(axes[0], statistics.frequencies(rows, "way"), "way")
    results.frequencies(axes[1], statistics.frequencies(rows, "shot"), "shot")
    assert sum(bar.get_height() for bar in axes[0].patches) == 4 * len(DATASETS)
    assert [ax.get_ylabel() for ax in axes] == ["Episodes", "Classes"]


def test_training_curves(panels):
    curve = {"epoch": [1, 2], "loss": [2.0, 1.0], "train_accuracy": [0.2, 0.6], "valid_accuracy": [0.1, 0.5]}
    axes = panels(2)
    results.pretraining(axes, pd.DataFrame(curve))
    np.testing.assert_allclose(axes[1].lines[1].get_ydata(), [10, 50])
    episode = np.arange(1, 41)
    steps = pd.DataFrame({"episode": episode, "loss": 2 - episode / 40, "train_accuracy": episode / 100})
    validation = {"episode": [20, 20, 40, 40], "dataset": ["a", "b"] * 2, "accuracy": [0.2, 0.4, 0.4, 0.6]}
    axes = panels(3)
    results.meta_training(axes, steps, pd.DataFrame(validation))
    lines = {line.get_label(): line.get_xydata() for line in axes[2].lines}
    np.testing.assert_allclose(lines["mean"], [[20, 30], [40, 50]])


def test_curves_have_a_panel_per_variant_with_a_line_and_band_per_name(panels):
    names = [("Simple", "Transductive"), ("random", "predictive entropy", "variation ratios"), range(4)]
    index = pd.MultiIndex.from_product(names, names=["variant", "acquisition", "labels"])
    values = {"accuracy": np.random.default_rng(0).random(len(index)), "interval": 0.1}
    averages = pd.DataFrame(values, index).reset_index().assign(domain="all")
    assert list(curves.panels(averages.assign(domain="real"))) == [f"{name} CNAPS,\nreal images" for name in names[0]]
    axes = panels(2, height=2.5, sharey=True)
    curves.curves(axes, averages, "labels", "acquisition", "Accuracy (%)", note="one head")
    style.legend_below(axes)
    for ax, (variant, panel) in zip(axes, averages.groupby("variant")):
        assert ax.get_title() == f"{variant} CNAPS" and len(ax.collections) == 3
        for line, (_, cell) in zip(ax.lines, panel.groupby("acquisition", sort=False)):
            np.testing.assert_allclose(line.get_ydata(), 100 * cell["accuracy"])
    assert len({line.get_color() for line in axes[0].lines}) == 3
