"""What the three views share: controls, a picture, one chosen point of it, and saving."""

import html
import re
from collections.abc import Sequence
from typing import Any

import ipywidgets
from ipywidgets import Layout
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from tcnaps.config import Study
from tcnaps.figures import results as figures, style as figure_style
from tcnaps.figures.style import TEXT_WIDTH
from tcnaps.widgets import view_data as viewing
from tcnaps.widgets.keyboard import keys
from tcnaps.widgets.plots import WIDTH, Plot, data_address, draw
from tcnaps.widgets.reading_mode import read_only
from tcnaps.widgets.widget_base import LOCK, Notice, Work, drawing, guarded, labelled

NO_POINT = "none: hover over the picture, or choose here"


class View(ipywidgets.VBox):
    """Controls, a picture, and one chosen point of it; what the three views share.

    A view's `chosen` are its controls by name. `load` fetches what they ask for into `known`, `see` computes what is
    shown, `panels` draws it.

    Attributes:
        seen: what is shown, or None.
    """

    kind = "view"
    height = 3.0  # inches
    marking: tuple[str, ...] = ()  # controls that choose a point and leave the picture as it is

    def __init__(self, study: Study):
        self.study, self.known, self.seen = study, {}, None
        self._held, self._last = True, None
        self.notice, self.plot = Notice(), Plot()
        self.chosen: dict[str, ipywidgets.Widget] = {}
        with guarded(self.notice):
            self.chosen = self.controls()
        self.work = Work(self.notice)
        self.status = labelled(ipywidgets.HTML(), "tcnaps-status")
        self.points = labelled(
            ipywidgets.Dropdown(options=[NO_POINT], description="Point:"),
            "tcnaps-points",
            "A point of the picture: its n, mean and interval are written below",
            "100%",
        )
        self.points.layout.max_width = f"{WIDTH}px"
        self.readout = labelled(ipywidgets.HTML(), "tcnaps-readout")
        self.file_name = labelled(
            ipywidgets.Text(self.kind, description="Save as:", continuous_update=False),
            "tcnaps-save-name",
            "Name of the files, without ending",
            "280px",
        )
        self.save_button = labelled(
            ipywidgets.Button(description="Save PNG and PDF", icon="save"),
            "tcnaps-save",
            "Save what is seen, the chosen point included",
            "170px",
        )
        self.saved = labelled(ipywidgets.HTML(), "tcnaps-saved")
        super().__init__(
            [
                ipywidgets.HBox(
                    list(self.chosen.values()),
                    layout=Layout(flex_flow="row wrap", width="100%", max_width=f"{WIDTH}px", overflow="visible"),
                ),
                self.work,
                self.notice,
                self.status,
                self.plot,
                self.points,
                self.readout,
                ipywidgets.HBox([self.file_name, self.save_button], layout=Layout(flex_flow="row wrap")),
                self.saved,
                keys(),
            ],
            layout=Layout(width="100%", overflow="visible"),
        )
        self.add_class("tcnaps-view")
        self.add_class(f"tcnaps-{self.kind}")
        for name, control in self.chosen.items():
            control.add_class(f"tcnaps-filter-{name}")
            control.observe(lambda change, name=name: self._changed(name), "value")
        self.points.observe(lambda change: self._point_changed(), "value")
        self.save_button.on_click(lambda button: self._save())
        self._held = False
        if self.chosen:  # else the study holds nothing to choose from, and the notice says why
            self.update(threaded=False)

    # What a view must say.

    def controls(self) -> dict[str, ipywidgets.Widget]:
        """The controls, by the names of their choices."""
        raise NotImplementedError

    def missing(self) -> bool:
        """Whether what the controls ask for has to be loaded first."""
        raise NotImplementedError

    def load(self) -> viewing.Loading:
        """Loads what is missing of it."""
        raise NotImplementedError

    def see(self) -> viewing.Seen:
        """What the controls ask for."""
        raise NotImplementedError

    def panels(self, figure: Figure, seen: viewing.Seen, marked: bool) -> None:
        """Draws it; the figure's first axes are the points' panels. A chosen dot, unlike a cell, is marked after it."""
        raise NotImplementedError

    def follow(self, name: str) -> None:
        """Adjusts what other controls offer after one of them changed; none of them is listened to meanwhile."""

    # What all do.

    @property
    def point(self) -> str | None:
        """The name of the chosen point."""
        return None if self.points.value == NO_POINT else self.points.value

    def answer(self) -> str:
        """What is shown, in words; or why nothing is."""
        if self.seen is None:
            return f"Nothing is shown: {self.notice.error or 'still loading'}"
        return self.seen.answer()

    def update(self, threaded: bool = True) -> None:
        """Shows what the controls ask for, after loading it if need be."""
        # Also where nothing is missing: it takes the place of what may still be loading for earlier choices.
        self.work.start(self.load, self._loaded, self._undo, threaded and self.missing())
        if self.seen is None:
            self._fade()

    def figure(self, marked: bool = True) -> Figure:
        """A new figure of what is seen, in the size of a paper's text.

        Args:
            marked: whether the chosen point is marked in it; on the page the picture's spots do that.
        """
        with drawing():
            figure = Figure((TEXT_WIDTH, self.height))
            FigureCanvasAgg(figure)
            self.panels(figure, self.seen, marked)
            if marked and self.point is not None:
                point = self.seen.points.set_index("name").loc[self.point]
                if not point["cell"]:
                    figures.ring(figure.axes[point["panel"]], point["x"], point["y"], point["interval"])
        return figure

    def _changed(self, name: str) -> None:
        with LOCK:  # before looking: a result that arrives from another thread holds it while it sets controls
            if self._held:
                return
            with guarded(self.notice):
                self._quietly(lambda: self.follow(name))
                if name in self.marking and self.seen is not None and not self.work.busy:
                    self._mark()
                    return
            if self.notice.error is None:
                self.update()

    def _loaded(self, found: dict) -> None:
        self.keep(found)
        self._show()

    def keep(self, found: dict) -> None:
        """Puts what was loaded beside what is known."""
        self.known.update(found)

    def _show(self) -> None:
        try:
            self.seen = self.see()
            names = list(self.seen.points["name"])
            wanted = self.preferred(names)
            self._quietly(lambda: self._offer(names, wanted))
            self._draw()
        except Exception:
            self._fade()
            raise

    def preferred(self, names: Sequence[str]) -> str | None:
        """The point to choose among these: the same as before, if it is there."""
        return self.point if self.point in names else None

    def _offer(self, names: list[str], wanted: str | None) -> None:
        self.points.options = [NO_POINT, *names]
        self.points.value = wanted or NO_POINT

    def _draw(self) -> None:
        self.plot.put(self.figure(marked=False), self.seen.points, self.seen.title)
        self.status.value = html.escape(self.seen.title)
        self._mark()

    def _mark(self) -> None:
        self.plot.choose(self.point)
        self.readout.value, self.saved.value = "", ""
        if self.point is not None:
            text = self.seen.points.set_index("name").loc[self.point, "text"]
            self.readout.value = f'<span role="status"><b>Chosen:</b> {html.escape(text)}</span>'
        self._last = {name: self._state(control) for name, control in self.chosen.items()}

    def _point_changed(self) -> None:
        with LOCK:
            if not self._held and self.seen is not None:
                with guarded(self.notice):
                    self._mark()

    def _fade(self) -> None:
        self.seen = None
        self.plot.stale()
        self.status.value = "Nothing is shown for these choices."
        self.readout.value, self.saved.value = "", ""

    def _undo(self) -> None:
        """Back to the choices of what is shown, after loading for others was cancelled or failed."""
        if self._last is not None:
            self._quietly(lambda: [self._restore(self.chosen[name], state) for name, state in self._last.items()])
            self._show()

    @staticmethod
    def _state(control: ipywidgets.Widget) -> dict[str, Any]:
        """What a control offers and holds, in an order in which it can be set."""
        return {name: getattr(control, name) for name in ("options", "min", "max", "value") if control.has_trait(name)}

    @staticmethod
    def _restore(control: ipywidgets.Widget, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(control, name, value)

    def _quietly(self, act) -> None:
        held, self._held = self._held, True
        try:
            act()
        finally:
            self._held = held

    def _save(self) -> None:
        with guarded(self.notice):
            if self.seen is None:
                raise ValueError("Nothing is shown that could be saved: change the choices first.")
            name = self.file_name.value.strip()
            if not re.fullmatch(r"[\w][\w .-]*", name):
                raise ValueError(f"'{name}' is no name of a file: use letters, digits, '-', '_' and '.'.")
            figure, links = self.figure(), []
            for kind, address in (("png", "image/png"), ("pdf", "application/pdf")):
                content = draw(figure, kind, metadata={"Software": None} if kind == "png" else {"CreationDate": None})
                links.append(
                    f'<a download="{html.escape(name)}.{kind}" style="text-decoration:underline" '
                    f'href="{data_address(content, address)}">{kind.upper()}</a>'
                )
            where = ""
            if not read_only():
                written = figure_style.save(figure, self.study.figures_folder / "views" / name)
                folder = written[0].parent.relative_to(self.study.figures_folder.parents[1])
                where = f"Saved {html.escape(' and '.join(file.name for file in written))} in {folder}. "
            self.saved.value = f"{where}Download: {' '.join(links)}"
