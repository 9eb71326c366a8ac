"""What `make bench` measured → matplotlib Axes."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from tcnaps.figures.style import BLACK, BLUE, GREEN, GREY, ORANGE, VERMILLION, Panels, dots, legend_below

# The parts of the paper's Figure 2, in their order: colour and hatch.
PARTS = {"task encoder": (ORANGE, "///"), "backbone": (BLUE, ""), "clustering": (VERMILLION, "...")}
IMPLEMENTATIONS = ["direct", "float32", "bfloat16"]
STYLES = {"float32": (BLUE, "o"), "bfloat16": (GREEN, "s")}


def time_of_episodes(axes: Panels, parts: pd.DataFrame) -> None:
    """Where the time of an episode goes: one panel per episode, one bar per implementation.

    Args:
        parts: of `measurements.parts_of_episodes`.
    """
    for ax, (episode, own) in zip(axes, parts.groupby("episode", sort=False), strict=True):
        seconds = own.pivot(index="implementation", columns="part", values="seconds")[list(PARTS)]
        seconds = seconds.loc[sorted(seconds.index, key=IMPLEMENTATIONS.index)]
        left, y = np.zeros(len(seconds)), np.arange(len(seconds))
        for part, (colour, hatch) in PARTS.items():
            look = {"color": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0, "height": 0.62}
            ax.barh(y, seconds[part], left=left, label=part, **look)
            left += seconds[part].to_numpy()
        for at, total in zip(y, left, strict=True):
            ax.text(total + 0.012 * left.max(), at, f"{total:.2f} s", va="center", fontsize=7)
        ax.set(title=episode, xlabel="Seconds per episode", xlim=(0, 1.16 * left.max()))
        _named_rows(ax, seconds.index)
    legend_below(axes, len(PARTS))


def ratios(ax: Axes, measurements: pd.DataFrame, groups: Sequence[str]) -> None:
    """How many times as fast as the direct implementation: medians of the runs, with the smallest and the largest."""
    own = measurements[measurements["group"].isin(groups) & measurements["ratio"].notna()]
    own = own.assign(name=own["group"] + ": " + own["name"])
    names = list(own["name"].unique())
    for number, (implementation, of_one) in enumerate(own.groupby("implementation", sort=False)):
        y = [names.index(name) for name in of_one["name"]]
        spread = np.abs(of_one[["ratio_low", "ratio_high"]].to_numpy() - of_one[["ratio"]].to_numpy()).T
        y = np.add(y, 0.16 * (2 * number - 1))
        dots(ax, of_one["ratio"], y, STYLES.get(implementation, (GREY, "D")), xerr=spread, label=implementation)
    ax.axvline(1, color=BLACK, linewidth=0.8)
    ax.set(xlabel="Times as fast as the direct implementation", ylim=(len(names) - 0.4, -0.6))
    ax.set_xlim(left=0)
    ax.set_yticks(range(len(names)), names)
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3)


def memory(ax: Axes, measurements: pd.DataFrame, groups: Sequence[str]) -> None:
    """What the calls add to a process's memory at the peak, one bar per implementation."""
    own = measurements[measurements["group"].isin(groups)]
    own = own.assign(name=own["group"] + ": " + own["name"])
    table = own.pivot(index="name", columns="implementation", values="gigabytes").loc[own["name"].unique()]
    kinds = [kind for kind in IMPLEMENTATIONS if kind in table]
    for number, kind in enumerate(kinds):
        colour = STYLES.get(kind, (GREY, ""))[0]
        y = np.arange(len(table)) + 0.26 * (number - (len(kinds) - 1) / 2)
        ax.barh(y, table[kind].fillna(0), height=0.22, color=colour, label=kind)
        problems = own[own["implementation"] == kind].set_index("name")["problem"].reindex(table.index)
        for at, (value, problem) in zip(y, zip(table[kind], problems)):
            text = f"{value:.2f}" if np.isfinite(value) else problem or "not measured"
            ax.text((value if np.isfinite(value) else 0) + 0.01 * table.max().max(), at, text, va="center", fontsize=6)
    ax.set(xlabel="Peak memory (GB)", xlim=(0, 1.15 * table.max().max()))
    _named_rows(ax, table.index)
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3)


def _named_rows(ax: Axes, names: pd.Index) -> None:
    """Names the bars from the top down."""
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)
