"""One refinement step of an episode, large: points or thumbnails in the plane, and the curves over steps → matplotlib.

Nothing is told by colour alone: letters name the classes, squares and crosses mark wrong answers.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np
import pandas as pd
from jaxtyping import Bool, Int, UInt8
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator, PercentFormatter
from PIL import Image, ImageDraw, ImageFont, ImageOps

from tcnaps.evaluation.projection import PlaneView
from tcnaps.figures.clustering import class_colours, covariance_ellipse
from tcnaps.figures.style import BLACK, BLUE, GREY, VERMILLION
from tcnaps.widgets.episode_figures import letter, shortened

PIXELS_PER_INCH = 96  # of the page
MOST_LETTERED = 250  # points that get a letter or a picture of their own
MOST_NAMED = 12  # classes with a line in the legend
HALO = [withStroke(linewidth=2.2, foreground="white")]


def plane_limits(view: PlaneView) -> tuple[float, float, float, float]:
    """Left, right, bottom and top that hold all points, and every step's means, of a view."""
    corners = np.concatenate([view.points, view.means.reshape(-1, 2)])
    low, high = corners.min(axis=0), corners.max(axis=0)
    margin = np.maximum(0.08 * (high - low), 1e-3)
    (left, bottom), (right, top) = (low - margin).tolist(), (high + margin).tolist()
    return left, right, bottom, top


def plane_step(
    ax: Axes,
    view: PlaneView,
    step: int,
    labels: Int[np.ndarray, "n_query"],
    right: Bool[np.ndarray, "n_query"],
    changed: Bool[np.ndarray, "n_query"],
    images: UInt8[np.ndarray, "n_points height width 3"] | None = None,
) -> None:
    """One step in the plane: class means with ellipses at Mahalanobis distance 1 and 2, support and query images.

    A query has the colours of its responsibilities, mixed, and the letter of its most probable class; one with a
    wrong answer is a square (as a picture: has a cross), one whose label changed has a ring.

    Args:
        labels, right, changed: the query images' answers after this step.
        images: the support and query images, to draw pictures in place of points.
    """
    colours = class_colours(view.means.shape[1])
    _set_limits(ax, plane_limits(view))
    for mean, covariance, colour in zip(view.means[step], view.covariances[step], colours, strict=True):
        for distance in (1.0, 2.0):
            ax.add_patch(covariance_ellipse(mean, covariance, distance, colour))
    mixed = (view.responsibilities[step] @ colours).clip(0, 1)
    classes = np.concatenate([view.responsibilities[0, view.is_support].argmax(1), labels])
    wrong, ringed = (np.concatenate([np.zeros(view.is_support.sum(), dtype=bool), own]) for own in (~right, changed))
    lettered = len(view.points) <= MOST_LETTERED
    if drawn_as_pictures(len(view.points), images is not None):
        _pictures(ax, view, mixed, classes, wrong, ringed, images)
    else:
        _points(ax, view, mixed, classes if lettered else None, wrong, ringed)
    for edge, width in (("white", 1.6), (BLACK, 0.7)):
        ax.scatter(*view.means[step].T, s=150, marker="X", c=colours, edgecolor=edge, linewidth=width, zorder=8)
    for k, (mean, colour) in enumerate(zip(view.means[step], colours, strict=True)):
        ax.annotate(
            letter(k),
            mean,
            (7, 5),
            textcoords="offset points",
            fontsize=10,
            weight="bold",
            color=colour * 0.75,
            path_effects=HALO,
            zorder=9,
        )
    ax.set(xticks=[], yticks=[])
    ax.grid(False)
    ax.spines[:].set(visible=True, color="#C8C8C8")


def plane_legend(figure: Figure, names: Sequence[str], pictures: bool) -> None:
    """The classes' letters, names and colours, and what the symbols of `plane_step` mean, on a figure of their own."""
    colours = class_colours(len(names))
    if pictures:
        signs = [
            _mark("s", "query", markerfacecolor="white", markeredgecolor=GREY, markeredgewidth=2, markersize=8),
            _mark("*", "support", color=GREY, markersize=9, markeredgecolor=BLACK),
            _mark("x", "wrong", color=BLACK, markersize=6, markeredgewidth=1.6),
            _mark("s", "label changed", markerfacecolor=GREY, markeredgecolor=BLACK, markeredgewidth=2.4, markersize=8),
        ]
    else:
        signs = [
            _mark("o", "query, right", color=GREY, markersize=7),
            _mark("s", "query, wrong", color=GREY, markersize=7, markeredgecolor=BLACK),
            _mark("*", "support", color=GREY, markersize=9, markeredgecolor=BLACK),
            _mark(
                "o", "label changed", markerfacecolor="none", markeredgecolor=BLACK, markersize=9, markeredgewidth=1.4
            ),
        ]
    signs.append(_mark("X", "class mean", color=GREY, markersize=8, markeredgecolor=BLACK, markeredgewidth=0.6))
    kept = names if len(names) <= MOST_NAMED else names[: MOST_NAMED - 1]
    classes = [
        _mark(
            "X",
            f"{letter(k)}: {shortened(name, 26)}",
            color=colour,
            markersize=8,
            markeredgecolor=BLACK,
            markeredgewidth=0.6,
        )
        for k, (name, colour) in enumerate(zip(kept, colours, strict=False))
    ]
    if len(kept) < len(names):
        classes.append(_mark("", f"… and {len(names) - len(kept)} more classes"))
    shared = {"loc": "upper left", "borderaxespad": 0.2, "handletextpad": 0.3, "columnspacing": 0.9, "fontsize": 7.5}
    line = 20 / (PIXELS_PER_INCH * figure.get_figheight())
    figure.legend(handles=signs, bbox_to_anchor=(0, 1), ncols=len(signs), **shared)
    figure.legend(handles=classes, bbox_to_anchor=(0, 1 - line), ncols=legend_columns(names), **shared)


def drawn_as_pictures(n_points: int, wanted: bool) -> bool:
    """Pictures of very many images would hide one another: they stay points."""
    return wanted and n_points <= MOST_LETTERED


def legend_columns(names: Sequence[str]) -> int:
    """As many as fit: three of short names, two of long ones."""
    return 3 if max(map(len, names)) <= 16 else 2


def legend_height(names: Sequence[str]) -> int:
    """Pixels on the page that `plane_legend` needs."""
    rows = -(-min(len(names), MOST_NAMED) // legend_columns(names))
    return 24 + 17 * rows


def step_curves(ax: Axes, curves: pd.DataFrame, step: int, answer: int, minimum: int, maximum: int) -> None:
    """Accuracy and mean confidence over the steps, the step that is shown, and where the variant answers.

    Args:
        curves: `step`, `accuracy`, `mean_confidence`, `changed`; accuracies in [0, 1].
        answer: the step of the variant's answer; between `minimum` and `maximum` the stopping rule decides.
    """
    last = int(curves["step"].max())
    if min(minimum, maximum) < maximum:
        ax.axvspan(min(minimum, maximum), maximum, color="#EFEFEF", zorder=0, label="rule decides")
    ax.axvline(step, color=GREY, linewidth=1, linestyle="--", zorder=1)
    for column, colour, marker, label in (
        ("accuracy", BLUE, "o", "accuracy"),
        ("mean_confidence", VERMILLION, "s", "mean confidence"),
    ):
        ax.plot(curves["step"], 100 * curves[column], color=colour, marker=marker, markersize=4.5, label=label)
        ax.plot(step, 100 * curves[column][step], marker=marker, color=colour, markersize=8, markeredgecolor=BLACK)
    ax.plot(
        answer,
        100 * curves["accuracy"][answer],
        marker="o",
        markersize=13,
        markerfacecolor="none",
        markeredgecolor=BLACK,
        markeredgewidth=1.3,
        linestyle="",
        label="answer",
    )
    low = 100 * curves[["accuracy", "mean_confidence"]].to_numpy().min()
    bottom = max(0, 10 * np.floor((low - 4) / 10))
    ax.set(
        xlim=(-0.4, last + 0.4),
        ylim=(bottom, 100 + 0.06 * (100 - bottom)),
        xlabel="Refinement step (below: labels changed)",
    )
    ax.yaxis.set_major_formatter(PercentFormatter(100, decimals=0))
    ax.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    every = 1 if last <= 12 else 2 if last <= 24 else 5
    ticks = range(0, last + 1, every)
    ax.set_xticks(ticks, [f"{t}\n{'–' if t == 0 else curves['changed'][t]}" for t in ticks])
    ax.tick_params(labelsize=8)
    handles, labels = ax.get_legend_handles_labels()
    ax.legend(
        handles,
        labels,
        loc="lower left",
        bbox_to_anchor=(-0.13, 1.0),
        ncols=4,
        fontsize=7.5,
        borderaxespad=0.1,
        handletextpad=0.3,
        columnspacing=0.7,
        handlelength=1.4,
        markerscale=0.8,
    )


def _points(ax, view, mixed, classes, wrong, ringed):
    query = ~view.is_support
    size = 95 if classes is not None else 20
    for own, marker, edge, width in ((query & ~wrong, "o", "white", 0.6), (query & wrong, "s", BLACK, 1.0)):
        ax.scatter(*view.points[own].T, s=size, marker=marker, c=mixed[own], edgecolor=edge, linewidth=width, zorder=3)
    if ringed.any():
        ax.scatter(*view.points[ringed].T, s=2.9 * size, facecolor="none", edgecolor=BLACK, linewidth=1.4, zorder=7)
    if classes is not None:
        shades = np.array([_readable_on(colour) for colour in mixed])
        for k in np.unique(classes[query]):  # as markers, a class at a time: much faster than text
            own, name = query & (classes == k), letter(int(k))
            marker = rf"$\mathrm{{{name}}}$"
            ax.scatter(*view.points[own].T, s=30 * len(name), marker=marker, c=shades[own], linewidth=0, zorder=5)
    ax.scatter(
        *view.points[view.is_support].T,
        s=1.7 * size,
        marker="*",
        c=mixed[view.is_support],
        edgecolor=BLACK,
        linewidth=0.8,
        zorder=6,
    )


def _pictures(ax, view, mixed, classes, wrong, ringed, images):
    """All pictures as one image over the axes, at twice the page's pixels: an artist each would take too long."""
    sharp = 2 * PIXELS_PER_INCH / ax.figure.dpi
    box = ax.get_window_extent()
    sheet = Image.new("RGBA", (round(box.width * sharp), round(box.height * sharp)))
    places = (ax.transData.transform(view.points) - (box.x0, box.y0)) * sharp
    side = 2 * _picture_side(len(view.points))
    for i in np.argsort(np.select([ringed, view.is_support, wrong], [3, 2, 1]), kind="stable"):  # the last lie on top
        shade = tuple((255 * mixed[i]).astype(int))
        stamp = _stamp(
            images[i], side, shade, None if view.is_support[i] else letter(int(classes[i])), wrong[i], ringed[i]
        )
        x, y = places[i]
        sheet.paste(stamp, (round(x - stamp.width / 2), round(sheet.height - y - stamp.height / 2)))
    shown = AxesImage(ax, extent=(*ax.get_xlim(), *ax.get_ylim()), origin="upper", interpolation="nearest", zorder=3)
    shown.set_data(np.asarray(sheet))
    ax.add_image(shown)


def _stamp(image, side, shade, name, wrong, ringed):
    """A picture in a frame with its marks: a class's letter at the lower left, or a star where there is none."""
    stamp = ImageOps.expand(Image.fromarray(image).resize((side, side), Image.Resampling.NEAREST), 5, shade)
    if ringed:
        stamp = ImageOps.expand(ImageOps.expand(stamp, 2, "white"), 5, "black")
    draw = ImageDraw.Draw(stamp)
    inner = 5 + 7 * bool(ringed)
    left, right, bottom, top = inner, stamp.width - inner - 1, stamp.height - inner - 1, inner
    if name is None:
        angles = np.pi * np.arange(10) / 5
        radii = np.where(np.arange(10) % 2, 4.5, 11.0)
        corners = zip(right - 9 + radii * np.sin(angles), top + 9 - radii * np.cos(angles))
        draw.polygon(list(corners), shade, "black")
    else:
        width = draw.textlength(name, _font()) + 6
        draw.rectangle((left, bottom - 18, left + width, bottom), shade)
        draw.text((left + width / 2, bottom - 9), name, _readable_on(np.array(shade) / 255), _font(), anchor="mm")
    if wrong:
        for colour, width in (("white", 8), ("black", 4)):
            draw.line((right - 16, top + 3, right - 3, top + 16), colour, width)
            draw.line((right - 16, top + 16, right - 3, top + 3), colour, width)
    return stamp


@cache
def _font():
    return ImageFont.truetype(findfont("DejaVu Sans:bold"), 17)


def _picture_side(count):
    return 34 if count <= 60 else 28 if count <= 120 else 22


def _set_limits(ax, limits):
    """Equal scales in a box that stays as it is: the shorter side is widened."""
    left, right, bottom, top = limits
    box = ax.get_position()
    ratio = (box.width * ax.figure.get_figwidth()) / (box.height * ax.figure.get_figheight())
    width, height = max(right - left, (top - bottom) * ratio), max(top - bottom, (right - left) / ratio)
    ax.set(
        xlim=((left + right - width) / 2, (left + right + width) / 2),
        ylim=((bottom + top - height) / 2, (bottom + top + height) / 2),
    )


def _readable_on(colour):
    return "black" if colour @ np.array([0.299, 0.587, 0.114]) > 0.45 else "white"


def _mark(marker, label, **options):
    return Line2D([], [], linestyle="", marker=marker, label=label, **options)
