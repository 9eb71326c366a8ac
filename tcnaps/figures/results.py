"""The experiments' curves and heatmap on matplotlib Axes. Frames hold accuracies in [0, 1], Axes show percent.

Bars and bands are 95% intervals.
"""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator, NullLocator

from tcnaps.figures import style
from tcnaps.figures.style import domains_shown
from tcnaps.figures.tables import points

SHOT_LABEL = "Support images per class (shot)"


def class_recall(axes: style.Panels, recalls: pd.DataFrame, value: str = "recall") -> None:
    """Class recall, or its "difference", against shot: a panel per domain, a line and band per variant.

    `recalls` come from `recall_by_shot`, of one evaluation.
    """
    is_gain = value == "difference"
    domains, highest = domains_shown(recalls), float(recalls["shot"].max())
    ticks = [tick for tick in (1, 2, 5, 10, 20, 50, 100, 200) if tick <= highest * 1.1]
    for ax, domain in zip(axes, domains, strict=True):
        for i, name in enumerate(recalls["variant"].unique()):
            line = recalls[(recalls["domain"] == domain) & (recalls["variant"] == name)].sort_values("shot")
            _band(ax, line["shot"], line[value], line["interval"], name, i, (-1 if is_gain else 0, 1))
        if is_gain:
            style.zero_line(ax)
        ax.set(title=style.DOMAIN_NAMES[domain], xscale="log", xlim=(0.85, highest * 1.2))
        ax.set_xticks(ticks, ticks)
        ax.xaxis.set_minor_locator(NullLocator())
    for ax in axes if len(axes) < 3 else axes[1:2]:
        ax.set_xlabel(SHOT_LABEL)
    shown = recalls[recalls["domain"].isin(domains)]
    low, high = style.in_view(shown[value], shown["interval"], 0.0 if is_gain else None)
    for ax in axes:
        ax.set_ylim(max(low, -101 if is_gain else -1), min(high, 101))
    axes[0].set_ylabel("Gain in recall (points)" if is_gain else "Class recall (%)")
    style.legend_below(axes)


def refinement_heatmap(ax: Axes, grid: pd.DataFrame, value: str = "accuracy", mark: tuple[int, int] = (2, 4)) -> None:
    """A heatmap of every minimum ≤ maximum number of refinement steps, with `mark` (minimum, maximum) outlined.

    Colours show the difference from the grid's rule, pale where it lies within its interval. The text of a cell is the
    `value`: "accuracy", or "gain" over no refinement.
    """
    import seaborn  # of the extra `suite`

    texts = [f"{100 * v:.1f}" if value == "accuracy" else points(v, 2) for v in grid[value]]
    sure = grid["beyond"].abs() > grid["beyond_interval"]
    grid = grid.assign(beyond=100 * grid["beyond"], sure=sure, text=texts).set_index(["minimum", "maximum"])
    cells, sure, texts = (grid[column].unstack() for column in ("beyond", "sure", "text"))
    reach = max(0.1, float(cells.abs().max(axis=None)))
    scale = {"cmap": "PuOr", "vmin": -reach, "vmax": reach, "square": True, "linewidths": 0.5}
    bar = {"label": "Better or worse than the rule (points)", "shrink": 0.8}
    seaborn.heatmap(cells, ax=ax, cbar_kws=bar, annot=texts.fillna(""), fmt="", annot_kws={"fontsize": 6}, **scale)
    ax.collections[0].set_alpha(np.where(sure.to_numpy() == True, 1.0, 0.25).ravel())  # noqa: E712 (nan is neither)
    for text, beyond, full in zip(ax.texts, cells.stack(), sure.stack()):  # cells without a value have no text
        text.set_color("white" if full and abs(beyond) > 0.6 * reach else style.BLACK)
    if mark[0] in cells.index and mark[1] in cells.columns:
        corner = cells.columns.get_loc(mark[1]), cells.index.get_loc(mark[0])
        outline = {"fill": False, "edgecolor": style.VERMILLION, "linewidth": 1.6}
        ax.add_patch(Rectangle(corner, 1, 1, zorder=5, **outline))
        sample = Rectangle((0, 0), 1, 1, label=f"minimum {mark[0]},\nmaximum {mark[1]}", **outline)
        ax.legend(handles=[sample], handlelength=1, handleheight=1, loc="lower left", borderaxespad=0.3)
    ax.set_title({"accuracy": "Accuracy (%)", "gain": "Gain over no refinement (points)"}[value])
    ax.grid(False)
    ax.set(xlabel="Maximum refinement steps", ylabel="Minimum refinement steps")
    ax.tick_params(length=0, rotation=0)


def accuracy_by_step(ax: Axes, frame: pd.DataFrame, by: str | None = None, value: str = "accuracy") -> None:
    """The accuracy, or the "gain" over step 0, after exactly 0, 1, 2, … refinement steps; one line per `by`."""
    is_gain = value == "gain"
    lines = [("Transductive", frame)] if by is None else list(frame.groupby(by, sort=False))
    for i, (name, line) in enumerate(lines):
        _band(ax, line["step"], line[value], line["gain_interval" if is_gain else "interval"], name, i)
    ax.set(xlabel="Refinement steps", ylabel="Gain over step 0 (points)" if is_gain else "Accuracy (%)")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    if is_gain:
        style.zero_line(ax)
    if by is not None:
        if len(lines) == 1:
            ax.set_title(ax.lines[0].get_label())
        else:
            ax.legend()


def number_of_queries(axes: style.Panels, frame: pd.DataFrame) -> None:
    """The gain over the fewest queries per class (`gain_by_query_count`): a panel per evaluation, all on one y axis."""
    counts = frame["queries_per_class"].astype(float)
    order = frame.groupby(["variant", "domain"], sort=False).ngroup()
    x = counts + 0.012 * (counts.max() - counts.min()) * (order - order.max() / 2)  # bars don't hide each other
    for ax, (protocol, cell) in zip(axes, frame.groupby("evaluation", sort=False), strict=True):
        for i, ((name, group), line) in enumerate(cell.groupby(["variant", "domain"], sort=False)):
            line_style = {"line": "-" if group in ("all", "real") else "--", "label": style.of_group(name, group)}
            look = style.variant_style(name, i), line_style
            style.dots(ax, x[line.index], 100 * line["difference"], look[0], yerr=100 * line["interval"], **look[1])
        ax.set(
            title=style.in_words(protocol),
            xlabel="Queries per class",
            xticks=sorted(cell["queries_per_class"].unique()),
        )
        style.zero_line(ax)
        ax.set_ylim(style.in_view(frame["difference"], frame["interval"]))
    axes[0].set_ylabel("Gain over the fewest (points)")
    style.legend_below(axes)


def frequencies(ax: Axes, counts: pd.DataFrame, column: str) -> None:
    """How often each "way" or "shot" occurs, stacked by domain."""
    size, label = {"way": ("episodes", "Classes per episode (way)"), "shot": ("classes", SHOT_LABEL)}[column]
    table = counts.pivot_table(index=column, columns="domain", values=size, aggfunc="sum", fill_value=0, observed=True)
    base = np.zeros(len(table))
    for domain in [d for d in ("in", "out") if d in table]:
        look = {"width": 0.9, "color": style.DOMAIN_COLOURS[domain], "label": style.DOMAIN_NAMES[domain]}
        ax.bar(table.index, table[domain], bottom=base, **look)
        base = base + table[domain].to_numpy()
    ax.set(xlabel=label, ylabel=size.capitalize())
    ax.grid(False, axis="x")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))


def _band(
    ax: Axes, x: pd.Series, y: pd.Series, half_width: pd.Series, name: str, position: int, limits: tuple = (-1, 1)
) -> None:
    colour, marker = style.variant_style(name, position)
    ax.plot(x, 100 * y, color=colour, marker=marker, markersize=3, label=style.DOMAIN_NAMES.get(name, name))
    if len(x) == 1:  # a band of no width would not show
        ax.errorbar(x, 100 * y, yerr=100 * half_width, color=colour, elinewidth=1)
    else:
        style.band(ax, x, y, half_width, colour, limits)
