"""What the three views share: controls, a picture, one chosen point of it, and saving."""

import html
import re
from collections.abc import Sequence

import ipywidgets
import pandas as pd
from ipywidgets import Layout
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from tcnaps.config import Study
from tcnaps.figures import results as figures, style as figure_style
from tcnaps.widgets import view_data
from tcnaps.widgets.controls import button, keys, menu, row, styled, text
from tcnaps.widgets.pictures import WIDTH, HoverPicture, data_address, saved
from tcnaps.widgets.reading_mode import read_only
from tcnaps.widgets.widget_base import StudyWidget

NO_POINT = "none: hover over the picture, or choose here"
TOOLTIPS = {
    "points": "A point of the picture: its n, mean and interval are written below",
    "save": "Save what is shown, the chosen point included",
}


class View(StudyWidget):
    """Controls, a picture, and one chosen point of it. A new one shows nothing before `load`.

    A subclass says what its filters are and what data they ask for (`wanted`). `fetch` reads those data into `known`,
    `see` computes what is shown, and `panels` draws it.

    Attributes:
        filters: the names of the controls that choose what is shown.
        known: the data that have been read, by the keys of `wanted`.
        seen: what is shown, or None.
    """

    height = 3.0  # inches
    marking: tuple[str, ...] = ()  # filters that choose a point and leave the picture as it is

    def __init__(self, study: Study):
        super().__init__(study)
        self.known, self.seen = {}, None
        self.picture = HoverPicture()
        self._status, self._readout, self._saved = (text(f"tcnaps-{name}") for name in ("status", "readout", "saved"))
        filters = self.make_filters()
        self.filters = tuple(filters)
        own = {
            "points": menu("Point:", None, [NO_POINT]),
            "save_name": styled(ipywidgets.Text(self.kind, continuous_update=False), "Save as:", 280),
            "save": button("Save PNG and PDF", 170, "save"),
        }
        own["points"].layout.max_width = f"{WIDTH}px"
        self.add(filters | own, TOOLTIPS)
        all_filters = row(*filters.values())
        all_filters.layout.max_width = f"{WIDTH}px"
        saving = row(own["save_name"], own["save"])
        shown = self._status, self.picture, own["points"], self._readout, saving, self._saved
        self.children = [all_filters, self.work, self.notice, *shown, keys()]
        self.layout = Layout(width="100%", overflow="visible")
        self.add_class("tcnaps-view")
        for name in self.filters:
            self.on(name, lambda name=name: self._change(name))
        self.on("points", self._choose_point)
        self.on("save", self._save)

    # What a view must say.

    def make_filters(self) -> dict[str, ipywidgets.Widget]:
        """The controls that choose what is shown, by name."""
        raise NotImplementedError

    def wanted(self) -> list[tuple[str, ...]]:
        """The keys of the data that the filters ask for."""
        raise NotImplementedError

    def fetch(self, *key: str) -> pd.DataFrame:
        """Reads the data of one key."""
        raise NotImplementedError

    def see(self) -> view_data.Seen:
        """Computes what the filters ask for."""
        raise NotImplementedError

    def panels(self, figure: Figure, seen: view_data.Seen, marked: bool) -> None:
        """Draws it; the figure's first axes are the panels of the points. Only a chosen cell needs to be marked."""
        raise NotImplementedError

    def follow(self, name: str) -> None:
        """Adjusts what other filters offer after one of them changed."""

    # What all views do.

    @property
    def point(self) -> str | None:
        """The name of the chosen point."""
        name = self.controls["points"].value
        return None if name == NO_POINT else name

    def answer(self) -> str:
        """What is shown, in words; or why nothing is."""
        if self.seen is None:
            return f"Nothing is shown: {self.notice.error or 'still loading'}"
        return self.seen.answer()

    def load(self, threaded: bool = True) -> None:
        """Shows what the filters ask for, after loading it where necessary."""
        missing = [key for key in self.wanted() if key not in self.known]

        def work():
            found = {}
            for number, key in enumerate(missing):
                yield number / len(missing), f"Reading {', '.join(key)}"
                found[key] = self.fetch(*key)
            return found

        # Also where nothing is missing: this replaces what may still be loading for earlier choices.
        self.work.start(work, self._loaded, self.undo, threaded and bool(missing))
        if self.seen is None:
            self._fade()

    def undo(self) -> None:
        """Puts the filters back to what is shown, and shows it."""
        super().undo()
        if self._remembered:
            self._show()

    def figure(self, marked: bool = True) -> Figure:
        """A new figure of what is shown, as wide as a paper's text.

        Args:
            marked: whether the chosen point is marked in it. On the page, the picture's spots do that.
        """
        with figure_style.style():
            figure = Figure((figure_style.TEXT_WIDTH, self.height))
            FigureCanvasAgg(figure)
            self.panels(figure, self.seen, marked)
            if marked and self.point is not None:
                point = self.seen.points.set_index("name").loc[self.point]
                if not point["cell"]:
                    figures.ring(figure.axes[point["panel"]], point["x"], point["y"], point["interval"])
        return figure

    def _change(self, name: str) -> None:
        with self.quietly():
            self.follow(name)
        if name in self.marking and self.seen is not None and not self.work.busy:
            self._mark()
        else:
            self.load()

    def _loaded(self, found: dict) -> None:
        self.keep(found)
        self._show()

    def keep(self, found: dict) -> None:
        """Adds what was loaded to what is known."""
        self.known.update(found)

    def _show(self) -> None:
        try:
            self.seen = self.see()
            names = list(self.seen.points["name"])
            wanted = self.preferred(names)
            with self.quietly():
                self.controls["points"].options = [NO_POINT, *names]
                self.controls["points"].value = wanted or NO_POINT
            self.picture.put(self.figure(marked=False), self.seen.points, self.seen.title)
            self._status.value = html.escape(self.seen.title)
            self._mark()
        except Exception:
            self._fade()
            raise

    def preferred(self, names: Sequence[str]) -> str | None:
        """Which of these points to choose: the same as before, if it is there."""
        return self.point if self.point in names else None

    def _choose_point(self) -> None:
        if self.seen is not None:
            self._mark()

    def _mark(self) -> None:
        self.picture.choose(self.point)
        self._readout.value, self._saved.value = "", ""
        if self.point is not None:
            words = self.seen.points.set_index("name").loc[self.point, "text"]
            self._readout.value = f'<span role="status"><b>Chosen:</b> {html.escape(words)}</span>'
        self.remember(self.filters)

    def _fade(self) -> None:
        self.seen = None
        self.picture.fade()
        self._status.value = "Nothing is shown for these choices."
        self._readout.value, self._saved.value = "", ""

    def _save(self) -> None:
        if self.seen is None:
            raise ValueError("Nothing is shown that could be saved: change the choices first.")
        name = self.controls["save_name"].value.strip()
        if not re.fullmatch(r"[\w][\w .-]*", name):
            raise ValueError(f"'{name}' is no name of a file: use letters, digits, '-', '_' and '.'.")
        figure, links, where = self.figure(), [], ""
        for kind, address in (("png", "image/png"), ("pdf", "application/pdf")):
            content = saved(figure, kind, metadata={"Software": None} if kind == "png" else {"CreationDate": None})
            links.append(
                f'<a download="{html.escape(name)}.{kind}" style="text-decoration:underline" '
                f'href="{data_address(content, address)}">{kind.upper()}</a>'
            )
        if not read_only():
            written = figure_style.save(figure, self.study.figures_folder / "views" / name)
            folder = written[0].parent.relative_to(self.study.figures_folder.parents[1])
            where = f"Saved {html.escape(' and '.join(file.name for file in written))} in {folder}. "
        self._saved.value = f"{where}Download: {' '.join(links)}"
