"""A picture whose points can be hovered over: an image, and on it invisible spots with a text each.

HTML and CSS only, so that it works wherever ipywidgets do.
"""

import base64
import html
from io import BytesIO

import ipywidgets
import pandas as pd
from matplotlib.figure import Figure

from tcnaps.widgets.widget_base import drawing

WIDTH = 828  # pixels on the page; fits beside JupyterLab's file browser in a window of 1280
SPOT = 15  # pixels, of a dot's spot
DOTS_PER_INCH = 240  # of a figure in the text's width: twice as many pixels as on the page
STYLE = """<style>
.tcnaps-plot { position: absolute; inset: 0; line-height: 1.35; color: #000; }
.tcnaps-plot.stale { background: rgba(255, 255, 255, 0.75); }
.tcnaps-spot { position: absolute; transform: translate(-50%, -50%); min-width: 15px; min-height: 15px;
  box-sizing: border-box; }
.tcnaps-spot.dot { border-radius: 50%; }
.tcnaps-spot:hover { outline: 2px solid #000; z-index: 5; }
.tcnaps-spot.chosen.dot { outline: 2.5px solid #000; }
.tcnaps-spot.chosen.cell { outline: 3px solid #D55E00; outline-offset: -2px; }
.tcnaps-bar { position: absolute; width: 2.5px; background: #000; transform: translate(-50%, 0); }
.tcnaps-spot span { display: none; position: absolute; width: 250px; padding: 5px 8px; background: #fff;
  border: 1px solid #000; font-size: 13px; pointer-events: none; }
.tcnaps-spot:hover span { display: block; }
.tcnaps-spot.right span { right: 50%; } .tcnaps-spot.left span { left: 50%; }
.tcnaps-spot.up span { bottom: calc(100% + 4px); } .tcnaps-spot.down span { top: calc(100% + 4px); }
</style>"""


class Plot(ipywidgets.GridBox):
    """The place of such a picture: the image, and the spots in the same cell of a grid."""

    def __init__(self):
        whole = {"grid_area": "1 / 1 / 2 / 2", "width": "100%", "margin": "0"}
        self.image = ipywidgets.Image(format="png", layout=ipywidgets.Layout(height="auto", **whole))
        self.spots = ipywidgets.HTML(layout=ipywidgets.Layout(overflow="visible", height="100%", **whole))
        super().__init__(
            [self.image, self.spots],
            layout=ipywidgets.Layout(
                width="100%", max_width=f"{WIDTH}px", overflow="visible", grid_template_columns="100%"
            ),
        )
        self.add_class("tcnaps-picture")

    def put(self, figure: Figure, points: pd.DataFrame, description: str) -> None:
        """Shows a figure.

        Args:
            points: of `viewing.Seen`; their panels are the figure's axes, in order.
            description: for those who cannot see the picture.
        """
        self.image.value = draw(figure, "png", dpi=DOTS_PER_INCH, pil_kwargs={"compress_level": 1})
        self._description = html.escape(description)
        places = [(row, *_place(figure, row)) for row in points.itertuples()]
        across, down = WIDTH / 100, WIDTH / 100 * figure.get_figheight() / figure.get_figwidth()
        # One spot hides another that is less than its width away: each says what both have to say.
        self._places = [
            (
                place,
                [
                    other[0].text
                    for other in places
                    if abs(other[1] - place[1]) * across < SPOT and abs(other[2] - place[2]) * down < SPOT
                ],
            )
            for place in places
        ]
        self.choose(None)

    def choose(self, name: str | None) -> None:
        """Marks the point of this name, or none. Nothing is drawn anew."""
        parts = [_spot(*place, texts, chosen=place[0].name == name) for place, texts in self._places]
        self.spots.value = (
            f'{STYLE}<div class="tcnaps-plot" role="img" aria-label="{self._description}">{"".join(parts)}</div>'
        )

    def stale(self) -> None:
        """Fades the picture, which is not of what has been chosen."""
        self.spots.value = f'{STYLE}<div class="tcnaps-plot stale"></div>'


def draw(figure: Figure, kind: str, **options) -> bytes:
    """A figure as PNG or PDF."""
    buffer = BytesIO()
    with drawing():
        figure.savefig(buffer, format=kind, **options)
    return buffer.getvalue()


def data_address(content: bytes, kind: str) -> str:
    """Content as the address of an image or a download."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def _place(figure: Figure, point) -> tuple[float, float, float, float, float]:
    """Left, top, width, height of a point's spot and half the length of its bar, in percent of the figure."""
    ax, (width, height) = figure.axes[point.panel], figure.bbox.size
    x, y = ax.transData.transform((point.x, point.y))
    sides = bar = (0.0, 0.0)
    if point.cell:
        corners = ax.transData.transform([(0, 0), (1, 1)])
        sides = abs(corners[1] - corners[0])
    elif pd.notna(point.interval):
        bar = abs(ax.transData.transform((point.x, point.y + point.interval)) - (x, y))
    parts = x / width, 1 - y / height, sides[0] / width, sides[1] / height, bar[1] / height
    return tuple(100 * float(part) for part in parts)


def _spot(
    point, left: float, top: float, width: float, height: float, bar: float, texts: list[str], chosen: bool
) -> str:
    classes = (
        f"tcnaps-spot {'cell' if point.cell else 'dot'} {'right' if left > 50 else 'left'} "
        f"{'up' if top > 50 else 'down'}{' chosen' if chosen else ''}"
    )
    size = f"width:{width:.2f}%;height:{height:.2f}%;" if point.cell else ""
    line = ""
    if chosen and bar:
        line = f'<div class="tcnaps-bar" style="left:{left:.2f}%;top:{top - bar:.2f}%;height:{2 * bar:.2f}%"></div>'
    return (
        f'{line}<div class="{classes}" style="left:{left:.2f}%;top:{top:.2f}%;{size}">'
        f"<span>{'<br>'.join(map(html.escape, texts))}</span></div>"
    )
