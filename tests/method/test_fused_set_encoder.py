"""The set encoder's layer in one step: the same numbers and gradients as its parts, one after the other."""

import pytest
import torch
from torch.nn import functional as F

from tcnaps.method.fast.networks import PooledLayer
from tcnaps.method.task_encoder import SetEncoder


def arguments(size=(9, 8), n=5, inputs=3):
    """Images, and a layer's weights with gammas of both signs."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    x = draw(n, inputs, *size).contiguous(memory_format=torch.channels_last)
    return [part.requires_grad_() for part in (x, draw(6, inputs, 3, 3), draw(6), draw(6), draw(6))]


def plain(x, weight, bias, gamma, beta):
    x = F.batch_norm(F.conv2d(x, weight, bias, padding=1), None, None, gamma, beta, training=True, eps=1e-5)
    return F.max_pool2d(F.relu(x), 2)


@pytest.mark.parametrize("inputs", [3, 6])  # computed again on the way back, and kept
@pytest.mark.parametrize("at_once", [1, 2, 5, 9])
@pytest.mark.parametrize("size", [(9, 8), (4, 7), (2, 2)])
def test_values_and_gradients_are_those_of_the_parts(size, at_once, inputs):
    given = arguments(size, inputs=inputs)
    assert (given[3] < 0).any() and (given[3] > 0).any()
    expected, pooled = plain(*given), PooledLayer.apply(*given, 1e-5, at_once, inputs < 6)
    torch.testing.assert_close(pooled, expected, rtol=1e-12, atol=1e-12)
    weights = torch.arange(pooled.numel(), dtype=pooled.dtype).reshape(pooled.shape)
    gradients = [torch.autograd.grad((y * weights).sum(), given) for y in (expected, pooled)]
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-9)


def test_images_that_need_no_gradient_get_none():
    x, *weights = arguments()
    x = x.detach()
    PooledLayer.apply(x, *weights, 1e-5, 2, True).sum().backward()
    assert x.grad is None and all(weight.grad is not None for weight in weights)


def test_bfloat16_keeps_statistics_in_the_parameters_precision():
    given = [part.detach().float() for part in arguments((32, 32))]
    given[0] = given[0] + 20  # a mean that bfloat16 keeps to 1 in 256 only would show
    rounded = given[0].to(torch.bfloat16)
    pooled = PooledLayer.apply(rounded, *given[1:], 1e-5, 2, True)
    weights = given[1].to(torch.bfloat16).float()
    x = F.conv2d(rounded.float(), weights, padding=1).to(torch.bfloat16).float()
    expected = F.max_pool2d(F.relu(F.batch_norm(x, None, None, *given[3:], training=True)), 2)
    assert pooled.dtype == torch.bfloat16
    torch.testing.assert_close(pooled.float(), expected, rtol=0.01, atol=0.01)


def test_one_number_a_channel_has_no_variance():
    x, *weights = (part.detach().float() for part in arguments((2, 2), n=1))
    pooled = PooledLayer.apply(x[..., :1, :1].expand(1, 3, 2, 2).to(torch.bfloat16), *weights, 1e-5, 1, True)
    assert pooled.isfinite().all()


def test_the_set_encoder_is_the_same_by_layers_and_in_one_step():
    torch.manual_seed(0)
    encoder, images = SetEncoder().double(), torch.randn(5, 3, 40, 36, dtype=torch.float64)
    fast = encoder(images)
    encoder.arithmetic = "plain"
    torch.testing.assert_close(fast, encoder(images), rtol=1e-10, atol=1e-10)
