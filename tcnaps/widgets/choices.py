"""Several of some names: a row of checkboxes with one value."""

from collections.abc import Mapping, Sequence

import ipywidgets
import traitlets
from ipywidgets import Layout

from tcnaps.widgets.widget_base import LOCK


class Choices(ipywidgets.HBox):
    """Checkboxes under one label. Unlike a list to select from, each is one press of a key or the mouse.

    Attributes:
        options: the names.
        value: those that are ticked, in the order of the options.
    """

    options = traitlets.Tuple()
    value = traitlets.Tuple()

    def __init__(
        self,
        label: str,
        options: Sequence[str],
        value: Sequence[str],
        texts: Mapping[str, str] | None = None,
        width: str = "100%",
    ):
        self._texts, self._boxes, self._held = texts or {}, {}, False
        self._label = ipywidgets.HTML(f"{label}:", layout=Layout(margin="0 8px 0 2px"))
        super().__init__([self._label], layout=Layout(flex_flow="row wrap", width=width, overflow="visible"))
        self.offer(options, value)

    def offer(self, options: Sequence[str], value: Sequence[str]) -> None:
        """Other names, of which these are ticked."""
        with LOCK:
            self.options = tuple(options)
            self.value = tuple(name for name in options if name in value)

    def offer_more(self, options: Sequence[str]) -> None:
        """Other names; those that were there stay as they are, new ones are ticked."""
        if tuple(options) != self.options:
            self.offer(options, [name for name in options if name in self.value or name not in self.options])

    @traitlets.observe("options")
    def _rebuild(self, change) -> None:
        self._boxes = {
            name: ipywidgets.Checkbox(
                name in self.value,
                description=self._texts.get(name, name),
                indent=False,
                layout=Layout(width="auto", margin="0 10px 0 0"),
            )
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
