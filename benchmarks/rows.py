"""What is timed. Each row names its implementations; the others are compared with the last."""

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from unittest.mock import patch

import direct
import direct_model
import features
import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.mixture import GaussianMixture
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier
from torch.nn import functional as F

from tcnaps.estimator import TransductiveMahalanobisClassifier
from tcnaps.evaluation.stopped_rows import stopping_step
from tcnaps.method.backbone import Backbone
from tcnaps.method.clustering import cluster
from tcnaps.method.episode import Episode
from tcnaps.method.model import ModelSettings, TransductiveCNAPS
from tcnaps.method.variants import TRAININGS
from tcnaps_suite.experiments.rivals import of_easyfsl

Call = Callable[[], object]
MINIMUM, MAXIMUM = 2, 4
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}
EPISODES = {  # name: way, support images per class, query images per class
    "5-way 1-shot": (5, 1, 10),
    "5-way 5-shot": (5, 5, 10),
    "20-way 10-shot": (20, 10, 10),
    "50-way 500-support": (50, 10, 10),
}
TRAINING = {"75 images": (5, 5, 10), "400 images": (20, 10, 10), "1000 images": (50, 10, 10)}
CLUSTERING = {f"{way}-way {shot}-shot": (way, shot) for way, shot in ((5, 1), (5, 5), (20, 10), (50, 2), (50, 10))}
ESTIMATOR = {  # name: rows, classes, labels of each, features
    "2,000 rows": (2_000, 10, 5, 64),
    "20,000 rows": (20_000, 10, 5, 64),
    "100,000 rows": (100_000, 10, 5, 64),
    "55 rows of 1,280": (55, 5, 1, 1280),
    "20,000 rows of 512, 100 classes": (20_000, 100, 5, 512),
    "100,000 rows of 768": (100_000, 10, 5, 768),
}


@dataclass(frozen=True)
class Row:
    """One comparison."""

    name: str
    calls: dict[str, Callable[[], Call]]  # implementation → what builds the call to be timed, in its own process
    compare: Callable[[object, object], dict[str, float]] | None = None  # measures of how two results differ, by name
    inner: int = 1  # calls per timing of all but the last implementation, where one call is too short to be timed
    apart: bool = False  # whether the implementations are too large to be in memory together


def episode(way: int, shot: int, queries: int, size: int, seed: int = 0) -> Episode:
    """Images of distinguishable classes: each has a smooth pattern, with noise."""
    generator = torch.Generator().manual_seed(seed)
    patterns = F.interpolate(torch.randn(way, 3, 6, 6, generator=generator), size, mode="bilinear")

    def images(n: int):
        noise = F.interpolate(torch.randn(way * n, 3, 12, 12, generator=generator), size, mode="bilinear")
        pixels = (patterns.repeat_interleave(n, 0) + 1.5 * noise).tanh()
        return pixels.contiguous(memory_format=torch.channels_last), torch.arange(way).repeat_interleave(n)

    (support, support_labels), (query, query_labels) = images(shot), images(queries)
    return Episode(support, support_labels, query, query_labels)


def our_model(precision: str = "float32", training: str = "support_and_query") -> TransductiveCNAPS:
    """The library's model. Its weights depend on the training alone."""
    torch.manual_seed(0)
    model = TransductiveCNAPS(training, Backbone(), ModelSettings(precision=PRECISIONS[precision]))
    for module in model.modules():  # as uneven as after training, so that no implementation gains by skipping them
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 2)
    return model


def plain_model() -> direct_model.Model:
    """The direct model, with the same weights."""
    model = direct_model.Model()
    model.load_state_dict(our_model().state_dict())
    return model


def contents(task: Episode) -> tuple:
    """The episode's images in the default layout, which the direct model takes."""
    return task.support_images.contiguous(), task.support_labels, task.query_images.contiguous()


def labels(ours: torch.Tensor, other: torch.Tensor) -> dict[str, float]:
    return {"same labels": (ours == other).double().mean().item()}


def labels_and_steps(ours: tuple[torch.Tensor, int], other: tuple[torch.Tensor, int]) -> dict[str, float]:
    return labels(ours[0], other[0]) | {"same steps": float(ours[1] == other[1])}


def numbers(ours: torch.Tensor, other: torch.Tensor) -> dict[str, float]:
    return {"difference": (torch.dist(ours.float(), other) / other.norm()).item()}


def by_precision(build: Callable[[str], Call], other: Callable[[], Call]) -> dict[str, Callable[[], Call]]:
    return {name: (lambda name=name: build(name)) for name in PRECISIONS} | {"direct": other}


def part_rows(size: int) -> Iterator[Row]:
    """The parts of an episode, each timed on the result of the part before."""
    for name in ("5-way 5-shot", "20-way 10-shot"):
        setting = EPISODES[name]

        def encoder(precision, setting=setting):
            task, model = episode(*setting, size), our_model(precision)
            return torch.no_grad()(lambda: model.embed(task))

        def plain_encoder(setting=setting):
            task, model = contents(episode(*setting, size)), plain_model()
            return torch.no_grad()(lambda: model.task_encoder(*task))

        def backbone(precision, setting=setting):
            task, model = episode(*setting, size), our_model(precision)
            with torch.no_grad():
                film = model.adapt(task)
            images = torch.cat([task.support_images, task.query_images])
            return torch.no_grad()(lambda: model.extract(images, film))

        def plain_backbone(setting=setting):
            task, model = contents(episode(*setting, size)), plain_model()
            with torch.no_grad():
                film = model.film_generator(model.task_encoder(*task))
            return torch.no_grad()(lambda: torch.cat([model.backbone(task[0], film), model.backbone(task[2], film)]))

        def clustering(precision, setting=setting):
            task, model = episode(*setting, size), our_model(precision)
            with torch.no_grad():
                features_of_task = model.features(task)
            return lambda: cluster(*features_of_task, minimum=MINIMUM, maximum=MAXIMUM).labels

        def plain_clustering(setting=setting):
            task, model = contents(episode(*setting, size)), plain_model()
            with torch.no_grad():
                support, query = model.features(*task)
            return lambda: direct.cluster(support, task[1], query, MINIMUM, MAXIMUM)[0].argmax(1)

        yield Row(f"{name}: task encoder", by_precision(encoder, plain_encoder), numbers)
        yield Row(f"{name}: backbone", by_precision(backbone, plain_backbone), numbers)
        yield Row(f"{name}: clustering", by_precision(clustering, plain_clustering), labels, inner=5)


def episode_rows(size: int) -> Iterator[Row]:
    for name, setting in EPISODES.items():

        def ours(precision, setting=setting):
            task, model = episode(*setting, size), our_model(precision)
            return torch.no_grad()(lambda: model.classify(task, MINIMUM, MAXIMUM).labels)

        def other(setting=setting):
            task, model = contents(episode(*setting, size)), plain_model()
            return lambda: model.classify(*task, MINIMUM, MAXIMUM)

        yield Row(name, by_precision(ours, other), labels)


def training_rows(size: int) -> Iterator[Row]:
    """A forward and a backward pass."""
    for name, setting in TRAINING.items():

        def ours(precision, setting=setting):
            task, model = episode(*setting, size), our_model(precision).train()
            return stepping(model, lambda: F.cross_entropy(model(task, steps=0)[0], task.query_labels))

        def other(setting=setting):
            task, model = episode(*setting, size), plain_model().train()
            images = contents(task)
            return stepping(model, lambda: model.loss(*images, task.query_labels))

        yield Row(name, by_precision(ours, other), numbers, apart=name == "1000 images")


def stepping(model: torch.nn.Module, loss: Callable[[], torch.Tensor]) -> Call:
    def step():
        model.zero_grad()
        value = loss()
        value.backward()
        # The loss and the norm of every gradient but the set encoder's biases, which cancel up to rounding.
        learned = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        norms = [grad.norm() for name, grad in learned.items() if not (".convs." in name and name.endswith("bias"))]
        return torch.stack([value.detach(), *norms])

    return step


def sweep_rows(size: int) -> Iterator[Row]:
    """All 55 pairs of a minimum and a maximum from 1 to 10: from one trajectory, and by one evaluation per pair."""
    rules = [(minimum, maximum) for maximum in range(1, 11) for minimum in range(1, maximum + 1)]
    setting = EPISODES["5-way 5-shot"]

    def sweep():
        task, model = episode(*setting, size), our_model()

        @torch.no_grad()
        def call():
            predicted = model(task, steps=10).argmax(2)
            return torch.stack([predicted[stopping_step(predicted.numpy(), *rule)] for rule in rules])

        return call

    def one():
        task, model = episode(*setting, size), our_model()
        return torch.no_grad()(lambda: model.classify(task, MINIMUM, MAXIMUM).labels)

    def every():
        task, model = contents(episode(*setting, size)), plain_model()
        return lambda: torch.stack([model.classify(*task, *rule) for rule in rules])

    yield Row("55 rules", {"55 rules": sweep, "one rule": one})
    yield Row("55 rules, each evaluated", {"55 rules": sweep, "direct": every}, labels)


def variant_rows(size: int) -> Iterator[Row]:
    """The ten variants on an episode, from the features of six trainings, and Transductive alone."""

    def several(names):
        task, models = episode(*EPISODES["5-way 5-shot"], size), [our_model(training=name) for name in names]
        return torch.no_grad()(lambda: [model(task, steps=MAXIMUM) for model in models])

    calls = {"ten variants": lambda: several(TRAININGS), "one variant": lambda: several(["support_and_query"])}
    yield Row("ten variants", calls)


def clustering_rows(size: int, other: str = "direct") -> Iterator[Row]:
    """The clustering alone, on synthetic features and, once the built-in study is trained, on those of its model."""
    logits = {"direct": direct.logits, "Cholesky": direct.cholesky_logits}[other]
    kinds = {"": features.apart, ", diffuse": features.diffuse, ", soft": features.soft}
    if features.trained():
        kinds[", meta-trained"] = features.meta_trained
    else:
        print("Features of a meta-trained model are left out: run `make figures` first.", file=sys.stderr)
    for kind, draw in kinds.items():
        for name, setting in CLUSTERING.items():

            def ours(draw=draw, setting=setting):
                data = draw(*setting)

                def call():
                    step = cluster(*data, minimum=MINIMUM, maximum=MAXIMUM)
                    return step.labels, step.number

                return call

            def theirs(draw=draw, setting=setting):
                data = draw(*setting)

                def call():
                    last, steps = direct.cluster(*data, MINIMUM, MAXIMUM, logits)
                    return last.argmax(1), steps

                return call

            inner = 20 if setting[0] == 5 else 5
            yield Row(name + kind, {"float32": ours, other: theirs}, labels_and_steps, inner)


def estimator_rows(size: int) -> Iterator[Row]:
    """The estimator beside scikit-learn's, with few labels and many rows without one."""
    as_mixture = {"scale": 0.5, "log_determinant": True, "identity_weight": 0.1}
    as_mixture |= {"class_prior": None, "normalise": False, "maximum_steps": 30}
    models = {
        "estimator": TransductiveMahalanobisClassifier,
        "estimator, exact covariances": TransductiveMahalanobisClassifier,
        "estimator, as a mixture": lambda: TransductiveMahalanobisClassifier(**as_mixture),
        "label spreading": lambda: LabelSpreading(kernel="knn"),
        "mixture": lambda: GaussianMixture(10, max_iter=20),
        "self-training": lambda: SelfTrainingClassifier(LogisticRegression(max_iter=1000)),
    }
    for row, numbers in ESTIMATOR.items():

        def fitted(name, numbers=numbers):
            x, y, truth = features.few_labels(*numbers)
            hidden = y < 0

            def predicted():
                if name == "TIM":
                    sets = (torch.from_numpy(part) for part in (x[~hidden], y[~hidden], x[hidden]))
                    return of_easyfsl("TIM")(*sets).numpy()
                model = models[name]()
                if name == "mixture":  # from the classes' labelled means
                    model.means_init = np.stack([x[y == k].mean(0) for k in range(10)])
                    return model.fit(x).predict(x)[hidden]
                with patch("tcnaps.estimator.sketch.LARGE", math.inf) if "exact" in name else nullcontext():
                    model.fit(x, y)
                return model.predict(x[hidden]) if name == "self-training" else model.transduction_[hidden]

            def call():
                return torch.tensor((predicted() == truth[hidden]).mean())

            return call

        n, *_, d = numbers
        names = ["estimator", "estimator, exact covariances" if n > 1000 else "TIM", "self-training"]
        names = [name for name in models if "exact" not in name] if d == 64 else names
        calls = {name: (lambda name=name, fitted=fitted: fitted(name)) for name in names}
        yield Row(row, calls, accuracies, inner=1 if n > 1000 else 20, apart=n * d > 2_000_000)


def accuracies(ours: torch.Tensor, other: torch.Tensor) -> dict[str, float]:
    return {"accuracy": ours.item(), "self-training's": other.item()}


GROUPS = {
    "clustering": clustering_rows,
    "cholesky": partial(clustering_rows, other="Cholesky"),
    "estimator": estimator_rows,
    "parts": part_rows,
    "test": episode_rows,
    "training": training_rows,
    "sweep": sweep_rows,
    "variants": variant_rows,
}
