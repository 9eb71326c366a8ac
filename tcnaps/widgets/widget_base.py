"""What all widgets share: errors that show, work that can be cancelled, pictures, and state that outlives a cell.

Callbacks of buttons and sliders run in the kernel's main thread, results of long work arrive from another. One lock
for all of them (`guarded` and `drawing` take it) lets only one at a time change what is shown.
"""

import html
import threading
import traceback
from collections.abc import Callable, Generator, Hashable, Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import Any

import ipywidgets
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from tcnaps.config import Study
from tcnaps.figures import style as figure_style

LOCK = figure_style.LOCK
PIXELS_PER_INCH = 96  # of a picture on the page; it is drawn at twice that, so that text is sharp
WIDE = {"description_width": "initial"}

Progress = tuple[float | int, str]  # the share that is done, in [0, 1], and what is being done


class Notice(ipywidgets.HTML):
    """Where a widget says what went wrong and what to do. Empty and hidden while all is well.

    Attributes:
        error: what is shown, or None.
    """

    def __init__(self):
        super().__init__()
        self.add_class("tcnaps-notice")
        self.clear()

    def show(self, error: BaseException, remedy: str | None = None) -> None:
        """Shows an error's kind and message, and where it came from for whoever wants to know.

        Args:
            remedy: what to do; default: this project's own errors end with it, for others what usually helps.
        """
        self.error = error
        expected = isinstance(error, (ValueError, LookupError, OSError))
        if remedy is None and not expected:
            remedy = "Run the notebook's cells again from the top; if it comes back, report it with the details below."
        trace = "".join(traceback.format_exception(error))
        message = html.escape(str(error)).replace("\n", "<br>")
        self.value = (
            '<div role="alert" style="border-left:4px solid #D55E00;background:#FFF4EC;color:#000;padding:6px 10px;'
            'line-height:1.4;overflow-wrap:anywhere">'
            f"<b>✕ {html.escape(type(error).__name__)}:</b> {message}"
            + (f"<br><b>What to do:</b> {html.escape(remedy)}" if remedy else "")
            + '<details><summary>Details</summary><pre style="white-space:pre-wrap;line-height:1.2">'
            f"{html.escape(trace)}</pre></details></div>"
        )
        self.layout.display = ""

    def clear(self) -> None:
        """Forgets the error."""
        self.error = None
        self.value = ""
        self.layout.display = "none"


@contextmanager
def guarded(notice: Notice) -> Iterator[None]:
    """For callbacks, as a decorator or a `with` block: an error shows in the notice, a success clears it.

    A callback's error would otherwise be lost in a log. Only one guarded block runs at a time.
    """
    with LOCK:
        try:
            yield
        except Exception as error:  # whatever it is, it is shown
            notice.show(error)
        else:
            notice.clear()


class Work(ipywidgets.VBox):
    """Runs long work in the background, with a bar and a button to cancel it.

    Work is a function that returns a generator: it yields `(share done, text)` now and then, and returns its result.
    Only the last work started has an effect: starting another cancels the one before.
    """

    def __init__(self, notice: Notice):
        self._notice = notice
        self._bar = ipywidgets.FloatProgress(min=0, max=1, layout=ipywidgets.Layout(width="260px"))
        self._bar.add_class("tcnaps-progress")
        self._text = ipywidgets.HTML(layout=ipywidgets.Layout(margin="0 8px"))
        self._cancel = ipywidgets.Button(
            description="Cancel",
            icon="times",
            tooltip="Stop this; what is shown stays",
            layout=ipywidgets.Layout(width="100px"),
        )
        self._cancel.add_class("tcnaps-cancel")
        self._cancel.on_click(lambda _: self.cancel())
        super().__init__([ipywidgets.HBox([self._bar, self._text, self._cancel])])
        self.add_class("tcnaps-work")
        self.layout.display = "none"
        self._current: threading.Event | None = None  # set = cancelled; None = nothing is under way
        self._thread: threading.Thread | None = None
        self._cancelled: Callable[[], None] | None = None

    @property
    def busy(self) -> bool:
        """Whether work is under way that has not been cancelled."""
        return self._current is not None

    def start(
        self,
        function: Callable[[], Generator[Progress, None, Any]],
        then: Callable[[Any], None] = lambda result: None,
        cancelled: Callable[[], None] | None = None,
        threaded: bool = True,
    ) -> None:
        """Starts work; whatever was under way is cancelled.

        Args:
            then: gets the result, guarded; not called after an error or a cancellation.
            cancelled: called when the button stops this work (not when other work takes its place) or it fails.
            threaded: False does the work before returning, so that a cell's output is complete when the cell ends.
        """
        with LOCK:
            self._stop()
            token = self._current = threading.Event()
            self._cancelled = cancelled
            self._show(0, "")
            self._cancel.layout.display = "" if threaded else "none"  # nobody could press it
        if not threaded:
            self._run(function, then, token)
            return
        self._thread = threading.Thread(target=self._run, args=(function, then, token), daemon=True)
        self._thread.start()

    def cancel(self) -> None:
        """Stops what is under way at its next step; nothing happens if nothing is."""
        with LOCK:
            if self.busy:
                cancelled = self._cancelled
                self._stop()
                if cancelled is not None:
                    with guarded(self._notice):
                        cancelled()

    def wait(self, timeout: float | int = 60) -> None:
        """Until the last work started has ended; for tests.

        Raises:
            TimeoutError: it takes longer than `timeout` seconds.
        """
        if self._thread is not None:
            self._thread.join(timeout)
            if self._thread.is_alive():
                raise TimeoutError(f"the work has not ended within {timeout} seconds")

    def _run(self, function, then, token):
        try:
            result = self._exhaust(function, token)
        except Exception as error:
            with LOCK:
                if self._current is token:
                    cancelled = self._cancelled
                    self._stop()
                    if cancelled is not None:
                        with guarded(self._notice):
                            cancelled()
                    self._notice.show(error)
            return
        with LOCK:
            if self._current is not token:  # cancelled, or other work has taken its place
                return
            self._stop()
            with guarded(self._notice):
                then(result)

    def _exhaust(self, function, token):
        generator = function()
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

    def _show(self, share: float | int, text: str) -> None:
        self._bar.value = share
        self._text.value = html.escape(text)
        self.layout.display = ""

    def _stop(self) -> None:
        if self._current is not None:
            self._current.set()
        self._current = None
        self.layout.display = "none"


_KEPT: dict[Hashable, Any] = {}


def kept(kind: str, key: Hashable, make: Callable[[], Any]) -> Any:
    """State that survives running a cell again: the same kind and key give the same object while the kernel lives.

    A widget keeps in it what its user chose and builds its controls from it; so a cell that is run again shows what
    it showed, and with another study, other arguments or other results it starts anew.

    Args:
        kind: the widget's name.
        key: `study_key(study)`, the arguments of the call and what else must start anew when it changes.
        make: makes the state when there is none; of one kind, only the eight last used are kept.
    """
    with LOCK:
        state = _KEPT.pop((kind, key), None)
        if state is None:
            state = make()
        _KEPT[kind, key] = state
        of_kind = [known for known in _KEPT if known[0] == kind]
        for oldest in of_kind[:-8]:
            del _KEPT[oldest]
        return state


def study_key(study: Study) -> tuple[str, str]:
    """What tells one study from another: where its results are and all its settings."""
    return str(study.results_folder), study.model_dump_json()


@contextmanager
def drawing() -> Iterator[None]:
    """The figures' shared look inside the `with` block."""
    with figure_style.style():
        yield


def new_figure(width: float | int, height: float | int) -> Figure:
    """A figure of so many pixels on the page that no window and no list of open figures knows. Inside `drawing()`."""
    figure = Figure((width / PIXELS_PER_INCH, height / PIXELS_PER_INCH), dpi=PIXELS_PER_INCH)
    FigureCanvasAgg(figure)
    return figure


def picture(figure: Figure) -> bytes:
    """A figure as PNG, twice as many pixels as it has on the page.

    Faster than `savefig`, which draws everything twice and compresses well.
    """
    with drawing():
        canvas = FigureCanvasAgg(figure)
        figure.set_dpi(2 * PIXELS_PER_INCH)
        canvas.draw()
        drawn = Image.frombuffer("RGBA", canvas.get_width_height(), canvas.buffer_rgba()).convert("RGB")
    buffer = BytesIO()
    drawn.save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def image(css_class: str) -> ipywidgets.Image:
    """Where a picture goes; `put` fills it. It shrinks with a narrow page."""
    place = ipywidgets.Image(format="png", layout=ipywidgets.Layout(max_width="100%", object_fit="contain"))
    place.add_class(css_class)
    return place


def put(place: ipywidgets.Image, figure: Figure) -> None:
    """Shows a figure in its place, in its size on the page."""
    place.value = picture(figure)
    place.layout.width = f"{figure.get_figwidth() * PIXELS_PER_INCH:.0f}px"


def labelled(widget: ipywidgets.Widget, css_class: str, tooltip: str = "", width: str | None = None):
    """Gives a control a class to find it by, a tooltip, a width, and room for its description; returns it."""
    widget.add_class(css_class)
    if tooltip and hasattr(widget, "description"):  # in the browser, others fail on a tooltip
        widget.tooltip = tooltip
    if width:
        widget.layout.width = width
    if hasattr(widget, "style") and hasattr(widget.style, "description_width"):
        widget.style.description_width = "initial"
    return widget
