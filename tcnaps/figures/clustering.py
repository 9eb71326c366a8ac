"""Soft k-means step by step, and the effect of the softmax's scale, drawn on matplotlib Axes."""

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Ellipse
from matplotlib.patheffects import withStroke
from matplotlib.ticker import PercentFormatter

from tcnaps.figures.style import BLACK, DOMAIN_COLOURS, GREY, PALETTE, Panels, dots, of_group, variant_style, zero_line


def class_colours(way: int) -> Float[np.ndarray, "way 3"]:
    """One colour per class. When the palette is used up, paler copies of it follow."""
    colours = np.array([to_rgb(PALETTE[k % len(PALETTE)]) for k in range(way)])
    round_of_palette = np.arange(way)[:, None] // len(PALETTE)
    return 1 - (1 - colours) * 0.6**round_of_palette


def clustering_step(
    ax: Axes,
    points: Float[np.ndarray, "n_points 2"],
    is_support: Bool[np.ndarray, "n_points"],
    responsibilities: Float[np.ndarray, "n_points way"],
    means: Float[np.ndarray, "way 2"],
    covariances: Float[np.ndarray, "way 2 2"],
    flipped: Bool[np.ndarray, "n_points"] | None = None,
    sizes: tuple[float | int, ...] = (14, 130, 52, 24),
) -> None:
    """One refinement step in two dimensions.

    Support images are stars. Queries are dots whose colour mixes the classes' colours by their responsibilities.
    Crosses are the class means, with ellipses at the Mahalanobis distances 1 and 2. Points that are `flipped` have a
    ring: their most probable class changed. `sizes` are those of queries, support images, rings and means, in points².
    """
    colours = class_colours(len(means))
    for mean, covariance, colour in zip(means, covariances, colours, strict=True):
        for distance in (1.0, 2.0):
            ax.add_patch(covariance_ellipse(mean, covariance, distance, colour))
    mixed = (responsibilities @ colours).clip(0, 1)
    dot, star, ring, cross = sizes
    ax.scatter(*points[~is_support].T, s=dot, c=mixed[~is_support], edgecolor="white", linewidth=0.3, zorder=3)
    star_halo, cross_halo = ([withStroke(linewidth=width, foreground="white")] for width in (2.5, 1.2))
    edge = {"edgecolor": BLACK, "linewidth": 0.5}
    ax.scatter(*points[is_support].T, s=star, marker="*", c=mixed[is_support], path_effects=star_halo, zorder=6, **edge)
    if flipped is not None and flipped.any():
        ax.scatter(*points[flipped].T, s=ring, facecolor="none", edgecolor=BLACK, linewidth=0.9, zorder=5)
    ax.scatter(*means.T, s=cross, marker="X", c=colours, path_effects=cross_halo, zorder=7, **edge)
    ax.set_aspect("equal", adjustable="datalim")
    ax.set(xticks=[], yticks=[])
    ax.grid(False)
    ax.spines[:].set(visible=True, color="#C8C8C8")


def last_step(responsibilities: Float[np.ndarray, "n_steps n_points way"]) -> int:
    """The first step at which no label changes, where the loop ends by itself; or the last step."""
    labels = responsibilities.argmax(axis=-1)
    still = (labels[1:] == labels[:-1]).all(axis=1)
    return int(still.argmax()) + 1 if still.any() else len(still)


def steps_strip(
    axes: Panels,
    points: Float[np.ndarray, "n_points 2"],
    is_support: Bool[np.ndarray, "n_points"],
    responsibilities: Float[np.ndarray, "n_steps n_points way"],
    means: Float[np.ndarray, "n_steps way 2"],
    covariances: Float[np.ndarray, "n_steps way 2 2"],
) -> None:
    """The first refinement steps, one per panel, on common limits. Rings mark the labels that a step changed."""
    labels, end = responsibilities.argmax(axis=-1), last_step(responsibilities)
    for step, ax in enumerate(axes):
        flipped = labels[step] != labels[max(step - 1, 0)]
        clustering_step(ax, points, is_support, responsibilities[step], means[step], covariances[step], flipped)
        changed = "the end" if step == end and not flipped.any() else f"{flipped.sum()} changed"
        ax.set_title(f"Step {step}" + (f" · {changed}" if step else ""))
    reach = np.sqrt(np.einsum("tkii->tki", covariances))
    corners = np.concatenate([points, (means - reach).reshape(-1, 2), (means + reach).reshape(-1, 2)])
    low, high = corners.min(axis=0), corners.max(axis=0)
    margin = 0.06 * (high - low)
    for ax in axes:
        ax.set_aspect("equal", adjustable="box")
        ax.set(xlim=(low[0] - margin[0], high[0] + margin[0]), ylim=(low[1] - margin[1], high[1] + margin[1]))


def clustering_legend(figure: Figure) -> None:
    """A legend below the panels, of the symbols of `clustering_step`."""
    symbols = {
        "support": {"marker": "*", "markersize": 8, "markeredgecolor": BLACK},
        "query (colour mixes the responsibilities)": {"marker": "o"},
        "class mean": {"marker": "X", "markersize": 6, "markeredgecolor": BLACK, "markeredgewidth": 0.5},
        "label changed": {"marker": "o", "markersize": 7, "markeredgecolor": BLACK, "markerfacecolor": "none"},
        "Mahalanobis distance 1, 2": {"linestyle": "-"},
    }
    handles = [Line2D([], [], **{"color": GREY, "linestyle": ""} | look, label=name) for name, look in symbols.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), handletextpad=0.4, columnspacing=1.2)
    figure.draw_without_rendering()  # with equal scales the layout needs two passes; after one, titles are cut off


def confidence_by_scale(axes: Panels, frame: pd.DataFrame) -> None:
    """Histograms of the predicted class's responsibility (`confidence`): a panel per `scale`, a line per `step`."""
    steps = sorted(frame["step"].unique())
    shades = {step: str(0.75 - 0.75 * i / max(len(steps) - 1, 1)) for i, step in enumerate(steps)}
    for ax, (scale, panel) in zip(axes, frame.groupby("scale"), strict=True):
        for step, cell in panel.groupby("step"):
            confidence = cell["confidence"].to_numpy()
            share = np.full(len(confidence), 1 / len(confidence))
            look = {"histtype": "step", "color": shades[step], "linewidth": 1.2, "label": f"step {step}"}
            ax.hist(confidence, bins=np.linspace(0, 1, 21), weights=share, **look)
        ax.set(title=f"Scale {scale:g}", xlim=(0, 1))
        ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes[0].set_ylabel("Share of queries")
    axes[0].figure.supxlabel("Responsibility of the predicted class", fontsize=8)
    axes[-1].legend(loc="upper right")  # at small scales responsibilities crowd at the left


def gain_by_scale(ax: Axes, frame: pd.DataFrame, averages: pd.DataFrame) -> None:
    """The gain of refinement against the scale inside the softmax: means over datasets, and each dataset faintly.

    A `scale` is a number or "auto", which is drawn last, unconnected. `averages` come from `overall`.
    """
    numbers = sorted({scale for scale in averages["scale"] if scale != "auto"})
    places = {scale: float(i) for i, scale in enumerate([*numbers, "auto"]) if scale in set(averages["scale"])}
    for i, (name, line) in enumerate(frame.groupby("dataset", sort=False)):
        bars = {"label": name, "alpha": 0.45, "linewidth": 0.8, "markersize": 2.5}
        _by_scale(ax, line, places, variant_style(name, i), **bars)
    for name, line in averages.groupby("domain", sort=False):
        bars = {
            "yerr": 100 * line["interval"],
            "label": of_group("mean", name),
            "linewidth": 2.2,
            "markersize": 6,
            "zorder": 4,
        }
        _by_scale(ax, line, places, (DOMAIN_COLOURS[name], "o"), **bars)
    zero_line(ax)
    names = {0.125: "⅛", 0.25: "¼", 0.5: "½"}
    ax.set_xticks(list(places.values()), [names.get(scale, f"{scale}".removesuffix(".0")) for scale in places])
    ax.set(xlabel="Scale of the squared distance in the softmax", ylabel="Gain of refinement (points)")
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3)


def _by_scale(ax: Axes, line: pd.DataFrame, places: dict, look: tuple[str, str], **bars) -> None:
    is_number = line["scale"] != "auto"
    label, yerr = bars.pop("label"), bars.pop("yerr", None)
    for part, joined in ((is_number, "-"), (~is_number, "")):
        error = None if yerr is None else yerr[part]
        x = line.loc[part, "scale"].map(places)
        dots(ax, x, 100 * line.loc[part, "gain"], look, joined, yerr=error, label=label if joined else None, **bars)


def covariance_ellipse(mean: np.ndarray, covariance: np.ndarray, distance: float, colour: np.ndarray) -> Ellipse:
    """The points at one Mahalanobis distance from the mean."""
    variances, axes = np.linalg.eigh(covariance)
    angle = np.degrees(np.arctan2(axes[1, 1], axes[0, 1]))  # of the longest axis
    width, height = 2 * distance * np.sqrt(variances[::-1])
    look = {"facecolor": (*colour, 0.06), "edgecolor": (*colour, 0.9), "linewidth": 0.8, "zorder": 1}
    return Ellipse(tuple(mean), width, height, angle=angle, **look)
