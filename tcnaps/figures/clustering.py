"""An episode on matplotlib Axes: its images, and soft k-means step by step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Integer
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Ellipse
from matplotlib.patheffects import withStroke

from tcnaps.figures.style import BLACK, GREY, PALETTE, Panels

Labels = Integer[np.ndarray, "n_query"]


def class_colours(way: int) -> Float[np.ndarray, "way 3"]:
    """One colour per class. When the palette is used up, paler copies of it follow."""
    colours = np.array([to_rgb(PALETTE[k % len(PALETTE)]) for k in range(way)])
    return 1 - (1 - colours) * 0.6 ** (np.arange(way)[:, None] // len(PALETTE))


@dataclass(frozen=True)
class PlaneView:
    """Refinement steps 0, ..., T of one episode in a plane, and Q_k there. Support images come first."""

    points: Float[np.ndarray, "n_points 2"]
    is_support: Bool[np.ndarray, "n_points"]
    responsibilities: Float[np.ndarray, "n_steps n_points way"]
    means: Float[np.ndarray, "n_steps way 2"]
    covariances: Float[np.ndarray, "n_steps way 2 2"]

    def changed(self, step: int) -> Bool[np.ndarray, "n_points"]:
        """Which points have another label than before the step."""
        labels = self.responsibilities.argmax(axis=2)
        return labels[step] != labels[max(step - 1, 0)]

    @property
    def end(self) -> int:
        """The first step at which no label changes, where the loop ends by itself; or the last step."""
        last = len(self.responsibilities) - 1
        return next((step for step in range(1, last) if not self.changed(step).any()), last)


def clustering_step(ax: Axes, view: PlaneView, step: int, sizes: tuple[float | int, ...] = (14, 130, 52, 24)) -> None:
    """One refinement step, with the symbols of `clustering_legend`: a ring marks a label that the step changed.

    `sizes` are those of queries, support images, rings and means, in points².
    """
    points, is_support, means, changed = view.points, view.is_support, view.means[step], view.changed(step)
    colours = class_colours(len(means))
    for mean, covariance, colour in zip(means, view.covariances[step], colours, strict=True):
        variances, axes = np.linalg.eigh(covariance)
        angle = np.degrees(np.arctan2(axes[1, 1], axes[0, 1]))  # of the longest axis
        look = {"facecolor": (*colour, 0.06), "edgecolor": (*colour, 0.5), "linewidth": 0.8, "zorder": 1}
        for distance in (1.0, 2.0):
            ax.add_patch(Ellipse(mean, *(2 * distance * np.sqrt(variances[::-1])), angle=angle, **look))
    mixed = (view.responsibilities[step] @ colours).clip(0, 1)
    dot, star, ring, cross = sizes
    ax.scatter(*points[~is_support].T, s=dot, c=mixed[~is_support], edgecolor="white", linewidth=0.3, zorder=3)
    star_halo, cross_halo = ([withStroke(linewidth=width, foreground="white")] for width in (2.5, 1.2))
    edge = {"edgecolor": BLACK, "linewidth": 0.5}
    ax.scatter(*points[is_support].T, s=star, marker="*", c=mixed[is_support], path_effects=star_halo, zorder=6, **edge)
    if changed.any():
        ax.scatter(*points[changed].T, s=ring, facecolor="none", edgecolor=BLACK, linewidth=0.9, zorder=5)
    ax.scatter(*means.T, s=cross, marker="X", c=colours, path_effects=cross_halo, zorder=7, **edge)
    ax.set(xticks=[], yticks=[], aspect="equal", adjustable="datalim")
    ax.spines[:].set(visible=True, color="#C8C8C8")


def steps_strip(axes: Panels, view: PlaneView) -> None:
    """The first refinement steps, one per panel, on common limits."""
    reach = np.sqrt(np.einsum("tkii->tki", view.covariances))
    corners = np.concatenate([view.points, (view.means - reach).reshape(-1, 2), (view.means + reach).reshape(-1, 2)])
    margin = 0.06 * np.ptp(corners, axis=0)
    xlim, ylim = zip(corners.min(axis=0) - margin, corners.max(axis=0) + margin)
    for step, ax in enumerate(axes):
        clustering_step(ax, view, step)
        n_changed = view.changed(step).sum()
        changed = "the end" if step == view.end and n_changed == 0 else f"{n_changed} changed"
        ax.set(title=f"Step {step} · {changed}" if step else "Step 0", xlim=xlim, ylim=ylim, adjustable="box")


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


def contact_sheets(axes: Panels, sheets: Mapping[str, Sequence[np.ndarray]]) -> None:
    """A few images of each class, uint8 (n, height, width, 3): one panel per dataset, one row per class."""
    for ax in axes:
        ax.axis("off")
    for ax, (dataset, classes) in zip(axes, sheets.items(), strict=False):
        shown = min(map(len, classes))
        ax.imshow(np.vstack([np.hstack(images[:shown]) for images in classes]), interpolation="nearest")
        ax.set_title(dataset)


def episode_images(
    ax: Axes, support: Mapping[str, np.ndarray], query: np.ndarray, predicted: Labels, true: Labels, columns: int = 8
) -> None:
    """A contact sheet: one row per class, with its support images on the left and its queries on the right.

    A query's frame has the colour of its predicted class. A wrong prediction has a cross in the corner. `support` is
    class name → (n, height, width, 3) uint8, in the order of the labels; `columns` bounds the images of either kind.
    """
    colours = class_colours(len(support))
    widest = min(columns, max(map(len, support.values())))
    first = widest + (0.5 if widest > 1 else 1.0)  # of the query columns; the word "Support" needs its room
    names = {"ha": "right", "va": "center", "fontsize": 7, "parse_math": False}  # dollar signs begin no formula
    for row, (name, images) in enumerate(support.items()):
        ax.text(-0.15, row + 0.5, name, color=colours[row] * 0.8, **names)
        for column, image in enumerate(images[:columns]):
            _thumbnail(ax, image, column, row, colours[row])
        for column, index in enumerate(np.flatnonzero(true == row)[:columns]):
            _thumbnail(ax, query[index], first + column, row, colours[predicted[index]])
            if predicted[index] != row:
                for colour, size, width in (("white", 5.5, 2.6), (BLACK, 4.5, 1.2)):
                    look = {"color": colour, "markersize": size, "markeredgewidth": width}
                    ax.plot(first + column + 0.82, row + 0.18, "x", zorder=4, **look)
    for x, heading in ((0, "Support"), (first, "Queries (frame: prediction)")):
        ax.text(x, -0.15, heading, fontsize=8, weight="bold")
    right = first + min(columns, int(np.bincount(true).max()))
    ax.set(xlim=(-0.1, right + 0.05), ylim=(len(support) + 0.05, -0.1), aspect="equal")
    ax.axis("off")


def _thumbnail(ax: Axes, image: np.ndarray, x: float | int, y: int, colour: np.ndarray) -> None:
    left, right, bottom, top = x + 0.06, x + 0.94, y + 0.94, y + 0.06
    ax.imshow(image, extent=(left, right, bottom, top), interpolation="nearest", zorder=2)
    corners = [left, right, right, left, left], [bottom, bottom, top, top, bottom]
    ax.plot(*corners, color=colour, linewidth=1.6, zorder=3)
