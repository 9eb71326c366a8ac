"""What `make bench` measured → matplotlib Axes."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from tcnaps.figures.measurements import PARTS
from tcnaps.figures.style import BLACK, BLUE, GREEN, GREY, ORANGE, VERMILLION, Panels

PART_COLOURS = dict(zip(PARTS, (ORANGE, BLUE, VERMILLION)))
PART_HATCHES = dict(zip(PARTS, ("///", "", "...")))
STYLES = {"float32": (BLUE, "o"), "bfloat16": (GREEN, "s")}


def time_of_episodes(axes: Panels, parts: pd.DataFrame) -> None:
    """Where the time of an episode goes: a panel for each episode, a bar for each implementation.

    Args:
        parts: of `measurements.parts_of_episodes`.
    """
    for ax, (episode, own) in zip(axes, parts.groupby("episode", sort=False)):
        seconds = own.pivot(index="implementation", columns="part", values="seconds")[list(PARTS)]
        seconds = seconds.loc[sorted(seconds.index, key=["direct", "float32", "bfloat16"].index)]
        left, y = np.zeros(len(seconds)), np.arange(len(seconds))
        for part in PARTS:
            ax.barh(
                y,
                seconds[part],
                left=left,
                color=PART_COLOURS[part],
                hatch=PART_HATCHES[part],
                label=part,
                edgecolor="white",
                linewidth=0,
                height=0.62,
            )
            left += seconds[part].to_numpy()
        for at, total in zip(y, left):
            ax.text(total + 0.012 * left.max(), at, f"{total:.2f} s", va="center", fontsize=7)
        ax.set(title=episode, xlabel="Seconds an episode", xlim=(0, 1.16 * left.max()))
        ax.set_yticks(y, seconds.index)
        ax.invert_yaxis()
        ax.grid(axis="y", visible=False)
    handles, labels = axes[0].get_legend_handles_labels()
    axes[0].figure.legend(handles, labels, loc="outside lower center", ncols=len(PARTS))


def ratios(ax: Axes, measurements: pd.DataFrame, groups: Sequence[str]) -> None:
    """How many times as fast as the direct implementation: medians of the turns, with the smallest and the largest."""
    own = measurements[measurements["group"].isin(groups) & measurements["ratio"].notna()]
    own = own.assign(name=own["group"] + ": " + own["name"])
    names = list(own["name"].unique())
    for number, (implementation, of_one) in enumerate(own.groupby("implementation", sort=False)):
        colour, marker = STYLES.get(implementation, (GREY, "D"))
        y = [names.index(name) for name in of_one["name"]]
        spread = np.abs(of_one[["ratio_low", "ratio_high"]].to_numpy() - of_one[["ratio"]].to_numpy()).T
        ax.errorbar(
            of_one["ratio"],
            np.add(y, 0.16 * (2 * number - 1)),
            xerr=spread,
            fmt=marker,
            color=colour,
            elinewidth=1,
            label=implementation,
        )
    ax.axvline(1, color=BLACK, linewidth=0.8)
    ax.set(xlabel="Times as fast as the direct implementation", ylim=(len(names) - 0.4, -0.6))
    ax.set_xlim(left=0)
    ax.set_yticks(range(len(names)), names)
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3)


def memory(ax: Axes, measurements: pd.DataFrame, groups: Sequence[str]) -> None:
    """What the calls add to a process's memory at the peak, a bar for each implementation."""
    own = measurements[measurements["group"].isin(groups)]
    own = own.assign(name=own["group"] + ": " + own["name"])
    table = own.pivot(index="name", columns="implementation", values="gigabytes").loc[own["name"].unique()]
    kinds = [kind for kind in ("direct", "float32", "bfloat16") if kind in table]
    for number, kind in enumerate(kinds):
        colour = STYLES.get(kind, (GREY, ""))[0]
        y = np.arange(len(table)) + 0.26 * (number - (len(kinds) - 1) / 2)
        ax.barh(y, table[kind].fillna(0), height=0.22, color=colour, label=kind)
        problems = own[own["implementation"] == kind].set_index("name")["problem"].reindex(table.index)
        for at, (value, problem) in zip(y, zip(table[kind], problems)):
            text = f"{value:.2f}" if np.isfinite(value) else problem or "not measured"
            ax.text((value if np.isfinite(value) else 0) + 0.01 * table.max().max(), at, text, va="center", fontsize=6)
    ax.set(xlabel="Peak memory (GB)", xlim=(0, 1.15 * table.max().max()))
    ax.set_yticks(range(len(table)), table.index)
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3)
