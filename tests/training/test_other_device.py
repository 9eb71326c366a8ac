"""Nothing is left behind on the CPU where a model trains, validates or is evaluated on another device."""

import pytest
import torch
from other_device import DEVICE, Elsewhere, other_device
from small_study import small_study
from trained_study import mapped_blobs

from tcnaps.config import study as config
from tcnaps.evaluation import evaluate as evaluation
from tcnaps.training import checkpoints, meta_training, pretraining


def test_a_tensor_left_behind_is_found():
    with other_device():
        assert isinstance(torch.ones(2, device=DEVICE), Elsewhere)
        with pytest.raises(RuntimeError, match="meets"):
            torch.ones(2, device=DEVICE) + torch.ones(2)


@pytest.mark.slow
@pytest.mark.parametrize("training", ["support_and_query"])
def test_another_device_trains_and_predicts_the_same(trained_root, tmp_path, monkeypatch, training):
    for module in (meta_training, pretraining, evaluation):
        monkeypatch.setattr(module, "open_split", lambda study, name, split: mapped_blobs(tmp_path, name, split))
    monkeypatch.setattr(config, "project_root", lambda: tmp_path)
    study = small_study()
    with other_device():
        pretraining.pretrain(study, device=DEVICE)
        meta_training.meta_train(study, training, device=DEVICE)
        evaluation.evaluate(study, training, device=DEVICE)
    for name in ("backbone", training):
        file = f"results/small/checkpoints/{name}.safetensors"
        here, there = (checkpoints.load(root / file, "")[0] for root in (trained_root, tmp_path))
        for key, value in here.items():
            torch.testing.assert_close(there[key], value, rtol=1e-3, atol=1e-4)
