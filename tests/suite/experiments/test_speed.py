"""What `make bench` measured, as figures."""

import matplotlib.pyplot as plt
from measured import write_measurements

from tcnaps.figures import style
from tcnaps_suite.experiments import speed
from tcnaps_suite.experiments.measurements import load_measurements, parts_of_episodes

plt.switch_backend("Agg")


def test_figures_show_the_times(tmp_path):
    write_measurements(tmp_path / "benchmarks.json")
    measurements = load_measurements(tmp_path / "benchmarks.json")
    with style.figure(tmp_path / "times", columns=2) as (figure, axes):
        speed.time_of_episodes(axes, parts_of_episodes(measurements))
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
