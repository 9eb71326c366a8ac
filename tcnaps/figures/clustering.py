"""Soft k-means step by step, what the softmax's scale does, an episode's images → matplotlib Axes."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Integer
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Ellipse
from matplotlib.ticker import PercentFormatter

from tcnaps.figures.style import BLACK, GREY, PALETTE, Panels, plain_text, variant_style


def class_colours(way: int) -> Float[np.ndarray, "way 3"]:
    """One colour per class; beyond the palette's, paler copies of it."""
    colours = np.array([to_rgb(PALETTE[k % len(PALETTE)]) for k in range(way)])
    round_of_palette = np.arange(way)[:, None] // len(PALETTE)
    return 1 - (1 - colours) * 0.6**round_of_palette


def clustering_step(
    ax: Axes,
    points: Float[np.ndarray, "n_points 2"],
    is_support: Bool[np.ndarray, "n_points"],
    responsibilities: Float[np.ndarray, "n_points way"],
    means: Float[np.ndarray, "way 2"],
    covariances: Float[np.ndarray, "way 2 2"] | None = None,
    flipped: Bool[np.ndarray, "n_points"] | None = None,
    title: str = "",
) -> None:
    """One refinement step in two dimensions.

    Support images are stars; queries are dots whose colour mixes the classes' colours by their
    responsibilities; crosses are the class means, with the ellipses at Mahalanobis distance 1 and 2.

    Args:
        covariances: in the plane of the points; None leaves the ellipses out.
        flipped: points to ring: those whose most probable class changed at this step.
    """
    colours = class_colours(len(means))
    if covariances is not None:
        for mean, covariance, colour in zip(means, covariances, colours, strict=True):
            for distance in (1.0, 2.0):
                ax.add_patch(covariance_ellipse(mean, covariance, distance, colour))
    mixed = (responsibilities @ colours).clip(0, 1)
    ax.scatter(*points[~is_support].T, s=14, c=mixed[~is_support], edgecolor="white", linewidth=0.3, zorder=3)
    ax.scatter(*points[is_support].T, s=110, marker="*", c=mixed[is_support], edgecolor=BLACK, linewidth=0.5, zorder=4)
    if flipped is not None and flipped.any():
        ax.scatter(*points[flipped].T, s=52, facecolor="none", edgecolor=BLACK, linewidth=0.9, zorder=5)
    ax.scatter(*means.T, s=36, marker="X", c=colours, edgecolor=BLACK, linewidth=0.5, zorder=6)
    ax.set_aspect("equal", adjustable="datalim")
    ax.set(xticks=[], yticks=[], title=title)
    ax.grid(False)
    ax.spines[:].set(visible=True, color="#C8C8C8")


def steps_strip(
    axes: Panels,
    points: Float[np.ndarray, "n_points 2"],
    is_support: Bool[np.ndarray, "n_points"],
    responsibilities: Float[np.ndarray, "n_steps n_points way"],
    means: Float[np.ndarray, "n_steps way 2"],
    covariances: Float[np.ndarray, "n_steps way 2 2"] | None = None,
    steps: Sequence[int] | None = None,
) -> None:
    """Refinement steps as panels on common limits; rings show the labels that changed since the panel before.

    Args:
        steps: which to draw, one per panel; the default is the first ones.
    """
    steps = range(len(axes)) if steps is None else steps
    labels, before = responsibilities.argmax(axis=-1), None
    for ax, step in zip(axes, steps, strict=True):
        flipped = np.zeros(len(points), dtype=bool) if before is None else labels[step] != labels[before]
        clustering_step(
            ax,
            points,
            is_support,
            responsibilities[step],
            means[step],
            None if covariances is None else covariances[step],
            flipped,
        )
        changed = "" if before is None else f" · {flipped.sum()} changed"
        ax.set_title(f"Step {step}{changed}")
        before = step
    reach = np.zeros(means.shape) if covariances is None else np.sqrt(np.einsum("tkii->tki", covariances))
    corners = np.concatenate([points, (means - reach).reshape(-1, 2), (means + reach).reshape(-1, 2)])
    low, high = corners.min(axis=0), corners.max(axis=0)
    margin = 0.06 * (high - low)
    for ax in axes:
        ax.set_aspect("equal", adjustable="box")
        ax.set(xlim=(low[0] - margin[0], high[0] + margin[0]), ylim=(low[1] - margin[1], high[1] + margin[1]))


def clustering_legend(figure: Figure, way: int) -> None:
    """What the symbols of `clustering_step` mean, below the panels."""

    def mark(marker: str, label: str, **options) -> Line2D:
        return Line2D([], [], linestyle="", marker=marker, label=label, **options)

    handles = [
        mark("*", "support", color=GREY, markersize=8, markeredgecolor=BLACK),
        mark("o", "query (colour mixes the responsibilities)", color=GREY),
        mark("X", "class mean", color=GREY, markersize=6, markeredgecolor=BLACK, markeredgewidth=0.5),
        mark("o", "label changed", markerfacecolor="none", markeredgecolor=BLACK, markersize=7),
        Line2D([], [], color=GREY, label="Mahalanobis distance 1, 2"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), handletextpad=0.4, columnspacing=1.2)


def confidence_by_scale(axes: Panels, frame: pd.DataFrame) -> None:
    """How confident the responsibilities are: a panel per scale, a histogram per refinement step.

    Args:
        frame: `scale`, `step`, `confidence` (the responsibility of the predicted class), one row per query.
    """
    steps = sorted(frame["step"].unique())
    shades = {step: str(0.75 - 0.75 * i / max(len(steps) - 1, 1)) for i, step in enumerate(steps)}
    for ax, (scale, own) in zip(axes, frame.groupby("scale"), strict=True):
        for step, cell in own.groupby("step"):
            confidence = cell["confidence"].to_numpy()
            share = np.full(len(confidence), 1 / len(confidence))
            ax.hist(
                confidence,
                bins=np.linspace(0, 1, 21),
                weights=share,
                histtype="step",
                color=shades[step],
                linewidth=1.2,
                label=f"step {step}",
            )
        ax.set(title=f"Scale {scale:g}", xlim=(0, 1))
    axes[0].set_ylabel("Share of queries")
    axes[0].figure.supxlabel("Responsibility of the predicted class", fontsize=8)
    for ax in axes:
        ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes[0].legend(loc="upper left")


def gain_by_scale(ax: Axes, frame: pd.DataFrame) -> None:
    """Gain of refinement over none against the scale inside the softmax, one line per dataset.

    Args:
        frame: `dataset`, `scale`, `gain`, `interval`, in [0, 1].
    """
    for i, (name, own) in enumerate(frame.groupby("dataset", sort=False)):
        colour, marker = variant_style(name, i)
        aside = 1 + 0.02 * (i - (frame["dataset"].nunique() - 1) / 2)  # so that no interval covers another
        ax.errorbar(
            own["scale"] * aside,
            100 * own["gain"],
            yerr=100 * own["interval"],
            color=colour,
            marker=marker,
            elinewidth=1,
            label=name,
        )
    ax.axhline(0, color=BLACK, linewidth=0.8)
    scales = sorted(frame["scale"].unique())
    ax.set_xscale("log", base=2)
    ax.set_xticks(scales, [{0.125: "⅛", 0.25: "¼", 0.5: "½"}.get(scale, f"{scale:g}") for scale in scales])
    ax.set(xlabel="Scale of the squared distance in the softmax", ylabel="Gain of refinement (points)")
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3)


def episode_images(
    ax: Axes,
    support: Mapping[str, np.ndarray],
    query: np.ndarray | None = None,
    predicted: Integer[np.ndarray, "n_query"] | None = None,
    true: Integer[np.ndarray, "n_query"] | None = None,
    columns: int = 8,
) -> None:
    """A contact sheet: one row per class with its support images at the left and its queries at the right.

    A query's frame has the colour of its predicted class; a wrong prediction is crossed in the corner.

    Args:
        support: class name → (n, height, width, 3) uint8, in the order of the labels.
        query: (n_query, height, width, 3) uint8.
        true: the queries' labels, which say in which row each stands; given with `query`.
        columns: images of either kind in a row at most.
    """
    colours = class_colours(len(support))
    widest = min(columns, max(len(images) for images in support.values()))
    first = widest + (0.5 if widest > 1 else 1.0)  # of the query columns; the word "Support" needs its room
    for row, (name, images) in enumerate(support.items()):
        ax.text(-0.15, row + 0.5, plain_text(name), ha="right", va="center", fontsize=7, color=colours[row] * 0.8)
        for column, image in enumerate(images[:columns]):
            _thumbnail(ax, image, column, row, colours[row])
        if query is not None:
            for column, index in enumerate(np.flatnonzero(true == row)[:columns]):
                label = row if predicted is None else int(predicted[index])
                x = first + column
                _thumbnail(ax, query[index], x, row, colours[label])
                if label != row:
                    for colour, size, width in (("white", 5.5, 2.6), (BLACK, 4.5, 1.2)):
                        ax.plot(
                            x + 0.82, row + 0.18, "x", color=colour, markersize=size, markeredgewidth=width, zorder=4
                        )
    right = widest
    ax.text(0, -0.15, "Support", fontsize=8, weight="bold")
    if query is not None:
        right = first + min(columns, int(np.bincount(true).max()))
        heading = "Queries" if predicted is None else "Queries (frame: prediction)"
        ax.text(first, -0.15, heading, fontsize=8, weight="bold")
    ax.set(xlim=(-0.1, right + 0.05), ylim=(len(support) + 0.05, -0.1))
    ax.set_aspect("equal")
    ax.axis("off")


def _thumbnail(ax: Axes, image: np.ndarray, x: float | int, y: int, colour: np.ndarray) -> None:
    extent = (x + 0.06, x + 0.94, y + 0.94, y + 0.06)
    ax.imshow(image, extent=extent, interpolation="nearest", zorder=2)
    ax.plot(
        [extent[0], extent[1], extent[1], extent[0], extent[0]],
        [extent[2], extent[2], extent[3], extent[3], extent[2]],
        color=colour,
        linewidth=1.6,
        zorder=3,
    )


def covariance_ellipse(mean: np.ndarray, covariance: np.ndarray, distance: float, colour: np.ndarray) -> Ellipse:
    """Points at one Mahalanobis distance from the mean."""
    variances, axes = np.linalg.eigh(covariance)
    angle = np.degrees(np.arctan2(axes[1, 1], axes[0, 1]))  # of the longest axis
    width, height = 2 * distance * np.sqrt(variances[::-1])
    return Ellipse(
        tuple(mean),
        width,
        height,
        angle=angle,
        facecolor=(*colour, 0.06),
        edgecolor=(*colour, 0.9),
        linewidth=0.8,
        zorder=1,
    )
