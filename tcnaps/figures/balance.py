"""Tidy frames → matplotlib Axes: classifiers against the balance of their query images."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes

from tcnaps.figures.style import PALETTE, Panels, legend_below, variant_style, zero_line


def balance_curves(axes: Panels, averages: pd.DataFrame, names: Sequence[str], label: str) -> None:
    """One panel per kind of imbalance, one line with its interval per classifier; balanced queries at the left.

    Args:
        averages: `kind`, `balance` (what the axis says, in the order drawn), `classifier`, `difference` and `interval`.
        names: the classifiers, in the order of the legend; others are not drawn.
    """
    for ax, (kind, own) in zip(axes, averages.groupby("kind", sort=False), strict=True):
        places = {name: x for x, name in enumerate(own["balance"].unique())}
        for i, name in enumerate(names):
            _line(ax, own[own["classifier"] == name], places, name, i)
        zero_line(ax)
        ax.set_xticks(range(len(places)), places)
        ax.set(xlabel=kind, ylabel=label)
        ax.label_outer()
    legend_below(axes, 4)


def _line(ax: Axes, own: pd.DataFrame, places: dict[str, int], name: str, i: int) -> None:
    colour, marker = variant_style(name, i)
    if i >= len(PALETTE):
        colour, marker = variant_style(name, i - len(PALETTE))[0], "*"
    x, y = own["balance"].map(places), 100 * own["difference"]
    ax.plot(x, y, marker=marker, color=colour, label=name)
    ax.fill_between(x, y - 100 * own["interval"], y + 100 * own["interval"], color=colour, alpha=0.15, linewidth=0)
