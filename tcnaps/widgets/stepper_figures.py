"""What the stepper draws, with matplotlib: a refinement step in the plane with its legend, and curves over steps.

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
from tcnaps.figures.style import BLACK, BLUE, GREY, VERMILLION, plain_text
from tcnaps.widgets.episode_table import letter, shortened
from tcnaps.widgets.pictures import PIXELS_PER_INCH, readable_on

MOST_LETTERED = 250  # points that get a letter or a picture of their own
MOST_NAMED = 12  # classes with a line in the legend
HALO = [withStroke(linewidth=2.2, foreground="white")]


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

    A query has the mixed colours of its responsibilities and the letter of its most probable class. One with a wrong
    answer is a square (as a picture: has a cross); one whose label changed has a ring.

    Args:
        labels, right, changed: the queries' answers after this step.
        images: the support and query images, to draw pictures in place of points.
    """
    colours = class_colours(view.means.shape[1])
    _set_limits(ax, view)
    for mean, covariance, colour in zip(view.means[step], view.covariances[step], colours, strict=True):
        for distance in (1.0, 2.0):
            ax.add_patch(covariance_ellipse(mean, covariance, distance, colour))
    mixed = (view.responsibilities[step] @ colours).clip(0, 1)
    classes = np.concatenate([view.responsibilities[0, view.is_support].argmax(1), labels])
    wrong, ringed = (np.concatenate([np.zeros(view.is_support.sum(), dtype=bool), own]) for own in (~right, changed))
    if drawn_as_pictures(len(view.points), images is not None):
        _pictures(ax, view, mixed, classes, wrong, ringed, images)
    else:
        _points(ax, view, mixed, classes, wrong, ringed)
    for edge, width in (("white", 1.6), (BLACK, 0.7)):
        ax.scatter(*view.means[step].T, s=150, marker="X", c=colours, edgecolor=edge, linewidth=width, zorder=8)
    look = {"textcoords": "offset points", "fontsize": 10, "weight": "bold", "path_effects": HALO, "zorder": 9}
    for k, (mean, colour) in enumerate(zip(view.means[step], colours, strict=True)):
        ax.annotate(letter(k), mean, (7, 5), color=colour * 0.75, **look)
    ax.set(xticks=[], yticks=[])
    ax.grid(False)
    ax.spines[:].set(visible=True, color="#C8C8C8")


def plane_legend(figure: Figure, names: Sequence[str], pictures: bool) -> None:
    """On a figure of its own: the classes' letters, names and colours, and the meaning of `plane_step`'s symbols."""
    signs = [
        _mark("s" if pictures else "o", "query" if pictures else "query, right", color=GREY),
        _mark("x", "wrong", color=BLACK, markeredgewidth=1.6) if pictures else _mark("s", "query, wrong", color=GREY),
        _mark("*", "support", color=GREY),
        _mark("s" if pictures else "o", "label changed", markerfacecolor="none", markeredgewidth=1.6),
        _mark("X", "class mean", color=GREY),
    ]
    kept = names if len(names) <= MOST_NAMED else names[: MOST_NAMED - 1]
    classes = [
        _mark("X", plain_text(f"{letter(k)}: {shortened(name, 26)}"), color=colour)
        for k, (name, colour) in enumerate(zip(kept, class_colours(len(names)), strict=False))
    ]
    if len(kept) < len(names):
        classes.append(_mark("", f"… and {len(names) - len(kept)} more classes"))
    shared = {"loc": "upper left", "borderaxespad": 0.2, "handletextpad": 0.3, "columnspacing": 0.9, "fontsize": 7.5}
    line = 20 / (PIXELS_PER_INCH * figure.get_figheight())
    figure.legend(handles=signs, bbox_to_anchor=(0, 1), ncols=len(signs), **shared)
    figure.legend(handles=classes, bbox_to_anchor=(0, 1 - line), ncols=_legend_columns(names), **shared)


def drawn_as_pictures(n_points: int, wanted: bool) -> bool:
    """Whether images are drawn: pictures of very many images would hide one another, so these stay points."""
    return wanted and n_points <= MOST_LETTERED


def legend_height(names: Sequence[str]) -> int:
    """The pixels on the page that `plane_legend` needs."""
    return 24 + 17 * -(-min(len(names), MOST_NAMED) // _legend_columns(names))


def step_curves(ax: Axes, curves: pd.DataFrame, step: int, answer: int, minimum: int, maximum: int) -> None:
    """Accuracy and mean confidence over the steps, the step that is shown, and where the variant answers.

    Args:
        curves: of `stepper_data.curves`.
        answer: the step of the variant's answer. Between `minimum` and `maximum` the stopping rule decides.
    """
    if minimum < maximum:
        ax.axvspan(minimum, maximum, color="#EFEFEF", zorder=0, label="rule decides")
    ax.axvline(step, color=GREY, linewidth=1, linestyle="--", zorder=1)
    percent = 100 * curves[["accuracy", "mean_confidence"]]
    for column, colour, marker in (("accuracy", BLUE, "o"), ("mean_confidence", VERMILLION, "s")):
        name = column.replace("_", " ")
        ax.plot(curves["step"], percent[column], color=colour, marker=marker, markersize=4.5, label=name)
        ax.plot(step, percent[column][step], marker=marker, color=colour, markersize=8, markeredgecolor=BLACK)
    circle = {"markersize": 13, "markerfacecolor": "none", "markeredgecolor": BLACK, "markeredgewidth": 1.3}
    ax.plot(answer, percent["accuracy"][answer], marker="o", linestyle="", label="answer", **circle)
    bottom = max(0, 10 * np.floor((percent.to_numpy().min() - 4) / 10))
    last = int(curves["step"].max())
    ax.set(xlim=(-0.4, last + 0.4), ylim=(bottom, 100 + 0.06 * (100 - bottom)))
    ax.set_xlabel("Refinement step (below: labels changed)")
    ax.yaxis.set_major_formatter(PercentFormatter(100, decimals=0))
    ax.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    ticks = range(0, last + 1, 1 if last <= 12 else 2 if last <= 24 else 5)
    ax.set_xticks(ticks, [f"{t}\n{'–' if t == 0 else curves['changed'][t]}" for t in ticks])
    ax.tick_params(labelsize=8)
    narrow = {"handletextpad": 0.3, "columnspacing": 0.7, "handlelength": 1.4, "markerscale": 0.8}
    ax.legend(loc="lower left", bbox_to_anchor=(-0.13, 1.0), ncols=4, fontsize=7.5, borderaxespad=0.1, **narrow)


def _points(ax, view, mixed, classes, wrong, ringed):
    query, lettered = ~view.is_support, len(view.points) <= MOST_LETTERED
    size = 95 if lettered else 20
    for own, marker, edge, width in ((query & ~wrong, "o", "white", 0.6), (query & wrong, "s", BLACK, 1.0)):
        ax.scatter(*view.points[own].T, s=size, marker=marker, c=mixed[own], edgecolor=edge, linewidth=width, zorder=3)
    ax.scatter(*view.points[ringed].T, s=2.9 * size, facecolor="none", edgecolor=BLACK, linewidth=1.4, zorder=7)
    if lettered:
        shades = np.array([readable_on(colour) for colour in mixed])
        for k in np.unique(classes[query]):  # as markers, one class at a time: much faster than text
            own, name = query & (classes == k), letter(int(k))
            marker = rf"$\mathrm{{{name}}}$"
            ax.scatter(*view.points[own].T, s=30 * len(name), marker=marker, c=shades[own], linewidth=0, zorder=5)
    own, look = view.is_support, {"edgecolor": BLACK, "linewidth": 0.8, "zorder": 6}
    ax.scatter(*view.points[own].T, s=1.7 * size, marker="*", c=mixed[own], **look)


def _pictures(ax, view, mixed, classes, wrong, ringed, images):
    """Draws all pictures as one image over the axes, at twice the page's pixels: one artist each would be slow."""
    sharp = 2 * PIXELS_PER_INCH / ax.figure.dpi
    box = ax.get_window_extent()
    sheet = Image.new("RGBA", (round(box.width * sharp), round(box.height * sharp)))
    places = (ax.transData.transform(view.points) - (box.x0, box.y0)) * sharp
    count = len(view.points)
    side = 68 if count <= 60 else 56 if count <= 120 else 44
    for i in np.argsort(np.select([ringed, view.is_support, wrong], [3, 2, 1]), kind="stable"):  # the last lie on top
        name = None if view.is_support[i] else letter(int(classes[i]))
        stamp = _stamp(images[i], side, tuple((255 * mixed[i]).astype(int)), name, wrong[i], ringed[i])
        x, y = places[i]
        sheet.paste(stamp, (round(x - stamp.width / 2), round(sheet.height - y - stamp.height / 2)))
    shown = AxesImage(ax, extent=(*ax.get_xlim(), *ax.get_ylim()), origin="upper", interpolation="nearest", zorder=3)
    shown.set_data(np.asarray(sheet))
    ax.add_image(shown)


def _stamp(image, side, shade, name, wrong, ringed):
    """A picture in a frame with its marks: a class's letter at the lower left, or a star for a support image."""
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
        draw.text((left + width / 2, bottom - 9), name, readable_on(np.array(shade) / 255), _font(), anchor="mm")
    if wrong:
        for colour, width in (("white", 8), ("black", 4)):
            draw.line((right - 16, top + 3, right - 3, top + 16), colour, width)
            draw.line((right - 16, top + 16, right - 3, top + 3), colour, width)
    return stamp


@cache
def _font():
    return ImageFont.truetype(findfont("DejaVu Sans:bold"), 17)


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


def _legend_columns(names):
    """As many as fit: three of short names, two of long ones."""
    return 3 if max(map(len, names)) <= 16 else 2


def _mark(marker, label, **options):
    look = {"markersize": 8, "markeredgecolor": BLACK, "markeredgewidth": 0.8}
    return Line2D([], [], linestyle="", marker=marker, label=label, **look | options)
