"""Figures, images and names of classes on the page."""

import base64
import html
from collections.abc import Sequence
from io import BytesIO

import numpy as np
from jaxtyping import UInt8
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from PIL import Image

from tcnaps.figures.clustering import class_colours
from tcnaps.figures.style import style
from tcnaps_suite.widgets.episode_table import letter, shortened


def on_page(figure: Figure, words: str) -> str:
    """A figure as HTML. The words are for those who can't see it."""
    buffer = BytesIO()
    with style():
        figure.savefig(buffer, format="png", pil_kwargs={"compress_level": 1})
    return f'<img alt="{html.escape(words)}" src="{data_address(buffer.getvalue(), "image/png")}">'


def data_address(content: bytes, kind: str) -> str:
    """Content as the address of an image or a download."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def image_address(image: UInt8[np.ndarray, "height width 3"] | Image.Image, side: int | None = None) -> str:
    """An image as an address: PNG, or JPEG where it is large. One whose longer side exceeds `side` is shrunk."""
    picture = image if isinstance(image, Image.Image) else Image.fromarray(image)
    if side is not None:
        picture.thumbnail((side, side))
    kind, options = ("png", {}) if picture.height <= 48 else ("jpeg", {"quality": 90})
    buffer = BytesIO()
    picture.save(buffer, kind, **options)
    return data_address(buffer.getvalue(), f"image/{kind}")


def readable_on(colour: np.ndarray) -> str:
    """Black or white, whichever stands out more from a colour in [0, 1]."""
    brightness = colour @ np.array([0.299, 0.587, 0.114])
    return "black" if brightness > 0.45 else "white"


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
