"""Nothing is left behind on the CPU where a model trains, validates or is evaluated on another device."""

import pytest
import torch
from other_device import DEVICE, Elsewhere, other_device
from trained_study import placed

from tcnaps.evaluation.evaluate import evaluate
from tcnaps.training import checkpoints
from tcnaps.training.meta_training import meta_train
from tcnaps.training.pretraining import pretrain


def test_a_tensor_left_behind_is_found():
    with other_device():
        assert isinstance(torch.ones(2, device=DEVICE), Elsewhere)
        with pytest.raises(RuntimeError, match="meets"):
            torch.ones(2, device=DEVICE) + torch.ones(2)


@pytest.mark.slow
def test_another_device_trains_and_predicts_the_same(trained_root, tmp_path):
    with placed(tmp_path) as study, other_device():
        pretrain(study, device=DEVICE)
        meta_train(study, "support_and_query", device=DEVICE)
        evaluate(study, "support_and_query", device=DEVICE)
    for name in ("backbone", "support_and_query"):
        file = f"results/small/checkpoints/{name}.safetensors"
        here, there = (checkpoints.load(root / file, "")[0] for root in (trained_root, tmp_path))
        for key, value in here.items():
            torch.testing.assert_close(there[key], value, rtol=1e-3, atol=1e-4)
