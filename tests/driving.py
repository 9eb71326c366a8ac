"""Driving a widget as a user would, without a browser."""

import html
import re


def set_to(widget, **values):
    """Changes controls, one after the other."""
    for name, value in values.items():
        widget.controls[name].value = value


def click(widget, *names):
    """Presses buttons."""
    for name in names:
        widget.controls[name].click()


def words(place):
    """The text that a place on the page shows."""
    plain = html.unescape(re.sub(r"<[^>]*>", " ", place.value))
    return re.sub(r"\s+", " ", plain).strip()
