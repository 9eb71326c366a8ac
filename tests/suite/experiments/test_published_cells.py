"""A study's accuracies beside the cells of Table 2, from made-up rows."""

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from synthetic_rows import synthetic_rows

from tcnaps_suite.experiments.published_cells import GAIN, draw_cells, in_words, published_cells


@pytest.fixture
def rows():
    """5-way, 1-shot and 5-shot; the classes of an episode are five of eleven."""
    frames = [
        synthetic_rows(evaluation=f"5-way-{shot}-shot", datasets={"mini": "in"}, ways=(5,), seed=shot).assign(shot=shot)
        for shot in (1, 5)
    ]
    return pd.concat(frames, ignore_index=True)


def test_cells_stand_beside_those_of_their_setting_and_are_reached_or_not(rows):
    table = published_cells(rows, {"mini": "mini-ImageNet"}, (2, 4)).set_index(["shot", "method"])
    assert table["published"].round(3).to_dict() == {
        (1, "Simple"): 0.532, (1, "Transductive"): 0.556, (1, GAIN): 0.024,
        (5, "Simple"): 0.708, (5, "Transductive"): 0.731, (5, GAIN): 0.023,
    }  # fmt: skip
    simple = rows[(rows["training"] == "support") & (rows["shot"] == 1)]
    right = (simple["prediction_0"] == simple["label"]).groupby(simple["episode"]).mean()
    assert table.loc[(1, "Simple"), "accuracy"] == pytest.approx(right.mean())
    upper = table["accuracy"] + table["class_interval"]
    assert (table["reached"] == (upper >= table["published"])).all() and set(table["reached"]) == {True, False}
    assert (table["n_classes"] == 11).all()


def test_feti_has_cells_of_its_own(rows):
    table = published_cells(rows, {"mini": "mini-ImageNet"}, (2, 4), " + FETI")
    assert table.loc[table["method"] == "Transductive", "published"].round(3).tolist() == [0.799, 0.915]


def test_the_figure_and_the_sentence_show_every_cell(rows):
    table = published_cells(rows, {"mini": "mini-ImageNet"}, (2, 4))
    figure, ax = plt.subplots()
    draw_cells(ax, table)
    assert [label.get_text() for label in ax.get_xticklabels()] == ["5-way\n1-shot", "5-way\n5-shot"]
    assert len(ax.containers) == 6  # published, and both intervals, of two variants
    plt.close(figure)
    reached = table["reached"][table["method"] != GAIN].sum()
    assert in_words(table).startswith(f"{reached} of 4 published")
