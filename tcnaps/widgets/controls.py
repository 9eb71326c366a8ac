"""Menus, sliders, buttons and checkboxes in one style, and keys that work in them."""

from collections.abc import Mapping, Sequence
from typing import Any

import ipywidgets
import traitlets
from ipywidgets import HTML, Button, Checkbox, Dropdown, HBox, IntRangeSlider, IntSlider, Layout

from tcnaps.widgets.widget_base import LOCK

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


def keys() -> HTML:
    """An invisible child of a widget that keeps keys pressed in its controls from the notebook around it."""
    return HTML(f'<style onload="{" ".join(_KEYS.split())}"></style>', layout=Layout(display="none"))


def styled(control: ipywidgets.Widget, description: str, width: int | None):
    """Gives a control its whole description and a width in pixels, None for all there is; returns the control."""
    control.description = description
    control.style.description_width = "initial"
    control.layout.width = "100%" if width is None else f"{width}px"
    return control


def menu(description: str, width: int | None, options: Sequence, value: Any = None) -> Dropdown:
    """A menu. Without a value, the first option is chosen."""
    chosen = {} if value is None else {"value": value}
    return styled(Dropdown(options=options, **chosen), description, width)


def offer(control: Dropdown, options: Sequence, otherwise: Any = None) -> None:
    """Offers other options in a menu. What was chosen stays chosen where it can.

    Args:
        otherwise: what to choose where it cannot; default: the first option.
    """
    before = control.value
    values = [option[1] if isinstance(option, tuple) else option for option in options]
    control.options = options
    control.value = before if before in values else values[0] if otherwise is None else otherwise


def button(description: str, width: int, icon: str = "") -> Button:
    """A button."""
    return Button(description=description, icon=icon, layout=Layout(width=f"{width}px"))


def slider(description: str, width: int, low: int, high: int, value: int, live: bool = False) -> IntSlider:
    """A slider of whole numbers; one that is not live reports a value when it is released."""
    return styled(IntSlider(value, low, high, continuous_update=live), description, width)


def range_slider(description: str, width: int, low: int, high: int, value: tuple[int, int]) -> IntRangeSlider:
    """A slider with two handles."""
    control = IntRangeSlider(min=0, max=1, value=(0, 1), continuous_update=False)
    span(control, low, high, value)
    return styled(control, description, width)


def span(control: IntRangeSlider, low: int, high: int, value: tuple[int, int]) -> None:
    """Sets ends and value. A range of a single value is disabled, with an end to spare, as browsers can't draw it."""
    top = max(high, low + 1)
    control.min, control.max = min(control.min, low), max(control.max, top)  # the ends may not pass the handles
    control.value = value
    control.min, control.max = low, top
    control.disabled = low == high


def refit(control: IntRangeSlider, low: int, high: int) -> None:
    """Sets new ends. A handle at its end stays at the end; others are moved inside."""
    first, last = control.value
    first = low if first <= control.min else min(max(first, low), high)
    last = high if last >= control.max or control.disabled else max(min(last, high), low)
    span(control, low, high, (first, last))


def row(*children: ipywidgets.Widget, height: str | None = None) -> HBox:
    """Controls side by side, in further lines where the page is narrow."""
    layout = Layout(flex_flow="row wrap", align_items="center", overflow="visible", grid_gap="0 4px", min_height=height)
    return HBox(children, layout=layout)


def text(css_class: str) -> HTML:
    """A place for text."""
    place = HTML(layout=Layout(overflow="visible"))
    place.add_class(css_class)
    return place


class Choices(HBox):
    """Checkboxes under one label, of which several can be ticked. Each takes one click, or one press of a key.

    Attributes:
        options: the names.
        value: those that are ticked, in the order of the options.
    """

    options = traitlets.Tuple()
    value = traitlets.Tuple()

    def __init__(
        self, label: str, options: Sequence[str], value: Sequence[str], texts: Mapping[str, str] | None = None
    ):
        self._texts, self._boxes, self._held = texts or {}, {}, False
        self._label = HTML(f"{label}:", layout=Layout(margin="0 8px 0 2px"))
        super().__init__([self._label], layout=Layout(flex_flow="row wrap", width="100%", overflow="visible"))
        self.offer(options, value)

    def offer(self, options: Sequence[str], value: Sequence[str]) -> None:
        """Offers other names and ticks some of them."""
        with LOCK:
            self.options = tuple(options)
            self.value = tuple(name for name in options if name in value)

    def offer_more(self, options: Sequence[str]) -> None:
        """Offers other names. Those that were there stay as they are; new ones are ticked."""
        if tuple(options) != self.options:
            self.offer(options, [name for name in options if name in self.value or name not in self.options])

    @traitlets.observe("options")
    def _rebuild(self, change) -> None:
        layout = {"width": "auto", "margin": "0 10px 0 0"}
        self._boxes = {
            name: Checkbox(name in self.value, description=self._texts.get(name, name), indent=False, layout=layout)
            for name in self.options
        }
        for box in self._boxes.values():
            box.observe(lambda change: self._ticked(), "value")
        self.children = [self._label, *self._boxes.values()]

    @traitlets.observe("value")
    def _set(self, change) -> None:
        with LOCK:
            self._held = True
            try:
                for name, box in self._boxes.items():
                    box.value = name in self.value
            finally:
                self._held = False

    def _ticked(self) -> None:
        with LOCK:
            if not self._held:
                self.value = tuple(name for name, box in self._boxes.items() if box.value)
