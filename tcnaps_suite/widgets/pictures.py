"""Figures, images and names of classes on the page."""

import base64
import html
import os
import re
import tempfile
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from PIL import Image

from tcnaps.config import Study, UserError
from tcnaps.figures.clustering import class_colours
from tcnaps.figures.style import save, style
from tcnaps_suite.widgets import READ_ONLY
from tcnaps_suite.widgets.episode_table import letter, shortened


def on_page(figure: Figure, words: str) -> str:
    """A figure as HTML. The words are for those who can't see it."""
    buffer = BytesIO()
    with style():
        figure.savefig(buffer, format="png", pil_kwargs={"compress_level": 1})
    return f'<img alt="{html.escape(words)}" src="{data_address(buffer.getvalue(), "image/png")}">'


def saved(figure: Figure, study: Study, name: str) -> str:
    """Writes a figure as PNG and PDF to figures/<study>/views and offers both as downloads.

    Under `make serve` nothing is written. A name that no file can have is a UserError.
    """
    name = name.strip()
    if not re.fullmatch(r"[\w][\w .-]*", name):
        raise UserError(f"A file can't be named '{name}': use letters, digits, '-', '_' and '.'.")
    with tempfile.TemporaryDirectory() as temporary:
        read_only = os.environ.get(READ_ONLY) == "1"
        folder = Path(temporary) if read_only else study.figures_folder / "views"
        links = [
            f'<a download="{html.escape(file.name)}" style="text-decoration:underline" '
            f'href="{data_address(file.read_bytes(), kind)}">{file.suffix[1:].upper()}</a>'
            for file, kind in zip(save(figure, folder / name, study.origin), ("image/png", "application/pdf"))
        ]
    place = "" if read_only else f"Saved in figures/{study.name}/views. "
    return f"{place}Download: {' '.join(links)}"


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
