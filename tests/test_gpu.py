"""On a GPU: the numbers of a CPU. Without one these are skipped; tests/training/test_other_device.py pretends one."""

from itertools import chain, repeat
from unittest.mock import DEFAULT, Mock

import pytest
import torch
from blob_project import meta_training_step, picture_study, pretraining_step, write_pictures
from clusters import clusters
from torch import distributed
from torch.nn import functional as F
from trained_study import placed

from tcnaps.episodes.loading import load_episode
from tcnaps.episodes.sampling import draw_episode
from tcnaps.evaluation.evaluate import evaluate
from tcnaps.evaluation.result_files import load_rows
from tcnaps.method.clustering import trajectory
from tcnaps.method.head import Head
from tcnaps.training import checkpoints, meta_training
from tcnaps.training.meta_training import meta_train
from tcnaps.training.pretraining import pretrain
from tcnaps.training.processes import run_together

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
SETTINGS = {"of the paper": {}, "mixture": {"log_determinant": True, "scale": 0.5, "class_prior": "estimated"}}


@pytest.fixture(autouse=True)
def exact_convolutions(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize(("way", "shot", "d"), [(5, 1, 512), (5, 5, 64), (20, 10, 128), (50, 10, 512)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_refines_as_exactly_as_a_cpu(each_strategy, settings, way, shot, d, dtype):
    exact = clusters([shot] * way, [10] * way, d, 0.2, torch.logspace(0.3, -0.5, d))[:3]
    logits = trajectory(*exact, head=Head(**settings, arithmetic="plain"), steps=10)
    errors = {}
    for device in ("cpu", "cuda"):
        support, labels, queries = (tensor.to(device) for tensor in exact)
        result = trajectory(support.to(dtype), labels, queries.to(dtype), head=Head(**settings), steps=10)
        assert result.device.type == device
        errors[device] = (result.cpu().double() - logits).abs().max() / logits.abs().max()
    assert errors["cuda"] < max(10 * errors["cpu"], 1e-9 if dtype == torch.float64 else 1e-4), errors


@pytest.mark.parametrize("each_strategy", ["few images", "many images"], indirect=True)
def test_gradients_pass_through_refinement_as_on_a_cpu(each_strategy):
    features, labels, queries, _ = clusters([3] * 4, [5] * 4, 16, 0.4)
    gradients = []
    for device in ("cpu", "cuda"):
        moved = [tensor.to(device).detach().requires_grad_() for tensor in (features, queries)]
        logits = trajectory(moved[0], labels.to(device), moved[1], head=Head(), steps=3)[-1]
        F.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.long, device=device)).backward()
        gradients.append([tensor.grad.cpu() for tensor in moved])
    torch.testing.assert_close(*gradients, rtol=1e-8, atol=1e-12)


def test_adapted_features_are_those_of_a_cpu(study):
    source = meta_training.open_split(study, "blobs", "train")
    draw = draw_episode(source, study.meta_training.protocol, 0, 0)
    features = []
    for device in ("cpu", "cuda"):
        model, episode = checkpoints.load_model(study, "support_and_query", device), load_episode(source, draw, device)
        assert episode.query_images.device.type == device
        with torch.no_grad():
            support, _, queries = model.features(episode)[:3]
            features.append([support.cpu(), queries.cpu()])
    torch.testing.assert_close(*features, rtol=1e-3, atol=1e-4)


def test_first_steps_are_those_of_a_cpu(root):
    write_pictures(root)
    study = picture_study()
    pretrain(study)
    for step in (pretraining_step, meta_training_step):
        (row, expected, *_), (row_there, gradients, *_) = step(study), step(study, "cuda")
        assert row_there == pytest.approx(row, rel=1e-4)
        scale = torch.cat([gradient.flatten() for gradient in expected]).norm()
        difference = torch.cat([(a.cpu() - b).flatten() for a, b in zip(gradients, expected)]).norm()
        assert difference < 1e-2 * scale  # a CPU's other convolutions change the first step of pretraining by 8e-3


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_an_interrupted_training_goes_on(tmp_path, monkeypatch, precision):
    ends = chain(repeat(DEFAULT, 6), [KeyboardInterrupt], repeat(DEFAULT))
    loss = Mock(wraps=meta_training.episode_loss, side_effect=ends)
    with placed(tmp_path) as study:
        study = study.model_copy(update={"precision": precision})
        pretrain(study, "cuda")
        monkeypatch.setattr(meta_training, "episode_loss", loss)
        with pytest.raises(KeyboardInterrupt):
            meta_train(study, "support_and_query", "cuda", save_every=1)
        log = meta_train(study, "support_and_query", "cuda")
    assert loss.call_count < 7 + 8 and len(log) == 5  # of eight episodes, it did not take all again
    assert log["loss"].iloc[1:].notna().all()


def test_a_group_of_processes_talks_through_nccl(root):
    write_pictures(root)
    study = picture_study()
    run_together(1, _train_and_evaluate, study, "cuda")
    assert len(load_rows(study, "variable")["episode"].unique()) == 4


def _train_and_evaluate(study, device):
    assert "nccl" in distributed.get_backend_config()
    pretrain(study, device)
    meta_train(study, "support_and_query", device)
    evaluate(study, "support_and_query", device)
