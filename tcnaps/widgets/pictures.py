"""Figures, images and names of classes on the page."""

import base64
import html
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO

import ipywidgets
import numpy as np
from ipywidgets import Layout
from jaxtyping import UInt8
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from PIL import Image

from tcnaps.figures.clustering import class_colours
from tcnaps.figures.style import style
from tcnaps.widgets.episode_table import letter, shortened

PIXELS_PER_INCH = 96  # of a picture on the page


def png(figure: Figure) -> bytes:
    """A figure as PNG, with twice as many pixels as it has on the page, so that text is sharp."""
    buffer = BytesIO()
    with style():
        figure.savefig(buffer, format="png", dpi=2 * figure.dpi, pil_kwargs={"compress_level": 1})
    return buffer.getvalue()


class Picture(ipywidgets.Image):
    """A figure on the page, so many pixels wide and high, shrinking with a narrow page.

    Args:
        place: of the figure's only Axes: left, bottom, width and height, as shares of the figure.
    """

    def __init__(self, css_class: str, width: int, height: int, place: tuple[float | int, ...]):
        super().__init__(format="png", layout=Layout(width=f"{width}px", max_width="100%", object_fit="contain"))
        self.add_class(css_class)
        self._size, self._place = (width / PIXELS_PER_INCH, height / PIXELS_PER_INCH), place

    @contextmanager
    def drawn(self) -> Iterator[Axes]:
        """The Axes of a new figure, unknown to pyplot, which is shown when the block ends."""
        with style():
            figure = Figure(self._size, dpi=PIXELS_PER_INCH)
            figure.set_layout_engine("none")  # measuring texts takes longer than drawing them
            yield figure.add_axes(self._place)
        self.value = png(figure)


def data_address(content: bytes, kind: str) -> str:
    """Content as the address of an image or a download."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def image_address(image: UInt8[np.ndarray, "height width 3"]) -> str:
    """An image of a dataset as an address: PNG, or JPEG where it is large."""
    kind, options = ("png", {}) if len(image) <= 48 else ("jpeg", {"quality": 90})
    buffer = BytesIO()
    Image.fromarray(image).save(buffer, kind, **options)
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
