"""Tidy frames → matplotlib Axes: dots with 95% intervals, one row per dataset, variant, contrast or switch.

Frames come from `statistics`, `claims` and `differences`, with accuracies in [0, 1]; axes show percent and points.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from tcnaps.figures import style
from tcnaps.figures.tables import points


def accuracy_by_dataset(
    ax: Axes, summary: pd.DataFrame, method: str = "variant", value: str = "accuracy", label: str = "Accuracy (%)"
) -> None:
    """Dots with intervals, one row per dataset, in-domain above out-of-domain.

    Args:
        summary: of `accuracy_summary`, one evaluation; with value "difference" of a paired difference.
    """
    methods = list(summary[method].unique())
    rows = _dataset_rows(ax, summary)
    offsets = np.linspace(-0.28, 0.28, len(methods)) if len(methods) > 1 else [0.0]
    for i, name in enumerate(methods):
        own = summary[summary[method] == name]
        y = own["dataset"].map(rows) + offsets[i]
        style.dots(ax, 100 * own[value], y, style.variant_style(name, i), xerr=100 * own["interval"], label=name)
    if value == "difference":
        style.zero_line(ax, "y")
        ax.set_xlim(style.in_view(summary[value], summary["interval"]))
    ax.set_xlabel(label)
    style.legend_above(ax, len(methods))


def paired_gain(ax: Axes, differences: pd.DataFrame, averages: pd.DataFrame) -> None:
    """Forest plot of a paired difference, its values written at the right, the means below as diamonds.

    Args:
        differences: of `paired_difference`, one evaluation.
        averages: of `domain_averages` of the same.
    """
    means = averages[averages["domain"].isin(style.domains_shown(averages))]
    if differences["dataset"].nunique() == 1:  # the mean of one dataset is itself
        means = means.iloc[:0]
    rows = _dataset_rows(ax, differences, [style.DOMAIN_NAMES[d] for d in means["domain"]])
    style.zero_line(ax, "y")
    entries = [(rows[r.dataset], "o", r) for r in differences.itertuples()]
    entries += [(rows[style.DOMAIN_NAMES[r.domain]], "D", r) for r in means.itertuples()]
    for y, marker, r in entries:
        style.dots(ax, 100 * r.difference, y, (style.DOMAIN_COLOURS[r.domain], marker), xerr=100 * r.interval)
        text, where = f"{points(r.difference)} ± {100 * r.interval:.1f}", ("axes fraction", "data")
        ax.annotate(text, (1.02, y), fontsize=7, va="center", xycoords=where)
    ax.set_xlim(style.in_view(*(pd.concat([differences, means])[column] for column in ("difference", "interval"))))
    ax.set_xlabel("Paired difference in accuracy (points)")


def ablations(ax: Axes, gains: pd.DataFrame, published: pd.DataFrame | None = None) -> None:
    """Each variant's gain over another: one row per variant, one dot per domain of `domains_shown`.

    Args:
        gains: of `domain_averages` of paired differences, with `variant`, of one evaluation.
        published: `variant`, `domain`, `difference`: those of the paper's averages, drawn hollow.
    """
    names, domains = list(gains["variant"].unique()), style.domains_shown(gains)
    paper = None if published is None else published[published["variant"].isin(names)]
    offsets = dict(zip(domains, 0.27 * (np.arange(len(domains)) - (len(domains) - 1) / 2)))
    for domain, offset in offsets.items():
        colour, own = style.DOMAIN_COLOURS[domain], gains[gains["domain"] == domain]
        bars = {"xerr": 100 * own["interval"], "label": style.DOMAIN_NAMES[domain], "markersize": 3.5}
        style.dots(ax, 100 * own["difference"], own["variant"].map(names.index) + offset, (colour, "o"), **bars)
        if paper is not None:
            theirs = paper[paper["domain"] == domain]
            hollow = {"markerfacecolor": "white", "markeredgecolor": colour, "markersize": 3.5, "zorder": 1.5}
            ax.plot(100 * theirs["difference"], theirs["variant"].map(names.index) + offset, "D", **hollow)
    seen = pd.concat([gains, paper])  # None adds nothing
    ax.set_xlim(style.in_view(seen["difference"], seen["interval"]))
    style.zero_line(ax, "y")
    for y in range(1, len(names)):
        ax.axhline(y - 0.5, color="#E2E2E2", linewidth=0.5)
    ax.set(xlabel="Paired difference in accuracy (points)", ylim=(len(names) - 0.5, -0.5))
    ax.set_yticks(range(len(names)), names)
    ax.grid(False, axis="y")
    ax.tick_params(axis="y", length=0)
    if paper is not None:
        look = {"color": style.GREY, "markerfacecolor": "white", "markersize": 3.5, "linestyle": ""}
        ax.plot([], [], "D", label="paper (its datasets)", **look)
    style.legend_below([ax], 2)


def claims(ax: Axes, table: pd.DataFrame) -> None:
    """Every contrast that was evaluated: ours with interval and a tick for each training, the paper's hollow.

    Args:
        table: of `claims.claims_table`.
    """
    evaluated = table[table["verdict"] != "not evaluated"]
    y, labels = 0.0, {}
    for claim, own in evaluated.groupby("claim", sort=False):
        for r in own.itertuples():
            colour = {"holds": style.GREEN, "fails": style.VERMILLION}.get(r.verdict, style.GREY)
            trainings = np.array(r.replicates.split(), dtype=float)
            ax.plot(trainings, [y] * len(trainings), "|", color=colour, markersize=6, zorder=1.5)
            style.dots(ax, 100 * r.difference, y, (colour, "o"), xerr=100 * r.interval)
            ax.plot([100 * r.paper], [y], "D", markerfacecolor="white", markeredgecolor=style.BLACK, markersize=3.5)
            where = {"in": ", in-domain", "out": ", out-of-domain"}.get(r.domain, "")
            setting = "" if r.setting == "variable" else f", {r.setting}"
            labels[y] = f"{r.contrast}{setting}{where}  {claim}"
            y += 1.0
        ax.axhline(y - 0.2, color="#E2E2E2", linewidth=0.5)
        y += 0.6
    drawn = pd.concat([evaluated["difference"] + sign * evaluated["interval"].fillna(0) for sign in (-1, 1)])
    drawn = 100 * pd.concat([drawn, evaluated["paper"]])
    margin = 0.05 * (drawn.max() - drawn.min())
    ax.set_xlim(min(drawn.min(), 0) - margin, max(drawn.max(), 0) + margin)
    style.zero_line(ax, "y")
    ax.set(xlabel="Paired difference (points)", ylim=(y - 0.8, -0.7))
    ax.set_yticks(list(labels), labels.values())
    ax.grid(False, axis="y")
    for verdict, colour in (("holds", style.GREEN), ("open", style.GREY), ("fails", style.VERMILLION)):
        style.dots(ax, [], [], (colour, "o"), label=verdict)
    ax.plot([], [], "D", markerfacecolor="white", markeredgecolor=style.BLACK, markersize=3.5, label="paper")
    ax.plot([], [], "|", color=style.GREY, markersize=6, label="one training")
    style.legend_below([ax], 5)


def cost_of_differences(axes: style.Panels, costs: pd.DataFrame) -> None:
    """Paired change in accuracy when a switch is turned: one panel per evaluation, one marker per variant.

    Args:
        costs: of `differences.cost_of_differences`.
    """
    names = [f"{'–' if pd.isna(row) else row}  {label}" for row, label in zip(costs["row"], costs["label"])]
    rows = {name: y for y, name in enumerate(dict.fromkeys(names))}
    costs = costs.assign(y=[rows[name] for name in names])
    trains = costs.drop_duplicates("y").set_index("y")["trains"]
    for ax, (evaluation, own) in zip(axes, costs.groupby("evaluation", sort=False), strict=True):
        for i, (variant, cell) in enumerate(own.groupby("variant", sort=False)):
            y = cell["y"] + (0.16 if variant in ("Transductive", "COT") else -0.16)
            bars = {"xerr": 100 * cell["interval"], "label": variant}
            style.dots(ax, 100 * cell["difference"], y, style.variant_style(variant, i), **bars)
        style.zero_line(ax, "y")
        for y in [y for y in trains.index[1:] if trains[y] != trains[y - 1]]:
            ax.axhline(y - 0.5, color=style.GREY, linewidth=0.6, linestyle=":")
        ax.set(title=evaluation, xlabel="Paired change in accuracy (points)", ylim=(len(rows) - 0.4, -0.6))
        ax.set_yticks(range(len(rows)), rows)
        ax.label_outer()
    style.legend_below(axes)


def _dataset_rows(ax: Axes, frame: pd.DataFrame, means: Sequence[str] = ()) -> dict[str, float]:
    """Gives each dataset a row under its domain's heading, and the means rows below; returns the heights."""
    domain = frame["domain"]
    groups = {style.DOMAIN_NAMES[d]: list(frame.loc[domain == d, "dataset"].unique()) for d in ("in", "out")}
    headings, rows, y = {}, {}, 0.0
    for heading, names in {**groups, "Mean over datasets": list(means)}.items():
        if names:
            headings[heading] = y
            rows |= {name: y + 0.9 + i for i, name in enumerate(names)}
            y = max(rows.values()) + 1.1
    ax.set_yticks([*headings.values(), *rows.values()], [*headings, *rows])
    for label in ax.get_yticklabels()[: len(headings)]:
        label.set(style="italic", color=style.GREY)
    for row in rows.values():  # in place of the grid, which would cross the headings too
        ax.axhline(row, color="#E2E2E2", linewidth=0.5, zorder=0.5)
    ax.grid(False, axis="y")
    ax.set_ylim(max(rows.values()) + 0.6, -0.5)
    ax.tick_params(axis="y", length=0)
    return rows
