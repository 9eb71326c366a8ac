"""Tidy frames → matplotlib Axes: the experiments' figures. No computation beyond layout.

Frames come from `statistics` and `recall`, with accuracies in [0, 1]; axes show percent. Bars and bands are
95% intervals.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator, ScalarFormatter

from tcnaps.figures.style import (
    BLACK,
    DOMAIN_COLOURS,
    DOMAIN_NAMES,
    GREY,
    VERMILLION,
    Panels,
    dots,
    legend_above,
    legend_below,
    variant_style,
    zero_line,
)

SHOT_LABEL = "Support images per class (shot)"


def domains_shown(frame: pd.DataFrame) -> list[str]:
    """The domains that a figure of this frame has panels for: "in", "out" and "all", or the only one there is."""
    own = [domain for domain in ("in", "out") if (frame["domain"] == domain).any()]
    return own if len(own) == 1 else list(DOMAIN_NAMES)


def accuracy_by_dataset(ax: Axes, summary: pd.DataFrame, method: str = "variant") -> None:
    """Dots with intervals, one row per dataset, in-domain above out-of-domain.

    Args:
        summary: of `accuracy_summary`, one evaluation.
    """
    methods = list(summary[method].unique())
    rows = _dataset_rows(ax, summary)
    offsets = np.linspace(-0.28, 0.28, len(methods)) if len(methods) > 1 else [0.0]
    for i, name in enumerate(methods):
        own = summary[summary[method] == name]
        y = own["dataset"].map(rows) + offsets[i]
        dots(ax, 100 * own["accuracy"], y, variant_style(name, i), xerr=100 * own["interval"], label=name)
    ax.set_xlabel("Accuracy (%)")
    legend_above(ax, len(methods))


def paired_gain(ax: Axes, differences: pd.DataFrame, averages: pd.DataFrame) -> None:
    """Forest plot of a paired difference, its values written at the right, the means below as diamonds.

    Args:
        differences: of `paired_difference`, one evaluation.
        averages: of `domain_averages` of the same.
    """
    means = averages[averages["domain"].isin(domains_shown(averages))]
    if differences["dataset"].nunique() == 1:  # the mean of one dataset is itself
        means = means.iloc[:0]
    rows = _dataset_rows(ax, differences, [DOMAIN_NAMES[d] for d in means["domain"]])
    zero_line(ax, "y")
    entries = [(rows[r.dataset], "o", r) for r in differences.itertuples()]
    entries += [(rows[DOMAIN_NAMES[r.domain]], "D", r) for r in means.itertuples()]
    for y, marker, r in entries:
        dots(ax, 100 * r.difference, y, (DOMAIN_COLOURS[r.domain], marker), xerr=100 * r.interval)
        difference = round(100 * r.difference, 1) + 0.0  # nothing is no loss: never −0.0
        text, where = f"{difference:+.1f} ± {100 * r.interval:.1f}", ("axes fraction", "data")
        ax.annotate(text, (1.02, y), fontsize=7, va="center", xycoords=where)
    ax.set_xlabel("Paired difference in accuracy (points)")


def ablations(axes: Panels, averages: pd.DataFrame, published: pd.DataFrame | None = None) -> None:
    """Mean accuracy of each variant: one panel per domain of `domains_shown`, with common rows.

    Args:
        averages: of `domain_averages`, one evaluation.
        published: `variant`, `domain`, `accuracy`: the paper's averages, drawn hollow.
    """
    names = list(averages["variant"].unique())
    for ax, domain in zip(axes, domains_shown(averages), strict=True):
        for y, name in enumerate(names):
            colour, marker = variant_style(name, y)
            own = _one_cell(averages, domain, name)
            bars = {"xerr": 100 * own["interval"], "markersize": 4.5}
            dots(ax, 100 * own["accuracy"], [y - 0.12] * len(own), (colour, marker), **bars)
            if published is not None:
                paper = _one_cell(published, domain, name)
                hollow = {"markerfacecolor": "white", "markeredgecolor": colour, "markersize": 4.5}
                ax.plot(100 * paper["accuracy"], [y + 0.2] * len(paper), marker, **hollow)
        ax.set(title=DOMAIN_NAMES[domain], xlabel="Accuracy (%)", ylim=(len(names) - 0.4, -0.6))
        ax.set_yticks(range(len(names)), names)
        ax.label_outer()
    if published is not None:
        ours = Line2D([], [], color=GREY, marker="o", label="this study")
        look = {"color": GREY, "marker": "o", "markerfacecolor": "white", "linestyle": ""}
        theirs = Line2D([], [], label="paper (its own datasets)", **look)
        axes[0].figure.legend(handles=[ours, theirs], loc="outside lower center", ncols=2)


def class_recall(
    axes: Panels, recalls: pd.DataFrame, domains: Sequence[str] | None = None, value: str = "recall"
) -> None:
    """Class recall against shot, one line and band per variant.

    Args:
        recalls: of `recall_by_shot`, one evaluation.
        domains: one for each panel; default: `domains_shown`.
        value: "recall", or "difference" for the variants' gain over another.
    """
    for ax, domain in zip(axes, domains or domains_shown(recalls), strict=True):
        for i, name in enumerate(recalls["variant"].unique()):
            own = _one_cell(recalls, domain, name).sort_values("shot")
            _band(ax, own["shot"], own[value], own["interval"], name, i)
        if not (recalls["domain"] == domain).any():
            ax.text(0.5, 0.5, "no classes", transform=ax.transAxes, ha="center", color=GREY)
        if value == "difference":
            zero_line(ax)
        _shot_axis(ax, float(recalls["shot"].max()))
        ax.set(title=DOMAIN_NAMES[domain])
    for ax in axes if len(axes) < 3 else axes[1:2]:
        ax.set_xlabel(SHOT_LABEL)
    _in_range(axes, -101 if value == "difference" else -1)
    axes[0].set_ylabel({"recall": "Class recall (%)", "difference": "Gain in recall (points)"}[value])
    legend_below(axes)


def refinement_heatmap(ax: Axes, grid: pd.DataFrame, value: str = "accuracy", mark: tuple[int, int] = (2, 4)) -> None:
    """Accuracy for every minimum ≤ maximum number of refinement steps.

    Args:
        grid: of `refinement_grid`.
        value: "accuracy", or "gain" over no refinement.
        mark: (minimum, maximum) to outline; the default is the paper's choice.
    """
    import seaborn  # of the extra `suite`

    cells = 100 * grid.pivot(index="minimum", columns="maximum", values=value)
    label = {"accuracy": "Accuracy (%)", "gain": "Gain over no refinement (points)"}[value]
    written = {"annot": True, "fmt": ".1f" if value == "accuracy" else "+.2f", "annot_kws": {"fontsize": 6}}
    bar = {"label": label, "shrink": 0.8}
    seaborn.heatmap(cells, ax=ax, cmap="cividis", square=True, linewidths=0.5, cbar_kws=bar, **written)
    if mark[0] in cells.index and mark[1] in cells.columns:
        corner = cells.columns.get_loc(mark[1]), cells.index.get_loc(mark[0])
        outline = {"fill": False, "edgecolor": VERMILLION, "linewidth": 1.6}
        ax.add_patch(Rectangle(corner, 1, 1, zorder=5, **outline))
        sample = Rectangle((0, 0), 1, 1, label=f"minimum {mark[0]}, maximum {mark[1]}", **outline)
        place = {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0.3}
        ax.legend(handles=[sample], handlelength=1, handleheight=1, **place)
    ax.grid(False)
    ax.set(xlabel="Maximum refinement steps", ylabel="Minimum refinement steps")
    ax.tick_params(length=0, rotation=0)


def accuracy_by_step(ax: Axes, frame: pd.DataFrame, by: str | None = None, value: str = "accuracy") -> None:
    """Accuracy after exactly 0, 1, 2, … refinement steps.

    Args:
        frame: of `accuracy_by_step`; `by` names a column ("domain", say) that gives one line per value.
        value: "accuracy", or "gain" over step 0.
    """
    half_width = {"accuracy": "interval", "gain": "gain_interval"}[value]
    lines = [("Transductive", frame)] if by is None else list(frame.groupby(by, sort=False))
    for i, (name, own) in enumerate(lines):
        _band(ax, own["step"], own[value], own[half_width], name, i)
    label = {"accuracy": "Accuracy (%)", "gain": "Gain over step 0 (points)"}[value]
    ax.set(xlabel="Refinement steps", ylabel=label)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    if value == "gain":
        zero_line(ax)
    if by is not None:
        legend_above(ax, len(lines))
        if len(lines) == 1:
            ax.set_title(ax.lines[0].get_label())


def number_of_queries(axes: Panels, frame: pd.DataFrame) -> None:
    """Accuracy against the number of queries per class; one panel per evaluation, one line per variant.

    Args:
        frame: of `accuracy_by_query_count`.
    """
    x = side_by_side(frame)
    for ax, (protocol, cell) in zip(axes, frame.groupby("evaluation", sort=False), strict=True):
        for i, (name, own) in enumerate(cell.groupby("variant", sort=False)):
            bars = {"yerr": 100 * own["interval"], "label": name}
            dots(ax, x[own.index], 100 * own["accuracy"], variant_style(name, i), line="-", **bars)
        ax.set(title=protocol, xlabel="Queries per class", xticks=sorted(cell["queries_per_class"].unique()))
    _in_range(axes, -1)
    axes[0].set_ylabel("Accuracy (%)")
    legend_below(axes)


def side_by_side(frame: pd.DataFrame) -> pd.Series:
    """Numbers of queries per class, a hair apart for the variants, so that their bars don't hide each other."""
    counts = frame["queries_per_class"].astype(float)
    order = pd.Series(pd.factorize(frame["variant"])[0], frame.index)
    return counts + 0.012 * (counts.max() - counts.min()) * (order - order.max() / 2)


def frequencies(ax: Axes, counts: pd.DataFrame, column: str) -> None:
    """How often each way or shot occurs, stacked by domain.

    Args:
        counts: of `way_frequencies` (column "way") or `shot_frequencies` (column "shot").
    """
    size, label, unit = {
        "way": ("episodes", "Classes per episode (way)", "Episodes"),
        "shot": ("classes", SHOT_LABEL, "Classes"),
    }[column]
    table = counts.pivot_table(index=column, columns="domain", values=size, aggfunc="sum", fill_value=0, observed=True)
    base = np.zeros(len(table))
    for domain in [d for d in ("in", "out") if d in table]:
        look = {"width": 0.9, "color": DOMAIN_COLOURS[domain], "label": DOMAIN_NAMES[domain]}
        ax.bar(table.index, table[domain], bottom=base, **look)
        base = base + table[domain].to_numpy()
    ax.set(xlabel=label, ylabel=unit)
    ax.grid(False, axis="x")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    legend_above(ax, 2)


def cost_of_differences(axes: Panels, costs: pd.DataFrame) -> None:
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
            dots(ax, 100 * cell["difference"], y, variant_style(variant, i), **bars)
        zero_line(ax, "y")
        for y in [y for y in trains.index[1:] if trains[y] != trains[y - 1]]:
            ax.axhline(y - 0.5, color=GREY, linewidth=0.6, linestyle=":")
        ax.set(title=evaluation, xlabel="Paired change in accuracy (points)", ylim=(len(rows) - 0.4, -0.6))
        ax.set_yticks(range(len(rows)), rows)
        ax.label_outer()
    legend_below(axes)


def ring(ax: Axes, x: float, y: float, half_width: float = np.nan) -> None:
    """Marks one point and its interval, for instance the one that a reader has chosen."""
    if np.isfinite(half_width):
        ax.plot([x, x], [y - half_width, y + half_width], color=BLACK, linewidth=1.6, zorder=6)
    ax.plot([x], [y], "o", markersize=9, markerfacecolor="none", markeredgecolor=BLACK, markeredgewidth=1.6, zorder=7)


def _one_cell(frame: pd.DataFrame, domain: str, variant: str) -> pd.DataFrame:
    return frame[(frame["domain"] == domain) & (frame["variant"] == variant)]


def _dataset_rows(ax: Axes, frame: pd.DataFrame, means: Sequence[str] = ()) -> dict[str, float]:
    """Gives each dataset a row under its domain's heading, and the means rows below; returns the heights."""
    domain = frame["domain"]
    groups = {DOMAIN_NAMES[d]: list(frame.loc[domain == d, "dataset"].unique()) for d in ("in", "out")}
    headings, rows, y = {}, {}, 0.0
    for heading, names in {**groups, "Mean over datasets": list(means)}.items():
        if names:
            headings[heading] = y
            rows |= {name: y + 0.9 + i for i, name in enumerate(names)}
            y = max(rows.values()) + 1.1
    ax.set_yticks([*headings.values(), *rows.values()], [*headings, *rows])
    for label in ax.get_yticklabels()[: len(headings)]:
        label.set(style="italic", color=GREY)
    for row in rows.values():  # in place of the grid, which would cross the headings too
        ax.axhline(row, color="#E2E2E2", linewidth=0.5, zorder=0.5)
    ax.grid(False, axis="y")
    ax.set_ylim(max(rows.values()) + 0.6, -0.5)
    ax.tick_params(axis="y", length=0)
    return rows


def _band(ax: Axes, x: pd.Series, y: pd.Series, half_width: pd.Series, name: str, position: int) -> None:
    colour, marker = variant_style(name, position)
    ax.plot(x, 100 * y, color=colour, marker=marker, markersize=3, label=DOMAIN_NAMES.get(name, name))
    if len(x) == 1:  # a band of no width would not show
        ax.errorbar(x, 100 * y, yerr=100 * half_width, color=colour, elinewidth=1)
        return
    ax.fill_between(x, 100 * (y - half_width), 100 * (y + half_width), color=colour, alpha=0.2, linewidth=0)


def _in_range(axes: Panels, lowest: int) -> None:
    """Cuts the axes where intervals reach beyond what is possible, in percent."""
    for ax in axes:
        low, high = ax.get_ylim()
        ax.set_ylim(max(low, lowest), min(high, 101))


def _shot_axis(ax: Axes, highest: float) -> None:
    ax.set_xscale("log")
    ax.set_xlim(0.85, highest * 1.2)
    ticks = [tick for tick in (1, 2, 5, 10, 20, 50, 100, 200) if tick <= highest * 1.1]
    ax.xaxis.set_major_locator(FixedLocator(ticks))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(ScalarFormatter())
