"""What all figures share: sizes, colours, one marker per variant, and how they are written."""

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

COLUMN_WIDTH, TEXT_WIDTH = 3.3, 6.9  # inches, of a two-column paper
Panels = Sequence[Axes] | np.ndarray  # `subplots` gives an array of Axes

# Okabe and Ito's palette: distinct under the common colour deficiencies.
BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, VERMILLION, PURPLE = (
    "#000000",
    "#E69F00",
    "#56B4E9",
    "#009E73",
    "#F0E442",
    "#0072B2",
    "#D55E00",
    "#CC79A7",
)
PALETTE = (BLUE, VERMILLION, GREEN, ORANGE, PURPLE, SKY, "#7A7A7A", BLACK)
GREY = "#6E6E6E"
DOMAIN_NAMES = {"in": "In-domain", "out": "Out-of-domain", "all": "All datasets"}
DOMAIN_COLOURS = {"in": BLUE, "out": ORANGE, "all": BLACK}

# A mixture variant (log-determinant) has the colour of its counterpart and a marker of its own.
VARIANT_STYLES = {
    "Simple": (BLUE, "o"),
    "GMM": (BLUE, "v"),
    "FEOT": (GREEN, "s"),
    "FEOT GMM": (GREEN, "P"),
    "COT": (ORANGE, "D"),
    "COT GMM": (ORANGE, "X"),
    "Transductive": (VERMILLION, "^"),
    "GMM-EM": (VERMILLION, "<"),
    "Transductive+": (PURPLE, "h"),
    "GMM-EM+": (PURPLE, ">"),
}

STYLE = {
    "figure.dpi": 120,
    "savefig.dpi": 200,
    "figure.constrained_layout.use": True,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E2E2E2",
    "grid.linewidth": 0.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "errorbar.capsize": 0,
    "legend.frameon": False,
    "legend.handlelength": 1.6,
    "pdf.fonttype": 42,  # 42 embeds TrueType, so that text stays text
}


LOCK = threading.RLock()  # the look is global in matplotlib: one thread draws at a time


@contextmanager
def style() -> Iterator[None]:
    """The shared look, for the figures made inside the `with` block.

    Whether matplotlib is interactive survives the block. Notebooks switch it on when the first figure is made, and
    `rc_context` would switch it off again: no later figure of the notebook would be displayed.
    """
    with LOCK:
        interactive = mpl.is_interactive()
        try:
            with mpl.rc_context(STYLE):
                try:
                    yield
                finally:
                    interactive = mpl.is_interactive()
        finally:
            mpl.interactive(interactive)


def plain_text(name: str) -> str:
    """A name from outside, such as a class's, as matplotlib shows it unchanged: dollar signs begin no formula."""
    return name.replace("$", r"\$")


def subplots(
    rows: int = 1, columns: int = 1, width: float | None = None, height: float | int = 2.4, **options
) -> tuple[Figure, Axes | np.ndarray]:
    """`plt.subplots` by width and height in inches. Call it, and what draws on it, inside `style()`.

    Args:
        width: default: that of a column for one panel, of the text for several side by side.
    """
    width = width or (COLUMN_WIDTH if columns == 1 else TEXT_WIDTH)
    return plt.subplots(rows, columns, figsize=(width, height), **options)


def variant_style(name: str, position: int = 0) -> tuple[str, str]:
    """Colour and marker of a variant or a domain; other names take the palette's colour at `position`."""
    fixed = VARIANT_STYLES | {domain: (colour, "o") for domain, colour in DOMAIN_COLOURS.items()}
    return fixed.get(name, (PALETTE[position % len(PALETTE)], "osD^vPXh"[position % 8]))


def save(figure: Figure, path: str | Path) -> list[Path]:
    """Writes `path`.png (200 dpi) and `path`.pdf; equal figures give equal bytes, none is left half-written.

    Args:
        path: without suffix; missing folders are made.
    """
    path, written = Path(path), []
    path.parent.mkdir(parents=True, exist_ok=True)
    # The date and the program's version would make two runs differ.
    for suffix, metadata in (("png", {"Software": None}), ("pdf", {"CreationDate": None})):
        final = path.with_name(f"{path.name}.{suffix}")
        partial = path.with_name(f".{path.name}.{os.getpid()}.{suffix}")
        try:
            with style():
                figure.savefig(partial, metadata=metadata)
            os.replace(partial, final)
        finally:
            partial.unlink(missing_ok=True)
        written.append(final)
    return written
