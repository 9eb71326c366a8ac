"""What the three views share: controls, a picture, one chosen point of it, and saving."""

import html
import os
import re
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import ipywidgets
import pandas as pd
from ipywidgets import Layout
from matplotlib.figure import Figure

from tcnaps.config import Study
from tcnaps.figures import results, style
from tcnaps.widgets import READ_ONLY, view_data
from tcnaps.widgets.controls import button, keys_and_look, menu, row, styled, text
from tcnaps.widgets.pictures import WIDTH, HoverPicture, data_address
from tcnaps.widgets.widget_base import StudyWidget

NO_POINT = "none: hover over the picture, or choose here"
TOOLTIPS = {
    "points": "A point of the picture: its n, mean and interval are written below",
    "save": "Save what is shown, the chosen point included",
}


class View(StudyWidget):
    """Controls, a picture, and one chosen point of it. A new one shows nothing before `load`.

    A subclass says what its filters are (`make_filters`), reads data (`fetch`, which `read` calls and remembers),
    computes what is shown (`see`) and draws it (`panels`).

    Attributes:
        filters: the names of the controls that choose what is shown.
        seen: what is shown, or None.
    """

    height = 3.0  # inches
    remembered = 16  # results of `fetch` that are kept

    def __init__(self, study: Study):
        super().__init__(study)
        self.seen: view_data.Seen | None = None
        self.read = lru_cache(self.remembered)(self.fetch)
        self.picture = HoverPicture()
        self._status, self._readout, self._saved = (text(f"tcnaps-{name}") for name in ("status", "readout", "saved"))
        filters = self.make_filters()
        self.filters = tuple(filters)
        own = {
            "points": menu("Point:", None, [NO_POINT]),
            "save_name": styled(ipywidgets.Text(self.kind, continuous_update=False), "Save as:", 280),
            "save": button("Save PNG and PDF", 170, "save"),
        }
        self.add(filters | own, TOOLTIPS)
        all_filters = row(*filters.values())
        for wide in (all_filters, own["points"]):
            wide.layout.max_width = f"{WIDTH}px"
        saving = row(own["save_name"], own["save"])
        shown = self._status, self.picture, own["points"], self._readout, saving, self._saved
        self.children = [all_filters, self.busy, self.notice, *shown, keys_and_look()]
        self.layout = Layout(width="100%", overflow="visible")
        for name in self.filters:
            self.on(name, lambda name=name: self.change(name))
        self.on("points", self.mark)
        self.on("save", self._save)

    # What a view must say.

    def make_filters(self) -> dict[str, ipywidgets.Widget]:
        """The controls that choose what is shown, by name."""
        raise NotImplementedError

    def fetch(self, *key: str | tuple[str, ...]) -> pd.DataFrame:
        """Reads data."""
        raise NotImplementedError

    def see(self) -> view_data.Seen:
        """Computes what the filters ask for."""
        raise NotImplementedError

    def panels(self, figure: Figure, seen: view_data.Seen, marked: bool) -> None:
        """Draws it; the figure's first axes are the panels of the points. Only a chosen cell needs to be marked."""
        raise NotImplementedError

    def change(self, name: str) -> None:
        """A filter was changed: others may have to follow, then everything is shown anew."""
        self.load()

    def preferred(self, names: Sequence[str]) -> str | None:
        """Which of these points to choose: the same as before, if it is there."""
        return self.point if self.point in names else None

    # What all views do.

    @property
    def point(self) -> str | None:
        """The name of the chosen point."""
        name = self.controls["points"].value
        return None if name == NO_POINT else name

    def answer(self) -> str:
        """What is shown, in words; or why nothing is."""
        return f"Nothing is shown: {self.notice.error}" if self.seen is None else self.seen.answer()

    def load(self) -> None:
        """Shows what the filters ask for, after reading it where necessary."""
        with self.loading("Reading and drawing"):
            self.seen = self.see()
            names = list(self.seen.points["name"])
            wanted = self.preferred(names)
            with self.quietly():
                self.controls["points"].options = [NO_POINT, *names]
                self.controls["points"].value = wanted or NO_POINT
            self.picture.put(self.figure(marked=False), self.seen.points, self.seen.title)
            self._status.value = html.escape(self.seen.title)
            self.mark()

    def hide(self) -> None:
        """Fades the picture, as it does not show what the filters ask for."""
        self.seen = None
        self.picture.fade()
        self._status.value = "Nothing is shown for these choices."
        self._readout.value = self._saved.value = ""

    def figure(self, marked: bool = True) -> Figure:
        """A new figure of what is shown, as wide as a paper's text.

        Args:
            marked: whether the chosen point is marked in it. On the page, the picture's spots do that.
        """
        with style.style():
            figure = Figure((style.TEXT_WIDTH, self.height))
            self.panels(figure, self.seen, marked)
            if marked and self.point is not None:
                point = self.seen.points.set_index("name").loc[self.point]
                if not point["cell"]:
                    results.ring(figure.axes[point["panel"]], point["x"], point["y"], point["interval"])
        return figure

    def mark(self) -> None:
        """Marks the chosen point in the picture, and writes it out."""
        if self.seen is None:
            return
        self.picture.choose(self.point)
        self._readout.value = self._saved.value = ""
        if self.point is not None:
            words = self.seen.points.set_index("name").loc[self.point, "text"]
            self._readout.value = f'<span role="status"><b>Chosen:</b> {html.escape(words)}</span>'

    def _save(self) -> None:
        if self.seen is None:
            raise ValueError("Nothing is shown that could be saved: change the choices first.")
        name = self.controls["save_name"].value.strip()
        if not re.fullmatch(r"[\w][\w .-]*", name):
            raise ValueError(f"'{name}' is no name of a file: use letters, digits, '-', '_' and '.'.")
        with tempfile.TemporaryDirectory() as temporary:
            served, where = os.environ.get(READ_ONLY) == "1", ""
            folder = Path(temporary) if served else self.study.figures_folder / "views"
            files = style.save(self.figure(), folder / name)
            links = [
                f'<a download="{html.escape(file.name)}" style="text-decoration:underline" '
                f'href="{data_address(file.read_bytes(), kind)}">{file.suffix[1:].upper()}</a>'
                for file, kind in zip(files, ("image/png", "application/pdf"), strict=True)
            ]
        if not served:
            shown = folder.relative_to(self.study.figures_folder.parents[1])
            where = f"Saved {html.escape(' and '.join(file.name for file in files))} in {shown}. "
        self._saved.value = f"{where}Download: {' '.join(links)}"
