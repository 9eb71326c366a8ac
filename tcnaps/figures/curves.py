"""Tidy frames → matplotlib Axes: accuracy as more is labelled or learned. Bands are 95% intervals."""

import pandas as pd
from matplotlib.ticker import MaxNLocator

from tcnaps.figures.style import BLACK, GREEN, GREY, ORANGE, PURPLE, Panels, zero_line

# Colour and line of what others are compared with, and of the others in their order.
BASES = {"random": (GREY, "--"), "all images kept": (BLACK, "--")}
LABELS = {"labels": "Labels bought", "classes": "Classes so far"}
OTHERS = ((PURPLE, "-"), (GREEN, "-"), (ORANGE, "-"))


def curves(axes: Panels, averages: pd.DataFrame, x: str, lines: str, label: str, value: str = "accuracy") -> None:
    """A row of panels, one per variant, with one line and band per name in the column `lines`.

    Args:
        averages: of `domain_averages`, one domain.
        x: the column of the horizontal axis, a name of `LABELS`.
        label: of the vertical axis.
        value: "accuracy" or "difference".
    """
    names = list(averages[lines].unique())
    looks = dict(zip([name for name in names if name not in BASES], OTHERS)) | BASES
    for ax, (variant, panel) in zip(axes, averages.groupby("variant", sort=False), strict=True):
        for name, own in panel.groupby(lines, sort=False):
            colour, dashes = looks[name]
            low, high = (100 * (own[value] + sign * own["interval"]) for sign in (-1, 1))
            ax.fill_between(own[x], low, high, color=colour, alpha=0.15, linewidth=0)
            ax.plot(own[x], 100 * own[value], color=colour, linestyle=dashes, label=name)
        if value == "difference":
            zero_line(ax)
        if ax.get_subplotspec().is_first_row():
            ax.set_title(variant)
        ax.set(xlabel=LABELS[x], ylabel=label)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.margins(x=0.02)
        ax.label_outer()
