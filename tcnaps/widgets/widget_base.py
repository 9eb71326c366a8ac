"""What all widgets share: controls, errors that are shown, work that can be cancelled, and state that outlives a cell.

Callbacks of buttons and sliders run in the kernel's main thread; results of long work arrive from another thread. One
lock, taken by `guarded`, lets only one of them at a time change what is shown.
"""

import html
import threading
import traceback
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import ipywidgets

from tcnaps.config import Study
from tcnaps.figures.style import LOCK

Progress = tuple[float | int, str]  # the share done, in [0, 1], and what is being done


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
        if not isinstance(error, (ValueError, LookupError, OSError)):
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


@contextmanager
def guarded(notice: Notice) -> Iterator[None]:
    """Shows in the notice whatever goes wrong inside; an error in a callback would otherwise be lost in a log.

    Only one guarded block runs at a time.
    """
    with LOCK:
        try:
            yield
        except Exception as error:  # whatever it is, it is shown
            notice.show(error)


class Work(ipywidgets.HBox):
    """Runs long work in the background, with a progress bar and a button to cancel it.

    Work is a function that returns a generator. The generator yields `(share done, text)` now and then, and returns
    its result. Only the work started last has an effect: starting other work cancels it.
    """

    def __init__(self, notice: Notice):
        self._notice = notice
        self._bar = ipywidgets.FloatProgress(min=0, max=1, layout={"width": "260px"})
        self._text = ipywidgets.HTML(layout={"margin": "0 8px"})
        self._cancel = ipywidgets.Button(
            description="Cancel", icon="times", tooltip="Stop this; what is shown stays", layout={"width": "100px"}
        )
        self._cancel.on_click(lambda _: self.cancel())
        super().__init__([self._bar, self._text, self._cancel])
        self.add_class("tcnaps-work")
        self.layout.display = "none"
        self._current: threading.Event | None = None  # set when cancelled; None while nothing is under way
        self._thread: threading.Thread | None = None
        self._undo: Callable[[], None] | None = None

    @property
    def busy(self) -> bool:
        """Whether work is under way that has not been cancelled."""
        return self._current is not None

    def start(
        self,
        function: Callable[[], Generator[Progress, None, Any]],
        then: Callable[[Any], None] = lambda result: None,
        undo: Callable[[], None] | None = None,
        threaded: bool = True,
    ) -> None:
        """Starts work; whatever was under way is cancelled.

        Args:
            then: gets the result, guarded; it is not called after an error or a cancellation.
            undo: called, guarded, when the button stops this work or it fails, but not when other work takes its place.
            threaded: False does the work before returning, so that a cell's output is complete when the cell ends.
        """
        with LOCK:
            self._stop()
            token = self._current = threading.Event()
            self._undo = undo
            self._show(0, "")
            self._cancel.layout.display = "" if threaded else "none"  # nobody could press it
        if threaded:
            self._thread = threading.Thread(target=self._run, args=(function, then, token), daemon=True)
            self._thread.start()
        else:
            self._run(function, then, token)

    def cancel(self) -> None:
        """Stops what is under way at its next step; does nothing if nothing is."""
        with LOCK:
            if self.busy:
                self._give_up()

    def wait(self, timeout: float | int = 60) -> None:
        """Returns once all work has ended, including work that a result has started; for tests.

        Raises:
            TimeoutError: one piece of work takes longer than `timeout` seconds.
        """
        ended = None
        while self._thread is not ended:
            ended = self._thread
            ended.join(timeout)
            if ended.is_alive():
                raise TimeoutError(f"The work has not ended within {timeout} seconds.")

    def _run(self, function, then, token) -> None:
        try:
            result = self._exhaust(function(), token)
        except Exception as error:
            with LOCK:
                if self._current is token:
                    self._give_up()
                    self._notice.show(error)
            return
        with LOCK:
            if self._current is token:  # neither cancelled nor replaced by other work
                self._stop()
                with guarded(self._notice):
                    then(result)

    def _exhaust(self, generator, token) -> Any:
        try:
            while not token.is_set():
                share, text = next(generator)
                with LOCK:
                    if self._current is token:
                        self._show(share, text)
        except StopIteration as finished:
            return finished.value
        finally:
            generator.close()

    def _give_up(self) -> None:
        undo = self._undo
        self._stop()
        if undo is not None:
            with guarded(self._notice):
                undo()

    def _show(self, share: float | int, text: str) -> None:
        self._bar.value = share
        self._text.value = html.escape(text)
        self.layout.display = ""

    def _stop(self) -> None:
        if self._current is not None:
            self._current.set()
        self._current = None
        self.layout.display = "none"


class StudyWidget(ipywidgets.VBox):
    """Base of the stepper, the explorer and the views: controls by name, and what follows when one of them changes.

    The widget has the CSS class `tcnaps-<kind>`, each of its controls `tcnaps-<name>`.

    Attributes:
        controls: the controls by name.
        notice: where errors are shown.
        work: loads in the background what the controls ask for.
    """

    kind: ClassVar[str]

    def __init__(self, study: Study):
        super().__init__()
        self.study, self.controls = study, {}
        self.notice = Notice()
        self.work = Work(self.notice)
        self._quiet, self._remembered = False, {}
        self.add_class("tcnaps-widget")
        self.add_class(f"tcnaps-{self.kind}")

    def load(self, threaded: bool = True) -> None:
        """Shows what the controls ask for, after loading it where necessary."""
        raise NotImplementedError

    def add(self, controls: Mapping[str, ipywidgets.Widget], tooltips: Mapping[str, str] | None = None) -> None:
        """Adds controls by name, with their tooltips."""
        for name, control in controls.items():
            control.add_class(f"tcnaps-{name.replace('_', '-')}")
            if tooltips and name in tooltips:
                control.tooltip = tooltips[name]
        self.controls |= controls

    def values(self) -> dict[str, Any]:
        """What the controls hold, by name."""
        return {name: control.value for name, control in self.controls.items() if control.has_trait("value")}

    def on(self, name: str, reaction: Callable[[], object]) -> None:
        """Calls the reaction, guarded, whenever the user changes or presses the control; earlier errors are cleared."""

        def callback(_) -> None:
            with LOCK:  # before looking: a result from another thread holds it while it sets controls
                if not self._quiet:
                    self.notice.clear()
                    with guarded(self.notice):
                        reaction()

        control = self.controls[name]
        if isinstance(control, ipywidgets.Button):
            control.on_click(callback)
        else:
            control.observe(callback, "selected_index" if isinstance(control, ipywidgets.Tab) else "value")

    @contextmanager
    def quietly(self) -> Iterator[None]:
        """Inside the block, changed controls cause no reactions."""
        before, self._quiet = self._quiet, True
        try:
            yield
        finally:
            self._quiet = before

    def remember(self, names: Iterable[str]) -> None:
        """Notes what these controls offer and hold, for `undo`. To be called when what they ask for is shown."""
        traits = "options", "min", "max", "value"  # in an order in which they can be set
        controls = {name: self.controls[name] for name in names}
        self._remembered = {
            name: {trait: getattr(control, trait) for trait in traits if control.has_trait(trait)}
            for name, control in controls.items()
        }

    def undo(self) -> None:
        """Puts the controls back to what is shown, after loading something else failed or was cancelled."""
        with self.quietly():
            for name, state in self._remembered.items():
                for trait, value in state.items():
                    setattr(self.controls[name], trait, value)


_KEPT: dict[Hashable, Any] = {}


def kept(kind: str, key: Hashable, make: Callable[[], Any]) -> Any:
    """An object that survives running a cell again: the same kind and key give the same one while the kernel lives.

    Args:
        make: makes the object when there is none. Of one kind, only the eight used last are kept.
    """
    with LOCK:
        found = _KEPT.pop((kind, key), None)
        _KEPT[kind, key] = found = make() if found is None else found
        for oldest in [known for known in _KEPT if known[0] == kind][:-8]:
            del _KEPT[oldest]
        return found


def shown_again(kind: str, key: Hashable, make: Callable[[], StudyWidget]) -> StudyWidget:
    """The widget as its user left it, or a new one; complete when the cell ends.

    Args:
        key: `study_key(study)`, the arguments of the call, and what else must start the widget anew when it changes.
    """
    widget = kept(kind, key, make)
    widget.notice.clear()
    widget.load(threaded=False)
    return widget


def study_key(study: Study) -> tuple[str, str]:
    """What tells one study from another: where its results are, and all its settings."""
    return str(study.results_folder), study.model_dump_json()
