"""Classifiers against the balance of their query images, drawn on matplotlib Axes."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from tcnaps.figures.style import BLUE, GREY, Panels, zero_line


def balance_panels(axes: Panels, averages: pd.DataFrame, names: Sequence[str], reference: str, base: str) -> None:
    """One panel per classifier: its difference from `base` with interval, and that of `reference` in grey.

    From left to right: balanced queries, then Dirichlet's α, then the number of classes that have any query.

    Args:
        averages: `kind`, `balance` (the label of its tick, in the order drawn), `classifier`, `difference`, `interval`.
    """
    settings = averages[["kind", "balance"]].drop_duplicates().reset_index(drop=True)
    for number, (ax, name) in enumerate(zip(axes, names), 1):
        _line(ax, averages[averages["classifier"] == reference], GREY, 0.8, band=False)
        _line(ax, averages[averages["classifier"] == name], BLUE, 1.2, band=True)
        zero_line(ax)
        ax.set_title(name, loc="left")
        ax.set_xticks(range(len(settings)), settings["balance"])
        is_lowest = number + ax.get_gridspec().ncols > len(names)  # of its column
        for kind, group in settings.groupby("kind", sort=False):
            first, last = group.index[[0, -1]]
            if first:
                ax.axvline(first - 0.5, color=GREY, linewidth=0.5, linestyle=":")
            if is_lowest and kind:
                place = {"xy": ((first + last) / 2, -0.2), "xycoords": ("data", "axes fraction")}
                ax.annotate(kind, ha="center", va="top", fontsize=7, **place)
        ax.label_outer()
        ax.tick_params(labelbottom=is_lowest)
    for ax in axes[len(names) :]:
        ax.set_visible(False)
    axes[0].figure.supylabel(f"Difference from {base} (points)", fontsize=8)


def _line(ax: Axes, cells: pd.DataFrame, colour: str, width: float, band: bool) -> None:
    x, y = np.arange(len(cells)), 100 * cells["difference"]
    ax.plot(x, y, color=colour, linewidth=width, marker="o" if band else "", markersize=2.5)
    if band:
        half_width = 100 * cells["interval"]
        ax.fill_between(x, y - half_width, y + half_width, color=colour, alpha=0.2, linewidth=0)
