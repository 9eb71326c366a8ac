"""Several processes: the work of one, shared out; what happens when one of them ends early."""

import json
import multiprocessing
import os
import threading
from itertools import chain
from pathlib import Path

import blob_project
import numpy as np
import pandas as pd
import pytest
import torch
from blob_project import picture_study
from notebook_files import cell, write_notebook
from torch.nn import functional as F

from tcnaps.config import UserError
from tcnaps.data import open_split
from tcnaps.evaluation.evaluate import evaluate, evaluate_dataset
from tcnaps.evaluation.result_files import load_rows, rows_file
from tcnaps.training import checkpoints
from tcnaps.training.meta_training import meta_train
from tcnaps.training.pretraining import augment, pretrain
from tcnaps.training.processes import ProcessError, Team, run_together
from tcnaps_suite.workflow.batch import run_notebook

pytestmark = pytest.mark.slow


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
    return picture_study()


def log_of(root, training="support_and_query"):
    return pd.DataFrame(checkpoints.load(root / f"results/small/checkpoints/{training}.safetensors", "")[1]["log"])


@pytest.mark.parametrize("processes", [2, 3])
def test_the_gradient_of_a_step_is_that_of_one_process(study, processes):
    row, gradients = blob_project.meta_training_step(study)
    threads = torch.get_num_threads()
    shared, found = run_together(processes, blob_project.meta_training_step, study)
    assert shared == row  # the same weights, the same episodes, in their order
    assert torch.get_num_threads() == threads
    for ours, alone in zip(found, gradients):
        torch.testing.assert_close(ours, alone, rtol=1e-4, atol=1e-6 * float(alone.abs().max()))


def test_a_step_of_pretraining_normalises_every_part_by_itself(study):
    row, gradients, averages = run_together(2, blob_project.pretraining_step, study)
    network, images = blob_project.new_classifier(study)
    settings, size = study.pretraining, study.pretraining.batch_size
    numbers = np.random.default_rng([study.backbone_seed, 0]).permutation(images.train)[:size]
    ((pixels, labels),) = images.batches([numbers])
    pixels = augment(pixels, settings, np.random.default_rng([study.backbone_seed, 0, 0]))
    fresh = [buffer.clone() for buffer in network.buffers()]
    losses, of_parts = [], []
    for part in (slice(0, None, 2), slice(1, None, 2)):
        for buffer, start in zip(network.buffers(), fresh):
            buffer.copy_(start)
        loss = F.cross_entropy(network(pixels[part]), labels[part]) / 2
        loss.backward()
        losses.append(loss.item())
        of_parts.append([buffer.clone() for buffer in network.buffers()])
    assert row["loss"] == pytest.approx(sum(losses), rel=1e-6) and 0 <= row["train_accuracy"] <= 1
    for ours, parameter in zip(gradients, network.parameters()):
        torch.testing.assert_close(ours, parameter.grad, rtol=1e-4, atol=1e-5 * float(parameter.grad.abs().max()))
    for ours, one, two in zip(averages, *of_parts):
        torch.testing.assert_close(ours.double(), (one.double() + two) / 2)


def test_rows_are_the_same_with_any_number_of_processes(study):
    alone = load_rows(study, "variable", ["support_and_query"])
    path = rows_file(study, "support_and_query", "variable", "others")
    for processes in (2, 3):
        path.unlink()
        evaluate(study, "support_and_query", processes=processes)
        pd.testing.assert_frame_equal(load_rows(study, "variable", ["support_and_query"]), alone, check_exact=True)


def test_episodes_that_share_batches_share_the_same_in_every_process(study):
    class Deaf(Team):  # each in this process, one after the other
        def gather(self, own):
            return own

    study = study.model_copy(update={"images_at_once": 40})
    model, source = checkpoints.load_model(study, "support_and_query"), open_split(study, "others", "test")
    options = {"training": "support_and_query", "name": "variable", "together": True}
    whole = evaluate_dataset(model, source, study, **options)
    parts = [evaluate_dataset(model, source, study, **options, team=Deaf(rank, 2)) for rank in range(2)]
    joined = pd.concat(parts).sort_values(["episode", "query"], ignore_index=True)
    pd.testing.assert_frame_equal(joined, whole, check_exact=True)


def test_a_notebook_s_kernel_that_has_used_threads_trains_with_two_processes(root, study, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    places = [*Path(__file__).parents[1:3], os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, places)))  # the kernel imports what is tested
    code = (
        "import json, torch\nfrom blob_project import picture_study",
        "from tcnaps.training.meta_training import meta_train",
        "torch.randn(999, 999) @ torch.randn(999, 999), torch.randn(8, 3, 64, 64).sum()\ntorch.get_num_threads()",
        "study = picture_study(name='in-a-notebook')",
        "print(json.dumps(meta_train(study, 'support_and_query', processes=processes).to_dict('records')))",
    )
    for place in ("small", "in-a-notebook"):
        (root / "results" / place / "checkpoints").mkdir(parents=True, exist_ok=True)
    backbone = (root / "results/small/checkpoints/backbone.safetensors").read_bytes()
    (root / "results/in-a-notebook/checkpoints/backbone.safetensors").write_bytes(backbone)
    notebook = write_notebook(root / "notebook.ipynb", cell("processes = 1", "parameters"), *map(cell, code))
    run_notebook(notebook, tmp_path / "executed.ipynb", {"processes": 2}, progress=False)
    outputs = json.loads((tmp_path / "executed.ipynb").read_text())["cells"][-1]["outputs"]
    printed = "".join(chain.from_iterable(output["text"] for output in outputs if output.get("name") == "stdout"))
    pd.testing.assert_frame_equal(pd.DataFrame(json.loads(printed)), log_of(root), rtol=1e-3)


def test_a_killed_process_ends_the_run_which_resumes_with_another_number(root, study):
    study = picture_study(name="killed")
    folder = root / "results/killed/checkpoints"
    folder.mkdir(parents=True)
    (folder / "backbone.safetensors").write_bytes(
        (root / "results/small/checkpoints/backbone.safetensors").read_bytes()
    )
    ended = threading.Event()

    def kill_one():
        while not list(folder.glob("*.state*")) and not ended.wait(0.01):
            pass
        multiprocessing.active_children()[0].kill()

    killer = threading.Thread(target=kill_one)
    killer.start()
    with pytest.raises(ProcessError, match=r"Process \d of 2 was killed by SIGKILL.*continues from there"):
        meta_train(study, "support_and_query", save_every=1, processes=2)
    ended.set()
    killer.join()
    saved, trained = (
        {file: file.read_bytes() for file in folder.glob("*.state*")},
        folder / "support_and_query.safetensors",
    )
    assert saved and not trained.exists()
    log = meta_train(study, "support_and_query", processes=3)
    pd.testing.assert_frame_equal(log, log_of(root), rtol=1e-3)
    assert not multiprocessing.active_children() and not list(folder.glob("*.state*"))
    ends = []  # with two processes throughout, from what was saved and from the beginning
    for states in (saved, {}):
        trained.unlink()
        for file, content in states.items():
            file.write_bytes(content)
        meta_train(study, "support_and_query", processes=2)
        ends.append(trained.read_bytes())
    assert ends[0] == ends[1]


def test_pretraining_with_two_processes_writes_what_one_writes(root, study):
    log = pretrain(picture_study(name="pretrained"), processes=2, save_every=1)
    alone = log_of(root, "backbone")
    assert list(log) == list(alone) and log.n_valid.equals(alone.n_valid)
    weights, ours = (
        checkpoints.load(root / f"results/{name}/checkpoints/backbone.safetensors", "")[0]
        for name in ("small", "pretrained")
    )
    assert weights.keys() == ours.keys() and not list((root / "results/pretrained").rglob("*.state*"))


@pytest.mark.parametrize(
    ("how", "kind", "message"),
    [
        ("error", FloatingPointError, "the loss is nan"),
        ("odd error", ProcessError, "Process 3 of 3: Odd: this and that"),
        ("killed", ProcessError, "Process 3 of 3 was killed by SIGKILL"),
        ("status", ProcessError, "Process 3 of 3 ended with status 7"),
    ],
)
def test_why_a_process_ended_is_said(how, kind, message):
    with pytest.raises(kind, match=message) as caught:
        run_together(3, blob_project.ending, how)
    assert how != "error" or "Process 3 of 3:\nTraceback" in caught.value.__notes__[0]
    assert not multiprocessing.active_children()


def test_too_many_or_too_few_processes_are_refused_before_any_starts(study, root):
    for processes, call, message in (
        (0, lambda n: evaluate(study, "support_and_query", processes=n), "processes is 0; it must be 1"),
        (5, lambda n: meta_train(study, "support", processes=n), "more than meta_training.episodes_per_step, 4"),
        (49, lambda n: pretrain(picture_study(name="other"), processes=n), "more than pretraining.batch_size, 48"),
        (2, lambda n: run_together(n, print, device="cuda:0"), "2 processes on 'cuda:0': each needs a GPU of its own"),
    ):
        with pytest.raises(UserError, match=message):
            call(processes)
