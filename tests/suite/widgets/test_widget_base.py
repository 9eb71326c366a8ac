"""Errors and work that are shown, and reactions to controls."""

import threading

import pytest
from small_study import small_study

from tcnaps_suite.widgets import widget_base


class Small(widget_base.StudyWidget):
    """Two menus, of which the first sets the second."""

    kind = "small"

    def __init__(self):
        super().__init__(small_study())
        self.heard = []
        first, second = widget_base.menu("First", 90, ["a", "b"]), widget_base.menu("Second", 90, ["x", "y", "z"])
        hear = (second, lambda: self.heard.append("second"))
        self.arrange(self.add(first=(first, lambda: self._follow()), second=hear))

    def _follow(self):
        self.put(second="y")
        1 / (self.choice.first != "a")


def test_controls_follow_one_another_without_calling_back_and_errors_show_until_the_next_action():
    widget = Small()
    first, second = widget.controls.values()
    assert widget.notice.layout.display == "none"
    first.value = "b"
    assert second.value == "y" and widget.heard == []
    first.value = "a"
    assert isinstance(widget.error, ZeroDivisionError) and "in _follow" in widget.notice.value
    assert widget.notice.layout.display == ""
    second.value = "z"
    assert widget.error is None and widget.heard == ["second"] and widget.notice.value == ""


def test_a_choice_from_another_thread_waits_for_the_reaction_under_way_and_is_not_lost():
    widget, reached, finish, during = Small(), threading.Event(), threading.Event(), []

    def follow():
        with widget.quietly():
            reached.set()
            finish.wait(10)
            during.extend(widget.heard)

    widget._follow = follow
    slow = threading.Thread(target=lambda: setattr(widget.controls["first"], "value", "b"))
    quick = threading.Thread(target=lambda: setattr(widget.controls["second"], "value", "z"))
    slow.start()
    assert reached.wait(10)
    quick.start()
    quick.join(0.3)  # long enough for a choice that would not wait
    finish.set()
    slow.join(10)
    quick.join(10)
    assert during == [] and widget.heard == ["second"]


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (ValueError("no <file> 'x'\nfetch it"), "no &lt;file&gt; &#x27;x&#x27;<br>fetch it</div>"),
        (ValueError("run `make figures`"), "some 20 minutes"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
    ],
)
def test_loading_says_so_and_shows_nothing_after_a_failure_or_an_interruption(error, shown):
    widget, hidden = Small(), []
    widget.hide = lambda: hidden.append(True)
    with widget.guarded(), widget.loading("Reading <rows>"):
        assert widget.busy.value == "Reading &lt;rows&gt; …"
    assert widget.busy.value == "" and not hidden
    with widget.guarded(), widget.loading("Reading"):
        raise error
    assert widget.error is error and shown in widget.notice.value
    assert widget.busy.value == "" and hidden
