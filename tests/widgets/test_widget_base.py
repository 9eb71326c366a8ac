"""Errors that show, work in the background, state that is kept, pictures."""

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
from tcnaps.widgets import widget_base as parts


def counting(steps, result, seen=None, gate=None):
    """Work that yields `steps` times; waits for the gate before each."""

    def work():
        for step in range(steps):
            if gate is not None:
                assert gate.wait(20)
            if seen is not None:
                seen.append(step)
            yield step / steps, f"step {step} <of> {steps}"
        return result

    return work


def test_a_notice_shows_kind_and_message_and_remedy_escaped():
    notice = parts.Notice()
    assert notice.layout.display == "none" and notice.error is None
    error = ValueError("no <dataset> 'x'\nnext line")
    notice.show(error, "Choose <another>.")
    assert notice.error is error and notice.layout.display == ""
    assert "ValueError" in notice.value and "no &lt;dataset&gt; &#x27;x&#x27;<br>next line" in notice.value
    assert "Choose &lt;another&gt;." in notice.value
    notice.clear()
    assert notice.value == "" and notice.error is None and notice.layout.display == "none"


def test_only_unforeseen_errors_get_a_general_remedy():
    notice = parts.Notice()
    notice.show(ValueError("Lower the way."))
    assert "What to do" not in notice.value
    notice.show(ZeroDivisionError("division by zero"))
    assert "What to do" in notice.value and "report it" in notice.value


def test_a_guarded_callback_shows_its_error_and_a_success_clears_it():
    notice = parts.Notice()

    @parts.guarded(notice)
    def callback(change):
        return 1 / change

    callback(0)
    assert isinstance(notice.error, ZeroDivisionError) and "in callback" in notice.value
    callback(1)
    assert notice.error is None
    with parts.guarded(notice):
        raise KeyError("k")
    assert isinstance(notice.error, KeyError)


def test_work_hands_its_result_over_and_hides_its_bar():
    notice, found = parts.Notice(), []
    work = parts.Work(notice)
    for threaded in (True, False):
        work.start(counting(3, "done"), found.append, threaded=threaded)
        work.wait()
        assert not work.busy and work.layout.display == "none"
    assert found == ["done", "done"] and notice.error is None


def test_the_bar_shows_how_far_work_is():
    gate, found = threading.Event(), []
    work = parts.Work(parts.Notice())
    shown = []
    work._bar.observe(lambda change: shown.append((change.new, work._text.value)), "value")
    work.start(counting(4, None, gate=gate), found.append)
    assert work.busy and work.layout.display == ""
    gate.set()
    work.wait()
    assert [share for share, _ in shown] == [0.25, 0.5, 0.75]
    assert work._text.value == "step 3 &lt;of&gt; 4"


def test_cancelled_work_stops_at_its_next_step_and_has_no_effect():
    gate, seen, found, told = threading.Event(), [], [], []
    work = parts.Work(parts.Notice())
    work.start(counting(50, "result", seen, gate), found.append, cancelled=lambda: told.append("cancelled"))
    work._cancel.click()
    assert not work.busy and work.layout.display == "none" and told == ["cancelled"]
    gate.set()
    work.wait()
    assert found == [] and len(seen) <= 1
    work.cancel()  # nothing is under way
    assert told == ["cancelled"]


def test_of_work_started_in_haste_only_the_last_has_an_effect():
    gate, found, told = threading.Event(), [], []
    work = parts.Work(parts.Notice())
    threads = []
    for number in range(6):
        work.start(counting(3, number, gate=gate), found.append, cancelled=lambda: told.append("cancelled"))
        threads.append(work._thread)
    gate.set()
    for thread in threads:
        thread.join(20)
    assert found == [5] and told == []


def test_an_error_in_work_or_after_it_shows():
    notice, told = parts.Notice(), []
    work = parts.Work(notice)

    def failing():
        yield 0.5, "half"
        raise ValueError("the file is gone; fetch it")

    work.start(failing, cancelled=lambda: told.append("failed"))
    work.wait()
    assert isinstance(notice.error, ValueError) and not work.busy and told == ["failed"]
    work.start(counting(1, 0), lambda result: 1 / result)
    work.wait()
    assert isinstance(notice.error, ZeroDivisionError)


def test_an_error_of_cancelled_work_does_not_show():
    gate, notice = threading.Event(), parts.Notice()
    work = parts.Work(notice)

    def failing():
        assert gate.wait(20)
        raise ValueError("too late")
        yield

    work.start(failing)
    work.cancel()
    gate.set()
    work.wait()
    assert notice.error is None


def test_waiting_too_long_is_an_error():
    gate = threading.Event()
    work = parts.Work(parts.Notice())
    work.start(counting(1, None, gate=gate))
    with pytest.raises(TimeoutError, match="0.01 seconds"):
        work.wait(0.01)
    gate.set()
    work.wait()


def test_state_is_kept_by_kind_and_key(monkeypatch):
    monkeypatch.setattr(parts, "_KEPT", {})
    first = parts.kept("stepper", ("a", 1), list)
    assert parts.kept("stepper", ("a", 1), list) is first
    assert parts.kept("stepper", ("a", 2), list) is not first
    assert parts.kept("explorer", ("a", 1), list) is not first
    for number in range(7):
        parts.kept("stepper", ("other", number), list)
        assert parts.kept("stepper", ("a", 1), list) is first  # used, so not the oldest
    for number in range(8):
        parts.kept("stepper", ("yet another", number), list)
    assert parts.kept("stepper", ("a", 1), list) is not first and len(parts._KEPT) == 9


def test_studies_are_told_apart_by_their_settings():
    assert parts.study_key(small_study()) == parts.study_key(small_study())
    assert parts.study_key(small_study()) != parts.study_key(small_study(seed=1))
    hash(parts.study_key(small_study()))


def test_pictures_have_twice_the_pixels_of_their_place_and_leave_nothing_behind():
    look = matplotlib.rcParams["font.size"]
    place = parts.image("tcnaps-plane")
    with parts.drawing():
        figure = parts.new_figure(300, 150)
        figure.subplots().plot([0, 1])
    parts.put(place, figure)
    assert Image.open(BytesIO(place.value)).size == (600, 300) and place.layout.width == "300px"
    assert "tcnaps-plane" in place._dom_classes
    assert plt.get_fignums() == [] and matplotlib.rcParams["font.size"] == look


def test_controls_get_class_tooltip_and_width():
    import ipywidgets

    slider = parts.labelled(ipywidgets.IntSlider(description="Refinement step"), "tcnaps-slider", "which step", "50%")
    assert "tcnaps-slider" in slider._dom_classes and slider.tooltip == "which step" and slider.layout.width == "50%"
    assert slider.style.description_width == "initial"
    assert parts.labelled(ipywidgets.HBox(), "tcnaps-box", "what it is").tooltip is None  # it would not show


def test_importing_the_widgets_loads_no_torch():
    code = (
        "import sys; from tcnaps import widgets; import tcnaps.widgets.widget_base; "
        "assert 'torch' not in sys.modules and 'ipywidgets' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="'steper'; it has: stepper"):
        widgets.steper  # noqa: B018
