"""Curves of accuracy: what they draw, and that all of it can be read."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from tcnaps.figures import style
from tcnaps.figures.curves import curves

plt.switch_backend("Agg")


@pytest.fixture
def averages():
    index = pd.MultiIndex.from_product(
        [("Simple", "Transductive"), ("random", "predictive entropy", "variation ratios"), range(4)],
        names=["variant", "acquisition", "labels"],
    )
    generator = np.random.default_rng(0)
    return pd.DataFrame({"accuracy": generator.random(len(index)), "interval": 0.1}, index).reset_index()


def test_each_variant_has_a_panel_with_a_line_and_band_per_name(averages, tmp_path):
    with style.figure(tmp_path / "curves", columns=2, height=2.5, sharey=True) as (figure, axes):
        curves(axes, averages, "labels", "acquisition", "Accuracy (%)", note="one head")
        style.legend_below(axes)
        for ax, (variant, panel) in zip(axes, averages.groupby("variant")):
            assert (
                ax.get_title() == f"{variant} CNAPS" and ax.get_xlabel() == "Labels bought" and len(ax.collections) == 3
            )
            for line, (_, cell) in zip(ax.lines, panel.groupby("acquisition", sort=False)):
                np.testing.assert_allclose(line.get_ydata(), 100 * cell["accuracy"])
            assert [text.get_text() for text in ax.texts] == ["one head"]
        assert len({line.get_color() for line in axes[0].lines}) == 3
        assert [axes[0].get_ylabel(), axes[1].get_ylabel()] == ["Accuracy (%)", ""]
        figure.draw_without_rendering()
        box, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
        assert box.x0 > -0.01 and box.y0 > -0.01 and box.x1 < width + 0.01 and box.y1 < height + 0.01
