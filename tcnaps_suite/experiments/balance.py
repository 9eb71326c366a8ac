"""Tidy frames → matplotlib Axes: classifiers against the balance of their query images."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes

from tcnaps.figures.style import BLUE, GREY, Panels, zero_line


def balance_panels(axes: Panels, averages: pd.DataFrame, names: Sequence[str], reference: str, base: str) -> None:
    """One panel per classifier: its difference from `base` with interval, and that of `reference` in grey.

    From left to right: balanced queries, then Dirichlet's α, then the number of classes that have any query.

    Args:
        averages: `kind`, `balance` (what the axis says, in the order drawn), `classifier`, `difference` and `interval`.
    """
    own = averages.assign(key=averages["kind"] + averages["balance"])
    places = {key: x for x, key in enumerate(own["key"].unique())}
    ticks = own.drop_duplicates("key")
    for number, (ax, name) in enumerate(zip(axes, names), 1):
        for shown, colour, width in ((reference, GREY, 0.8), (name, BLUE, 1.2)):
            _line(ax, own[own["classifier"] == shown], places, colour, width, band=shown == name)
        zero_line(ax)
        ax.set_title(name, loc="left")
        ax.set_xticks(range(len(places)), ticks["balance"])
        starts = ticks.reset_index(drop=True).groupby("kind", sort=False).apply(lambda group: group.index[[0, -1]])
        lowest = number + ax.get_gridspec().ncols > len(names)  # of its column
        for kind, (first, last) in starts.items():
            if first:
                ax.axvline(first - 0.5, color=GREY, linewidth=0.5, linestyle=":")
            if lowest and kind:
                ax.annotate(
                    kind,
                    ((first + last) / 2, -0.2),
                    xycoords=("data", "axes fraction"),
                    ha="center",
                    va="top",
                    fontsize=7,
                )
        ax.label_outer()
        ax.tick_params(labelbottom=lowest)
    for ax in axes[len(names) :]:
        ax.set_visible(False)
    axes[0].figure.supylabel(f"Difference from {base} (points)", fontsize=8)


def _line(ax: Axes, own: pd.DataFrame, places: dict[str, int], colour: str, width: float, band: bool) -> None:
    x, y, reach = own["key"].map(places), 100 * own["difference"], 100 * own["interval"]
    ax.plot(x, y, color=colour, linewidth=width, marker="o" if band else "", markersize=2.5)
    if band:
        ax.fill_between(x, y - reach, y + reach, color=colour, alpha=0.2, linewidth=0)
