"""What all widgets share: controls by name, reactions to them, errors that are shown, state that outlives a cell."""

import html
import traceback
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import ipywidgets

from tcnaps.config import Study

KEPT = 8  # objects of one kind that outlive their cell


class Notice(ipywidgets.HTML):
    """Says what went wrong and what to do; hidden while all is well. `error` is what is shown, or None."""

    def __init__(self):
        super().__init__()
        self.add_class("tcnaps-notice")
        self.clear()

    def show(self, error: BaseException) -> None:
        """Shows an error's kind and message, with the traceback to unfold.

        Messages of expected errors end with their remedy. Others get the remedy that usually helps.
        """
        self.error = error
        remedy = ""
        if not isinstance(error, (ValueError, LookupError, OSError, KeyboardInterrupt)):
            remedy = (
                "<br><b>What to do:</b> Run the notebook's cells again from the top. If it comes back, report it with "
                "the details below."
            )
        message = html.escape(str(error)).replace("\n", "<br>")
        self.value = (
            '<div role="alert" style="border-left:4px solid #D55E00;background:#FFF4EC;color:#000;padding:6px 10px;'
            f'line-height:1.4;overflow-wrap:anywhere"><b>✕ {html.escape(type(error).__name__)}:</b> {message}{remedy}'
            '<details><summary>Details</summary><pre style="white-space:pre-wrap;line-height:1.2">'
            f"{html.escape(''.join(traceback.format_exception(error)))}</pre></details></div>"
        )
        self.layout.display = ""

    def clear(self) -> None:
        """Forgets the error."""
        self.error = None
        self.value = ""
        self.layout.display = "none"


class StudyWidget(ipywidgets.VBox):
    """Base of the stepper, the explorer and the views: controls by name, and what follows when one of them changes.

    The widget has the CSS class `tcnaps-<kind>`, each of its controls `tcnaps-<name>`.

    Attributes:
        controls: the controls by name.
        notice: where errors are shown.
        busy: says what is under way.
    """

    kind: ClassVar[str]

    def __init__(self, study: Study):
        super().__init__()
        self.study, self.controls = study, {}
        self.notice = Notice()
        self.busy = ipywidgets.HTML(layout={"min_height": "24px"})  # empty or not: nothing moves when work begins
        self.busy.add_class("tcnaps-busy")
        self._quiet = False
        self.add_class("tcnaps-widget")
        self.add_class(f"tcnaps-{self.kind}")

    def load(self) -> None:
        """Shows what the controls ask for, after reading or computing it where necessary."""
        raise NotImplementedError

    def hide(self) -> None:
        """Shows nothing, as what was shown before does not belong to the controls."""
        raise NotImplementedError

    def add(self, controls: Mapping[str, ipywidgets.Widget], tooltips: Mapping[str, str]) -> None:
        """Adds controls by name, with their tooltips."""
        for name, control in controls.items():
            control.add_class(f"tcnaps-{name.replace('_', '-')}")
            if name in tooltips:
                control.tooltip = tooltips[name]
        self.controls |= controls

    def values(self) -> dict[str, Any]:
        """What the controls hold, by name."""
        return {name: control.value for name, control in self.controls.items() if control.has_trait("value")}

    def on(self, name: str, reaction: Callable[[], object]) -> None:
        """Calls the reaction, guarded, whenever the user changes or presses the control."""

        def callback(_) -> None:
            if not self._quiet:
                with self.guarded():
                    reaction()

        control = self.controls[name]
        if isinstance(control, ipywidgets.Button):
            control.on_click(callback)
        else:
            control.observe(callback, "selected_index" if isinstance(control, ipywidgets.Tab) else "value")

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Shows whatever goes wrong inside; an error in a callback would otherwise be lost in a log."""
        self.notice.clear()
        try:
            yield
        except (Exception, KeyboardInterrupt) as error:  # interrupting the kernel stops long work
            self.notice.show(error)

    @contextmanager
    def loading(self, words: str) -> Iterator[None]:
        """Says what is under way inside; if it fails, nothing is shown."""
        self.busy.value = f"{html.escape(words)} …"
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
        before, self._quiet = self._quiet, True
        try:
            yield
        finally:
            self._quiet = before


_KEPT: dict[str, dict[Hashable, Any]] = {}


def kept(kind: str, key: Hashable, make: Callable[[], Any]) -> Any:
    """The object of this kind and key: made once, then kept while it is one of the last `KEPT` used of its kind."""
    own = _KEPT.setdefault(kind, {})
    own[key] = own.pop(key) if key in own else make()
    while len(own) > KEPT:
        del own[next(iter(own))]
    return own[key]


def shown_again(kind: str, key: Hashable, make: Callable[[], StudyWidget]) -> StudyWidget:
    """The widget as its user left it, or a new one.

    Args:
        key: `study_key(study)`, the arguments of the call, and what else must start the widget anew when it changes.
    """
    widget = kept(kind, key, make)
    with widget.guarded():
        widget.load()
    return widget


def study_key(study: Study) -> tuple[str, str]:
    """What tells one study from another: where its results are, and all its settings."""
    return str(study.results_folder), study.model_dump_json()
