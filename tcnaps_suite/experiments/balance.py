"""Query sets with unequal class frequencies: how they are drawn, and what classifiers lose on them."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from jaxtyping import Int
from matplotlib.axes import Axes

from tcnaps.episodes.sampling import Draw, episode_generator
from tcnaps.figures import style


def dirichlet_counts(
    generator: np.random.Generator, way: int, n_query: int, concentration: float | int
) -> Int[np.ndarray, "way"]:
    """The number of query images of every class, in Dirichlet's proportions (Veilleux et al. 2021, with α = 2)."""
    return generator.multinomial(n_query, generator.dirichlet(np.full(way, concentration)))


def sparse_counts(generator: np.random.Generator, way: int, n_query: int, present: int) -> Int[np.ndarray, "way"]:
    """The number of query images of every class: equal, up to one image, for `present` of the classes, 0 for others."""
    counts = np.zeros(way, np.int64)
    shares = np.diff(np.linspace(0, n_query, present + 1).astype(int))
    counts[generator.choice(way, present, replace=False)] = shares
    return counts


def unbalanced(draw: Draw, seed: int, concentration: float | int | None = None, present: int | None = None) -> Draw:
    """An episode of equal classes with unequal numbers of queries per class, in all as many as one class had."""
    way = len(draw.classes)
    n_query = len(draw.query_images) // way
    generator = episode_generator(seed, draw.dataset, f"{draw.split}, unbalanced", draw.index)
    if concentration is not None:
        counts = dirichlet_counts(generator, way, n_query, concentration)
    else:
        counts = sparse_counts(generator, way, n_query, present or way)
    kept = np.concatenate([np.flatnonzero(draw.query_labels == k)[:count] for k, count in enumerate(counts)])
    return replace(draw, query_images=draw.query_images[kept], query_labels=draw.query_labels[kept])


def balance_panels(axes: style.Panels, averages: pd.DataFrame, names: Sequence[str], reference: str, base: str) -> None:
    """One panel per classifier: its difference from `base` with interval, and that of `reference` in grey.

    From left to right: balanced queries, then Dirichlet's α, then the number of classes that have any query. `averages`
    has `kind`, `balance` (a tick's label, in the order drawn), `classifier`, `domain`, `difference` and `interval`.
    """
    settings = averages[["kind", "balance"]].drop_duplicates().reset_index(drop=True)
    for number, (ax, name) in enumerate(zip(axes, names), 1):
        for domain, cells in averages.groupby("domain", sort=False):
            if name != reference:
                grey = cells[cells["classifier"] == reference], style.of_group(reference, domain), style.GREY
                _line(ax, *grey, {"linewidth": 0.8, "linestyle": "--" if domain == "rendered" else "-"})
            look = {"marker": "o", "markersize": 2.5, "linewidth": 1.2}
            line = cells[cells["classifier"] == name].reset_index()
            _line(ax, line, style.of_group("the panel's classifier", domain), style.DOMAIN_COLOURS[domain], look)
            style.band(ax, line.index.to_series(), line["difference"], line["interval"], style.DOMAIN_COLOURS[domain])
        style.zero_line(ax)
        ax.set_title(name, loc="left")
        ax.set_xticks(range(len(settings)), settings["balance"])
        is_lowest = number + ax.get_gridspec().ncols > len(names)  # of its column
        for kind, group in settings.groupby("kind", sort=False):
            first, last = group.index[[0, -1]]
            if first:
                ax.axvline(first - 0.5, color=style.GREY, linewidth=0.5, linestyle=":")
            if is_lowest and kind:
                place = {"xy": ((first + last) / 2, -0.2), "xycoords": ("data", "axes fraction")}
                ax.annotate(kind, ha="center", va="top", fontsize=7, **place)
        ax.label_outer()
        ax.tick_params(labelbottom=is_lowest)
    for ax in axes[len(names) :]:
        ax.set_visible(False)
    axes[0].figure.supylabel(f"Difference from {base} (points)", fontsize=8)
    style.legend_below(axes[1:] if len(names) > 1 else axes)


def _line(ax: Axes, cells: pd.DataFrame, label: str, colour: str, look: dict[str, str | float]) -> None:
    ax.plot(range(len(cells)), 100 * cells["difference"], color=colour, label=label, **look)
