"""Several processes: the work of one, shared out; what happens when one of them ends early."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import blob_project
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
from tcnaps.training.launching import ProcessError, run_together
from tcnaps.training.meta_training import meta_train
from tcnaps.training.pretraining import augment, pretrain

pytestmark = pytest.mark.slow
PLACES = Path(__file__).parents[1:3]  # the processes import what is tested, and this project's tests


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A project's root in which one process has trained and evaluated."""
    root = tmp_path_factory.mktemp("root")
    blob_project.write_pictures(root)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        study = picture_study()
        pretrain(study)
        meta_train(study, "support_and_query")
        evaluate(study, "support_and_query")
    return root


@pytest.fixture
def study(root, monkeypatch):
    monkeypatch.chdir(root)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, PLACES)))
    return picture_study()


def wait_until(happens, seconds=120):
    end = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < end
        time.sleep(0.02)


def log_of(root, name, study="small"):
    return pd.DataFrame(checkpoints.load(root / f"results/{study}/checkpoints/{name}.safetensors", "")[1]["log"])


@pytest.fixture
def first_steps(study, tmp_path):
    """What each of two processes computed in a first step of each kind."""
    run_together(2, "blob_project:first_steps", study, "cpu", file=str(tmp_path / "step"))
    return [torch.load(tmp_path / f"step-{rank}") for rank in (0, 1)]


def test_first_steps_of_two_processes(study, first_steps):
    for gathered, of_meta_training, of_pretraining in first_steps:
        assert gathered == [0, 10, 20, 30, 40]
        check_meta_training(study, *of_meta_training)
        check_pretraining(study, *of_pretraining)
    averages = [of_pretraining[2] for _, _, of_pretraining in first_steps]
    assert all(torch.equal(one, two) for one, two in zip(*averages))


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
    ((pixels, labels),) = images.batches([numbers])
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


def test_rows_are_the_same_with_two_processes(study):
    alone = load_rows(study, "variable", ["support_and_query"])
    rows_file(study, "support_and_query", "variable", "others").unlink()
    evaluate(study, "support_and_query", processes=2)
    pd.testing.assert_frame_equal(load_rows(study, "variable", ["support_and_query"]), alone, check_exact=True)


def test_a_killed_process_ends_the_run_which_resumes_with_another_number(root, study):
    folder = root / "results/killed/checkpoints"
    log = pretrain(picture_study(name="killed"), processes=2)
    assert list(log) == list(log_of(root, "backbone")) and log.equals(log_of(root, "backbone", "killed"))
    backbone = (root / "results/small/checkpoints/backbone.safetensors").read_bytes()
    (folder / "backbone.safetensors").write_bytes(backbone)

    def kill_one():
        wait_until(lambda: list(folder.glob("*.state.pt")))
        launcher = psutil.Process().children()[-1]
        launcher.children()[-1].kill()

    killer = threading.Thread(target=kill_one)
    killer.start()
    with pytest.raises(ProcessError, match=r"(?s)rank .*: [01] .*SIGKILL"):
        meta_train(picture_study(name="killed"), "support_and_query", save_every=1, processes=2)
    killer.join()
    assert list(folder.glob("*.state.pt")) and not (folder / "support_and_query.safetensors").exists()
    log = meta_train(picture_study(name="killed"), "support_and_query")
    pd.testing.assert_frame_equal(log, log_of(root, "support_and_query"), rtol=1e-3)
    assert not list(folder.glob("*.state.pt"))


def test_the_error_of_a_process_is_reported(study):
    with pytest.raises(ProcessError, match=r"(?s)rank .*: 1 .*FloatingPointError: the loss is nan"):
        run_together(2, "blob_project:failing", study, "cpu")


def test_all_processes_end_with_the_one_that_started_them(study, tmp_path):
    code = f"""if True:
        from blob_project import picture_study
        from tcnaps.training.launching import run_together
        run_together(2, "blob_project:sleeping", picture_study(), "cpu", file={str(tmp_path / "number")!r})
    """
    run = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    files = [tmp_path / f"number-{rank}" for rank in (0, 1)]
    wait_until(lambda: all(file.exists() and file.read_text() for file in files))
    processes = [psutil.Process(int(file.read_text())) for file in files]
    processes += psutil.Process(run.pid).children()
    run.send_signal(signal.SIGKILL)
    run.wait()
    _, alive = psutil.wait_procs(processes, 20)
    assert not alive


def test_too_many_or_too_few_processes_are_refused_before_any_starts(study):
    for processes, call, name in (
        (0, lambda n: evaluate(study, "support_and_query", processes=n), "processes is 0"),
        (5, lambda n: meta_train(study, "support", processes=n), "meta_training.episodes_per_step"),
        (49, lambda n: pretrain(picture_study(name="other"), processes=n), "pretraining.batch_size"),
        (2, lambda n: evaluate(study, "support_and_query", "cuda:0", processes=n), "cuda:0"),
    ):
        with pytest.raises(UserError, match=name):
            call(processes)
