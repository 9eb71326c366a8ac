"""The whole model on episodes of random images, and the checks of `Episode`."""

from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from untrained import untrained

from tcnaps.method.episode import Episode, scale_pixels
from tcnaps.method.head import Head
from tcnaps.method.model import ModelSettings
from tcnaps.method.variants import TRAININGS, VARIANTS


@pytest.fixture(scope="module")
def episode():
    """4-way 2-shot, 3 queries per class: noisy copies of one pattern per class."""
    generator = torch.Generator().manual_seed(0)
    patterns = torch.rand(4, 3, 4, 4, generator=generator).repeat_interleave(8, 2).repeat_interleave(8, 3)

    def images(per_class):
        noise = 0.2 * torch.randn(4 * per_class, 3, 32, 32, generator=generator)
        return (patterns.repeat_interleave(per_class, 0) + noise).clamp(0, 1) * 2 - 1

    labels = torch.arange(4)
    return Episode(images(2), labels.repeat_interleave(2), images(3), labels.repeat_interleave(3))


@pytest.fixture(scope="module", params=["support", "support_and_query_log_determinant"])
def model(request):
    return untrained(request.param)


def test_logits_after_every_step_and_query_labels_unseen(model, episode):
    with torch.no_grad():
        logits = model(episode, steps=3)
        assert logits.shape == (4, 12, 4)
        blind = Episode(episode.support_images, episode.support_labels, episode.query_images)
        assert torch.equal(model(blind, steps=3), logits)
        assert torch.equal(model.classify(episode, 0, 0).logits, logits[0])


def test_chunks_bound_memory_and_change_nothing(model, episode):
    with torch.no_grad():
        whole = model.features(episode)
        model.settings = ModelSettings(images_at_once=3)
        parts = model.features(episode)
        model.settings = ModelSettings()
    torch.testing.assert_close(parts, whole, rtol=1e-5, atol=1e-5)


def test_chunks_bound_memory_and_change_no_gradient(episode):
    model = untrained("support_and_query").train().double()
    support, query = episode.support_images.double(), episode.query_images.double()
    doubled = replace(episode, support_images=support, query_images=query)
    gradients, computed = [], []
    model.backbone.register_forward_pre_hook(lambda module, inputs: computed.append(len(inputs[0])))
    for chunk in (512, 5):
        model.settings = ModelSettings(clustering_dtype=torch.float64, images_at_once=chunk)
        model.zero_grad()
        model(doubled, steps=0)[0].square().sum().backward()
        gradients.append([p.grad for p in model.parameters() if p.grad is not None])
    n_images = len(episode.support_images) + len(episode.query_images)
    assert computed[0] == n_images and max(computed[1:]) == 5
    assert sum(computed[1:]) == 2 * n_images - 5, "every part but the first once more on the way back"
    assert len(gradients[0]) == len(gradients[1]) > 0
    torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-12)


def test_bfloat16_convolutions_and_float64_clustering(episode):
    plain = untrained("support")
    mixed = untrained("support", precision=torch.bfloat16, clustering_dtype=torch.float64)
    with torch.no_grad():
        exact, rounded = plain.features(episode)[0], mixed.features(episode)[0]
        assert mixed(episode, steps=1).dtype == torch.float64
    assert rounded.dtype == torch.float64 and not torch.equal(rounded.float(), exact)
    assert (rounded - exact).norm() < 0.05 * exact.norm()


def test_only_the_adaptation_learns_and_the_backbone_stays_in_evaluation_mode(model, episode):
    model.train()
    assert not model.backbone.training and model.task_encoder.training
    torch.nn.functional.cross_entropy(model(episode, steps=1)[1], episode.query_labels).backward()
    assert all(p.grad is None for p in model.backbone.parameters())
    assert any(p.grad.abs().max() > 0 for p in model.film_generator.parameters())
    assert all(p.grad is not None for p in model.task_encoder.parameters())
    model.zero_grad()
    model.eval()


def test_unlabelled_images_refine_when_the_head_wants_them(episode):
    model = untrained("support", head=Head(unlabelled="both"))
    extended = replace(episode, unlabelled_images=episode.query_images.flip(3))
    with torch.no_grad():
        with_extra, without = model(extended, steps=2), model(episode, steps=2)
    torch.testing.assert_close(with_extra[0], without[0], rtol=1e-4, atol=1e-4)
    assert not torch.allclose(with_extra[2], without[2], rtol=1e-3)


def test_variants_and_trainings_are_the_papers_table():
    assert len(VARIANTS) == 10 and len(TRAININGS) == 6
    assert {v.training for v in VARIANTS.values()} == set(TRAININGS)
    for name, variant in VARIANTS.items():
        training = TRAININGS[variant.training]
        assert training.log_determinant == ("GMM" in name)
        assert training.refinement_in_training == name.endswith("+")
        transductive = name.removesuffix("+") in ("FEOT", "Transductive", "FEOT GMM", "GMM-EM")
        assert (training.task_embedding == "transductive") == transductive
        assert variant.refinement_at_test == (name not in ("Simple", "FEOT", "GMM", "FEOT GMM"))
        assert training.head.scale == (0.5 if "GMM" in name else 1.0)
    with pytest.raises(ValueError, match="no training 'protonet'"):
        untrained("protonet")


def test_pixels_are_scaled_to_minus_1_and_1():
    pixels = scale_pixels(torch.tensor([0, 255, 51], dtype=torch.uint8).view(1, 1, 1, 3))
    torch.testing.assert_close(pixels.flatten(), torch.tensor([-1.0, 1.0, -0.6]))


def test_an_episode_is_checked_once_and_clearly(episode):
    nan = episode.query_images.clone()
    nan[5, 0, 0, 0] = float("nan")
    labels = episode.support_labels
    bytes_ = torch.arange(8 * 3 * 32 * 32).remainder(256).to(torch.uint8).view(8, 3, 32, 32)
    small = {name: getattr(episode, name)[:, :, :16] for name in ("support_images", "query_images")}
    for changes, message in [
        ({"query_images": nan}, r"query image\(s\) \[5\]"),
        ({"query_images": nan[:0], "query_labels": None}, "query set"),
        ({"support_images": nan[:0], "support_labels": labels[:0]}, "support set"),
        ({"support_labels": torch.where(labels == 2, 3, labels)}, "class 2"),
        ({"support_labels": labels[1:]}, r"support labels of shape \(7,\)"),
        ({"query_labels": episode.query_labels[1:]}, r"query labels of shape \(11,\)"),
        ({"query_labels": episode.query_labels + 1}, "query label 4"),
        ({"unlabelled_images": nan}, "unlabelled image"),
        ({"support_labels": labels.float()}, "torch.float32"),
        ({"support_images": bytes_.permute(0, 2, 3, 1)}, r"uint8 of shape \(8, 32, 32, 3\)"),
        ({"support_images": episode.support_images[:, :1]}, r"shape \(8, 1, 32, 32\)"),
        ({"query_images": bytes_.float()}, r"\[0, 255\]"),
        ({"query_images": nan[:, :, :16]}, "16 × 32 and 32 × 32"),
        (small, "16 × 32"),
    ]:
        with pytest.raises(ValueError, match=message):
            replace(episode, **changes)


def test_an_episode_that_was_moved_is_the_same(episode):
    episode = replace(episode, unlabelled_images=episode.query_images[:2])
    moved = episode.to("cpu")
    assert moved.way == episode.way and torch.equal(moved.shots, episode.shots)
    for name in ("support_images", "support_labels", "query_images", "query_labels", "unlabelled_images"):
        assert torch.equal(getattr(moved, name), getattr(episode, name))


class NoWaiting(TorchDispatchMode):
    """Fails at operations for which the host would wait for another device than the CPU."""

    WAITING = ("_local_scalar_dense", "nonzero", "equal", "is_nonzero", "_linalg_check_errors", "_unique2", "bincount")

    def __torch_dispatch__(self, operation, types, arguments=(), keywords=None):
        assert operation.overloadpacket.__name__ not in self.WAITING
        return operation(*arguments, **(keywords or {}))


def test_features_are_found_without_waiting_for_the_device(episode):
    model = untrained("support_and_query")
    with torch.no_grad(), NoWaiting():
        model.features(episode)


def test_labels_of_any_width_and_images_in_float64_will_do(model, episode):
    labels, images = episode.support_labels.int().numpy(), episode.support_images.double()
    other = replace(episode, support_labels=labels, support_images=images)
    assert other.support_labels.dtype == torch.int64 and other.way == 4
    with torch.no_grad():
        torch.testing.assert_close(model(other, steps=1), model(episode, steps=1), rtol=1e-3, atol=1e-2)
