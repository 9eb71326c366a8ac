"""Dots with 95% intervals on matplotlib Axes: one row per dataset, variant or contrast.

Frames come from `statistics` and `claims`, with accuracies in [0, 1]. Axes show percent and points.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from tcnaps.figures import style
from tcnaps.figures.tables import points

PALE = {"color": "#E2E2E2", "linewidth": 0.5}
VERDICT_COLOURS = {"holds": style.GREEN, "no effect": style.SKY, "opposite": style.VERMILLION, "open": style.GREY}
HOLLOW = {"markerfacecolor": "white", "markersize": 3.5}


def accuracy_by_dataset(
    ax: Axes, summary: pd.DataFrame, averages: pd.DataFrame, value: str = "accuracy", label: str = "Accuracy (%)"
) -> None:
    """Dots with intervals, one row per dataset, in-domain above out-of-domain, means below; one evaluation."""
    means, methods = _means_of(summary, averages), list(summary["variant"].unique())
    heights, drawn = _dataset_rows(ax, summary, list(means["dataset"].unique())), pd.concat([summary, means])
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
    means = _means_of(differences, averages)
    heights = _dataset_rows(ax, differences, list(means["dataset"]))
    style.zero_line(ax, "y")
    for frame, marker in ((differences, "o"), (means, "D")):
        for row in frame.itertuples():
            look = style.DOMAIN_COLOURS[row.domain], marker
            style.dots(ax, 100 * row.difference, heights[row.dataset], look, xerr=100 * row.interval)
            place = {"xy": (1.02, heights[row.dataset]), "xycoords": ("axes fraction", "data"), "va": "center"}
            ax.annotate(f"{points(row.difference)} ± {100 * row.interval:.1f}", fontsize=7, **place)
    drawn = pd.concat([differences, means])
    ax.set_xlim(style.in_view(drawn["difference"], drawn["interval"]))
    ax.set_xlabel("Paired difference in accuracy (points)")


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
    ax.set_xlim(style.in_view(drawn["difference"], drawn["interval"]))
    style.zero_line(ax, "y")
    for y in range(1, len(names)):
        ax.axhline(y - 0.5, **PALE)
    ax.set(xlabel="Paired difference in accuracy (points)", ylim=(len(names) - 0.5, -0.5))
    ax.set_yticks(range(len(names)), names)
    ax.grid(False, axis="y")
    ax.tick_params(axis="y", length=0)
    if paper is not None:
        ax.plot([], [], "D", color=style.GREY, label="paper (its datasets)", **HOLLOW)
    style.legend_below([ax], 2)


def claims(axes: style.Panels, table: pd.DataFrame) -> None:
    """Every evaluated contrast of `claims_table`, a panel per kind of images; hollow: the paper's.

    Thin bars are the intervals for other test classes, thick ones those for other episodes alone.
    """
    evaluated = table[table["verdict"] != "not evaluated"]
    kinds = list(evaluated.groupby("images", sort=False))
    for ax, (kind, contrasts) in zip(axes, kinds, strict=True):
        _contrasts(ax, contrasts)
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
            domain = {"in": ", in-domain", "out": ", out-of-domain"}.get(row.domain, "")
            setting = "" if row.setting == "variable" else f", {style.in_words(row.setting)}"
            heights[f"{row.contrast}{setting}{domain}  {claim}"] = y
            y += 1.0
        ax.axhline(y - 0.2, **PALE)
        y += 0.6
    ends = [table["difference"] + sign * table["interval"].fillna(0) for sign in (-1, 1)]
    drawn = 100 * pd.concat([*ends, table["paper"]])
    room = 0.05 * (drawn.max() - drawn.min())
    ax.set_xlim(min(drawn.min(), 0) - room, max(drawn.max(), 0) + room)
    style.zero_line(ax, "y")
    ax.set_ylim(y - 0.8, -0.7)
    ax.set_yticks(list(heights.values()), list(heights))
    ax.grid(False, axis="y")


def _means_of(summary: pd.DataFrame, averages: pd.DataFrame) -> pd.DataFrame:
    """The averages to be shown below a summary's datasets, if there are several, with a name for their row."""
    shown = averages["domain"].isin(style.domains_shown(averages)) & (summary["dataset"].nunique() > 1)
    return averages[shown].assign(dataset=averages["domain"].map(style.DOMAIN_NAMES))


def _dataset_rows(ax: Axes, frame: pd.DataFrame, means: Sequence[str] = ()) -> dict[str, float]:
    """Gives each dataset a row under its domain's heading, and the means rows below. Returns the heights."""
    domain = frame["domain"]
    groups = {style.DOMAIN_NAMES[d]: list(frame.loc[domain == d, "dataset"].unique()) for d in ("in", "out")}
    groups["Mean over datasets"] = list(means)
    headings, heights, y = {}, {}, 0.0
    for heading, names in groups.items():
        if names:
            headings[heading] = y
            heights |= {name: y + 0.9 + i for i, name in enumerate(names)}
            y = max(heights.values()) + 1.1
    ax.set_yticks([*headings.values(), *heights.values()], [*headings, *heights])
    for label in ax.get_yticklabels()[: len(headings)]:
        label.set(style="italic", color=style.GREY)
    for height in heights.values():  # in place of the grid, which would cross the headings too
        ax.axhline(height, zorder=0.5, **PALE)
    ax.grid(False, axis="y")
    ax.set_ylim(max(heights.values()) + 0.6, -0.5)
    ax.tick_params(axis="y", length=0)
    return heights
