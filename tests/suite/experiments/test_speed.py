"""What `make bench` measured, as tables and figures."""

import math

import matplotlib.pyplot as plt
import pytest
from measured import write_measurements

from tcnaps.figures import style
from tcnaps_suite.experiments import speed

plt.switch_backend("Agg")


@pytest.fixture
def path(tmp_path):
    write_measurements(tmp_path / "benchmarks.json")
    return tmp_path / "benchmarks.json"


def test_one_row_per_implementation(path):
    table = speed.load_measurements(path).set_index(["group", "name", "implementation"])
    row = table.loc["test", "5-way 5-shot", "float32"]
    assert (row["seconds"], row["ratio"], row["gigabytes"], row["threads"]) == (0.4, 2.0, 0.3, 2)
    lost = table.loc["training", "1000 images", "direct"]
    assert math.isnan(lost["seconds"]) and lost["problem"] == "out of memory"


def test_parts_and_their_distance_from_the_limit(path):
    parts = speed.parts_of_episodes(speed.load_measurements(path))
    assert set(parts["part"]) == {"task encoder", "backbone", "clustering"} and len(parts) == 18
    table = speed.distance_from_the_limit(path, {"5-way 5-shot": 75}).set_index(["part", "implementation"])
    assert set(table["episode"]) == {"5-way 5-shot"} and "clustering" not in table.index
    row = table.loc["backbone", "bfloat16"]
    assert row["operations"] == 75 * 2e9
    assert row["share"] == pytest.approx(75 * 2e9 / 0.125 / 2e11)
    assert row["bytes_share"] == pytest.approx(75 * 4.5e6 / 1e10 / 0.125)
    assert table.loc["backbone", "direct"]["bytes_share"] == pytest.approx(75 * 9e6 / 1e10 / 0.5)


def test_missing_measurements_name_the_command_that_makes_them(path):
    with pytest.raises(FileNotFoundError, match="make bench"):
        speed.load_measurements(path.with_name("other.json"))
    measurements = speed.load_measurements(path)
    with pytest.raises(ValueError, match="--only parts"):
        speed.parts_of_episodes(measurements[measurements["group"] != "parts"])


def test_figures_show_the_times(path, tmp_path):
    measurements = speed.load_measurements(path)
    with style.figure(tmp_path / "times", columns=2) as (figure, axes):
        speed.time_of_episodes(axes, speed.parts_of_episodes(measurements))
        lengths = {round(bar.get_width(), 6) for bar in axes[0].patches}
        assert {0.2, 0.5, 0.1, 0.25, 0.125} <= lengths
        assert [text.get_text() for text in axes[0].texts] == ["0.80 s", "0.40 s", "0.20 s"]
    with style.figure(tmp_path / "ratios", columns=2) as (other, (left, right)):
        speed.ratios(left, measurements, ["test"])
        assert list(left.containers[0].lines[0].get_xdata()) == [2.0, 2.0]
        speed.memory(right, measurements, ["test", "training"])
        texts = [text.get_text() for text in right.texts]
        assert "out of memory" in texts and "0.30" in texts
    plt.close(figure)
    plt.close(other)
