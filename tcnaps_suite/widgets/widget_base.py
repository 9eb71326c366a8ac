"""What all widgets share: their controls, reactions to them, and errors shown on the page."""

import html
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import anywidget
import ipywidgets
import pandas as pd
from ipywidgets import HTML, Button, Dropdown, HBox, IntRangeSlider, IntSlider, Layout, VBox

from tcnaps.config import Study
from tcnaps.config.errors import MAKE

# JupyterLab may deliver a user's changes to several threads of the kernel. Reactions wait for each other: a reaction
# that sets controls ignores changes meanwhile, and would otherwise ignore the user's, too.
_REACTING = threading.RLock()


def styled(control: ipywidgets.Widget, description: str, width: int | None):
    """The control with its whole description and a width in pixels (None: all there is)."""
    control.description = description
    control.style.description_width = "initial"
    control.layout.width = "100%" if width is None else f"{width}px"
    return control


def menu(description: str, width: int | None, options: Sequence, value: Any = None) -> Dropdown:
    chosen = {} if value is None else {"value": value}
    return styled(Dropdown(options=options, **chosen), description, width)


def button(description: str, width: int | None, icon: str = "") -> Button:
    """A button of a width in pixels (None: that of its text)."""
    return Button(description=description, icon=icon, layout=Layout(width=f"{width}px" if width else "auto"))


def slider(
    description: str, width: int, low: int, high: int, value: int | tuple[int, int], live: bool = False
) -> IntSlider | IntRangeSlider:
    """A slider of whole numbers, with two handles for a pair. One that is not live reports when it is released."""
    kind = IntRangeSlider if isinstance(value, tuple) else IntSlider
    return styled(kind(value=value, min=low, max=high, continuous_update=live), description, width)


def row(*children: ipywidgets.Widget) -> HBox:
    """Controls side by side, in further lines where the page is narrow."""
    layout = Layout(flex_flow="row wrap", align_items="center", overflow="visible", grid_gap="0 4px")
    return HBox(children, layout=layout)


def text(css_class: str, width: str = "auto") -> HTML:
    return HTML(layout=Layout(overflow="visible", width=width)).add_class(css_class)


def table(cells: pd.DataFrame, height: int) -> str:
    """A frame whose cells and columns are HTML, as a table that scrolls where it is higher than `height` pixels."""
    with pd.option_context("display.max_colwidth", None):
        body = cells.to_html(index=False, escape=False, border=0, justify="unset", classes="xtable")
    return f'<div class="xscroll" tabindex="0" style="max-height:{height}px">{body}</div>'


class _Page(anywidget.AnyWidget):
    """Brings the style sheet to the page, and keeps keys pressed in a widget from the notebook around it."""

    _esm, _css = (Path(__file__).with_name(f"widget.{kind}") for kind in ("js", "css"))


def error_box(error: BaseException) -> str:
    """An error's kind and message as HTML; for an unforeseen error also its traceback, to unfold."""
    message, details = str(error), ""
    if "`make figures`" in message and MAKE not in message:
        message += f"\n{MAKE} Then run this cell again."
    if isinstance(error, KeyboardInterrupt):
        message = "The work was stopped. Choose again to repeat it."
    elif not isinstance(error, (ValueError, OSError)):
        trace = html.escape("".join(traceback.format_exception(error)))
        details = f"<details><summary>Details, to be reported</summary><pre>{trace}</pre></details>"
    shown = html.escape(message).replace("\n", "<br>")
    return f'<div role="alert"><b>✕ {html.escape(type(error).__name__)}:</b> {shown}{details}</div>'


class StudyWidget(VBox):
    """Base of the stepper, the explorer and the page of labels: controls by name, and reactions to them.

    A subclass shows what its controls choose (`load`), or nothing where that fails (`hide`). The widget has the CSS
    class `tcnaps-<kind>`, each of its controls `tcnaps-<name>`. `notice` shows the last `error`.
    """

    kind: ClassVar[str]
    is_shown = True  # whether there is anything that reactions can change

    def __init__(self, study: Study | None = None):
        super().__init__()
        self.study, self.controls = study, {}
        self.notice, self.busy = text("tcnaps-notice"), text("tcnaps-busy")
        self.busy.layout.min_height = "24px"  # empty or not: nothing moves when work begins
        self._quiet = False
        self._show_error(None)
        self.add_class("tcnaps-widget").add_class(f"tcnaps-{self.kind}")

    def add(self, **controls: tuple[ipywidgets.Widget, Callable[[], object]]) -> HBox:
        """Adds controls by name, each with its reaction to the user's change or press; returns them side by side.

        Errors of reactions are shown. While nothing else is shown, only `load` reacts.
        """
        for name, (control, reaction) in controls.items():
            self.controls[name] = control.add_class(f"tcnaps-{name.replace('_', '-')}")
            callback = partial(self._react, reaction)
            control.on_click(callback) if isinstance(control, Button) else control.observe(callback, "value")
        return row(*(control for control, _ in controls.values()))

    def _react(self, reaction: Callable[[], object], change: object) -> None:
        with _REACTING:
            if not self._quiet:
                with self.guarded():
                    if self.is_shown or reaction == self.load:
                        reaction()

    def arrange(self, *children: ipywidgets.Widget) -> None:
        self.children = [*children, _Page()]

    @property
    def choice(self) -> SimpleNamespace:
        return SimpleNamespace(**{name: c.value for name, c in self.controls.items() if c.has_trait("value")})

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Shows an error raised inside. Jupyter would hide an error of a callback in a log."""
        with _REACTING:
            self._show_error(None)
            try:
                yield
            except (Exception, KeyboardInterrupt) as error:  # interrupting the kernel stops long work
                self._show_error(error)

    def _show_error(self, error: BaseException | None) -> None:
        self.error = error
        self.notice.value = "" if error is None else error_box(error)
        self.notice.layout.display = "none" if error is None else ""

    @contextmanager
    def loading(self, work: str) -> Iterator[None]:
        """Shows what work the block is doing; calls `hide` if the block fails."""
        self.busy.value = f"{html.escape(work)} …"
        try:
            yield
        except BaseException:
            self.hide()
            raise
        finally:
            self.busy.value = ""

    @contextmanager
    def quietly(self) -> Iterator[None]:
        """Inside the block, changed controls cause no reactions."""
        with _REACTING:
            before, self._quiet = self._quiet, True
            try:
                yield
            finally:
                self._quiet = before

    def hide(self) -> None:
        """Shows nothing, as loading has failed. By default, what was shown stays."""

    def put(self, **values: Any) -> None:
        with self.quietly():
            for name, value in values.items():
                self.controls[name].value = value

    def loaded(self) -> "StudyWidget":
        """The widget, once it shows what its controls choose, or the error that prevents it."""
        with self.guarded():
            self.load()
        return self
