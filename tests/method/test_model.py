"""The whole model on episodes of its own making, `Episode`'s checks, and checkpoints."""

from dataclasses import replace

import pytest
import torch
from small_study import SIZE, blobs, small_study
from waiting import Operations

from tcnaps.config import FixedProtocol, study as config
from tcnaps.config.storage import file_digest
from tcnaps.episodes.loading import load_episode
from tcnaps.episodes.sampling import draw_episode
from tcnaps.method.backbone import Backbone
from tcnaps.method.episode import Episode, scale_pixels
from tcnaps.method.model import TRAININGS, VARIANTS, TransductiveCNAPS, head_of
from tcnaps.training.checkpoints import CheckpointError, load_model, save


@pytest.fixture(scope="module")
def episode():
    source = blobs("blobs", "test")
    return load_episode(
        source, draw_episode(source, FixedProtocol(way=4, shot=2, queries_per_class=3), seed=0, index=0)
    )


@pytest.fixture(scope="module", params=["support", "support_and_query_log_determinant"])
def model(request):
    torch.manual_seed(0)
    return TransductiveCNAPS(request.param, Backbone()).eval()


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
        model.chunk = 3
        parts = model.features(episode)
        model.chunk = 512
    torch.testing.assert_close(parts[0], whole[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(parts[2], whole[2], rtol=1e-5, atol=1e-5)


def test_chunks_bound_memory_and_change_no_gradient(episode):
    torch.manual_seed(0)
    model = TransductiveCNAPS("support_and_query", Backbone()).train().double()
    model.clustering_dtype = torch.float64
    doubled = replace(
        episode, support_images=episode.support_images.double(), query_images=episode.query_images.double()
    )
    found, computed = [], []
    model.backbone.register_forward_pre_hook(lambda module, inputs: computed.append(len(inputs[0])))
    for chunk in (512, 5):
        model.chunk = chunk
        model.zero_grad()
        model(doubled, steps=0)[0].square().sum().backward()
        found.append([p.grad for p in model.parameters() if p.grad is not None])
    n_images = len(episode.support_images) + len(episode.query_images)
    assert computed[0] == n_images and max(computed[1:]) == 5
    assert sum(computed[1:]) == 2 * n_images - 5, "every part but the first once more on the way back"
    assert len(found[0]) == len(found[1]) > 0
    for whole, parts in zip(*found):
        torch.testing.assert_close(parts, whole, rtol=1e-9, atol=1e-12)


def test_bfloat16_convolutions_and_float64_clustering(episode):
    torch.manual_seed(0)
    backbone = Backbone()
    plain = TransductiveCNAPS("support", backbone).eval()
    mixed = TransductiveCNAPS("support", backbone, precision=torch.bfloat16, clustering_dtype=torch.float64).eval()
    mixed.load_state_dict(plain.state_dict())
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
    torch.manual_seed(0)
    head = head_of("support")
    model = TransductiveCNAPS("support", Backbone(), type(head)(unlabelled="both")).eval()
    extended = Episode(
        episode.support_images,
        episode.support_labels,
        episode.query_images,
        unlabelled_images=episode.query_images.flip(3),
    )
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
        assert head_of(variant.training).scale == (0.5 if "GMM" in name else 1.0)
    with pytest.raises(ValueError, match="no training 'protonet'"):
        TransductiveCNAPS("protonet", Backbone())


def test_pixels_are_scaled_to_minus_1_and_1():
    pixels = scale_pixels(torch.tensor([0, 255, 51], dtype=torch.uint8).view(1, 1, 1, 3))
    torch.testing.assert_close(pixels.flatten(), torch.tensor([-1.0, 1.0, -0.6]))


def changed(episode, **changes):
    names = ("support_images", "support_labels", "query_images", "query_labels", "unlabelled_images")
    return Episode(**{name: getattr(episode, name) for name in names} | changes)


def test_an_episode_is_checked_once_and_clearly(episode):
    nan = episode.query_images.clone()
    nan[5, 0, 0, 0] = float("nan")
    labels = episode.support_labels
    for changes, message in [
        ({"query_images": nan}, r"query image\(s\) \[5\] have pixels that are not finite"),
        ({"query_images": nan[:0], "query_labels": None}, "query set is empty"),
        ({"support_images": nan[:0], "support_labels": labels[:0]}, "support set is empty"),
        ({"support_labels": labels + 1}, "labels start at 1"),
        ({"support_labels": torch.where(labels == 2, 3, labels)}, "class 2 has no support image"),
        ({"support_labels": labels[1:]}, "8 support images but 7 support labels"),
        ({"query_labels": episode.query_labels[1:]}, "12 query images but 11 query labels"),
        ({"query_labels": episode.query_labels + 1}, "query label 4 has no class in the support set"),
        ({"unlabelled_images": nan}, "unlabelled image"),
    ]:
        with pytest.raises(ValueError, match=message):
            changed(episode, **changes)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(config, "project_root", lambda: tmp_path)
    folder = tmp_path / "results" / "small" / "checkpoints"
    torch.manual_seed(0)
    backbone = Backbone()
    save(folder / "backbone.safetensors", backbone.state_dict(), {"study": "small"})
    model = TransductiveCNAPS("support", backbone)
    save(
        folder / "support.safetensors",
        model.adaptation_state(),
        {"backbone": file_digest(folder / "backbone.safetensors")},
    )
    return folder


def test_a_model_comes_back_as_it_was_saved(folder, episode):
    torch.manual_seed(0)
    model = TransductiveCNAPS("support", Backbone()).eval()
    loaded = load_model(small_study(image_size=SIZE), "support")
    with torch.no_grad():
        assert torch.equal(loaded(episode, steps=2), model(episode, steps=2))


def test_checkpoints_that_do_not_fit_are_refused(folder):
    study = small_study()
    with pytest.raises(
        CheckpointError,
        match="no checkpoint .*support_and_query.safetensors. Run notebooks/03-meta-train.ipynb with training = 'support_and_query'",
    ):
        load_model(study, "support_and_query")
    save(folder / "support_and_query.safetensors", {}, {"backbone": "of another day"})
    with pytest.raises(CheckpointError, match="meta-trained on another backbone"):
        load_model(study, "support_and_query")
    save(
        folder / "support_and_query.safetensors",
        {"surplus": torch.zeros(1)},
        {"backbone": file_digest(folder / "backbone.safetensors")},
    )
    with pytest.raises(CheckpointError, match="does not fit the model: missing film_generator"):
        load_model(study, "support_and_query")
    (folder / "support_and_query.safetensors").write_bytes(b"not a checkpoint at all")
    with pytest.raises(CheckpointError, match="can't be read"):
        load_model(study, "support_and_query")
    save(folder / "support_and_query.safetensors", {}, {"format": 999})
    with pytest.raises(CheckpointError, match="not written by this version"):
        load_model(study, "support_and_query")
    (folder / "backbone.safetensors").unlink()
    with pytest.raises(CheckpointError, match="02-pretrain"):
        load_model(study, "support")


def several(dtype=torch.float32):
    """Episodes of different way, shot, queries and, one of them, with unlabelled images."""

    def images(n):
        return torch.rand(n, 3, 32, 32, generator=generator, dtype=dtype) * 2 - 1

    generator, episodes = torch.Generator().manual_seed(3), []
    for way, shot, queries, unlabelled in ((3, 1, 2, 0), (2, 4, 3, 5), (4, 2, 1, 0)):
        labels = torch.arange(way).repeat_interleave(shot)
        extra = images(unlabelled) if unlabelled else None
        episodes.append(Episode(images(way * shot), labels, images(way * queries), unlabelled_images=extra))
    return episodes


def test_an_episode_that_was_moved_is_the_same():
    for episode in several():
        moved = episode.to("cpu")
        assert moved.way == episode.way and torch.equal(moved.shots, episode.shots)
        for name in ("support_images", "support_labels", "query_images", "query_labels", "unlabelled_images"):
            own, other = getattr(moved, name), getattr(episode, name)
            assert own is other is None or torch.equal(own, other)


@pytest.mark.parametrize("chunk", [512, 7])
@pytest.mark.parametrize("training", ["support_and_query", "support"])
def test_episodes_together_have_the_features_they_have_alone(training, chunk):
    torch.manual_seed(0)
    model = TransductiveCNAPS(training, Backbone()).eval().double()
    with torch.no_grad():
        for parameter in model.film_generator.parameters():  # far from gamma 1 and beta 0
            parameter.normal_(0, 0.2)
    model.clustering_dtype, episodes = torch.float64, several(torch.float64)
    with torch.no_grad():
        alone = [model.features(episode) for episode in episodes]
        model.chunk = chunk
        together = model.features_together(episodes)
    assert (alone[0][0][0] - alone[1][0][0]).abs().max() > 1e-3
    for one, other in zip(alone, together):
        assert torch.equal(one[1], other[1]) and (one[3] is None) == (other[3] is None)
        for which in (0, 2, 3):
            if one[which] is not None:
                torch.testing.assert_close(other[which], one[which], rtol=1e-9, atol=1e-9)


def test_features_are_found_without_waiting_for_the_device():
    model, episodes = TransductiveCNAPS("support_and_query", Backbone()).eval(), several()
    with torch.no_grad(), Operations() as operations:
        model.features_together(episodes)
    assert not operations.waiting


def test_gradients_of_episodes_together_are_those_alone():
    torch.manual_seed(0)
    model = TransductiveCNAPS("support_and_query", Backbone()).train().double()
    model.clustering_dtype, episodes, found = torch.float64, several(torch.float64), []
    for call in (lambda: [model.features(episode) for episode in episodes], lambda: model.features_together(episodes)):
        model.zero_grad()
        sum(features[0].square().sum() + features[2].sum() for features in call()).backward()
        found.append([p.grad for p in model.parameters() if p.grad is not None])
    assert len(found[0]) == len(found[1]) > 0
    for alone, together in zip(*found):
        torch.testing.assert_close(together, alone, rtol=1e-8, atol=1e-10)
