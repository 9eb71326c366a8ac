"""A view of a figure: controls, the picture, one chosen point of it, and a way to save it. `figure_views` has them."""

import html
from functools import lru_cache, partial
from typing import NamedTuple

import ipywidgets
import numpy as np
import pandas as pd
from ipywidgets import Layout
from matplotlib.figure import Figure

from tcnaps.config import Study, UserError
from tcnaps.figures import results, style
from tcnaps.figures.tables import cell
from tcnaps_suite.widgets import widget_base as ui
from tcnaps_suite.widgets.episode_table import counted
from tcnaps_suite.widgets.pictures import png, saved

NO_POINT = "none: hover over the picture, or choose here"
WIDTH = 828  # pixels of a picture; fits beside JupyterLab's file browser in a window of 1280
SPOT = 15  # pixels of a dot's spot
UNITS = {"classes": "class", "episodes": "episode", "datasets": "dataset"}
LOOK = """<style>
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


class Seen(NamedTuple):
    """What a view shows.

    Attributes:
        frame: what is drawn.
        points: one row per point of the picture: its panel's number, `x`, `y` and the half-width `interval` on its
            axes, a short `name`, a `text` with n, mean and interval, and the `value` by which points are compared.
            `cell` tells a heatmap's cell, of width and height 1, from a dot.
        title: one line that says what was chosen.
    """

    frame: pd.DataFrame
    points: pd.DataFrame
    title: str


def points_of(frame: pd.DataFrame, value: str, **columns: pd.Series | np.ndarray | list | int) -> pd.DataFrame:
    """`Seen.points` of the rows of a frame of accuracies, recalls or differences.

    Args:
        frame: its columns `n_…` count what a row was made of; `over` says over what a gain is one.
        value: the column by which points are compared, a fraction whose axis shows percent.
        columns: `name`, `panel` and `x`; of cells `y` too.
    """
    half = "gain_interval" if value == "gain" else "interval"
    drawn = {"y": 100 * frame[value], "interval": 100 * frame[half], "value": frame[value], "cell": "y" in columns}
    points = pd.DataFrame(drawn | columns)
    return points.assign(text=[f"{name}: {_said(row)}" for name, (_, row) in zip(points["name"], frame.iterrows())])


def _said(row: pd.Series) -> str:
    """The numbers of a row with their intervals, and what they were made of."""
    numbers = [f"{kind} {cell(row[kind], row['interval'])}%" for kind in ("accuracy", "recall") if kind in row]
    for kind, half in (("difference", "interval"), ("gain", "gain_interval")):
        if kind in row:
            numbers.append(f"gain over {row['over']} {cell(row[kind], row[half], signed=True, digits=2)} points")
    counts = [counted(row[f"n_{unit}"], one) for unit, one in UNITS.items() if f"n_{unit}" in row]
    return f"{', '.join(numbers)}, n = {' of '.join(counts)}"


def spots_of(figure: Figure, points: pd.DataFrame) -> pd.DataFrame:
    """The points with their spots' `left`, `top`, `width` and `height`, in percent of the figure, and what each `says`.

    Where spots hide each other, each says what all of them have to say.
    """
    size, places = figure.bbox.size, []
    for point in points.itertuples():
        transform = figure.axes[point.panel].transData.transform
        (x, y), corner, far = transform([(point.x, point.y), (0, 0), (1, 1)]) / size
        width, height = abs(far - corner) if point.cell else (0, 0)
        places.append((x, 1 - y, width, height))
    places = 100 * np.array(places)
    apart = np.abs(places[:, None, :2] - places[:, :2]) * (1, size[1] / size[0])  # in percent of the width
    hidden = apart.max(axis=2) * WIDTH / 100 < SPOT
    spots = points.join(pd.DataFrame(places, points.index, ["left", "top", "width", "height"]))
    return spots.assign(says=["<br>".join(map(html.escape, points["text"][own])) for own in hidden])


def spot(point, chosen: str) -> str:
    """A point's spot as HTML: invisible, and with a text while the mouse is over it."""
    sides = f"{'right' if point.left > 50 else 'left'} {'up' if point.top > 50 else 'down'}"
    classes = f"{'cell' if point.cell else 'dot'} {sides}{' chosen' if point.name == chosen else ''}"
    place = "".join(f"{side}:{getattr(point, side):.2f}%;" for side in ("left", "top", "width", "height"))
    return f'<div class="tcnaps-spot {classes}" style="{place}"><span>{point.says}</span></div>'


class View(ui.StudyWidget):
    """Controls, a picture, and one chosen point of it. A new one shows nothing before `load`.

    A subclass says what its filters are (`make_filters`, by name), reads data of a study (`fetch`, which `read` calls
    and remembers), computes what is shown (`see`, which gives a `Seen`) and draws it (`panels`, whose first axes are
    those of the points).

    Attributes:
        filters: the names of the controls that choose what is shown.
        seen: what is shown, or None.
        image, spots: the picture, and HTML over it with a spot for each point.
    """

    height = 3.0  # inches
    remembered = 16  # results of `fetch` that are kept

    def __init__(self, study: Study):
        super().__init__(study)
        self.seen: Seen | None = None
        self.read = lru_cache(self.remembered)(partial(self.fetch, study))
        # The image and the spots share a cell of a grid: HTML and CSS only, which works wherever ipywidgets do.
        whole = {"grid_area": "1 / 1 / 2 / 2", "width": "100%", "margin": "0"}
        self.image = ipywidgets.Image(format="png", layout=Layout(height="auto", **whole))
        self.spots = ipywidgets.HTML(layout=Layout(overflow="visible", height="100%", **whole))
        layout = Layout(width="100%", max_width=f"{WIDTH}px", overflow="visible", grid_template_columns="100%")
        picture = ipywidgets.GridBox([self.image, self.spots], layout=layout).add_class("tcnaps-picture")
        self._status, self._readout, self._saved = map(ui.text, ("tcnaps-status", "tcnaps-readout", "tcnaps-saved"))
        filters = self.add(**self.make_filters())
        self.filters = tuple(self.controls)
        points = self.add(points=ui.menu("Point:", None, [NO_POINT]))
        filters.layout.max_width = points.layout.max_width = f"{WIDTH}px"
        saving = self.add(**ui.saving(self.kind))
        shown = self._status, picture, points, self._readout, saving, self._saved
        self.arrange(filters, self.busy, self.notice, *shown)
        self.layout = Layout(width="100%", overflow="visible")
        for name in self.filters:
            self.on([name], partial(self.change, name))
        self.on(["points"], self.mark)
        self.on(["save"], self._save)

    def change(self, name: str) -> None:
        """A filter was changed: everything is shown anew."""
        self.load()

    def dataset_choices(self) -> ui.Choices:
        """Boxes for the study's datasets, all of them ticked."""
        datasets = self.study.datasets
        return ui.Choices("Datasets", datasets, datasets, {n: f"{n} ({own.domain})" for n, own in datasets.items()})

    def first_point(self) -> str:
        """Which point to choose unless one was chosen before."""
        return NO_POINT

    @property
    def point(self) -> pd.Series | None:
        """The chosen point's row of `Seen.points`."""
        found = self.seen.points[self.seen.points["name"] == self.choice.points]
        return None if found.empty else found.iloc[0]

    def answer(self) -> str:
        """What is shown, and its points with the highest and the lowest value, in words; or why nothing is shown."""
        if self.seen is None:
            return f"Nothing is shown: {self.error}"
        texts = self.seen.points.sort_values("value", kind="stable")["text"]
        return f"{self.seen.title}\n  highest: {texts.iloc[-1]}\n  lowest: {texts.iloc[0]}"

    def load(self) -> None:
        """Shows what the filters ask for, after reading it where necessary."""
        with self.loading("Reading and drawing"):
            self.seen = self.see()
            names, before = list(self.seen.points["name"]), self.choice.points
            with self.quietly():
                self.controls["points"].options = [NO_POINT, *names]
                self.controls["points"].value = before if before in names else self.first_point()
            figure = self.figure()
            self.image.value, self._places = png(figure), spots_of(figure, self.seen.points)
            self._status.value = html.escape(self.seen.title)
            self.mark()

    def hide(self) -> None:
        """Fades the picture, as it does not show what the filters ask for."""
        self.seen = None
        self.spots.value = f'{LOOK}<div class="tcnaps-plot stale"></div>'
        self._status.value = "Nothing is shown for these choices."
        self._readout.value = self._saved.value = ""

    def figure(self, mark: pd.Series | None = None) -> Figure:
        """A new figure of what is shown, as wide as a paper's text.

        Args:
            mark: the point to mark in it. On the page, the picture's spots do that.
        """
        with style.style():
            figure = Figure((style.TEXT_WIDTH, self.height))
            self.panels(figure, self.seen, mark)
            if mark is not None and not mark["cell"]:
                results.ring(figure.axes[mark["panel"]], mark["x"], mark["y"], mark["interval"])
        return figure

    def mark(self) -> None:
        """Marks the chosen point in the picture, and writes it out."""
        if self.seen is None:
            return
        point, title = self.point, html.escape(self.seen.title)
        spots = "".join(spot(place, self.choice.points) for place in self._places.itertuples(index=False))
        self.spots.value = f'{LOOK}<div class="tcnaps-plot" role="img" aria-label="{title}">{spots}</div>'
        chosen = "" if point is None else f"<b>Chosen:</b> {html.escape(point['text'])}"
        self._readout.value, self._saved.value = f'<span role="status">{chosen}</span>', ""

    def _save(self) -> None:
        if self.seen is None:
            raise UserError("Nothing is shown that could be saved: change the choices first.")
        self._saved.value = saved(self.figure(self.point), self.study, self.choice.save_name)
