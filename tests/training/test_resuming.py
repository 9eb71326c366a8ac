"""What a stopped training leaves; that a killed one (tests/killing.py) goes on and ends in the same bits."""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from tcnaps.training import resuming
from tcnaps.training.resuming import CURVES, Diverged, Resumable, accuracy_and_confidence, run_steps


@pytest.fixture
def path(tmp_path):
    return tmp_path / "checkpoints" / "support.safetensors"


def row(loss, **more):
    return {"episode": 16, "loss": loss, "train_accuracy": 0.5, "confidence": 0.4} | more


def logged(path, losses, first=0, **more):
    time.sleep(1 - time.time() % 1)  # TensorBoard reads event files by the second in which they were begun
    rows = [row(loss, learning_rate=0.1, **more) for loss in losses]
    state = Resumable(path, "key", {}, {"steps": first})
    run_steps(state, 1000, lambda done: rows, dict, "meta_training", 1000)


def test_a_row_per_step_and_none_twice_after_an_interruption(path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    logged(path, [9.0, 9.0, 9.0])  # of an earlier training
    logged(path, [5.0, 4.0, 3.5, 9.9])  # the state of step 2 was the last that was saved
    logged(path, [3.0], first=2)
    logged(path, [2.5], first=3, valid_accuracy=0.6)
    events = accumulator.EventAccumulator(str(path.parents[1] / "watch" / "support")).Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [(1, 5.0), (2, 4.0), (3, 3.0), (4, 2.5)]
    assert set(events.Tags()["scalars"]) == set(CURVES)


def test_without_tensorboard_nothing_is_written(path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    logged(path, [1.0])
    assert not (path.parents[1] / "watch").exists()


def trained(path, losses, spoiled):
    """A training whose weight is the number of its steps, but for a spoiled one; its state is saved at every third."""
    weight = torch.nn.Linear(1, 1)
    torch.nn.init.zeros_(weight.weight)

    def steps(first):
        assert weight.weight.item() == first
        for step, loss in enumerate(losses[first:], first + 1):
            if loss is KeyboardInterrupt:
                raise loss
            with torch.no_grad():
                weight.weight += float("nan") if step == spoiled else 1
            yield row(loss)

    run_steps(Resumable(path, "key", {"weight": weight}, {}), 3, steps, dict, "meta_training", 1000)


@pytest.mark.parametrize(
    ("steps", "end", "spoiled", "kept"),  # the weights after step `spoiled` are not finite
    [(7, KeyboardInterrupt, 0, 6), (7, np.nan, 0, 6), (7, np.inf, 0, 6), (6, np.nan, 6, 3), (3, np.nan, 2, None)],
)
def test_the_state_that_is_kept_has_finite_weights(path, steps, end, spoiled, kept, monkeypatch):
    monkeypatch.setattr(resuming, "SAVING", 1000)  # here steps take less time than to save
    for _ in range(2):  # started again with unchanged settings, it ends at the same step
        with pytest.raises((Diverged, KeyboardInterrupt)):
            trained(path, [5.0] * steps + [end], spoiled)
        progress = {"steps": None}
        Resumable(path, "key", {}, progress)
        assert progress["steps"] == kept


def test_measures_are_those_of_their_definitions():
    logits, labels = torch.tensor([[2.0, 0.0], [0.0, 1.0], [3.0, 0.0]]), torch.tensor([0, 1, 1])
    accuracy, confidence = accuracy_and_confidence(logits, labels)
    assert accuracy == pytest.approx(2 / 3)
    assert confidence == pytest.approx(np.mean([1 / (1 + np.exp(-gap)) for gap in (2, 1, 3)]))


@pytest.mark.slow
def test_killed_trainings_and_evaluations_end_in_the_same_bits():
    script = Path(__file__).parents[1] / "killing.py"
    run = subprocess.run([sys.executable, script, "--trials", "1", "--kills", "2"], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.splitlines()[-1] == "1 of 1 trials ended in the same 4 files"
