"""What `make bench` measured, as tables."""

import math

import pytest
from measured import write_measurements

from tcnaps_suite.experiments.measurements import distance_from_the_limit, load_measurements, parts_of_episodes


@pytest.fixture
def path(tmp_path):
    write_measurements(tmp_path / "benchmarks.json")
    return tmp_path / "benchmarks.json"


def test_one_row_per_implementation(path):
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
