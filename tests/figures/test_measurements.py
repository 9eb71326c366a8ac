"""What `make bench` measured: read, put into tables and drawn."""

import math

import matplotlib.pyplot as plt
import pytest
from measured import write_measurements

from tcnaps.figures import speed as speed_figures, style as figure_style
from tcnaps.figures.measurements import distance_from_the_limit, load_measurements, parts_of_episodes


@pytest.fixture
def path(tmp_path):
    write_measurements(tmp_path / "benchmarks.json")
    return tmp_path / "benchmarks.json"


def test_a_row_for_each_implementation(path):
    found = load_measurements(path).set_index(["group", "name", "implementation"])
    row = found.loc["test", "5-way 5-shot", "float32"]
    assert (row["seconds"], row["ratio"], row["gigabytes"], row["threads"]) == (0.4, 2.0, 0.3, 2)
    lost = found.loc["training", "1000 images", "direct"]
    assert math.isnan(lost["seconds"]) and lost["problem"] == "out of memory"


def test_parts_and_their_distance_from_the_limit(path):
    parts = parts_of_episodes(load_measurements(path))
    assert set(parts["part"]) == {"task encoder", "backbone", "clustering"} and len(parts) == 18
    found = distance_from_the_limit(path, {"5-way 5-shot": 75}).set_index(["part", "implementation"])
    assert set(found["episode"]) == {"5-way 5-shot"} and "clustering" not in found.index
    row = found.loc["backbone", "bfloat16"]
    assert row["operations"] == 75 * 2e9
    assert row["share"] == pytest.approx(75 * 2e9 / 0.125 / 2e11)
    assert row["bytes_share"] == pytest.approx(75 * 4.5e6 / 1e10 / 0.125)
    assert found.loc["backbone", "direct"]["bytes_share"] == pytest.approx(75 * 9e6 / 1e10 / 0.5)


def test_what_is_missing_is_said_with_the_command_that_makes_it(path):
    with pytest.raises(FileNotFoundError, match="make bench"):
        load_measurements(path.with_name("other.json"))
    measurements = load_measurements(path)
    with pytest.raises(ValueError, match="--only parts"):
        parts_of_episodes(measurements[measurements["group"] != "parts"])


def test_figures_show_the_times(path):
    measurements = load_measurements(path)
    with figure_style.style():
        figure, axes = figure_style.subplots(1, 2, squeeze=False)
        speed_figures.time_of_episodes(axes[0], parts_of_episodes(measurements))
        lengths = {bar.get_width() for bar in axes[0][0].patches}
        assert {0.2, 0.5, 0.1, 0.25, 0.125}.issubset({round(length, 6) for length in lengths})
        texts = [text.get_text() for text in axes[0][0].texts]
        assert texts == ["0.80 s", "0.40 s", "0.20 s"]
        other, (left, right) = figure_style.subplots(1, 2)
        speed_figures.ratios(left, measurements, ["test"])
        assert list(left.containers[0].lines[0].get_xdata()) == [2.0, 2.0]
        speed_figures.memory(right, measurements, ["test", "training"])
        texts = [text.get_text() for text in right.texts]
        assert "out of memory" in texts and "0.30" in texts
        for drawn in (figure, other):
            drawn.canvas.draw()
            plt.close(drawn)
