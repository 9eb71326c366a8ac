"""What all figures share: sizes, colours, one marker per variant, and how files are written."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tcnaps.config.storage import replacing

COLUMN_WIDTH, TEXT_WIDTH = 3.3, 6.9  # inches, of a two-column paper
Panels = Sequence[Axes] | np.ndarray  # `figure` gives an array of Axes
Numbers = pd.Series | Sequence | np.ndarray | float | int

# Okabe and Ito's palette: distinct under the common colour deficiencies.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILLION, PURPLE = "#0072B2", "#D55E00", "#CC79A7"
PALETTE = (BLUE, VERMILLION, GREEN, ORANGE, PURPLE, SKY, "#7A7A7A", BLACK)
GREY = "#6E6E6E"
DOMAIN_NAMES = {"in": "In-domain", "out": "Out-of-domain", "all": "All datasets"}
DOMAIN_NAMES |= {"real": "Real images", "rendered": "Rendered images"}
DOMAIN_COLOURS = {"in": BLUE, "out": ORANGE, "all": BLACK, "real": GREEN, "rendered": PURPLE}

# A mixture variant (log-determinant) has the colour of its counterpart and a marker of its own.
VARIANT_STYLES = {"Simple": (BLUE, "o"), "GMM": (BLUE, "v"), "FEOT": (GREEN, "s"), "FEOT GMM": (GREEN, "P")}
VARIANT_STYLES |= {"COT": (ORANGE, "D"), "COT GMM": (ORANGE, "X"), "Transductive": (VERMILLION, "^")}
VARIANT_STYLES |= {"GMM-EM": (VERMILLION, "<"), "Transductive+": (PURPLE, "h"), "GMM-EM+": (PURPLE, ">")}

# Page and text, frame and grid, marks and legend. Font type 42 embeds TrueType, so that text in a PDF stays text.
STYLE = {"figure.dpi": 120, "savefig.dpi": 200, "figure.facecolor": "white", "savefig.facecolor": "white"}
STYLE |= {"figure.constrained_layout.use": True, "pdf.fonttype": 42, "font.family": "DejaVu Sans", "font.size": 8}
STYLE |= {"axes.titlesize": 8, "axes.labelsize": 8, "axes.titleweight": "bold"}
STYLE |= {"xtick.labelsize": 7, "ytick.labelsize": 7, "legend.fontsize": 7}
STYLE |= {"axes.spines.top": False, "axes.spines.right": False, "axes.linewidth": 0.6, "axes.axisbelow": True}
STYLE |= {"axes.grid": True, "grid.color": "#E2E2E2", "grid.linewidth": 0.5}
STYLE |= {"xtick.major.width": 0.6, "ytick.major.width": 0.6, "xtick.major.size": 2.5, "ytick.major.size": 2.5}
STYLE |= {"lines.linewidth": 1.2, "lines.markersize": 4, "errorbar.capsize": 0}
STYLE |= {"legend.frameon": False, "legend.handlelength": 1.6}


@contextmanager
def style() -> Iterator[None]:
    """The shared look, for the figures made inside the `with` block."""
    before = {name: plt.rcParams[name] for name in STYLE}  # `rc_context` would switch a notebook's interactive mode off
    plt.rcParams.update(STYLE)
    try:
        yield
    finally:
        plt.rcParams.update(before)


@contextmanager
def figure(
    path: str | Path,
    about: Mapping[str, str] | None = None,
    columns: int | None = None,
    rows: int = 1,
    width: float | None = None,
    height: float | int = 2.4,
    **options,
) -> Iterator[tuple[Figure, Axes | np.ndarray]]:
    """A figure in the shared look, saved at the end of the `with` block as `path`.png (200 dpi) and `path`.pdf.

    With a number of columns it has an array of rows * columns Axes, else a single one. Width and height are in inches;
    the default width is a column's for one panel, the text's for several. Options go to `plt.subplots`. `about`
    (`Study.origin`) becomes texts of both files. Equal figures give equal bytes. If drawing fails, old files stay.
    """
    with style():
        size = (width or (COLUMN_WIDTH if columns in (None, 1) else TEXT_WIDTH), height)
        drawn, axes = plt.subplots(rows, columns or 1, figsize=size, squeeze=False, **options)
        yield drawn, axes[0, 0] if columns is None else axes.ravel()
        about = dict(about or {})
        subject = {"Subject": "; ".join(f"{name}: {text}" for name, text in about.items())} if about else {}
        # The date and the program's version would make two runs differ.
        for suffix, metadata in (("png", {"Software": None} | about), ("pdf", {"CreationDate": None} | subject)):
            with replacing(f"{path}.{suffix}") as temporary:
                drawn.savefig(temporary, format=suffix, metadata=metadata)


def variant_style(name: str, position: int = 0) -> tuple[str, str]:
    """Colour and marker of a variant or a domain. Other names take the palette's colour at `position`."""
    fixed = VARIANT_STYLES | {domain: (colour, "o") for domain, colour in DOMAIN_COLOURS.items()}
    return fixed.get(name, (PALETTE[position % len(PALETTE)], "osD^vPXh"[position % 8]))


def dots(ax: Axes, x: Numbers, y: Numbers, look: tuple[str, str], line: str = "", **intervals_and_options) -> None:
    """Draws dots with thin bars for their intervals (`xerr` or `yerr`), joined by a `line` if one is given."""
    colour, marker = look
    ax.errorbar(x, y, fmt=marker + line, color=colour, elinewidth=1, **intervals_and_options)


def band(ax: Axes, x: pd.Series, y: pd.Series, half_width: pd.Series, colour: str, limits: tuple = (-1, 1)) -> None:
    """Fills an interval around a line, cut off at its limits; heights in [−1, 1] are drawn as percent."""
    low, high = (100 * (y + sign * half_width).clip(*limits) for sign in (-1, 1))
    ax.fill_between(x, low, high, color=colour, alpha=0.3, linewidth=0)


def zero_line(ax: Axes, along: str = "x") -> None:
    """Marks where there is neither gain nor loss: a horizontal line, or a vertical one along "y"."""
    (ax.axhline if along == "x" else ax.axvline)(0, color=BLACK, linewidth=0.8)


def legend_below(axes: Panels, columns: int = 4, **options: object) -> None:
    """Puts one legend below all panels, from the entries of the first; options are those of `Figure.legend`."""
    handles = dict(zip(*reversed(axes[0].get_legend_handles_labels()), strict=True))
    axes[0].figure.legend(handles.values(), handles, loc="outside lower center", ncols=columns, **options)


def in_words(evaluation: str) -> str:
    """An evaluation's name for a title: "5-way-1-shot-20-queries" becomes "5-way, 1-shot, 20 queries per class"."""
    words = re.sub(r"^(\d+-way)[- ](\d+-shot)", r"\1, \2", evaluation).replace("-unbalanced", ", unbalanced")
    words = re.sub(r"-(\d+)-queries$", r", \1 queries per class", words)
    return "variable way and shot" if evaluation == "variable" else words


def of_group(name: str, group: str, between: str = ", ") -> str:
    """A name followed by the group of datasets that it is about, such as "mean, real images"; "all" adds nothing."""
    return name if group == "all" else f"{name}{between}{DOMAIN_NAMES[group].lower()}"


def domains_shown(frame: pd.DataFrame) -> list[str]:
    """The groups of datasets that a figure of this frame shows: all that it has, or the only domain in it."""
    present = [name for name in DOMAIN_NAMES if (frame["domain"] == name).any()]
    return present[:1] if len(present) == 2 and present[1] == "all" else present


def in_view(values: pd.Series, half_widths: pd.Series, always: float | None = 0.0) -> tuple[float, float]:
    """Limits of an axis in percent with room for all values and usual intervals. One wide interval is cut off."""
    usual = 3 * np.nan_to_num(np.nanmedian(half_widths)) if half_widths.notna().any() else 0.0
    reach = half_widths.fillna(0).clip(upper=usual)
    ends = [(values - reach).min(), (values + reach).max(), *([] if always is None else [always])]
    low, high = 100 * min(ends), 100 * max(ends)
    margin = 0.05 * max(high - low, 0.1)
    return low - margin, high + margin
