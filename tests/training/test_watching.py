"""What is written of a training, and when it is stopped, from rows planted without any training."""

import sys
import time

import numpy as np
import pandas as pd
import pytest
import torch

from tcnaps.training.resuming import Resumable, run_steps
from tcnaps.training.watching import PATIENCE, START, Diverged, Watch, accuracy_and_confidence, gradient_norm, judge


@pytest.fixture
def path(tmp_path):
    return tmp_path / "checkpoints" / "support.safetensors"


def row(loss, **more):
    return {"episode": 16, "loss": loss, "train_accuracy": 0.5, "confidence": 0.4, "gradient_norm": 2.0} | more


def logged(path, losses, first=0, **more):
    time.sleep(1 - time.time() % 1)  # TensorBoard reads event files by the second in which they were begun
    progress = {"steps": first}
    with Watch(path, progress, "meta_training", 1000, 16) as watched:
        for loss in losses:
            progress["steps"] += 1
            watched.log(row(loss, learning_rate=0.1, **more))


def test_a_row_per_step_and_none_twice_after_an_interruption(path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    logged(path, [9.0, 9.0, 9.0])  # of an earlier training
    logged(path, [5.0, 4.0, 3.5, 9.9])  # the state of step 2 was the last that was saved
    file = path.parents[1] / "watch" / "support.csv"
    with open(file, "a") as stream:
        stream.write("2,7")  # a line that was being written
    logged(path, [3.0], first=2)
    logged(path, [2.5], first=3, valid_accuracy=0.6)
    table = pd.read_csv(file)
    assert list(table.step) == [1, 2, 3, 4] and list(table.loss) == [5.0, 4.0, 3.0, 2.5]
    assert (table.confidence == 0.4).all() and table.valid_accuracy.isna().tolist() == [True, True, True, False]
    assert (table[["episodes_per_second", "memory_mb", "seconds_left"]] > 0).all(axis=None)
    assert table.gpu_memory_mb.isna().all() and "episode" not in table
    events = accumulator.EventAccumulator(str(file.with_suffix(""))).Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [(1, 5.0), (2, 4.0), (3, 3.0), (4, 2.5)]
    assert set(events.Tags()["scalars"]) == set(table) - {"step", "gpu_memory_mb"}


def test_without_tensorboard_there_is_the_table_alone(path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    logged(path, [1.0])
    assert [file.name for file in (path.parents[1] / "watch").iterdir()] == ["support.csv"]


NOISE = np.random.default_rng(0).normal(0, 0.3, 2000)


@pytest.mark.parametrize(
    ("losses", "stops_at"),
    [
        ([3.0, 2.0, float("nan")], 3),
        ([3.0, float("inf")], 2),
        ([2.0] * START + [2.1] * 500, START + PATIENCE),
        ([2.0] * START + [1.9] * 100 + [2.1] * (PATIENCE - 1) + [1.9] + [3.0] * 500, START + 100 + 2 * PATIENCE),
        ([2.0, 2.0, 9.0, 1e3] + [1e9] * 500, START + PATIENCE),  # at once, before the start is known
        (3 + NOISE, None),  # learns nothing, but does not get worse
        (3 + np.minimum(np.arange(2000) / 50, 2) * (np.arange(2000) < 120) + NOISE, None),  # rises, then comes back
    ],
)
def test_a_training_must_stop_if_its_loss_stays_above_its_start(losses, stops_at):
    memory = {}
    stops = (step for step, loss in enumerate(losses, 1) if judge(float(loss), memory)[1])
    assert next(stops, None) == stops_at


def test_a_stopped_training_says_where_and_what_to_do(path):
    with pytest.raises(Diverged, match="meta_training of support .*step 2:.*meta_training.learning_rate"):
        logged(path, [3.0, float("nan")])


def trained(path, losses):
    """A training whose weight is the number of its steps, and whose state is saved at every third."""
    weight = torch.nn.Linear(1, 1)
    torch.nn.init.zeros_(weight.weight)

    def steps(first):
        assert weight.weight.item() == first
        for loss in losses[first:]:
            if loss is KeyboardInterrupt:
                raise loss
            with torch.no_grad():
                weight.weight += 1
            yield row(loss)

    with Resumable(path, "key", {"weight": weight}, {}) as state:
        run_steps(state, 3, steps, dict, "meta_training", 1000, 16)


@pytest.mark.parametrize(
    ("losses", "kept"),
    [
        ([5.0] * 6 + [KeyboardInterrupt], 3),  # no step has shown yet that the weights after step 6 are good
        ([5.0] * 7 + [float("nan")], 6),  # the loss of step 7, of the weights after step 6, was good
        ([5.0] * 3 + [float("nan")], None),  # the weights after step 3 gave the loss that is not finite
        ([5.0] * 4 + [50.0] * 400, 3),
        ([5.0] * 40 + [4.0] * 2 + [6.0] * 400, 39),
    ],
)
def test_the_state_that_is_kept_is_from_before_the_divergence(path, losses, kept):
    for _ in range(2):  # started again with unchanged settings, it diverges again at the same step
        with pytest.raises((Diverged, KeyboardInterrupt)):
            trained(path, losses)
        progress = {"steps": None}
        with pytest.raises(KeyboardInterrupt), Resumable(path, "key", {}, progress):
            raise KeyboardInterrupt
        assert progress["steps"] == kept


def test_measures_are_those_of_their_definitions():
    logits, labels = torch.tensor([[2.0, 0.0], [0.0, 1.0], [3.0, 0.0]]), torch.tensor([0, 1, 1])
    accuracy, confidence = accuracy_and_confidence(logits, labels)
    assert accuracy == pytest.approx(2 / 3)
    assert confidence == pytest.approx(np.mean([1 / (1 + np.exp(-gap)) for gap in (2, 1, 3)]))
    layer = torch.nn.Linear(2, 1)
    layer(torch.tensor([[3.0, 4.0]])).sum().backward()
    assert gradient_norm(layer) == pytest.approx((9 + 16 + 1) ** 0.5)
    layer.bias.requires_grad_(False).grad = None
    assert gradient_norm(layer) == pytest.approx(5.0)
