"""A frozen, modulated convolution: the same numbers and gradients as autograd's, with less kept on the way."""

import pytest
import torch
from torch.nn import functional as F

from tcnaps.method.fast.fused_film_conv import modulated_conv


def parts(shortcut=False, stride=1, dtype=torch.float64, channels_last=True):
    """An image batch, frozen weights, FiLM and perhaps a shortcut; gradients for all but the weights."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=dtype)

    x, weight, bias, gamma, beta = draw(3, 4, 9, 9), draw(6, 4, 3, 3), draw(6), draw(6), draw(6)
    if channels_last:
        x, weight = (part.contiguous(memory_format=torch.channels_last) for part in (x, weight))
    side = -(-9 // stride)
    added = draw(3, 6, side, side).requires_grad_() if shortcut else None
    return x.requires_grad_(), weight, bias, gamma.requires_grad_(), beta.requires_grad_(), added, stride


def plain(x, weight, bias, gamma, beta, shortcut, stride):
    y = F.conv2d(x, weight, bias, stride, 1) * gamma[:, None, None] + beta[:, None, None]
    return F.relu(y if shortcut is None else y + shortcut)


def ours(x, weight, bias, gamma, beta, shortcut, stride):
    return modulated_conv(x, weight, bias, gamma, beta, shortcut, (stride, stride), (1, 1))


@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("shortcut", [False, True])
def test_values_and_gradients_are_autograds(shortcut, stride, channels_last):
    given = parts(shortcut, stride, channels_last=channels_last)
    learned = [part for part in given[:-1] if part is not None and part.requires_grad]
    assert len(learned) == 3 + shortcut
    expected, actual = plain(*given), ours(*given)
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)
    weights = torch.arange(actual.numel(), dtype=actual.dtype).reshape(actual.shape)
    gradients = [torch.autograd.grad((y * weights).sum(), learned) for y in (expected, actual)]
    torch.testing.assert_close(*gradients, rtol=1e-12, atol=1e-12)


def test_images_that_need_no_gradient_get_none():
    x, *rest = parts()
    y = ours(x.detach(), *rest)
    y.sum().backward()
    assert x.grad is None and rest[2].grad is not None


@pytest.mark.parametrize("shortcut", [False, True])
def test_one_tensor_is_kept_for_the_way_back(shortcut):
    kept = []
    arguments = parts(shortcut=shortcut, dtype=torch.float32)
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        y = ours(*arguments)
    large = [tensor for tensor in kept if tensor.numel() == y.numel()]
    assert [tensor.dtype for tensor in large] == [torch.float32] + [torch.uint8] * shortcut
    assert not any(tensor.shape == arguments[0].shape for tensor in kept), "the input is not needed"


def test_bfloat16_sums_its_gradients_in_the_precision_of_film():
    x, weight, bias, gamma, beta, _, stride = parts(dtype=torch.float32)
    x, weight, bias = (part.detach().bfloat16() for part in (x.repeat(20, 1, 1, 1), weight, bias))
    y = ours(x, weight, bias, gamma, beta, None, stride)
    assert y.dtype == torch.bfloat16
    y.sum().backward()
    assert gamma.grad.dtype == torch.float32
    counts = (y > 0).sum((0, 2, 3)).float()
    assert counts.min() > 512, "more than bfloat16 could count one by one"
    torch.testing.assert_close(beta.grad, counts, rtol=0, atol=0)
