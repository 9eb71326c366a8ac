"""What jobs ask for and how long they take, against arithmetic by hand and against episodes that are really drawn."""

from pathlib import Path

import numpy as np
import pytest
from small_study import sized, small_study

from tcnaps.config import FixedProtocol, VariableProtocol, load_study
from tcnaps.episodes.sampling import describe_episode
from tcnaps_suite.workflow.estimate import GPU, LONGEST, asks, core_seconds, estimate, images_per_episode, last_times

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def benchmark():
    return load_study(ROOT / "configs" / "meta-dataset.yaml")


def test_the_fixed_protocol_has_the_same_number_of_images_always():
    assert images_per_episode(FixedProtocol(way=5, shot=1), ["any"], "test", {}) == 55


@pytest.mark.parametrize(
    ("protocol", "n_classes", "n_images"),
    [
        (VariableProtocol(), 70, 600),
        (VariableProtocol(maximum_way=12, maximum_support_size=120, maximum_support_per_class=30), 18, 67),
        (VariableProtocol(), 30, 12),
    ],
)
def test_the_expected_images_of_an_episode_are_the_mean_of_drawn_ones(protocol, n_classes, n_images):
    source, generator = sized(*[n_images] * n_classes), np.random.default_rng(0)
    drawn = (describe_episode(generator, source, protocol) for _ in range(600))
    mean = np.mean([episode.shots.sum() + episode.n_query * len(episode.classes) for episode in drawn])
    sizes = {"some": {"train": (n_classes, n_classes * n_images)}}
    # Shots in proportion to random weights are rounded down, and a class gives no more than it has.
    assert mean == pytest.approx(images_per_episode(protocol, ["some"], "train", sizes), rel=0.08)


def test_a_benchmark_is_estimated_by_its_episodes_before_its_data_is_there(benchmark):
    rate = 44 / 2 / 3600  # images an hour and core
    found = estimate(benchmark, "meta_train_support", {}, {})
    assert "110,000 training episodes × 712 images ÷ 22/s" in found.arithmetic
    assert "12 validations × 9 × 200 episodes × 712 images ÷ 56/s" in found.arithmetic
    validation = 12 * 9 * 200 * 712 / 56 / 3600
    assert found.core_hours == pytest.approx(110_000 * 712 / rate / 3600**2 + validation, rel=1e-3)
    evaluated = estimate(benchmark, "evaluate_support_and_query_replicate_2", {}, {})
    assert evaluated.arithmetic.startswith(
        "13 × 600 episodes of variable × 712 images ÷ 56/s + 12 × 600 episodes of 5-"
    )
    assert evaluated.gpu_hours == pytest.approx((13 * 600 * 712 + 12 * 600 * 55) * 2.29e9 / GPU / 3600, rel=1e-3)


def test_images_that_nobody_has_counted_leave_hours_open_and_ask_for_the_longest_time(benchmark):
    found = estimate(benchmark, "pretrain", {}, {})
    assert (found.core_hours, found.gpu_hours) == (None, None)
    assert "125 epochs × the images of ilsvrc_2012 (unknown until the data is there)" in found.arithmetic
    assert asks(benchmark, "pretrain", {}, {}, "cuda") == {"mem_mb": 5800, "runtime": LONGEST, "gpu": 1}
    counted = {"ilsvrc_2012": {"train": (712, 256 * 3000 + 7)}}
    found = estimate(benchmark, "pretrain", counted, {})
    assert "125 epochs × 3,000 batches of 256 images ÷ 13.5/s" in found.arithmetic
    assert found.core_hours == pytest.approx(125 * 3000 * 256 / 13.5 / 3600)


def test_the_last_run_goes_before_arithmetic(benchmark):
    times = {"evaluate_support": (7200.0, 2), "accuracy": (4000.0, 1)}
    assert estimate(benchmark, "evaluate_support", {}, times) == (4.0, None, "last run")
    assert asks(benchmark, "evaluate_support", {}, times, threads=2)["runtime"] == 3 * 120
    assert asks(benchmark, "accuracy", {}, times)["runtime"] == 210  # three times 67 minutes, in quarters of an hour
    assert asks(benchmark, "class_recall", {}, times)["runtime"] == 60
    assert asks(benchmark, "evaluate_support", {}, {}, "cuda")["runtime"] == 240  # six times 0.65 hours of arithmetic


def test_only_jobs_that_take_a_device_ask_for_one_and_larger_studies_for_more_memory(benchmark):
    rules = [
        "pretrain",
        "meta_train_support",
        "evaluate_support_replicate_1",
        "differences",
        "rivals",
        "data",
        "claims",
    ]
    assert ["gpu" in asks(benchmark, rule, {}, {}, "cuda:1") for rule in rules] == [True] * 4 + [False] * 3
    assert not any("gpu" in asks(benchmark, rule, {}, {}) for rule in rules)
    small = small_study()
    for rule in rules[:3]:
        assert asks(small, rule, {}, {})["mem_mb"] <= 4000 < 1 + asks(small, "pretrain", {}, {})["mem_mb"]
    assert asks(benchmark, "meta_train_support", {}, {})["mem_mb"] == 10_000  # 1,000 images of 8.9 MB, and libraries
    shared = asks(benchmark, "meta_train_support", {}, {}, "cuda", processes=2)
    assert (shared["mem_mb"], shared["gpu"]) == (20_000, 2)  # each process has a model and a GPU of its own
    assert asks(benchmark, "claims", {}, {}, "cuda", processes=2) == asks(benchmark, "claims", {}, {})


def test_times_are_those_that_a_run_notes(tmp_path, monkeypatch):
    (tmp_path / "Snakefile").touch()
    monkeypatch.chdir(tmp_path)
    assert last_times(small_study(), {}) == {}
    (tmp_path / "results" / "small").mkdir(parents=True)
    (tmp_path / "results" / "small" / "times.csv").write_text("job,seconds,threads\npretrain,600,2\n")
    assert last_times(small_study(), {}) == {"pretrain": (600.0, 2)}


def test_the_limit_of_a_job_grows_with_it(tmp_path, monkeypatch):
    (tmp_path / "Snakefile").touch()
    monkeypatch.chdir(tmp_path)
    rule, study, table = "evaluate_support", small_study(), tmp_path / "results" / "small" / "times.csv"
    table.parent.mkdir(parents=True)
    table.write_text(f"job,seconds,threads,arithmetic\n{rule},7200,1,{core_seconds(study, {}, rule) / 3}\n")
    times = last_times(study, {})
    assert times[rule][0] == pytest.approx(3 * 7200)  # three times as many images as then
    assert asks(study, rule, {}, times)["runtime"] == 3 * asks(study, rule, {}, {rule: (7200, 1)})["runtime"]
