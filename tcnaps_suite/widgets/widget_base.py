"""What all widgets share: controls and what follows from them, errors that are shown, state that outlives a cell."""

import html
import threading
import traceback
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import ipywidgets
import pandas as pd
import traitlets
from ipywidgets import HTML, Button, Checkbox, Dropdown, HBox, IntRangeSlider, IntSlider, Label, Layout

from tcnaps.config import Study, UserError
from tcnaps.config.errors import MAKE
from tcnaps.evaluation.result_files import rows_folder
from tcnaps_suite.widgets.demonstration import is_recorded

KEPT = 8  # objects of one kind that outlive their cell

# With JupyterLab 4.4, what a user changes reaches a thread of the kernel beside the one that runs cells; with ipykernel
# 7.4, the first change of each control reaches the latter. Reactions wait for each other: one of two at the same time
# would be quiet about the other's changes, which would be lost.
_REACTING = threading.RLock()

# In JupyterLab and Notebook 7, a key pressed in a list, on a slider or on a button would go to the notebook: an arrow
# leads to another cell, Enter edits it, D twice deletes it. Both leave alone what carries a certain attribute. This
# script sets it for plain keys only, so that Ctrl+S and Shift+Enter keep working.
_KEYS = """
if (!window.tcnapsKeys) {
  window.tcnapsKeys = true;
  window.addEventListener('keydown', event => {
    const focused = event.target;
    if (!(focused instanceof Element) || !focused.closest('.tcnaps-widget')) return;
    const ofNotebook = event.ctrlKey || event.metaKey || event.altKey || (event.shiftKey && event.key === 'Enter');
    if (ofNotebook) focused.removeAttribute('data-lm-suppress-shortcuts');
    else focused.setAttribute('data-lm-suppress-shortcuts', 'true');
  }, true);
}
"""
_LOOK = """
.tcnaps-widget .widget-html-content {line-height:1.4;}
.tcnaps-widget .xchip {display:inline-block;min-width:14px;padding:0 3px;border-radius:3px;text-align:center;
  font-weight:bold;font-size:11px;box-shadow:inset 0 0 0 1px rgba(128,128,128,.5);}
.tcnaps-widget .xscroll {overflow:auto;line-height:1.25;color:var(--jp-ui-font-color1,#000);}
.tcnaps-widget .xtable {border-collapse:collapse;font-size:12px;}
.tcnaps-widget .xtable th {position:sticky;top:0;z-index:1;background:var(--jp-layout-color1,#fff);text-align:left;
  padding:4px 6px;border-bottom:1px solid var(--jp-border-color1,#bbb);}
.tcnaps-widget .xtable td {padding:3px 6px;border-bottom:1px solid var(--jp-border-color2,#ddd);vertical-align:top;}
"""


# ---- controls


def styled(control: ipywidgets.Widget, description: str, width: int | None):
    """Gives a control its whole description and a width in pixels, None for all there is; returns the control."""
    control.description = description
    control.style.description_width = "initial"
    control.layout.width = "100%" if width is None else f"{width}px"
    return control


def menu(description: str, width: int | None, options: Sequence, value: Any = None) -> Dropdown:
    """A menu. Without a value, the first option is chosen."""
    return styled(Dropdown(options=options, **({} if value is None else {"value": value})), description, width)


def button(description: str, width: int, icon: str = "") -> Button:
    """A button."""
    return Button(description=description, icon=icon, layout=Layout(width=f"{width}px"))


def slider(
    description: str, width: int, low: int, high: int, value: int | tuple[int, int], live: bool = False
) -> IntSlider | IntRangeSlider:
    """A slider of whole numbers, with two handles for a pair. One that is not live reports when it is released."""
    kind = IntRangeSlider if isinstance(value, tuple) else IntSlider
    return styled(kind(value=value, min=low, max=high, continuous_update=live), description, width)


def saving(name: str) -> dict[str, ipywidgets.Widget]:
    """A box for a file's name and the button that saves it, by the names that all widgets give them."""
    box = styled(ipywidgets.Text(name, continuous_update=False), "Save as:", 280)
    return {"save_name": box, "save": button("Save PNG and PDF", 170, "save")}


def refit(control: IntRangeSlider, low: int, high: int) -> None:
    """Sets new ends. A handle at its end stays at the end; others are moved inside.

    A range of a single value is disabled, with an end to spare, as browsers can't draw it.
    """
    first, last = control.value
    first = low if first <= control.min else min(max(first, low), high)
    last = high if last >= control.max or control.disabled else max(min(last, high), low)
    with control.hold_trait_notifications():  # ends and value are checked together
        control.min, control.max, control.value = low, max(high, low + 1), (first, last)
        control.disabled = low == high


def row(*children: ipywidgets.Widget) -> HBox:
    """Controls side by side, in further lines where the page is narrow."""
    layout = Layout(flex_flow="row wrap", align_items="center", overflow="visible", grid_gap="0 4px")
    return HBox(children, layout=layout)


def text(css_class: str) -> HTML:
    """A place for text."""
    return HTML(layout=Layout(overflow="visible")).add_class(css_class)


def table(cells: pd.DataFrame, height: int, css_class: str = "") -> str:
    """A frame whose cells and columns are HTML, as a table that scrolls where it is higher than `height` pixels."""
    with pd.option_context("display.max_colwidth", None):
        body = cells.to_html(index=False, escape=False, border=0, justify="unset", classes=f"xtable {css_class}")
    return f'<div class="xscroll" tabindex="0" style="max-height:{height}px">{body}</div>'


class Choices(HBox):
    """Checkboxes under one label, of which several can be ticked. Each takes one click, or one press of a key.

    Args:
        texts: what stands beside the boxes, by name; default: the names.

    Attributes:
        value: the names that are ticked, in the order of the options.
        boxes: the checkboxes by name.
    """

    value = traitlets.Tuple()

    def __init__(
        self, label: str, options: Collection[str], value: Collection[str], texts: Mapping[str, str] | None = None
    ):
        look = {"width": "auto", "margin": "0 10px 0 0"}
        self.boxes = {
            name: Checkbox(name in value, description=(texts or {}).get(name, name), indent=False, layout=look)
            for name in options
        }
        title = Label(f"{label}:", layout=Layout(margin="0 8px 0 2px"))
        layout = Layout(flex_flow="row wrap", width="100%", overflow="visible")
        super().__init__([title, *self.boxes.values()], layout=layout)
        for box in self.boxes.values():
            box.observe(self._read, "value")
        self._read()

    def _read(self, change=None) -> None:
        self.value = tuple(name for name, box in self.boxes.items() if box.value)


# ---- widgets


def error_box(error: BaseException) -> str:
    """As HTML: an error's kind and message; of one that was not foreseen also its traceback, to unfold."""
    stopped, details = isinstance(error, KeyboardInterrupt), ""
    message = "The work was stopped. Choose again to repeat it." if stopped else str(error)
    if not isinstance(error, (ValueError, OSError, KeyboardInterrupt)):
        details = (
            "<br><b>What to do:</b> Run the notebook's cells again from the top. If it comes back, report it with "
            '<details><summary>these details</summary><pre style="white-space:pre-wrap;line-height:1.2">'
            f"{html.escape(''.join(traceback.format_exception(error)))}</pre></details>"
        )
    return (
        '<div role="alert" style="border-left:4px solid #D55E00;background:#FFF4EC;color:#000;padding:6px 10px;'
        f'overflow-wrap:anywhere"><b>✕ {html.escape(type(error).__name__)}:</b> '
        f"{html.escape(message).replace(chr(10), '<br>')}{details}</div>"
    )


class StudyWidget(ipywidgets.VBox):
    """Base of the stepper, the explorer and the views: controls by name, and what follows when one of them changes.

    A subclass shows what its controls ask for (`load`) or, where that fails, nothing (`hide`). The widget has the CSS
    class `tcnaps-<kind>`, each of its controls `tcnaps-<name>`.

    Attributes:
        controls: the controls by name.
        error: what went wrong at last, or None; `notice` shows it.
        busy: says what is under way.
    """

    kind: ClassVar[str]
    needs: ClassVar[str] = "rows"  # the folder of results without which there is nothing to show
    tooltips: ClassVar[Mapping[str, str]] = {}  # of controls, by their names
    arguments: ClassVar[Sequence[str]] = ()  # the controls that the function `kind` sets, in its order

    def __init__(self, study: Study):
        super().__init__()
        self.study, self.controls = study, {}
        self.notice, self.busy = text("tcnaps-notice"), text("tcnaps-busy")
        self._tell(None)
        self.busy.layout.min_height = "24px"  # empty or not: nothing moves when work begins
        self._quiet = False
        self.add_class("tcnaps-widget").add_class(f"tcnaps-{self.kind}")

    def add(self, **controls: ipywidgets.Widget) -> HBox:
        """Adds controls by name; returns them side by side."""
        for name, control in controls.items():
            control.add_class(f"tcnaps-{name.replace('_', '-')}")
            if name in self.tooltips:
                control.tooltip = self.tooltips[name]
        self.controls |= controls
        return row(*controls.values())

    def arrange(self, *children: ipywidgets.Widget) -> None:
        """Puts the widget's parts below each other."""
        look = HTML(f'<style onload="{" ".join(_KEYS.split())}">{_LOOK}</style>', layout=Layout(display="none"))
        self.children = [*children, look]

    def code(self) -> str:
        """A notebook's cell that makes this widget of `study` anew, with what is chosen in it."""
        values = vars(self.choice)
        called = ", ".join(repr(values[name]) for name in self.arguments)
        rest = [f"    {name}={v!r}," for name, v in values.items() if name not in (*self.arguments, "save_name")]
        lines = [f"from tcnaps_suite.widgets import {self.kind}", "", f"view = {self.kind}(study, {called})"]
        return "\n".join([*lines, "view.restore(", *rest, ")", "view"])

    def restore(self, **values: Any) -> None:
        """Sets controls one after the other, as a user would; `code` calls it."""
        for name, value in values.items():
            self.controls[name].value = value

    @property
    def choice(self) -> SimpleNamespace:
        """What the controls hold, by their names."""
        return SimpleNamespace(**{name: c.value for name, c in self.controls.items() if c.has_trait("value")})

    def on(self, names: Sequence[str], reaction: Callable[[], object]) -> None:
        """Calls the reaction, guarded, whenever the user changes or presses one of the controls."""

        def callback(_) -> None:
            with _REACTING:
                if not self._quiet:
                    with self.guarded():
                        reaction()

        for control in (self.controls[name] for name in names):
            control.on_click(callback) if isinstance(control, Button) else control.observe(callback, "value")

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Shows whatever goes wrong inside; an error in a callback would otherwise be lost in a log."""
        with _REACTING:
            self._tell(None)
            try:
                yield
            except (Exception, KeyboardInterrupt) as error:  # interrupting the kernel stops long work
                self._tell(error)

    def _tell(self, error: BaseException | None) -> None:
        self.error, self.notice.value = error, "" if error is None else error_box(error)
        self.notice.layout.display = "none" if error is None else ""

    @contextmanager
    def loading(self, what: str) -> Iterator[None]:
        """Says what is under way inside; if it fails, nothing is shown.

        Raises:
            UserError: the study has no results at all.
        """
        self.busy.value = f"{html.escape(what)} …"
        try:
            if not (is_recorded(self.study) or any((self.study.results_folder / self.needs).glob("*"))):
                raise UserError(f"Study '{self.study.name}' has no {self.needs} yet. {MAKE} Then run this cell again.")
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

    def put(self, **values: Any) -> None:
        """Sets controls, which causes no reactions."""
        with self.quietly():
            for name, value in values.items():
                self.controls[name].value = value


# ---- what outlives a cell

_KEPT: dict[str, dict[Hashable, Any]] = {}


def stamp_of(files: Iterable[Path]) -> tuple[tuple[str, int], ...]:
    """Which of these files exist, and when each was written."""
    return tuple((str(file), file.stat().st_mtime_ns) for file in files if file.is_file())


def kept(kind: str, study: Study, key: Hashable, make: Callable[[], Any]) -> Any:
    """The object of this kind, study and key: made once, then kept while one of the last `KEPT` used of its kind."""
    own, key = _KEPT.setdefault(kind, {}), (study.results_folder, study.model_dump_json(), key)
    own[key] = own.pop(key) if key in own else make()
    while len(own) > KEPT:
        del own[next(iter(own))]
    return own[key]


def shown_again(kind: type[StudyWidget], study: Study, *arguments: Hashable) -> StudyWidget:
    """The widget of these arguments as its user left it, or a new one: also when the rows that it shows are new."""
    stamp = stamp_of(sorted(rows_folder(study).rglob("*.parquet"))) if kind.needs == "rows" else ()
    widget = kept(kind.kind, study, (arguments, stamp), lambda: kind(study, *arguments))
    with widget.guarded():
        widget.load()
    return widget
