"""Images of datasets and of episodes, drawn on matplotlib Axes."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Integer
from matplotlib.axes import Axes

from tcnaps.figures.clustering import class_colours
from tcnaps.figures.style import BLACK, Panels


def contact_sheets(axes: Panels, sheets: Mapping[str, Sequence[np.ndarray]]) -> None:
    """A few images of each class, uint8 (n, height, width, 3): one panel per dataset, one row per class."""
    for ax in axes:
        ax.axis("off")
    for ax, (dataset, classes) in zip(axes, sheets.items(), strict=False):
        shown = min(len(images) for images in classes)
        rows = [np.concatenate(list(images[:shown]), axis=1) for images in classes]
        ax.imshow(np.concatenate(rows), interpolation="nearest")
        ax.set_title(dataset)


def episode_images(
    ax: Axes,
    support: Mapping[str, np.ndarray],
    query: np.ndarray,
    predicted: Integer[np.ndarray, "n_query"],
    true: Integer[np.ndarray, "n_query"],
    columns: int = 8,
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
    ax.set(xlim=(-0.1, right + 0.05), ylim=(len(support) + 0.05, -0.1))
    ax.set_aspect("equal")
    ax.axis("off")


def _thumbnail(ax: Axes, image: np.ndarray, x: float | int, y: int, colour: np.ndarray) -> None:
    left, right, bottom, top = x + 0.06, x + 0.94, y + 0.94, y + 0.06
    ax.imshow(image, extent=(left, right, bottom, top), interpolation="nearest", zorder=2)
    corners = [left, right, right, left, left], [bottom, bottom, top, top, bottom]
    ax.plot(*corners, color=colour, linewidth=1.6, zorder=3)
