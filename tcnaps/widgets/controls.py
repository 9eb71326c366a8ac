"""Menus, sliders, buttons, checkboxes, texts and tables in one style, and keys that work in them."""

import html
from collections.abc import Mapping, Sequence
from typing import Any

import ipywidgets
import traitlets
from ipywidgets import HTML, Button, Checkbox, Dropdown, HBox, IntRangeSlider, IntSlider, Layout

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
.tcnaps-widget .xwords {line-height:1.4;}
.tcnaps-widget .xchip {display:inline-block;min-width:14px;padding:0 3px;border-radius:3px;text-align:center;
  font-weight:bold;font-size:11px;box-shadow:inset 0 0 0 1px rgba(128,128,128,.5);}
.tcnaps-widget .xscroll {overflow:auto;line-height:1.25;color:var(--jp-ui-font-color1,#000);}
.tcnaps-widget .xtable {border-collapse:collapse;font-size:12px;}
.tcnaps-widget .xtable th {position:sticky;top:0;z-index:1;background:var(--jp-layout-color1,#fff);text-align:left;
  padding:4px 6px;border-bottom:1px solid var(--jp-border-color1,#bbb);}
.tcnaps-widget .xtable td {padding:3px 6px;border-bottom:1px solid var(--jp-border-color2,#ddd);vertical-align:top;}
"""


def keys_and_look() -> HTML:
    """An invisible child of a widget: the look of tables, and a script that keeps keys from the notebook around it."""
    return HTML(f'<style onload="{" ".join(_KEYS.split())}">{_LOOK}</style>', layout=Layout(display="none"))


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
    _set_range(control, low, high, value)
    return styled(control, description, width)


def refit(control: IntRangeSlider, low: int, high: int) -> None:
    """Sets new ends. A handle at its end stays at the end; others are moved inside."""
    first, last = control.value
    first = low if first <= control.min else min(max(first, low), high)
    last = high if last >= control.max or control.disabled else max(min(last, high), low)
    _set_range(control, low, high, (first, last))


def _set_range(control, low, high, value):
    """Sets ends and value. A range of a single value is disabled, with an end to spare, as browsers can't draw it."""
    top = max(high, low + 1)
    control.min, control.max = min(control.min, low), max(control.max, top)  # the ends may not pass the handles
    control.value = value
    control.min, control.max = low, top
    control.disabled = low == high


def row(*children: ipywidgets.Widget) -> HBox:
    """Controls side by side, in further lines where the page is narrow."""
    return HBox(
        children, layout=Layout(flex_flow="row wrap", align_items="center", overflow="visible", grid_gap="0 4px")
    )


def text(css_class: str) -> HTML:
    """A place for text."""
    place = HTML(layout=Layout(overflow="visible"))
    place.add_class(css_class)
    return place


def words(content: str) -> str:
    """A paragraph as HTML."""
    return f'<div class="xwords">{html.escape(content)}</div>'


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], height: int, css_class: str = "") -> str:
    """A table as HTML, of cells that are HTML themselves; it scrolls where it is higher than `height` pixels."""
    head = "".join(f'<th scope="col">{cell}</th>' for cell in heads)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>" for cells in rows)
    return (
        f'<div class="xscroll" tabindex="0" style="max-height:{height}px"><table class="xtable {css_class}">'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


class Choices(HBox):
    """Checkboxes under one label, of which several can be ticked. Each takes one click, or one press of a key.

    Attributes:
        options: the names.
        value: those that are ticked, in the order of the options.
    """

    value = traitlets.Tuple()

    def __init__(
        self, label: str, options: Sequence[str], value: Sequence[str], texts: Mapping[str, str] | None = None
    ):
        super().__init__(layout=Layout(flex_flow="row wrap", width="100%", overflow="visible"))
        self._texts, self._label = texts or {}, HTML(f"{label}:", layout=Layout(margin="0 8px 0 2px"))
        self.offer(options, value)

    def offer(self, options: Sequence[str], value: Sequence[str]) -> None:
        """Offers other names and ticks some of them."""
        self.options, look = tuple(options), {"width": "auto", "margin": "0 10px 0 0"}
        self.boxes = {
            name: Checkbox(name in value, description=self._texts.get(name, name), indent=False, layout=look)
            for name in options
        }
        for box in self.boxes.values():
            box.observe(self._read, "value")
        self.children = [self._label, *self.boxes.values()]
        self._read()

    def offer_more(self, options: Sequence[str]) -> None:
        """Offers other names. Those that were there stay as they are; new ones are ticked."""
        if tuple(options) != self.options:
            self.offer(options, [name for name in options if name in self.value or name not in self.options])

    def _read(self, change=None) -> None:
        self.value = tuple(name for name, box in self.boxes.items() if box.value)
