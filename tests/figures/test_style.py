"""The shared look: what it leaves as it was, and names that stay as they are."""

import matplotlib
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from tcnaps.figures.images import episode_images
from tcnaps.figures.style import STYLE, plain_text, style


@pytest.fixture
def interactive():
    before = matplotlib.is_interactive()
    yield matplotlib.interactive
    matplotlib.interactive(before)


def test_a_figure_made_inside_leaves_matplotlib_interactive(interactive):
    """As in a notebook, whose first figure switches it on: else no later figure would be displayed."""
    interactive(False)
    with style():
        interactive(True)
    assert matplotlib.is_interactive()
    with style():
        interactive(False)
    assert not matplotlib.is_interactive()


def test_the_look_ends_with_the_block_even_after_an_error(interactive):
    interactive(False)
    before = matplotlib.rcParams["font.size"]
    with pytest.raises(ZeroDivisionError), style():
        assert matplotlib.rcParams["font.size"] == STYLE["font.size"] != before
        interactive(True)
        1 / 0  # noqa: B018
    assert matplotlib.rcParams["font.size"] == before and matplotlib.is_interactive()


def drawn(text, **options):
    figure = Figure((4, 1))
    figure.text(0.1, 0.5, text, **options)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())


@pytest.mark.parametrize("name", ["$\\frac{$", "US$ and A$", r"already \$ escaped", "one $", "$x$ \\", "plain"])
def test_a_name_is_drawn_as_it_is_spelt(name):
    assert (drawn(plain_text(name)) == drawn(name, parse_math=False)).all()


def test_class_names_of_a_contact_sheet_are_no_formulas():
    ax = Figure().subplots()
    episode_images(ax, {"$\\frac{$": np.zeros((2, 4, 4, 3), dtype=np.uint8)})
    FigureCanvasAgg(ax.figure).draw()
    assert plain_text("$\\frac{$") in [text.get_text() for text in ax.texts]
