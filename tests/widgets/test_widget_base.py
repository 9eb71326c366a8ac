"""Errors that show, work in the background, what follows from controls, state that is kept, pictures."""

import subprocess
import sys
import threading
from io import BytesIO

import matplotlib
import matplotlib.pyplot as plt
import pytest
from PIL import Image
from small_study import small_study

from tcnaps import widgets
from tcnaps.figures.style import style
from tcnaps.widgets import controls, pictures, widget_base


def counting(steps, result, seen=None, gate=None):
    """Work that yields `steps` times and waits for the gate before each."""

    def work():
        for step in range(steps):
            if gate is not None:
                assert gate.wait(20)
            if seen is not None:
                seen.append(step)
            yield step / steps, f"step {step} <of> {steps}"
        return result

    return work


@pytest.fixture
def work():
    return widget_base.Work(widget_base.Notice())


def test_a_notice_shows_kind_and_message_escaped_and_a_remedy_for_unforeseen_errors():
    notice = widget_base.Notice()
    assert notice.layout.display == "none" and notice.error is None
    error = ValueError("no <dataset> 'x'\nnext line")
    notice.show(error)
    assert notice.error is error and notice.layout.display == ""
    assert "ValueError" in notice.value and "no &lt;dataset&gt; &#x27;x&#x27;<br>next line" in notice.value
    assert "What to do" not in notice.value
    notice.show(ZeroDivisionError("division by zero"))
    assert "What to do" in notice.value
    notice.clear()
    assert notice.value == "" and notice.error is None and notice.layout.display == "none"


def test_work_hands_its_result_over_and_hides_its_bar(work):
    found = []
    for threaded in (True, False):
        work.start(counting(3, "done"), found.append, threaded=threaded)
        work.wait()
        assert not work.busy and work.layout.display == "none"
    assert found == ["done", "done"] and work._notice.error is None


def test_the_bar_shows_how_far_work_is(work):
    gate, shown = threading.Event(), []
    work._bar.observe(lambda change: shown.append(change.new), "value")
    work.start(counting(4, None, gate=gate))
    assert work.busy and work.layout.display == ""
    gate.set()
    work.wait()
    assert shown == [0.25, 0.5, 0.75] and work._text.value == "step 3 &lt;of&gt; 4"


def test_cancelled_work_stops_at_its_next_step_and_has_no_effect(work):
    gate, seen, found, told = threading.Event(), [], [], []
    work.start(counting(50, "result", seen, gate), found.append, undo=lambda: told.append("cancelled"))
    work._cancel.click()
    assert not work.busy and work.layout.display == "none" and told == ["cancelled"]
    gate.set()
    work.wait()
    assert found == [] and len(seen) <= 1
    work.cancel()  # nothing is under way
    assert told == ["cancelled"]


def test_of_work_started_in_haste_only_the_last_has_an_effect(work):
    gate, found, told, threads = threading.Event(), [], [], []
    for number in range(6):
        work.start(counting(3, number, gate=gate), found.append, undo=lambda: told.append("cancelled"))
        threads.append(work._thread)
    gate.set()
    for thread in threads:
        thread.join(20)
    assert found == [5] and told == []


def test_an_error_in_work_or_after_it_shows(work):
    told = []

    def failing():
        yield 0.5, "half"
        raise ValueError("the file is gone; fetch it")

    work.start(failing, undo=lambda: told.append("failed"))
    work.wait()
    assert isinstance(work._notice.error, ValueError) and not work.busy and told == ["failed"]
    work.start(counting(1, 0), lambda result: 1 / result)
    work.wait()
    assert isinstance(work._notice.error, ZeroDivisionError)


def test_an_error_of_cancelled_work_does_not_show(work):
    gate = threading.Event()

    def failing():
        assert gate.wait(20)
        raise ValueError("too late")
        yield

    work.start(failing)
    work.cancel()
    gate.set()
    work.wait()
    assert work._notice.error is None


def test_waiting_too_long_is_an_error(work):
    gate = threading.Event()
    work.start(counting(1, None, gate=gate))
    with pytest.raises(TimeoutError, match="0.01 seconds"):
        work.wait(0.01)
    gate.set()
    work.wait()


class Small(widget_base.StudyWidget):
    """Two menus, of which the second follows the first."""

    kind = "small"

    def __init__(self):
        super().__init__(small_study())
        self.heard = []
        self.add({"first": controls.menu("First", 90, ["a", "b"]), "second": controls.menu("Second", 90, ["x", "y"])})
        self.on("first", self._follow)
        self.on("second", lambda: self.heard.append("second"))

    def _follow(self):
        with self.quietly():
            controls.offer(self.controls["second"], ["y", "z"])
        1 / (self.controls["first"].value != "a")


def test_controls_follow_one_another_without_calling_back_and_can_be_undone():
    widget = Small()
    first, second = widget.controls.values()
    widget.remember(["first", "second"])
    first.value = "b"
    assert second.value == "y" and second.options == ("y", "z") and widget.heard == []
    second.value = "z"
    assert widget.heard == ["second"] and widget.values() == {"first": "b", "second": "z"}
    widget.undo()
    assert widget.values() == {"first": "a", "second": "x"} and widget.heard == ["second"]


def test_an_error_in_a_reaction_shows_until_the_next_action():
    widget = Small()
    widget.controls["first"].value = "b"
    widget.controls["first"].value = "a"
    assert isinstance(widget.notice.error, ZeroDivisionError) and "in _follow" in widget.notice.value
    widget.controls["second"].value = "z"
    assert widget.notice.error is None


def test_state_is_kept_by_kind_and_key(monkeypatch):
    monkeypatch.setattr(widget_base, "_KEPT", {})
    first = widget_base.kept("stepper", ("a", 1), list)
    assert widget_base.kept("stepper", ("a", 1), list) is first
    assert widget_base.kept("stepper", ("a", 2), list) is not first
    assert widget_base.kept("explorer", ("a", 1), list) is not first
    for number in range(7):
        widget_base.kept("stepper", ("other", number), list)
        assert widget_base.kept("stepper", ("a", 1), list) is first  # used, so not the oldest
    for number in range(8):
        widget_base.kept("stepper", ("yet another", number), list)
    assert widget_base.kept("stepper", ("a", 1), list) is not first


def test_studies_are_told_apart_by_their_settings():
    assert widget_base.study_key(small_study()) == widget_base.study_key(small_study())
    assert widget_base.study_key(small_study()) != widget_base.study_key(small_study(seed=1))


def test_choices():
    seen = []
    choices = controls.Choices("Datasets", ("a", "b", "c"), ("c", "a"), {"a": "a (in)"})
    choices.observe(lambda change: seen.append(change["new"]), "value")
    boxes = choices._boxes
    assert choices.value == ("a", "c") and [box.description for box in boxes.values()] == ["a (in)", "b", "c"]
    boxes["b"].value, boxes["a"].value = True, False
    assert choices.value == ("b", "c") and seen == [("a", "b", "c"), ("b", "c")]
    choices.offer_more(("b", "c", "d"))
    assert choices.value == ("b", "c", "d")
    choices._boxes["c"].value = False
    choices.offer_more(("c", "d"))
    assert choices.value == ("d",) and not choices._boxes["c"].value
    choices.offer(("x",), ())
    assert choices.value == () and list(choices._boxes) == ["x"]


def test_a_range_keeps_its_handles_at_the_ends_or_inside():
    slider = controls.range_slider("Way", 100, 2, 6, (2, 4))
    controls.refit(slider, 3, 9)
    assert (slider.min, slider.max, slider.value) == (3, 9, (3, 4))
    controls.refit(slider, 5, 5)
    assert slider.disabled and slider.value == (5, 5)
    controls.refit(slider, 2, 6)
    assert not slider.disabled and slider.value == (2, 6)


def test_pictures_have_twice_the_pixels_of_their_place_and_leave_nothing_behind():
    look, place = matplotlib.rcParams["font.size"], pictures.Picture("tcnaps-plane")
    with style():
        figure = pictures.new_figure(300, 150)
        figure.subplots().plot([0, 1])
    place.put(figure)
    assert Image.open(BytesIO(place.value)).size == (600, 300) and place.layout.width == "300px"
    assert plt.get_fignums() == [] and matplotlib.rcParams["font.size"] == look


def test_the_widgets_stay_functions_and_importing_them_loads_no_torch():
    code = (
        "import sys; from tcnaps import widgets; import tcnaps.widgets.widget_base; "
        "import tcnaps.widgets.explorer_widget, tcnaps.widgets.figure_views; "
        "assert callable(widgets.explorer) and callable(widgets.recall_view); "
        "assert 'torch' not in sys.modules and 'ipywidgets' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="'steper'; it has: stepper"):
        widgets.steper  # noqa: B018
