"""Figures on the page: as a plain image, and as an image whose points can be hovered over."""

import base64
import html
from collections.abc import Sequence
from io import BytesIO

import ipywidgets
import numpy as np
import pandas as pd
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
WIDTH = 828  # pixels of a hover picture; fits beside JupyterLab's file browser in a window of 1280
SPOT = 15  # pixels of a dot's spot
STYLE = """<style>
.tcnaps-plot { position: absolute; inset: 0; line-height: 1.35; color: #000; }
.tcnaps-plot.stale { background: rgba(255, 255, 255, 0.75); }
.tcnaps-spot { position: absolute; transform: translate(-50%, -50%); min-width: 15px; min-height: 15px;
  box-sizing: border-box; }
.tcnaps-spot.dot { border-radius: 50%; }
.tcnaps-spot:hover { outline: 2px solid #000; z-index: 5; }
.tcnaps-spot.chosen.dot { outline: 2.5px solid #000; }
.tcnaps-spot.chosen.cell { outline: 3px solid #D55E00; outline-offset: -2px; }
.tcnaps-spot span { display: none; position: absolute; width: 250px; padding: 5px 8px; background: #fff;
  border: 1px solid #000; font-size: 13px; pointer-events: none; }
.tcnaps-spot:hover span { display: block; }
.tcnaps-spot.right span { right: 50%; } .tcnaps-spot.left span { left: 50%; }
.tcnaps-spot.up span { bottom: calc(100% + 4px); } .tcnaps-spot.down span { top: calc(100% + 4px); }
</style>"""


def new_figure(width: int, height: int, place: tuple[float | int, ...]) -> tuple[Figure, Axes]:
    """A figure of so many pixels on the page, unknown to pyplot, and its only Axes. Call it inside `style()`."""
    figure = Figure((width / PIXELS_PER_INCH, height / PIXELS_PER_INCH), dpi=PIXELS_PER_INCH)
    figure.set_layout_engine("none")  # measuring texts takes longer than drawing them
    return figure, figure.add_axes(place)


def png(figure: Figure) -> bytes:
    """A figure as PNG, with twice as many pixels as it has on the page, so that text is sharp."""
    buffer = BytesIO()
    with style():
        figure.savefig(buffer, format="png", dpi=2 * figure.dpi, pil_kwargs={"compress_level": 1})
    return buffer.getvalue()


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


def data_address(content: bytes, kind: str) -> str:
    """Content as the address of an image or a download."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def image_address(image: UInt8[np.ndarray, "height width 3"]) -> str:
    """An image of a dataset as an address: PNG, or JPEG where it is large."""
    kind, options = ("png", {}) if len(image) <= 48 else ("jpeg", {"quality": 90})
    buffer = BytesIO()
    Image.fromarray(image).save(buffer, kind, **options)
    return data_address(buffer.getvalue(), f"image/{kind}")


class Picture(ipywidgets.Image):
    """A figure on the page, in its own size, shrinking with a narrow page."""

    def __init__(self, css_class: str):
        super().__init__(format="png", layout=Layout(max_width="100%", object_fit="contain"))
        self.add_class(css_class)

    def put(self, figure: Figure) -> None:
        """Shows a figure."""
        self.value = png(figure)
        self.layout.width = f"{figure.get_figwidth() * PIXELS_PER_INCH:.0f}px"


class HoverPicture(ipywidgets.GridBox):
    """A figure with an invisible spot over each of its points, which shows a text while the mouse is over it.

    HTML and CSS only, so that it works wherever ipywidgets do: the image and the spots share a cell of a grid.
    """

    def __init__(self):
        whole = {"grid_area": "1 / 1 / 2 / 2", "width": "100%", "margin": "0"}
        self.image = ipywidgets.Image(format="png", layout=Layout(height="auto", **whole))
        self.spots = ipywidgets.HTML(layout=Layout(overflow="visible", height="100%", **whole))
        layout = Layout(width="100%", max_width=f"{WIDTH}px", overflow="visible", grid_template_columns="100%")
        super().__init__([self.image, self.spots], layout=layout)
        self.add_class("tcnaps-picture")

    def put(self, figure: Figure, points: pd.DataFrame, description: str) -> None:
        """Shows a figure.

        Args:
            points: of `view_data.Seen`; their panels are the figure's axes, in order.
            description: for those who cannot see the picture.
        """
        self.image.value = png(figure)
        self._description = html.escape(description)
        places = [(row, *_place(figure, row)) for row in points.itertuples()]
        aspect = figure.get_figheight() / figure.get_figwidth()

        def hides(a, b):
            return max(abs(a[1] - b[1]), aspect * abs(a[2] - b[2])) * WIDTH / 100 < SPOT

        # Where spots hide each other, each says what all of them have to say.
        self._places = [(place, [other[0].text for other in places if hides(other, place)]) for place in places]
        self.choose(None)

    def choose(self, name: str | None) -> None:
        """Marks the point of this name, or none. Nothing is drawn anew."""
        spots = "".join(_spot(*place, texts, chosen=place[0].name == name) for place, texts in self._places)
        self.spots.value = f'{STYLE}<div class="tcnaps-plot" role="img" aria-label="{self._description}">{spots}</div>'

    def fade(self) -> None:
        """Fades the picture, because it does not show what has been chosen."""
        self.spots.value = f'{STYLE}<div class="tcnaps-plot stale"></div>'


def _place(figure: Figure, point) -> tuple[float, float, float, float]:
    """Left, top, width and height of a point's spot, in percent of the figure. A cell has width and height 1."""
    transform, size = figure.axes[point.panel].transData.transform, figure.bbox.size
    (x, y), corner, far = transform([(point.x, point.y), (0, 0), (1, 1)]) / size
    width, height = abs(far - corner) if point.cell else (0, 0)
    return tuple(100 * float(share) for share in (x, 1 - y, width, height))


def _spot(point, left, top, width, height, texts, chosen) -> str:
    classes = f"{'cell' if point.cell else 'dot'} {'right' if left > 50 else 'left'} {'up' if top > 50 else 'down'}"
    return (
        f'<div class="tcnaps-spot {classes}{" chosen" if chosen else ""}" style="left:{left:.2f}%;top:{top:.2f}%;'
        f'width:{width:.2f}%;height:{height:.2f}%"><span>{"<br>".join(map(html.escape, texts))}</span></div>'
    )
