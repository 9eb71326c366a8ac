"""Results of trainings and experiments on matplotlib Axes: learning curves, dots by dataset or variant, a heatmap.

Frames hold accuracies in [0, 1]; Axes show percent. Bars and bands are 95% intervals.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from tcnaps.figures import style, tables

SHOT_LABEL = "Support images per class (shot)"
PALE = {"color": "#E2E2E2", "linewidth": 0.5}
VERDICT_COLOURS = {"holds": style.GREEN, "no effect": style.SKY, "opposite": style.VERMILLION, "open": style.GREY}
HOLLOW = {"markerfacecolor": "white", "markersize": 3.5}


def class_recall(axes: style.Panels, recalls: pd.DataFrame, value: str = "recall") -> None:
    """Class recall, or its "difference", against shot, from `recall_by_shot` of one evaluation: a panel per domain."""
    is_gain = value == "difference"
    domains, highest = style.domains_shown(recalls), float(recalls["shot"].max())
    ticks = [tick for tick in (1, 2, 5, 10, 20, 50, 100, 200) if tick <= highest * 1.1]
    for ax, domain in zip(axes, domains, strict=True):
        for i, name in enumerate(recalls["variant"].unique()):
            line = recalls[(recalls["domain"] == domain) & (recalls["variant"] == name)].sort_values("shot")
            _band(ax, line["shot"], line[value], line["interval"], name, i, (-1 if is_gain else 0, 1))
        if is_gain:
            style.zero_line(ax)
        ax.set(title=style.DOMAIN_NAMES[domain], xscale="log", xlim=(0.85, highest * 1.2))
        ax.xaxis.set(ticks=ticks, ticklabels=ticks, minor_locator=NullLocator())
    plt.setp(axes if len(axes) < 3 else axes[1:2], xlabel=SHOT_LABEL)
    shown = recalls[recalls["domain"].isin(domains)]
    low, high = style.in_view(shown[value], shown["interval"], 0.0 if is_gain else None)
    plt.setp(axes, ylim=(max(low, -101 if is_gain else -1), min(high, 101)))
    axes[0].set_ylabel("Gain in recall (points)" if is_gain else "Class recall (%)")
    style.legend_below(axes)


def refinement_heatmap(ax: Axes, grid: pd.DataFrame, value: str = "accuracy", mark: tuple[int, int] = (2, 4)) -> None:
    """A heatmap of `refinement_grid`, with `mark` (minimum, maximum) outlined; `value` is "accuracy" or "gain".

    Colours show the difference from the grid's rule, pale where it lies within its interval.
    """
    import seaborn  # of the extra `suite`

    texts = [f"{100 * v:.1f}" if value == "accuracy" else tables.points(v, 2) for v in grid[value]]
    sure = grid["beyond"].abs() > grid["beyond_interval"]
    grid = grid.assign(beyond=100 * grid["beyond"], sure=sure, text=texts).set_index(["minimum", "maximum"])
    cells, sure, texts = (grid[column].unstack() for column in ("beyond", "sure", "text"))
    reach = max(0.1, float(cells.abs().max(axis=None)))
    scale = {"cmap": "PuOr", "vmin": -reach, "vmax": reach, "square": True, "linewidths": 0.5}
    bar = {"label": "Better or worse than the rule (points)", "shrink": 0.8}
    seaborn.heatmap(cells, ax=ax, cbar_kws=bar, annot=texts.fillna(""), fmt="", annot_kws={"fontsize": 6}, **scale)
    ax.collections[0].set_alpha(np.where(sure.to_numpy() == True, 1.0, 0.25).ravel())  # noqa: E712 (nan is neither)
    for text, beyond, full in zip(ax.texts, cells.stack().dropna(), sure.stack().dropna()):  # empty cells have no text
        text.set_color("white" if full and abs(beyond) > 0.6 * reach else style.BLACK)
    if mark[0] in cells.index and mark[1] in cells.columns:
        corner = cells.columns.get_loc(mark[1]), cells.index.get_loc(mark[0])
        look = {"fill": False, "edgecolor": style.VERMILLION, "linewidth": 1.6, "zorder": 5}
        ax.add_patch(Rectangle(corner, 1, 1, label=f"minimum {mark[0]},\nmaximum {mark[1]}", **look))
        ax.legend(handlelength=1, handleheight=1, loc="lower left", borderaxespad=0.3)
    ax.set_title({"accuracy": "Accuracy (%)", "gain": "Gain over no refinement (points)"}[value])
    ax.grid(False)
    ax.set(xlabel="Maximum refinement steps", ylabel="Minimum refinement steps")
    ax.tick_params(length=0, rotation=0)


def gain_by_step(ax: Axes, steps: pd.DataFrame) -> None:
    """The gain over step 0 after exactly 0, 1, 2, … refinement steps: those rows of a `refinement_grid`."""
    domain = steps["domain"].iloc[0]
    _band(ax, steps["minimum"], steps["gain"], steps["gain_interval"], domain, 0, (-1, 1))
    ax.set(title=style.DOMAIN_NAMES[domain], xlabel="Refinement steps", ylabel="Gain over step 0 (points)")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    style.zero_line(ax)


def number_of_queries(axes: style.Panels, frame: pd.DataFrame) -> None:
    """The gain over the fewest queries per class (`gain_by_query_count`): a panel per evaluation, all on one y axis."""
    counts = frame["queries_per_class"].astype(float)
    order = frame.groupby(["variant", "domain"], sort=False).ngroup()
    x = counts + 0.012 * (counts.max() - counts.min()) * (order - order.max() / 2)  # bars don't hide each other
    for ax, (protocol, cell) in zip(axes, frame.groupby("evaluation", sort=False), strict=True):
        for i, ((name, group), line) in enumerate(cell.groupby(["variant", "domain"], sort=False)):
            look = {"line": "-" if group in ("all", "real") else "--", "label": style.of_group(name, group)}
            look |= {"look": style.variant_style(name, i), "yerr": 100 * line["interval"]}
            style.dots(ax, x[line.index], 100 * line["difference"], **look)
        ax.set(title=style.in_words(protocol), xlabel="Queries per class", xticks=cell["queries_per_class"].unique())
        style.zero_line(ax)
        ax.set_ylim(style.in_view(frame["difference"], frame["interval"]))
    axes[0].set_ylabel("Gain over the fewest (points)")
    style.legend_below(axes, handlelength=2.8)  # so that dashes show


def frequencies(ax: Axes, counts: pd.DataFrame, column: str) -> None:
    """How often each "way" or "shot" occurs, stacked by domain."""
    size, label = {"way": ("episodes", "Classes per episode (way)"), "shot": ("classes", SHOT_LABEL)}[column]
    table = counts.pivot_table(index=column, columns="domain", values=size, aggfunc="sum", fill_value=0, observed=True)
    for domain, below in (table.cumsum(axis=1) - table).items():  # "in" comes first
        look = {"width": 0.9, "color": style.DOMAIN_COLOURS[domain], "label": style.DOMAIN_NAMES[domain]}
        ax.bar(table.index, table[domain], bottom=below, **look)
    ax.set(xlabel=label, ylabel=size.capitalize())
    ax.grid(False, axis="x")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))


def _band(ax: Axes, x: pd.Series, y: pd.Series, half_width: pd.Series, name: str, position: int, limits: tuple) -> None:
    colour, marker = style.variant_style(name, position)
    ax.plot(x, 100 * y, color=colour, marker=marker, markersize=3, label=style.DOMAIN_NAMES.get(name, name))
    if len(x) == 1:  # a band of no width would not show
        ax.errorbar(x, 100 * y, yerr=100 * half_width, color=colour, elinewidth=1)
    else:
        style.band(ax, x, y, half_width, colour, limits)


def accuracy_by_dataset(
    ax: Axes, summary: pd.DataFrame, averages: pd.DataFrame, value: str = "accuracy", label: str = "Accuracy (%)"
) -> None:
    """Dots with intervals, one row per dataset, in-domain above out-of-domain, means below; one evaluation."""
    means, heights = _dataset_rows(ax, summary, averages)
    drawn, methods = pd.concat([summary, means]), list(summary["variant"].unique())
    offsets = np.linspace(-0.28, 0.28, len(methods)) if len(methods) > 1 else [0.0]
    for i, name in enumerate(methods):
        cells = drawn[drawn["variant"] == name]
        y = cells["dataset"].map(heights) + offsets[i]
        style.dots(ax, 100 * cells[value], y, style.variant_style(name, i), xerr=100 * cells["interval"], label=name)
    if value == "difference":
        style.zero_line(ax, "y")
        ax.set_xlim(style.in_view(drawn[value], drawn["interval"]))
    ax.set_xlabel(label)
    if len(methods) > 1:
        style.legend_below([ax])


def paired_gain(ax: Axes, differences: pd.DataFrame, averages: pd.DataFrame) -> None:
    """A forest plot of one evaluation's paired differences, with values on the right and means below as diamonds."""
    means, heights = _dataset_rows(ax, differences, averages)
    style.zero_line(ax, "y")
    drawn = pd.concat([differences.assign(marker="o"), means.assign(marker="D")])
    for row in drawn.itertuples():
        look = style.DOMAIN_COLOURS[row.domain], row.marker
        style.dots(ax, 100 * row.difference, heights[row.dataset], look, xerr=100 * row.interval)
        place = {"xy": (1.02, heights[row.dataset]), "xycoords": ("axes fraction", "data"), "va": "center"}
        ax.annotate(f"{tables.points(row.difference)} ± {100 * row.interval:.1f}", fontsize=7, **place)
    ax.set(xlim=style.in_view(drawn["difference"], drawn["interval"]), xlabel="Paired difference in accuracy (points)")


def ablations(ax: Axes, gains: pd.DataFrame, published: pd.DataFrame | None = None) -> None:
    """Each variant's gain over another: one row per variant, one dot per domain; the paper's averages are hollow."""
    names, domains = list(gains["variant"].unique()), style.domains_shown(gains)
    paper = None if published is None else published[published["variant"].isin(names)]
    for i, domain in enumerate(domains):
        offset, colour = 0.27 * (i - (len(domains) - 1) / 2), style.DOMAIN_COLOURS[domain]
        cells = gains[gains["domain"] == domain]
        bars = {"xerr": 100 * cells["interval"], "label": style.DOMAIN_NAMES[domain], "markersize": 3.5}
        style.dots(ax, 100 * cells["difference"], cells["variant"].map(names.index) + offset, (colour, "o"), **bars)
        if paper is not None:
            printed = domain if domain in set(paper["domain"]) else "all"  # the paper knows no rendered images
            cells = paper[paper["domain"] == printed]
            y = cells["variant"].map(names.index) + offset
            ax.plot(100 * cells["difference"], y, "D", markeredgecolor=colour, zorder=1.5, **HOLLOW)
    drawn = pd.concat([gains, paper])  # None adds nothing
    ax.set(xlim=style.in_view(drawn["difference"], drawn["interval"]), xlabel="Paired difference in accuracy (points)")
    style.zero_line(ax, "y")
    for y in range(1, len(names)):
        ax.axhline(y - 0.5, **PALE)
    ax.set(ylim=(len(names) - 0.5, -0.5), yticks=range(len(names)), yticklabels=names)
    ax.grid(False, axis="y")
    ax.tick_params(axis="y", length=0)
    if paper is not None:
        ax.plot([], [], "D", color=style.GREY, label="paper (its datasets)", **HOLLOW)
    style.legend_below([ax], 2)


def claims(axes: style.Panels, table: pd.DataFrame) -> None:
    """Every evaluated contrast of `claims_table`, a panel per kind of images; hollow: the paper's.

    Thin bars are the intervals for other test classes, thick ones those for the same test classes.
    """
    evaluated = table[table["verdict"] != "not evaluated"]
    kinds = list(evaluated.groupby("images", sort=False))
    for ax, (kind, of_kind) in zip(axes, kinds, strict=True):
        _contrasts(ax, of_kind)
        ax.set(title=style.DOMAIN_NAMES[kind] if len(kinds) > 1 else "", xlabel="Paired difference (points)")
    for verdict, colour in VERDICT_COLOURS.items():
        style.dots(axes[0], [], [], (colour, "o"), label=verdict)
    axes[0].plot([], [], "D", markeredgecolor=style.BLACK, label="paper", **HOLLOW)
    if evaluated["n_replicates"].max() > 1:
        axes[0].plot([], [], "|", color=style.BLACK, markersize=4, label="one training")
    style.legend_below(axes[:1], 6)


def _contrasts(ax: Axes, table: pd.DataFrame) -> None:
    heights, y = {}, 0.0
    for claim, contrasts in table.groupby("claim", sort=False):
        for row in contrasts.itertuples():
            colour = VERDICT_COLOURS[row.verdict]
            style.dots(ax, 100 * row.difference, y, (colour, "o"), xerr=100 * row.interval)
            ends = [100 * (row.difference + sign * row.episode_interval) for sign in (-1, 1)]
            ax.plot(ends, [y, y], color=colour, linewidth=3, alpha=0.4, solid_capstyle="butt", zorder=1.8)
            trainings = np.array(row.replicates.split(), dtype=float)
            if len(trainings) > 1:
                ax.plot(trainings, [y + 0.3] * len(trainings), "|", color=style.BLACK, markersize=4, zorder=3)
            ax.plot([100 * row.paper], [y], "D", markeredgecolor=style.BLACK, **HOLLOW)
            setting = "" if row.setting == "variable" else f", {style.in_words(row.setting)}"
            heights[f"{style.of_group(row.contrast + setting, row.domain)}  {claim}"] = y
            y += 1.0
        ax.axhline(y - 0.2, **PALE)
        y += 0.6
    ends = [table["difference"] + sign * table["interval"].fillna(0) for sign in (-1, 1)]
    drawn = 100 * pd.concat([*ends, table["paper"]])
    room = 0.05 * (drawn.max() - drawn.min())
    ax.set(xlim=(min(drawn.min(), 0) - room, max(drawn.max(), 0) + room), ylim=(y - 0.8, -0.7))
    style.zero_line(ax, "y")
    ax.set_yticks(list(heights.values()), list(heights))
    ax.grid(False, axis="y")


def _dataset_rows(ax: Axes, frame: pd.DataFrame, averages: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, float]]:
    """Gives each dataset a row under its domain's heading, and the averages rows below if there are several datasets.

    Returns the averages that are shown, with the names of their rows, and the heights of all rows.
    """
    shown = averages["domain"].isin(style.domains_shown(averages)) & (frame["dataset"].nunique() > 1)
    means = averages.assign(dataset=averages["domain"].map(style.DOMAIN_NAMES))[shown]  # of no rows, assign makes some
    groups = {style.DOMAIN_NAMES[d]: list(frame.loc[frame["domain"] == d, "dataset"].unique()) for d in ("in", "out")}
    groups["Mean over datasets"] = list(means["dataset"].unique())
    headings, heights, y = {}, {}, 0.0
    for heading, names in groups.items():
        if names:
            headings[heading] = y
            heights |= {name: y + 0.9 + i for i, name in enumerate(names)}
            y = max(heights.values()) + 1.1
    ax.set_yticks([*headings.values(), *heights.values()], [*headings, *heights])
    plt.setp(ax.get_yticklabels()[: len(headings)], style="italic", color=style.GREY)
    for height in heights.values():  # in place of the grid, which would cross the headings too
        ax.axhline(height, zorder=0.5, **PALE)
    ax.grid(False, axis="y")
    ax.set_ylim(max(heights.values()) + 0.6, -0.5)
    ax.tick_params(axis="y", length=0)
    return means, heights


def pretraining(axes: style.Panels, curve: pd.DataFrame) -> None:
    """The loss, and the training and held-out accuracy, by epoch, in two panels."""
    loss, accuracy = axes
    loss.plot(curve["epoch"], curve["loss"], color=style.BLACK)
    loss.set(xlabel="Epoch", ylabel="Cross-entropy (nats)")
    for i, (column, label) in enumerate((("train_accuracy", "training"), ("valid_accuracy", "held out"))):
        accuracy.plot(curve["epoch"], 100 * curve[column], color=style.PALETTE[i], label=label)
    accuracy.set(xlabel="Epoch", ylabel="Accuracy (%)")
    accuracy.legend(loc="lower right")
    for ax in axes:
        ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))


def meta_training(axes: style.Panels, steps: pd.DataFrame, validation: pd.DataFrame) -> None:
    """The loss, the training accuracy, and each dataset's validation accuracy with their mean, in three panels.

    Loss and training accuracy are pale, with their running mean over a twentieth of the training in black.
    """
    loss, train, valid = axes
    for ax, column, factor in ((loss, "loss", 1), (train, "train_accuracy", 100)):
        smooth = steps[column].rolling(max(len(steps) // 20, 1), min_periods=1, center=True).mean()
        ax.plot(steps["episode"], factor * steps[column], color="#C8C8C8", linewidth=0.6)
        ax.plot(steps["episode"], factor * smooth, color=style.BLACK)
    loss.set(ylabel="Cross-entropy (nats)", title="Training loss", yscale="log")
    loss.yaxis.set(minor_locator=LogLocator(subs=(2, 4, 6, 8)), major_formatter="{x:g}", minor_formatter="{x:g}")
    train.set(ylabel="Accuracy (%)", title="Training episodes")
    for i, (name, curve) in enumerate(validation.groupby("dataset", sort=False)):
        colour = style.PALETTE[i % (len(style.PALETTE) - 1)]  # black, the last, is the mean's
        look = {"color": colour, "linewidth": 0.8, "marker": ".", "markersize": 3}
        valid.plot(curve["episode"], 100 * curve["accuracy"], label=name, **look)
    mean = 100 * validation.groupby("episode")["accuracy"].mean()
    valid.plot(mean.index, mean, color=style.BLACK, linewidth=1.8, marker="o", markersize=3, label="mean")
    valid.set(title="Validation", ylabel="Accuracy (%)")
    valid.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    for ax in axes:
        ax.xaxis.set(label_text="Episodes", major_locator=MaxNLocator(4, integer=True))
