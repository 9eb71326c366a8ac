"""Several processes: the work of one, shared out; what happens when one of them ends early."""

import os
import time
from multiprocessing import get_context
from pathlib import Path

import blob_project
import light_tasks
import numpy as np
import pandas as pd
import psutil
import pytest
import torch
from blob_project import picture_study
from torch.nn import functional as F

from tcnaps.config import UserError
from tcnaps.evaluation.evaluate import evaluate
from tcnaps.evaluation.result_files import load_rows, rows_file
from tcnaps.training import checkpoints
from tcnaps.training.meta_training import meta_train
from tcnaps.training.pretraining import augment, pretrain
from tcnaps.training.processes import ProcessError, run_together

pytestmark = pytest.mark.slow
PLACES = Path(__file__).parents[1:3]  # the processes import what is tested, and this project's tests


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A study in a project in which one process has trained and evaluated."""
    root = tmp_path_factory.mktemp("root")
    blob_project.write_pictures(root)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        patch.setenv("PYTHONPATH", os.pathsep.join(map(str, PLACES)))
        study = picture_study()
        pretrain(study)
        meta_train(study, "support_and_query")
        evaluate(study, "support_and_query")
        yield study


def log_of(study, name):
    return pd.DataFrame(checkpoints.load(checkpoints.checkpoint_folder(study) / f"{name}.safetensors", "")[1]["log"])


def test_two_processes_do_the_work_of_one(study, tmp_path):
    alone = load_rows(study, "variable", ["support_and_query"])
    rows_file(study, "support_and_query", "variable", "others").unlink()
    run_together(2, blob_project.shared_work, study, "cpu", file=str(tmp_path / "step"))
    first_steps = [torch.load(tmp_path / f"step-{rank}") for rank in (0, 1)]
    torch.testing.assert_close(*first_steps, rtol=0, atol=0)
    gathered, of_meta_training, of_pretraining = first_steps[0]
    assert gathered == [0, 10, 20, 30, 40]
    check_meta_training(study, *of_meta_training)
    check_pretraining(study, *of_pretraining)
    assert list(log_of(picture_study(name="shared"), "backbone")) == list(log_of(study, "backbone"))
    pd.testing.assert_frame_equal(load_rows(study, "variable", ["support_and_query"]), alone, check_exact=True)


def check_meta_training(study, row, gradients):
    """The gradient is that of one process."""
    expected_row, expected = blob_project.meta_training_step(study)
    assert row == expected_row  # the same weights, and the same episodes in their order
    for gradient, alone in zip(gradients, expected, strict=True):
        torch.testing.assert_close(gradient, alone, rtol=1e-4, atol=1e-6 * float(alone.abs().max()))


def check_pretraining(study, row, gradients, averages):
    """Each part of the batch is normalised by itself."""
    network, images = blob_project.new_classifier(study)
    settings, size = study.pretraining, study.pretraining.batch_size
    numbers = np.random.default_rng([study.backbone_seed, 0]).permutation(images.train)[:size]
    pixels, labels = images.batch(numbers)
    pixels = augment(pixels, settings, np.random.default_rng([study.backbone_seed, 0, 0]))
    start = [buffer.clone() for buffer in network.buffers()]
    losses, averages_of_parts = [], []
    for part in (slice(0, None, 2), slice(1, None, 2)):
        for buffer, value in zip(network.buffers(), start):
            buffer.copy_(value)
        loss = F.cross_entropy(network(pixels[part]), labels[part]) / 2
        loss.backward()
        losses.append(loss.item())
        averages_of_parts.append([buffer.clone() for buffer in network.buffers()])
    assert row["loss"] == pytest.approx(sum(losses), rel=1e-6) and 0 <= row["train_accuracy"] <= 1
    for gradient, parameter in zip(gradients, network.parameters(), strict=True):
        scale = float(parameter.grad.abs().max())
        torch.testing.assert_close(gradient, parameter.grad, rtol=1e-4, atol=1e-5 * scale)
    for average, one, two in zip(averages, *averages_of_parts, strict=True):
        torch.testing.assert_close(average.double(), (one.double() + two) / 2)


def test_a_killed_process_ends_the_run_which_resumes_with_another_number(study):
    other = picture_study(name="killed")
    folder, own = checkpoints.checkpoint_folder(other), checkpoints.backbone_file(study)
    folder.mkdir(parents=True)
    (folder / "backbone.safetensors").write_bytes(own.read_bytes())
    with pytest.raises(ProcessError, match=r"process 1 terminated with signal SIGKILL"):
        run_together(2, blob_project.killed, other, "cpu")
    assert list(folder.glob("*.state.pt")) and not (folder / "support_and_query.safetensors").exists()
    log = meta_train(other, "support_and_query")
    pd.testing.assert_frame_equal(log, log_of(study, "support_and_query"), rtol=1e-3)
    assert not list(folder.glob("*.state.pt"))


def test_the_error_of_a_process_is_reported(study):
    with pytest.raises(ProcessError, match=r"(?s)Process 1 terminated .*FloatingPointError: the loss is nan"):
        run_together(2, light_tasks.failing, study, "cpu")


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_all_processes_end_with_the_one_that_started_them(study, tmp_path):
    task = 2, light_tasks.sleeping, study, "cpu"
    starter = get_context("fork").Process(target=run_together, args=task, kwargs={"folder": str(tmp_path)})
    starter.start()
    end = time.monotonic() + 120
    while len(list(tmp_path.iterdir())) < 2:
        assert time.monotonic() < end
        time.sleep(0.05)
    processes = psutil.Process(starter.pid).children(recursive=True)
    assert {int(file.name) for file in tmp_path.iterdir()} <= {process.pid for process in processes}
    starter.kill()
    starter.join()
    _, alive = psutil.wait_procs(processes, 20)
    assert not alive


@pytest.mark.parametrize(
    ("processes", "call", "name"),
    [
        (0, lambda study, n: evaluate(study, "support_and_query", processes=n), "processes is 0"),
        (5, lambda study, n: meta_train(study, "support", processes=n), "meta_training.episodes_per_step"),
        (49, lambda study, n: pretrain(picture_study(name="other"), processes=n), "pretraining.batch_size"),
        (2, lambda study, n: evaluate(study, "support_and_query", "cuda:0", processes=n), "cuda:0"),
    ],
)
def test_too_many_or_too_few_processes_are_refused_before_any_starts(study, processes, call, name):
    with pytest.raises(UserError, match=name):
        call(study, processes)
