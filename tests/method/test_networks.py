"""Backbone, FiLM generator and task encoder: shapes, counts, folding and equivalence with the plain computation."""

import copy

import pytest
import torch

from tcnaps.method.backbone import Backbone, FilmGenerator, Modulation
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
