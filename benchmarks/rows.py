"""What is timed: for every row ours, what it is compared with, and whether both give the same."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import direct
import direct_model
import torch
from torch.nn import functional as F

from tcnaps.backbone import Backbone
from tcnaps.clustering import cluster
from tcnaps.episodes import Episode
from tcnaps.model import TransductiveCNAPS
from tcnaps.stopping import stopping_step
from tcnaps.variants import TRAININGS

MINIMUM, MAXIMUM = 2, 4
EPISODES = {    # name: way, support images a class, query images a class
    "5-way 1-shot": (5, 1, 10),
    "5-way 5-shot": (5, 5, 10),
    "20-way 10-shot": (20, 10, 10),
    "50-way 500-support": (50, 10, 10),
}
TRAINING = {"75 images": (5, 5, 10), "400 images": (20, 10, 10), "1000 images": (50, 10, 10)}


@dataclass(frozen=True)
class Row:
    """One comparison. Both callables return what `same` compares.

    Attributes:
        inner: calls of ours at a time.
        memory: whether peak memory is measured too.
    """

    group: str
    name: str
    ours: Callable[[], object]
    other: Callable[[], object]
    same: Callable[[object, object], bool] | None = None
    inner: int = 1
    memory: bool = False


def episode(way: int, shot: int, queries: int, size: int, seed: int = 0) -> Episode:
    """Images of classes that can be told apart: a smooth pattern each, with noise."""
    generator = torch.Generator().manual_seed(seed)
    patterns = F.interpolate(torch.randn(way, 3, 6, 6, generator=generator), size, mode="bilinear")

    def images(n: int):
        noise = F.interpolate(torch.randn(way * n, 3, 12, 12, generator=generator), size, mode="bilinear")
        pixels = (patterns.repeat_interleave(n, 0) + 1.5 * noise).tanh()
        return pixels.contiguous(memory_format=torch.channels_last), torch.arange(way).repeat_interleave(n)

    (support, support_labels), (query, query_labels) = images(shot), images(queries)
    return Episode(support, support_labels, query, query_labels)


def models(precision: torch.dtype = torch.float32, training: str = "feot"):
    """The library's model and the direct one, with the same weights."""
    torch.manual_seed(0)
    ours = TransductiveCNAPS(training, Backbone(), precision=precision)
    for module in ours.modules():   # as uneven as after training: 1 and 0 would flatter whoever skips them
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 2)
    plain = direct_model.Model(ours.task_encoder.lstm is not None)
    plain.load_state_dict(ours.state_dict())
    return ours, plain


def contents(task: Episode) -> tuple:
    # The direct model takes images in the default layout.
    return task.support_images.contiguous(), task.support_labels, task.query_images.contiguous()


def agree(ours: torch.Tensor, other: torch.Tensor) -> bool:
    return bool(torch.equal(ours, other))


def network_rows(size: int, precision: torch.dtype) -> Iterator[Row]:
    ours, plain = models(precision)
    task = episode(*EPISODES["5-way 5-shot"], size)
    support, labels, query = contents(task)
    with torch.no_grad():
        film, plain_film = ours.adapt(task), plain.film_generator(plain.task_encoder(support, labels, query))
    images, plain_images = torch.cat([task.support_images, task.query_images]), torch.cat([support, query])

    def close(a, b):
        return bool(torch.allclose(a.float(), b, rtol=0.05 if precision == torch.bfloat16 else 1e-3, atol=1e-2))

    no_grad = torch.no_grad()
    yield Row("networks", "task encoder, 75 images",
              no_grad(lambda: ours.task_encoder(task.support_images, labels, task.query_images)),
              no_grad(lambda: plain.task_encoder(support, labels, query)), close)
    yield Row("networks", "adapted backbone, 75 images", no_grad(lambda: ours.extract(images, film)),
              no_grad(lambda: plain.backbone(plain_images, plain_film)), close)


def episode_rows(size: int, precision: torch.dtype) -> Iterator[Row]:
    ours, plain = models(precision)
    for name, setting in EPISODES.items():
        task = episode(*setting, size)
        given = contents(task)
        yield Row("test", name, torch.no_grad()(lambda task=task: ours.classify(task, MINIMUM, MAXIMUM).labels),
                  lambda given=given: plain.classify(*given, MINIMUM, MAXIMUM), agree, memory=True)


def training_rows(size: int, precision: torch.dtype) -> Iterator[Row]:
    ours, plain = models(precision)
    ours.train(), plain.train()

    def step(model, loss):
        model.zero_grad()
        value = loss()
        value.backward()
        return value.detach()

    def close(a, b):
        return bool(torch.isclose(a, b, rtol=0.1 if precision == torch.bfloat16 else 1e-3))

    for name, setting in TRAINING.items():
        task = episode(*setting, size)
        given = (*contents(task), task.query_labels)

        def our_loss(task=task):
            return F.cross_entropy(ours(task, steps=0)[0], task.query_labels)

        yield Row("training", name, partial(step, ours, our_loss),
                  partial(step, plain, lambda given=given: plain.loss(*given)), close, memory=True)


def sweep_rows(size: int, precision: torch.dtype) -> Iterator[Row]:
    """All 55 pairs of a minimum and a maximum from 1 to 10, against a single evaluation of ours."""
    ours, plain = models(precision)
    task = episode(*EPISODES["5-way 5-shot"], size)
    rules = [(minimum, maximum) for maximum in range(1, 11) for minimum in range(1, maximum + 1)]

    @torch.no_grad()
    def sweep():
        labels = ours(task, steps=10).argmax(2)
        recorded = labels.numpy()
        return torch.stack([labels[stopping_step(recorded, *rule)] for rule in rules])

    given = contents(task)
    yield Row("sweep", "55 rules, against one rule of ours", sweep,
              torch.no_grad()(lambda: ours.classify(task, MINIMUM, MAXIMUM).labels))
    yield Row("sweep", "55 rules, against 55 evaluations", sweep,
              lambda: torch.stack([plain.classify(*given, *rule) for rule in rules]), agree)


def variant_rows(size: int, precision: torch.dtype) -> Iterator[Row]:
    """The ten variants on an episode, six trainings' features, against the last of them alone."""
    own = {name: models(precision, name)[0] for name in TRAININGS}
    task = episode(*EPISODES["5-way 5-shot"], size)

    @torch.no_grad()
    def every():
        return [model(task, steps=MAXIMUM) for model in own.values()]

    yield Row("variants", "ten variants, against one", every, torch.no_grad()(lambda: own["feot"](task, steps=MAXIMUM)))


def clustering_rows(size: int, precision: torch.dtype) -> Iterator[Row]:
    """The clustering alone, on 512 features of Gaussian classes with a few dominant directions, as features have."""
    for separation in (1.0, 0.3):
        for name, (way, shot) in {"5-way 1-shot": (5, 1), "5-way 5-shot": (5, 5), "20-way 10-shot": (20, 10),
                                  "50-way 2-shot": (50, 2), "50-way 10-shot": (50, 10)}.items():
            data = features(way, shot, separation, seed=way + shot)
            kind = "" if separation == 1 else ", diffuse classes"
            yield Row("clustering", name + kind,
                      lambda data=data: cluster(*data, minimum=MINIMUM, maximum=MAXIMUM).labels,
                      lambda data=data: direct.cluster(*data, MINIMUM, MAXIMUM)[0].argmax(1), agree, inner=3)


def features(way: int, shot: int, separation: float, seed: int, d: int = 512, queries: int = 10) -> tuple:
    """Support features, labels and query features."""
    generator = torch.Generator().manual_seed(seed)
    spread = torch.logspace(0.5, -1, d)
    centres = separation * spread * torch.randn(way, d, generator=generator)

    def draw(n):
        return torch.cat([centre + spread * torch.randn(n, d, generator=generator) for centre in centres])

    return draw(shot), torch.arange(way).repeat_interleave(shot), draw(queries)


GROUPS = {"clustering": clustering_rows, "networks": network_rows, "test": episode_rows, "training": training_rows,
          "sweep": sweep_rows, "variants": variant_rows}
