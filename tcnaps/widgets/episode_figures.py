"""The classes of one episode → matplotlib Axes."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from tcnaps.figures.style import GREY, variant_style


def letter(label: int) -> str:
    """How a class is called where its name is too long: A, B, …, Z, AA, AB, … A number could be taken for its name."""
    return (letter(label // 26 - 1) if label >= 26 else "") + chr(ord("A") + label % 26)


def shortened(name: str, length: int = 28) -> str:
    """A long name without its middle, as what tells classes apart is often at its end."""
    if len(name) <= length:
        return name
    head = (length - 1) * 2 // 3
    return f"{name[:head].rstrip()}…{name[-(length - 1 - head) :].lstrip()}"


def recalls_of_classes(ax: Axes, recalls: Mapping[str, pd.DataFrame]) -> None:
    """Class recall of two variants in one episode: a row per class, by shot, the lowest at the top.

    Args:
        recalls: variant → of `episode_rows.recall_by_class`.
    """
    frames = list(recalls.values())
    order = frames[0].sort_values("shot", kind="stable")["label"].to_numpy()
    rows = np.arange(len(order))
    values = [100 * frame.set_index("label")["recall"].loc[order].to_numpy() for frame in frames]
    for y, ends in zip(rows, np.transpose(values), strict=True):
        ax.plot(ends[[0, -1]], [y, y], color=GREY, linewidth=1.5, zorder=2)
    for position, (name, own) in enumerate(zip(recalls, values, strict=True)):
        colour, marker = variant_style(name, position)
        first = position == 0  # large and hollow: where both are equal, both are seen
        ax.plot(
            own,
            rows,
            marker,
            color=colour,
            markersize=8 if first else 4.5,
            zorder=3 + position,
            label=name,
            markerfacecolor="white" if first else colour,
            markeredgewidth=1.4,
            clip_on=False,
        )
    known = frames[0].set_index("label")
    ax.set_yticks(
        rows, [f"{shortened(known.at[k, 'class_name'])}  {letter(int(k))}   shot {known.at[k, 'shot']}" for k in order]
    )
    ax.set(xlim=(-2, 102), ylim=(len(order) - 0.4, -0.6), xlabel="Class recall (%)")
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=len(frames))
