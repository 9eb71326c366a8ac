"""Accuracy as images are labelled or classes arrive, drawn on matplotlib Axes. Bands are 95% intervals."""

import pandas as pd
from matplotlib.ticker import MaxNLocator

from tcnaps.figures.style import BLACK, GREEN, GREY, ORANGE, PURPLE, Panels, band, of_group, zero_line

# Name in the legend, colour and dashes of every line. The dashed one is what the others are compared with.
LOOKS = {
    "random": ("random choice", GREY, "--"),
    "predictive entropy": ("predictive entropy", PURPLE, "-"),
    "variation ratios": ("variation ratios", GREEN, "-"),
    "all images kept": ("all images kept", BLACK, "--"),
    "first": ("FiLM by the first arrival", GREEN, "-"),
    "average": ("FiLM by the arrivals' average", PURPLE, "-"),
    "latest": ("FiLM by the latest arrival", ORANGE, "-"),
}
LABELS = {"labels": "Labels bought", "classes": "Classes so far"}


def curves(
    axes: Panels, averages: pd.DataFrame, x: str, lines: str, label: str, value: str = "accuracy", note: str = ""
) -> None:
    """A row of panels, those of `panels`, with one line and band per name in the column `lines`, a key of `LOOKS`.

    `averages` comes from `overall`; `note` stands above the right end of the first line.
    """
    ticks = sorted(averages[x].unique())
    for ax, (title, panel) in zip(axes, panels(averages).items(), strict=True):
        if value == "difference":
            zero_line(ax)
        for name, line in panel.groupby(lines, sort=False):
            legend, colour, dashes = LOOKS[name]
            band(ax, line[x], line[value], line["interval"], colour)
            look = {"color": colour, "linestyle": dashes, "zorder": 3 if dashes == "--" else 2}
            look |= {"marker": "o" if len(ticks) < 8 else "", "markersize": 3}
            ax.plot(line[x], 100 * line[value], label=legend, **look)
        first = panel[panel[lines] == panel[lines].iloc[0]].iloc[-1]
        offset = 14 if first[value] < 0.85 else 6  # above a line that falls; below the upper border
        place = {"textcoords": "offset points", "xytext": (0, offset), "ha": "right", "fontsize": 7}
        ax.annotate(note, (first[x], 100 * first[value]), **place)
        if ax.get_subplotspec().is_first_row():
            ax.set_title(title)
        ax.set(xlabel=LABELS[x], ylabel=label)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        if len(ticks) < 8:
            ax.set_xticks(ticks)
        ax.margins(x=0.02)
        ax.label_outer()


def panels(averages: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The rows of every variant and kind of images, by their panel's title."""
    groups = averages.groupby(["domain", "variant"], sort=False)
    return {of_group(f"{variant} CNAPS", domain, ",\n"): rows for (domain, variant), rows in groups}
