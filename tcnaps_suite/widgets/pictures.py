"""Figures, images and names of classes on the page."""

import base64
import html
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import anywidget
import numpy as np
import traitlets
from ipywidgets import Layout
from jaxtyping import Float, UInt8
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from PIL import Image

from tcnaps.config import Study, UserError
from tcnaps.figures.clustering import class_colours
from tcnaps.figures.style import save, style
from tcnaps_suite.widgets import READ_ONLY
from tcnaps_suite.widgets.episode_table import letter, shortened

PIXELS_PER_INCH = 96  # of a picture on the page
NO_POINTS = np.empty((0, 2))


def png(figure: Figure) -> bytes:
    """A figure as PNG, with twice as many pixels as it has on the page, so that text is sharp."""
    buffer = BytesIO()
    with style():
        figure.savefig(buffer, format="png", dpi=2 * figure.dpi, pil_kwargs={"compress_level": 1})
    return buffer.getvalue()


def svg(figure: Figure) -> bytes:
    """A figure as SVG, sharp at any size. The same figure always gives the same file."""
    buffer = BytesIO()
    with style(), rc_context({"svg.hashsalt": "tcnaps"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


class Picture(anywidget.AnyWidget):
    """A figure on the page, as wide as its place allows, with a layer over it to point at its dots.

    Matplotlib alone draws, so that what is saved is what was seen. The layer, `picture.js`, shows a dot's card under
    the mouse or the keyboard's focus, puts a ring round the dot that is marked, and zooms.

    Args:
        width, height: of the figure in pixels; on the page it is larger or smaller.
        place: of the figure's only Axes: left, bottom, width and height, as shares of the figure.

    Attributes:
        svg: what is shown.
        dots: each with `x` and `y` in pixels from the figure's upper left corner, its `words`, which are read out, and
            its `card` as HTML.
        images: the addresses of the images on the cards.
        value: the number of the dot that is marked, or None. A press on a row of a table that has an element with the
            attribute `data-dot` marks that dot, too.
    """

    _esm = Path(__file__).with_name("picture.js")
    _css = Path(__file__).with_name("picture.css")
    image, alt = traitlets.Unicode().tag(sync=True), traitlets.Unicode().tag(sync=True)
    size, dots, images = (traitlets.List().tag(sync=True) for _ in range(3))
    value = traitlets.Int(None, allow_none=True).tag(sync=True)

    def __init__(self, css_class: str, width: int, height: int, place: tuple[float | int, ...]):
        super().__init__(size=[width, height], layout=Layout(width="100%", overflow="visible", margin="0"))
        self.add_class(css_class)
        self.place, self.svg = place, b""

    @contextmanager
    def drawn(
        self, alt: str, points: Float[np.ndarray, "n_points 2"] = NO_POINTS, cards: Sequence[tuple[str, str]] = ()
    ) -> Iterator[Axes]:
        """The Axes of a new figure, unknown to pyplot, which is shown when the block ends.

        Args:
            alt: what the picture says, in words.
            points: where the dots are, on the Axes.
            cards: the dots' words and cards.
        """
        with style():
            figure = Figure([pixels / PIXELS_PER_INCH for pixels in self.size], dpi=PIXELS_PER_INCH)
            figure.set_layout_engine("none")  # measuring texts takes longer than drawing them
            yield (ax := figure.add_axes(self.place))
        self.svg = svg(figure)
        at = ax.transData.transform(points) * (1, -1) + (0, figure.bbox.height)
        dots = [{"x": x, "y": y, "words": words, "card": card} for (x, y), (words, card) in zip(at.tolist(), cards)]
        with self.hold_sync():
            self.image, self.alt, self.dots = data_address(self.svg, "image/svg+xml"), alt, dots


def saved(figure: Figure, study: Study, name: str) -> str:
    """Writes a figure as PNG and PDF to figures/<study>/views; where nothing may be written, it is offered only.

    Returns:
        HTML that says where it is, with both files as downloads.

    Raises:
        UserError: the name is none for a file.
    """
    name = name.strip()
    if not re.fullmatch(r"[\w][\w .-]*", name):
        raise UserError(f"'{name}' is no name of a file: use letters, digits, '-', '_' and '.'.")
    with tempfile.TemporaryDirectory() as temporary:
        served = os.environ.get(READ_ONLY) == "1"
        folder = Path(temporary) if served else study.figures_folder / "views"
        links = [
            f'<a download="{html.escape(file.name)}" style="text-decoration:underline" '
            f'href="{data_address(file.read_bytes(), kind)}">{file.suffix[1:].upper()}</a>'
            for file, kind in zip(
                save(figure, folder / name, study.origin), ("image/png", "application/pdf"), strict=True
            )
        ]
    return f"{'' if served else f'Saved in figures/{study.name}/views. '}Download: {' '.join(links)}"


def data_address(content: bytes, kind: str) -> str:
    """Content as the address of an image or a download."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def copied(code: str) -> str:
    """Code as HTML, which also goes to the clipboard where the browser allows it."""
    copy = "navigator.clipboard?.writeText(this.nextElementSibling.textContent)"
    look = "margin:2px 0;padding:6px 10px;background:#F5F5F5;color:#000;user-select:all;line-height:1.3"
    return (
        f'Copied; a cell of this notebook:<style onload="{copy}"></style><pre style="{look}">{html.escape(code)}</pre>'
    )


def image_address(image: UInt8[np.ndarray, "height width 3"], most: int = 2**16) -> str:
    """An image of a dataset as an address: PNG, or JPEG where it is large.

    Args:
        most: pixels of its longer side; a larger image is shrunk.
    """
    kind, options = ("png", {}) if len(image) <= 48 else ("jpeg", {"quality": 90})
    buffer, picture = BytesIO(), Image.fromarray(image)
    picture.thumbnail((most, most))
    picture.save(buffer, kind, **options)
    return data_address(buffer.getvalue(), f"image/{kind}")


def readable_on(colour: np.ndarray) -> str:
    """Black or white, whichever stands out more from a colour in [0, 1]."""
    return "black" if colour @ np.array([0.299, 0.587, 0.114]) > 0.45 else "white"


def chips(names: Sequence[str]) -> list[str]:
    """Each class's letter on its colour, as HTML; its name shows under the mouse."""
    return [
        f'<span class="xchip" style="background:{to_hex(colour)};color:{readable_on(colour)}" '
        f'title="{html.escape(name)}">{letter(label)}</span>'
        for label, (name, colour) in enumerate(zip(names, class_colours(len(names)), strict=True))
    ]


def named(name: str, length: int) -> str:
    """A class's name as HTML, shortened; the whole name shows under the mouse."""
    return f'<span title="{html.escape(name)}">{html.escape(shortened(name, length))}</span>'
