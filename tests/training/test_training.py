"""Pretraining and meta-training on a study of coloured blobs: they learn, resume and repeat."""

import shutil
from functools import partial
from itertools import repeat
from unittest.mock import DEFAULT, Mock

import numpy as np
import pytest
import torch
from small_study import blobs, small_study
from trained_study import placed

from tcnaps.training import checkpoints, meta_training, pretraining
from tcnaps.training.meta_training import meta_train
from tcnaps.training.pretraining import ImageTable, augment, pretrain, shrink
from tcnaps.training.resuming import Diverged


@pytest.fixture
def other_root(trained_root, tmp_path):
    """Another root, in which the backbone alone has been trained."""
    folder = "results/small/checkpoints"
    (tmp_path / folder).mkdir(parents=True)
    shutil.copy(trained_root / folder / "backbone.safetensors", tmp_path / folder)
    with placed(tmp_path):
        yield tmp_path


def weights(root, name, study="small"):
    return checkpoints.load(root / "results" / study / "checkpoints" / f"{name}.safetensors", "")[0]


def interrupted(module, name, calls, train):
    """Trains, but a function of the module raises KeyboardInterrupt at its (calls + 1)-th call."""
    stopping = Mock(wraps=getattr(module, name), side_effect=[*repeat(DEFAULT, calls), KeyboardInterrupt])
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(module, name, stopping)
        train()


@pytest.mark.slow
def test_pretraining_learns_and_an_interrupted_one_ends_the_same(trained_root, tmp_path):
    with placed(tmp_path) as study:
        interrupted(pretraining, "augment", 4, lambda: pretrain(study, save_every=1))  # in the second epoch's middle
        log = pretrain(study, save_every=1)
    assert list(log.epoch) == [1, 2] and log.train_accuracy.iloc[-1] > 0.2  # chance is 1/8
    torch.testing.assert_close(weights(tmp_path, "backbone"), weights(trained_root, "backbone"), rtol=0, atol=0)
    assert not list(tmp_path.rglob("*.state.pt")) and not list(tmp_path.rglob("*.tmp"))
    assert list((tmp_path / "results" / "small" / "watch" / "backbone").iterdir())


@pytest.mark.slow
def test_an_interrupted_meta_training_ends_the_same(trained_root, study, other_root):
    train = partial(meta_train, study, "support_and_query", save_every=1)
    interrupted(meta_training, "episode_loss", 5, train)
    log = train()
    assert list(log.episode) == [0, 2, 4, 6, 8] and log.valid_accuracy.notna().sum() == 3
    resumed, whole = (weights(root, "support_and_query") for root in (other_root, trained_root))
    torch.testing.assert_close(resumed, whole, rtol=0, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize("own_backbone", [True, False])
def test_replicates_are_other_trainings_of_the_same_study(trained_root, other_root, monkeypatch, own_backbone):
    study = small_study(replicates=2, replicate_backbone=own_backbone)
    second = study.of_replicate(1)
    if own_backbone:
        pretrain(second)
    log = meta_train(second, "support_and_query")
    first = weights(trained_root, "support_and_query")
    others = weights(other_root, "support_and_query", "small/replicate-1")
    assert not any(torch.equal(a, others[name]) for name, a in first.items() if name.endswith("weight"))
    assert (other_root / "results/small/replicate-1/checkpoints/backbone.safetensors").exists() == own_backbone
    checkpoints.load_model(second, "support_and_query")
    monkeypatch.setattr(meta_training, "episode_loss", lambda *a, **k: pytest.fail("the first is trained already"))
    state = trained_root / "results/small/checkpoints/support_and_query.state.pt"
    state.touch()  # of another training, which was stopped
    with placed(trained_root):
        assert (meta_train(study, "support_and_query").loss != log.loss).any() and state.exists()
    state.unlink()


@pytest.mark.slow
def test_training_through_refinement_gives_finite_gradients(study):
    source = blobs("blobs", "train")
    model = checkpoints.new_model(study, "support_and_query_log_determinant_refined").train()
    episode = next(next(meta_training.training_episodes([source], study)))
    loss, accuracy, confidence = meta_training.episode_loss(model, episode, study)
    loss.backward()
    assert 0 <= accuracy <= 1 and 1 / episode.way <= confidence <= 1
    gradients = [p.grad for p in model.parameters() if p.requires_grad]
    assert all(g.isfinite().all() for g in gradients) and any(g.abs().max() > 0 for g in gradients)


@pytest.mark.slow
def test_a_diverged_training_says_so_and_saves_nothing(trained_root, study, tmp_path, monkeypatch):
    broken = torch.tensor(float("nan"), requires_grad=True), 0.0, 1.0
    monkeypatch.setattr(meta_training, "episode_loss", lambda *_: broken)
    with pytest.raises(Diverged, match="support_log_determinant .*step 1: .*meta_training.learning_rate"):
        meta_train(study, "support_log_determinant")
    assert not list(trained_root.rglob("support_log_determinant.safetensors"))
    faster = study.pretraining.model_dump() | {"learning_rate": 1e30}
    with placed(tmp_path), pytest.raises(Diverged, match="step 2: .*pretraining.learning_rate"):
        pretrain(small_study(pretraining=faster))
    assert not list(tmp_path.rglob("backbone.safetensors"))


def test_the_learning_rate_of_meta_training_stays_or_falls_along_half_a_cosine(study):
    falling = study.meta_training.model_copy(update={"schedule": "cosine", "episodes": 8, "head_learning_rate": 0.2})
    model = checkpoints.new_model(study, "support_and_query_learned_scale")
    optimiser = meta_training.new_optimiser(model, study.model_copy(update={"meta_training": falling}))
    rates = []
    for done in (0, 2, 4, 6, 8, 12):
        meta_training.set_learning_rates(optimiser, falling, done)
        rates.append([group["lr"] for group in optimiser.param_groups])
    shares = [1, (2 + 2**0.5) / 4, 0.5, (2 - 2**0.5) / 4, 0, 0]
    np.testing.assert_allclose(rates, np.outer(shares, [falling.learning_rate, 0.2]), atol=1e-12)
    meta_training.set_learning_rates(optimiser, study.meta_training, 4)
    assert [group["lr"] for group in optimiser.param_groups] == [falling.learning_rate, 0.2]


def test_the_interval_of_a_validation_is_students():
    values = {"a": np.array([0.2, 0.4, 0.9]), "b": np.array([0.5, 0.7, 0.6])}
    summary = meta_training.summarise_validation(values)
    half_widths = [4.302653 * value.std(ddof=1) / 3**0.5 for value in values.values()]  # t with 2 degrees of freedom
    assert summary["valid_interval"] == pytest.approx((half_widths[0] ** 2 + half_widths[1] ** 2) ** 0.5 / 2, rel=1e-6)
    assert summary["valid_accuracy"] == pytest.approx(0.55) and summary["valid_accuracy_a"] == pytest.approx(0.5)
    assert np.isnan(meta_training.summarise_validation({"a": np.array([0.2])})["valid_interval"])


def test_the_best_is_kept_by_the_rule_of_the_study():
    old = meta_training.summarise_validation(dict.fromkeys("abc", np.array([0.5, 0.5])))
    for new, by_mean, by_half in (
        ((0.6, 0.6, 0.1), False, True),
        ((0.4, 0.4, 0.9), True, False),
        ((0.5,) * 3, False, False),
    ):
        accuracies = meta_training.summarise_validation({name: np.array([n, n]) for name, n in zip("abc", new)})
        assert meta_training.is_better(accuracies, old, "mean accuracy") == by_mean
        assert meta_training.is_better(accuracies, old, "half of the datasets") == by_half
        assert meta_training.is_better(accuracies, {}, "half of the datasets")


def test_held_out_images_are_a_share_of_every_class():
    table = ImageTable([blobs("blobs", "train"), blobs("others", "train")], valid_fraction=0.2, seed=0)
    assert table.n_classes == 16 and len(table.valid) == 16 * 3 and len(table.train) == 16 * 11
    assert not set(table.train) & set(table.valid)
    with pytest.raises(ValueError, match="pretraining.batch_size"):
        table.n_batches(4096)
    pixels, labels = table.batch(np.array([14 * 8, 0, 14 * 16 - 1]))
    assert labels.tolist() == [8, 0, 15] and pixels.shape == (3, 3, 32, 32)
    for place, (name, number) in enumerate([("others", 0), ("blobs", 0), ("others", -1)]):
        image = blobs(name, "train").images[number] / 127.5 - 1
        np.testing.assert_allclose(pixels[place].permute(1, 2, 0), image, atol=1e-6)


def test_augmentation_repeats_and_mirrors_only_where_it_may():
    settings = small_study().pretraining.model_copy(update={"horizontal_flip": False})
    ramp = torch.linspace(-1, 1, 32).expand(64, 3, 32, 32).contiguous()
    one, two = (augment(ramp, settings, np.random.default_rng(0)) for _ in range(2))
    assert torch.equal(one, two) and not torch.equal(one, ramp) and one.shape == ramp.shape
    rising = (one[..., 24] - one[..., 8]).mean((1, 2)) > 0
    assert rising.all()
    mirrored = augment(ramp, settings.model_copy(update={"horizontal_flip": True}), np.random.default_rng(0))
    rising = (mirrored[..., 24] - mirrored[..., 8]).mean((1, 2)) > 0
    assert 10 < rising.sum() < 54


def test_images_shrink_to_the_mean_of_the_pixels_they_cover():
    images = torch.rand(2, 3, 84, 84)
    torch.testing.assert_close(shrink(images, 42), images.unfold(2, 2, 2).unfold(3, 2, 2).mean((-2, -1)))
    assert shrink(images, 84) is images


def test_a_backbone_trains_at_one_size_after_the_other(monkeypatch):
    sizes = []
    monkeypatch.setattr(pretraining, "augment", lambda pixels, *_: (sizes.append(pixels.shape[-1]), pixels)[1])
    study = small_study(pretraining=small_study().pretraining.model_dump() | {"image_sizes": {16: 1, 32: 1}})
    images = ImageTable([blobs("blobs", "train")], 0.0, 0)
    network = pretraining.Classifier(images.n_classes)
    list(pretraining.pretraining_steps(network, study, images, torch.optim.SGD(network.parameters(), 0.01)))
    assert sizes == [16] * 3 + [32] * 3
