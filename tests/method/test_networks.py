"""Backbone, FiLM generator and task encoder: shapes, counts, folding, the numbers of plain arithmetic."""

import copy

import pytest
import torch
from torch.nn import functional as F

from tcnaps.method.backbone import Backbone, FilmGenerator, Modulation
from tcnaps.method.fast.networks import PooledLayer
from tcnaps.method.task_encoder import SetEncoder, TaskEncoder, mean_of_class_means


@pytest.fixture(scope="module")
def backbone():
    """A backbone whose batch-norms are as uneven as after training."""
    torch.manual_seed(0)
    network = Backbone()
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.2)
            module.running_var.uniform_(0.5, 2)
            torch.nn.init.normal_(module.weight, 1, 0.2)
            torch.nn.init.normal_(module.bias, 0, 0.2)
    return network.eval().requires_grad_(False)


def random_film(requires_grad=False):
    generator = torch.Generator().manual_seed(1)
    film = []
    for channels in (64, 128, 256, 512):
        for _ in range(4):
            gamma, beta = 0.3 * torch.randn(2, channels, generator=generator)
            gamma += 1
            film.append(Modulation(gamma.requires_grad_(requires_grad), beta.requires_grad_(requires_grad)))
    return film


def test_parameter_counts_are_the_papers(backbone):
    assert sum(p.numel() for p in backbone.parameters()) == 11_171_904  # 11.17 M
    generator = FilmGenerator()
    assert round(sum(p.numel() for p in generator.parameters()) / 1e6, 2) == 8.45
    film = generator(torch.zeros(64))
    assert len(film) == 16 and sum(m.gamma.numel() for m in film) == sum(m.beta.numel() for m in film) == 3_840


@pytest.fixture
def plain(backbone):
    """The same network in plain arithmetic."""
    network = copy.deepcopy(backbone)
    network.arithmetic = "plain"
    return network


@pytest.mark.parametrize("size", [32, 41])
def test_folded_equals_plain(backbone, plain, size):
    images = torch.randn(3, 3, size, size, generator=torch.Generator().manual_seed(2)).clamp(-1, 1)
    film = random_film()
    features = backbone(images, film)
    assert features.shape == (3, 512)
    torch.testing.assert_close(features, plain(images, film), rtol=1e-4, atol=1e-5)


def test_gradients_reach_gamma_and_beta_as_in_plain_arithmetic(backbone, plain):
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(2))
    gradients = []
    for network in (backbone, plain):
        film = random_film(requires_grad=True)
        network(images, film).square().sum().backward()
        gradients.append([part.grad for modulation in film for part in modulation])
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-3, atol=1e-3)


def test_without_film_and_with_a_neutral_one_are_equal(backbone):
    images = torch.randn(2, 3, 32, 32)
    neutral = [Modulation(torch.ones_like(m.gamma), torch.zeros_like(m.beta)) for m in random_film()]
    torch.testing.assert_close(backbone(images), backbone(images, neutral))


def test_film_starts_close_to_neutral_and_penalty_is_the_sum_of_squares():
    torch.manual_seed(0)
    generator = FilmGenerator()
    film = generator(torch.randn(64))
    assert max((m.gamma - 1).abs().max() for m in film) < 0.05 and max(m.beta.abs().max() for m in film) < 0.05
    squares = sum(p.square().sum() for name, p in generator.named_parameters() if name.endswith("regulariser"))
    torch.testing.assert_close(generator.penalty(), squares)


def test_mean_of_class_means_by_hand():
    encoded = torch.tensor([[0.0, 1.0], [2.0, 3.0], [10.0, 20.0]])
    torch.testing.assert_close(mean_of_class_means(encoded, torch.tensor([0, 0, 1])), torch.tensor([5.5, 11.0]))


def test_an_embedding_is_the_plain_mean_of_the_support_set_or_uses_both_sets_in_any_order():
    torch.manual_seed(0)
    plain, encoder = (TaskEncoder(kind).eval() for kind in ("support_only", "transductive"))
    support, query, labels = torch.randn(5, 3, 32, 32), torch.randn(4, 3, 32, 32), torch.tensor([0, 0, 0, 1, 1])
    torch.testing.assert_close(plain(support, labels, query), plain.set_encoder(support).mean(0))
    assert torch.equal(plain(support, labels, query), plain(support, labels, 2 * query))
    embedding = encoder(support, labels, query)
    assert embedding.shape == (64,)
    assert not torch.allclose(embedding, encoder(support, labels, query.flip(2)), atol=1e-4)
    order = torch.tensor([3, 0, 4, 2, 1])
    torch.testing.assert_close(encoder(support[order], labels[order], query.flip(0)), embedding, rtol=1e-4, atol=1e-5)


def test_encoding_a_set_leaves_no_trace():
    encoder = SetEncoder()
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    encoder(torch.randn(1, 3, 32, 32))
    assert all(torch.equal(before[name], value) for name, value in encoder.state_dict().items())


def arguments(size=(9, 8), n=5, inputs=3):
    """Images, and a layer's weights with gammas of both signs."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    x = draw(n, inputs, *size).contiguous(memory_format=torch.channels_last)
    return [part.requires_grad_() for part in (x, draw(6, inputs, 3, 3), draw(6), draw(6), draw(6))]


@pytest.mark.parametrize("inputs", [3, 6])  # computed again on the way back, and kept
@pytest.mark.parametrize("at_once", [1, 2, 5, 9])
@pytest.mark.parametrize("size", [(9, 8), (4, 7), (2, 2)])
def test_values_and_gradients_are_those_of_the_parts(size, at_once, inputs):
    given = arguments(size, inputs=inputs)
    assert (given[3] < 0).any() and (given[3] > 0).any()
    x = F.batch_norm(F.conv2d(*given[:3], padding=1), None, None, *given[3:], training=True, eps=1e-5)
    expected, pooled = F.max_pool2d(F.relu(x), 2), PooledLayer.apply(*given, 1e-5, at_once, inputs < 6)
    torch.testing.assert_close(pooled, expected, rtol=1e-12, atol=1e-12)
    weights = torch.arange(pooled.numel(), dtype=pooled.dtype).reshape(pooled.shape)
    gradients = [torch.autograd.grad((y * weights).sum(), given) for y in (expected, pooled)]
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-9)


def test_bfloat16_keeps_statistics_in_the_parameters_precision():
    given = [part.detach().float() for part in arguments((32, 32))]
    given[0] = given[0] + 20  # a mean that bfloat16 keeps to 1 in 256 only would show
    rounded = given[0].to(torch.bfloat16)
    pooled = PooledLayer.apply(rounded, *given[1:], 1e-5, 2, True)
    x = F.conv2d(rounded.float(), given[1].to(torch.bfloat16).float(), padding=1).to(torch.bfloat16).float()
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
