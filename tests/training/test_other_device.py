"""Training, validation and evaluation on a pretended device, whose tensors refuse to meet those of the CPU."""

from contextlib import contextmanager, nullcontext
from unittest.mock import patch

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only
from trained_study import placed

from tcnaps.evaluation.evaluate import evaluate
from tcnaps.training import checkpoints
from tcnaps.training.meta_training import meta_train
from tcnaps.training.pretraining import pretrain

DEVICE = torch.device("meta")  # a kind for which PyTorch looks for no driver
PRODUCTS = (torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__)


class Elsewhere(torch.Tensor):
    """A tensor on `DEVICE`; `inner` has its numbers."""

    @staticmethod
    def __new__(cls, inner):
        layout = {"strides": inner.stride(), "storage_offset": inner.storage_offset(), "dtype": inner.dtype}
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, **layout, device=DEVICE)

    def __init__(self, inner):
        self.inner = inner

    def tolist(self):
        return self.inner.tolist()

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return _dispatch(function, args, kwargs or {})


class _Operations(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return _dispatch(function, args, kwargs or {})


class _Functions(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function is torch.tensor and "device" in kwargs:
            return torch.tensor(*args, **kwargs | {"device": "cpu"}).to(kwargs["device"])
        if function in PRODUCTS and args[0].dim() == 1:  # as a sum: PyTorch would change the result's shape in place
            return (args[0][:, None] * args[1]).sum(0)
        return function(*args, **kwargs)


@contextmanager
def other_device():
    """Within it, `DEVICE` can be given wherever a device is asked for; autocast is off, which knows no such device."""
    with patch("torch.autocast", lambda *args, **kwargs: nullcontext()), _Operations(), _Functions():
        yield


def _dispatch(function, args, kwargs):
    if function is torch.ops.aten.copy_.default:  # between devices, as `.to` does
        function(*map(_inner, args), **kwargs)
        return args[0]
    tensors = [value for value in tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor)]
    there, moved = any(isinstance(tensor, Elsewhere) for tensor in tensors), kwargs.get("device")
    stray = next((tensor for tensor in tensors if not isinstance(tensor, Elsewhere) and tensor.dim()), None)
    if moved is not None:
        there, kwargs = torch.device(moved).type == DEVICE.type, kwargs | {"device": "cpu"}
    elif there and stray is not None:
        raise RuntimeError(f"{function}: a tensor on the CPU, of shape {tuple(stray.shape)}, meets one on a device")
    result = function(*tree_map_only(Elsewhere, _inner, args), **tree_map_only(Elsewhere, _inner, kwargs))
    if function.overloadpacket.__name__.endswith("_"):  # in place
        return args[0]
    return tree_map_only(torch.Tensor, Elsewhere, result) if there else result


def _inner(value):
    return value.inner if isinstance(value, Elsewhere) else value


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
    with placed(tmp_path) as study:
        start = checkpoints.new_model(study, "support_and_query").state_dict()
    for name in ("backbone", "support_and_query"):
        file = f"results/small/checkpoints/{name}.safetensors"
        here, there = (checkpoints.load(root / file, "")[0] for root in (trained_root, tmp_path))
        for key, value in here.items():
            if name == "backbone":
                torch.testing.assert_close(there[key], value, rtol=1e-3, atol=1e-4)
            else:  # Adam moves a weight by its learning rate even where its gradient is rounding alone: compare lengths
                assert torch.dist(there[key].float(), value.float()) <= 0.1 * torch.dist(value.float(), start[key]), key
