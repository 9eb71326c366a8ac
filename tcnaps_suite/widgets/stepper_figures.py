"""What the stepper shows: a refinement step in the plane, curves over steps, and as HTML the table of queries and the
cards of the plane's dots. Nothing is told by colour alone.
"""

import html
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator, PercentFormatter

from tcnaps.figures.clustering import class_colours, clustering_step
from tcnaps.figures.style import BLACK, BLUE, GREY, VERMILLION
from tcnaps_suite.widgets.episode_table import letter, shortened
from tcnaps_suite.widgets.pictures import chips, image_address, named, readable_on
from tcnaps_suite.widgets.projection import PlaneView
from tcnaps_suite.widgets.stepper_data import ShownEpisode
from tcnaps_suite.widgets.widget_base import table

MOST_LETTERED = 250  # points that get a letter of their own
MOST_ROWS = 60  # of the table
MOST_BARS = 5  # of a card
TABLE_HEIGHT = 290
# Of the table alone: the page stays where it is.
SCROLL = "const r = this.closest('tr'); r.closest('.xscroll').scrollTop = r.offsetTop - 100"


def plane_step(ax: Axes, view: PlaneView, step: int, found: pd.DataFrame) -> None:
    """One step in the plane, as `figures.clustering.clustering_step`, with the same limits at every step.

    A query has the letter of its most probable class. One with a wrong answer is a square.

    Args:
        found: of `episode_table.at_step`.
    """
    queries, lettered = view.points[~view.is_support], len(view.points) <= MOST_LETTERED
    size = 95 if lettered else 20
    seen = view.responsibilities[step], view.means[step], view.covariances[step]
    flipped = np.append(np.zeros(view.is_support.sum(), dtype=bool), found["changed"])
    clustering_step(ax, view.points, view.is_support, *seen, flipped, (size, 2.2 * size, 2.9 * size, 120))
    colours, wrong = class_colours(view.means.shape[1]), ~found["right"].to_numpy()
    mixed = (seen[0][~view.is_support] @ colours).clip(0, 1)
    square = {"s": size, "marker": "s", "edgecolor": BLACK, "linewidth": 1, "zorder": 3.2}
    ax.scatter(*queries[wrong].T, c=mixed[wrong], **square)
    if lettered:
        shades = np.array([readable_on(colour) for colour in mixed])
        for k in np.unique(found["prediction"]):  # as markers, one class at a time: much faster than text
            own, name = (found["prediction"] == k).to_numpy(), letter(int(k))
            marker = rf"$\mathrm{{{name}}}$"
            ax.scatter(*queries[own].T, s=30 * len(name), marker=marker, c=shades[own], linewidth=0, zorder=3.4)
    halo = [withStroke(linewidth=2.2, foreground="white")]
    look = {"textcoords": "offset points", "fontsize": 10, "weight": "bold", "path_effects": halo, "zorder": 9}
    for k, (mean, colour) in enumerate(zip(view.means[step], colours, strict=True)):
        ax.annotate(letter(k), mean, (7, 5), color=colour * 0.75, **look)
    _set_limits(ax, view)


def step_curves(ax: Axes, steps: pd.DataFrame, step: int, answer: int, minimum: int, maximum: int) -> None:
    """Accuracy and mean confidence over the steps, the step that is shown, and where the variant answers.

    Args:
        steps: of `episode_table.steps_of`.
        answer: the step of the variant's answer. Between `minimum` and `maximum` the stopping rule decides.
    """
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
    """As HTML: the classes' letters and names, and the meaning of the plane's symbols."""
    pairs = (f"{chip} {html.escape(shortened(name))}" for chip, name in zip(chips(names), names))
    classes = " &nbsp; ".join(f'<span style="white-space:nowrap">{pair}</span>' for pair in pairs)
    symbols = "● right &nbsp; ■ wrong &nbsp; ★ support &nbsp; ◯ label changed &nbsp; ✖ class mean"
    return f'<div style="font-size:12px">{symbols}<br>{classes}</div>'


def changes_table(features: ShownEpisode, found: pd.DataFrame, step: int, which: str, marked: int | None = None) -> str:
    """As HTML: the queries with image, classes, confidence and outcome; those that became right or wrong come first.

    Args:
        found: of `episode_table.at_step`.
        which: `changed` at this step, `wrong` after it, or `all`.
        marked: the query whose row is marked and scrolled to. Where it is not listed, it comes first.
    """
    listed = found[{"changed": found["changed"], "wrong": ~found["right"], "all": found["query"] >= 0}[which]]
    listed, more = listed.sort_values(["outcome", "query"]), ""
    if listed.empty:
        more = {"changed": "No label changed at this step."}.get(which, "No query is wrong after this step.")
    elif len(listed) > MOST_ROWS:
        more = f"… and {len(listed) - MOST_ROWS} more"
    shown = listed.head(MOST_ROWS)
    if marked is not None and marked not in set(shown["query"]):
        shown = pd.concat([found[found["query"] == marked], shown])
    rows = pd.DataFrame([_cells(features, query, step, query.query == marked) for query in shown.itertuples()])
    return (table(rows, TABLE_HEIGHT) if len(rows) else "") + html.escape(more)


def cards(features: ShownEpisode, view: PlaneView, step: int, found: pd.DataFrame) -> list[tuple[str, str]]:
    """Every image of the plane in words, and as HTML: its classes, and a query's highest responsibilities as bars.

    Args:
        found: of `episode_table.at_step`.
    """
    names, signs = features.class_names, chips(features.class_names)
    colours = [to_hex(colour) for colour in class_colours(len(names))]
    classes = [f"{sign} {html.escape(shortened(name))}" for sign, name in zip(signs, names)]
    labels = features.support_labels.tolist()
    told = [(f"Support image of {names[k]}", f"<b>Support image</b><br>{classes[k]}") for k in labels]
    for query, shares in zip(found.itertuples(), view.responsibilities[step][len(labels) :]):
        words = f"Query {query.query}, {query.outcome}: {names[query.label]}, predicted {names[query.prediction]}"
        bars = "".join(
            f'<div class="xbar">{signs[k]}<i style="width:{100 * shares[k]:.0f}px;background:{colours[k]}"></i>'
            f"{shares[k]:.2f}</div>"
            for k in np.argsort(-shares, kind="stable")[:MOST_BARS]
        )
        card = f"<b>Query {query.query}</b> {_outcome(query)}<br>true: {classes[query.label]}<br>"
        told.append((words, f'{card}predicted: {classes[query.prediction]}<div class="xbars">{bars}</div>'))
    return told


def _outcome(query):
    colour, sign = (BLUE, "✓") if query.right else (VERMILLION, "✗")
    return f'<span style="color:{colour};font-weight:bold">{sign}&nbsp;{query.outcome}</span>'


def _cells(features, query, step, marked):
    def of_class(label, confidence=None):
        name = f"{letter(int(label))}:&nbsp;{named(features.class_names[label], 16)}"
        return name if confidence is None else f"{name}<br>{confidence:.2f}"

    image = f'src="{image_address(features.query_images[query.query])}" style="width:30px;height:30px;max-width:none"'
    dot = f'data-dot="{len(features.support_labels) + query.query}"'
    mark = f'<b class="xmarked">◉&nbsp;marked</b><style onload="{SCROLL}"></style><br>' if marked else ""
    return {
        "Query": f'{mark}<img {dot} alt="query image {query.query}" {image}><br>{query.query}',
        "True": of_class(query.label),
        "Before": of_class(query.before, query.confidence_before) if step else "–",
        "After": of_class(query.prediction, query.confidence),
        "Outcome": _outcome(query),
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
