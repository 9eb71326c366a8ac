"""Query sets with unequal class frequencies: how they are drawn, and what classifiers lose on them."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from tcnaps.episodes.sampling import Draw, episode_generator
from tcnaps.figures import style


def unbalanced(draw: Draw, seed: int, concentration: float | int | None = None, present: int | None = None) -> Draw:
    """Thins a balanced draw: all classes together keep as many queries as one class had.

    `concentration` is the α of a Dirichlet distribution that sets the classes' shares (Veilleux et al. 2021: α = 2).
    Without it, `present` classes, chosen at random (None: all), have equally many queries, give or take one.
    """
    way = len(draw.classes)
    n_query = len(draw.query_images) // way
    generator = episode_generator(seed, draw.dataset, f"{draw.split}, unbalanced", draw.index)
    if concentration is not None:
        counts = generator.multinomial(n_query, generator.dirichlet(np.full(way, concentration)))
    else:
        counts, present = np.zeros(way, np.int64), present or way
        shares = np.diff(np.linspace(0, n_query, present + 1).astype(int))
        counts[generator.choice(way, present, replace=False)] = shares
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
                grey = 100 * cells.loc[cells["classifier"] == reference, "difference"].reset_index(drop=True)
                look = {"color": style.GREY, "linewidth": 0.8, "linestyle": "--" if domain == "rendered" else "-"}
                ax.plot(grey, label=style.of_group(reference, domain), **look)
            line = cells[cells["classifier"] == name].reset_index()
            look = {"color": style.DOMAIN_COLOURS[domain], "marker": "o", "markersize": 2.5, "linewidth": 1.2}
            ax.plot(100 * line["difference"], label=style.of_group("the panel's classifier", domain), **look)
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
    style.legend_below(axes[1:] if len(names) > 1 else axes, 2)
