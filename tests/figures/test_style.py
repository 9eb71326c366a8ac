"""The shared look: what it leaves as it was, names as they are spelt, and files that come out whole and the same."""

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from tcnaps.figures import style as module
from tcnaps.figures.clustering import episode_images
from tcnaps.figures.style import STYLE, style

plt.switch_backend("Agg")


def test_the_look_ends_with_the_block_and_interactive_stays_what_it_became(monkeypatch):
    """In a notebook, the first figure switches it on: else no later figure would be displayed."""
    monkeypatch.setitem(matplotlib.rcParams, "interactive", False)  # and as it was after the test
    before = matplotlib.rcParams["font.size"]
    with pytest.raises(ZeroDivisionError), style():
        assert matplotlib.rcParams["font.size"] == STYLE["font.size"] != before
        matplotlib.interactive(True)
        1 / 0  # noqa: B018
    assert matplotlib.rcParams["font.size"] == before and matplotlib.is_interactive()
    with style():
        matplotlib.interactive(False)
    assert not matplotlib.is_interactive()


def test_class_names_are_no_formulas():
    ax, pixels = Figure().subplots(), np.zeros((2, 4, 4, 3), dtype=np.uint8)
    episode_images(ax, {"$\\frac{$": pixels, "$x$": pixels}, pixels, np.array([0, 1]), np.array([0, 1]))
    FigureCanvasAgg(ax.figure).draw()  # would fail at the first
    assert {text.get_text() for text in ax.texts} > {"$\\frac{$", "$x$"}


def draw(path, about=None):
    with module.figure(path, about, height=1.5) as (figure, ax):
        ax.plot([1, 2], [3, 4], label="±")
        ax.set_xlabel("Accuracy (%)")
    plt.close(figure)


def test_a_figure_is_saved_with_the_same_bytes_each_time(tmp_path):
    for name in "ab":
        draw(tmp_path / name / "deep" / "v1.5-plot")
    for suffix in ("png", "pdf"):
        one, other = ((tmp_path / name / "deep" / f"v1.5-plot.{suffix}").read_bytes() for name in "ab")
        assert one == other and b"CreationDate" not in one
    assert len(list((tmp_path / "a" / "deep").iterdir())) == 2
    assert plt.imread(tmp_path / "a" / "deep" / "v1.5-plot.png").shape[1] == round(module.COLUMN_WIDTH * 200)


def test_a_file_says_where_its_figure_comes_from(tmp_path):
    draw(tmp_path / "named", {"Study": "small", "Seed": "0"})
    with Image.open(tmp_path / "named.png") as named:
        assert named.info["Study"] == "small"
    assert b"/Subject (Study: small; Seed: 0)" in (tmp_path / "named.pdf").read_bytes()


def test_a_figure_that_fails_leaves_the_old_files(tmp_path, monkeypatch):
    with pytest.raises(RuntimeError), module.figure(tmp_path / "plot"):
        raise RuntimeError("no data")
    plt.close("all")
    assert not list(tmp_path.iterdir())
    draw(tmp_path / "plot")
    before = (tmp_path / "plot.png").read_bytes()

    def fail(self, file, **options):
        file.write_bytes(b"half")
        raise RuntimeError("no font")

    monkeypatch.setattr(Figure, "savefig", fail)
    with pytest.raises(RuntimeError):
        draw(tmp_path / "plot")
    assert (tmp_path / "plot.png").read_bytes() == before and len(list(tmp_path.iterdir())) == 2
