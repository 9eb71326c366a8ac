"""The stepper's plane, curves over steps, and table of queries as HTML. Nothing is said by colour alone."""

import html
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator, PercentFormatter

from tcnaps.figures.clustering import PlaneView, class_colours, clustering_step
from tcnaps.figures.style import BLACK, BLUE, GREY, VERMILLION
from tcnaps_suite.widgets.episode_table import letter, shortened
from tcnaps_suite.widgets.pictures import chips, image_address, named, readable_on
from tcnaps_suite.widgets.stepper_data import ShownEpisode
from tcnaps_suite.widgets.widget_base import table

MOST_LETTERED = 250  # points that get a letter of their own
MOST_ROWS = 60  # of the table
MOST_CLASSES = 5  # responsibilities of a query that are listed
TABLE_HEIGHT = 290  # pixels


def plane_step(ax: Axes, view: PlaneView, step: int, queries: pd.DataFrame, marked: int | None = None) -> None:
    """One step in the plane, as `figures.clustering.clustering_step`, with the same limits at every step.

    The letter is a query's most probable class; a square is a wrong answer, a red ring the marked query.
    """
    is_query, lettered = ~view.is_support, len(view.points) <= MOST_LETTERED
    size = 95 if lettered else 20
    clustering_step(ax, view, step, (size, 2.2 * size, 2.9 * size, 120))
    points, means = view.points[is_query], view.means[step]
    colours, wrong = class_colours(len(means)), ~queries["right"].to_numpy()
    mixed = (view.responsibilities[step][is_query] @ colours).clip(0, 1)
    ax.scatter(*points[wrong].T, c=mixed[wrong], s=size, marker="s", edgecolor=BLACK, linewidth=1, zorder=3.2)
    if lettered:
        shades = np.array([readable_on(colour) for colour in mixed])
        for k in np.unique(queries["prediction"]):  # as markers, one class at a time: much faster than text
            members, name = (queries["prediction"] == k).to_numpy(), letter(int(k))
            look = {"s": 30 * len(name), "marker": rf"$\mathrm{{{name}}}$", "linewidth": 0, "zorder": 3.4}
            ax.scatter(*points[members].T, c=shades[members], **look)
    if marked is not None:
        ax.scatter(*points[marked], s=5 * size, facecolor="none", edgecolor="#D00000", linewidth=2.5, zorder=8)
    halo = [withStroke(linewidth=2.2, foreground="white")]
    look = {"textcoords": "offset points", "fontsize": 10, "weight": "bold", "path_effects": halo, "zorder": 9}
    for k, (mean, colour) in enumerate(zip(means, colours, strict=True)):
        ax.annotate(letter(k), mean, (7, 5), color=colour * 0.75, **look)
    _set_limits(ax, view)


def step_curves(ax: Axes, steps: pd.DataFrame, step: int, answer: int, minimum: int, maximum: int) -> None:
    """Accuracy and mean confidence over the steps; marks the step that is shown and that of the variant's answer."""
    if minimum < maximum:
        ax.axvspan(minimum, maximum, color="#EFEFEF", zorder=0, label="rule decides")
    ax.axvline(step, color=GREY, linewidth=1, linestyle="--", zorder=1)
    percent = 100 * steps[["accuracy", "mean_confidence"]]
    for column, colour, marker in (("accuracy", BLUE, "o"), ("mean_confidence", VERMILLION, "s")):
        look = {"color": colour, "marker": marker}
        ax.plot(percent[column], markersize=4.5, label=column.replace("_", " "), **look)
        ax.plot(step, percent[column][step], markersize=8, markeredgecolor=BLACK, **look)
    circle = {"markersize": 13, "markerfacecolor": "none", "markeredgecolor": BLACK, "markeredgewidth": 1.3}
    ax.plot(answer, percent["accuracy"][answer], marker="o", linestyle="", label="answer", **circle)
    bottom, last = max(0, 10 * np.floor((percent.to_numpy().min() - 4) / 10)), len(steps) - 1
    ax.set(xlim=(-0.4, last + 0.4), ylim=(bottom, 100 + 0.06 * (100 - bottom)))
    ax.set_xlabel("Refinement step (below: labels changed)")
    ax.yaxis.set_major_formatter(PercentFormatter(100, decimals=0))
    ax.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    ticks = range(0, last + 1, 1 if last <= 12 else 2 if last <= 24 else 5)
    ax.set_xticks(ticks, [f"{t}\n{steps['changed'][t] if t else '–'}" for t in ticks])
    ax.tick_params(labelsize=8)
    narrow = {"handletextpad": 0.3, "columnspacing": 0.7, "handlelength": 1.4, "markerscale": 0.8}
    ax.legend(loc="lower left", bbox_to_anchor=(-0.13, 1.0), ncols=4, fontsize=7.5, borderaxespad=0.1, **narrow)


def legend(names: Sequence[str]) -> str:
    """The classes' letters and names, and the meaning of the plane's symbols, as HTML."""
    pairs = (f"{chip} {html.escape(shortened(name))}" for chip, name in zip(chips(names), names))
    classes = " &nbsp; ".join(f'<span style="white-space:nowrap">{pair}</span>' for pair in pairs)
    symbols = "● right &nbsp; ■ wrong &nbsp; ★ support &nbsp; ◯ label changed &nbsp; ✖ class mean"
    return f'<div style="font-size:12px">{symbols}<br>{classes}</div>'


def query_table(
    features: ShownEpisode, view: PlaneView, step: int, queries: pd.DataFrame, which: str, marked: int | None = None
) -> str:
    """The queries as HTML, with their highest responsibilities. Those that became right or wrong come first.

    `which` is `changed` at this step, `wrong` after it, or `all`. The marked query comes first, with a red frame.
    """
    kept = {"changed": queries["changed"], "wrong": ~queries["right"], "all": queries["query"] >= 0}[which]
    listed, note = queries[kept].sort_values(["outcome", "query"]), ""
    if listed.empty:
        note = {"changed": "No label changed at this step."}.get(which, "No query is wrong after this step.")
    elif len(listed) > MOST_ROWS:
        note = f"… and {len(listed) - MOST_ROWS} more"
    listed = listed.head(MOST_ROWS)
    if marked is not None:
        listed = pd.concat([queries[queries["query"] == marked], listed[listed["query"] != marked]])
    shares = view.responsibilities[step][~view.is_support]
    rows = [_cells(features, query, shares[query.query], step, query.query == marked) for query in listed.itertuples()]
    return (table(pd.DataFrame(rows), TABLE_HEIGHT) if rows else "") + html.escape(note)


def _cells(features: ShownEpisode, query: tuple, shares: np.ndarray, step: int, marked: bool) -> dict[str, str]:
    signs = chips(features.class_names)
    highest = np.argsort(-shares, kind="stable")[:MOST_CLASSES]
    address, number = image_address(features.query_images[query.query]), query.query
    image = f'<img alt="query image {number}" src="{address}" style="width:30px;height:30px;max-width:none">'
    colour, sign = (BLUE, "✓") if query.right else (VERMILLION, "✗")
    return {
        "Query": f"{image}<br>{'<b class=xmarked>◉ marked</b> ' if marked else ''}{number}",
        "True": f"{letter(query.label)}:&nbsp;{named(features.class_names[query.label], 16)}",
        "Before": f"{signs[query.before]} {query.confidence_before:.2f}" if step else "–",
        "After": f"{letter(query.prediction)}:&nbsp;{named(features.class_names[query.prediction], 16)}",
        "Responsibilities": " ".join(f"<nobr>{signs[k]} {shares[k]:.2f}</nobr>" for k in highest),
        "Outcome": f'<span style="color:{colour};font-weight:bold">{sign}&nbsp;{query.outcome}</span>',
    }


def _set_limits(ax, view):
    """Limits that hold all points and every step's means, with equal scales: the shorter side is widened."""
    corners = np.concatenate([view.points, view.means.reshape(-1, 2)])
    low, high = corners.min(axis=0), corners.max(axis=0)
    margin = np.maximum(0.08 * (high - low), 1e-3)
    (x, y), (width, height) = (low + high) / 2, high - low + 2 * margin
    box = ax.get_position()
    ratio = (box.width * ax.figure.get_figwidth()) / (box.height * ax.figure.get_figheight())
    width, height = max(width, height * ratio), max(height, width / ratio)
    ax.set(xlim=(x - width / 2, x + width / 2), ylim=(y - height / 2, y + height / 2))
