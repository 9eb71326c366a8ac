"""Active learning: which image to have labelled next.

The protocol is that of the authors' follow-up code (Bateni et al. 2022, arXiv 2201.05151). In every round, the pool
image that an acquisition function ranks first joins the labelled images. Accuracy is measured on held-out images, which
are never bought. Transductive CNAPS' query set is the pool when it chooses and the held-out images when it is tested.

Here tasks are a study's episodes and FiLM is adapted once; the released code has alphabets or CIFAR-10, and adapts FiLM
in each of 30 rounds. Scores are in float64: in float32 confident images tie.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from tcnaps.episodes.loading import load_episode
from tcnaps.episodes.sampling import episode_generator
from tcnaps.method.clustering import cluster
from tcnaps.method.episode import Episode
from tcnaps_suite.experiments.comparison import Drawn, LoadedVariant, difference_from

# (support features, their labels, query features) → logits (n_query, way)
Classify = Callable[[Tensor, Tensor, Tensor], Tensor]


class Task(NamedTuple):
    """Images, or their features, with all labels. A label of the pool counts as unknown until it is bought."""

    support: Float[Tensor, "n_support ..."]
    support_labels: Int[Tensor, "n_support"]
    pool: Float[Tensor, "n_pool ..."]
    pool_labels: Int[Tensor, "n_pool"]
    held_out: Float[Tensor, "n_held_out ..."]
    held_out_labels: Int[Tensor, "n_held_out"]

    def with_label_of(self, number: int) -> "Task":
        """The task once image `number` of the pool has joined the support set."""
        taken = slice(number, number + 1)
        rest = torch.arange(len(self.pool)) != number
        support = torch.cat([self.support, self.pool[taken]])
        labels = torch.cat([self.support_labels, self.pool_labels[taken]])
        return Task(support, labels, self.pool[rest], self.pool_labels[rest], self.held_out, self.held_out_labels)


def predictive_entropy(logits: Float[Tensor, "n way"]) -> Float[Tensor, "n"]:
    """−Σ p log p over the classes."""
    return torch.distributions.Categorical(logits=logits.double()).entropy()


def variation_ratios(logits: Float[Tensor, "n way"]) -> Float[Tensor, "n"]:
    """1 − the largest p, as the sum of the others: the difference would round to 0 for confident images."""
    return logits.double().softmax(1).sort(1).values[:, :-1].sum(1)


ACQUISITIONS = {"random": None, "predictive entropy": predictive_entropy, "variation ratios": variation_ratios}


def learning_curve(
    task: Task, classify: Classify, acquisition: str, labels: int, generator: np.random.Generator
) -> Iterator[float]:
    """The accuracy on the held-out images with 0, 1, …, `labels` images of the pool labelled."""
    if labels > len(task.pool):
        raise ValueError(f"{labels} labels are more than the pool has images, {len(task.pool)}; enlarge the pool")
    score = ACQUISITIONS[acquisition]
    for bought in range(labels + 1):
        if bought:
            chosen = generator.integers(len(task.pool)) if score is None else score(classify(*task[:3])).argmax()
            task = task.with_label_of(int(chosen))
        predicted = classify(task.support, task.support_labels, task.held_out).argmax(1)
        yield (predicted == task.held_out_labels).double().mean().item()


@torch.no_grad()
def active_learning(
    drawn: Iterable[Drawn], seed: int, variants: Mapping[str, LoadedVariant], pool_per_class: int, labels: int
) -> pd.DataFrame:
    """Learning curves of every variant and acquisition function on the same tasks.

    An episode's queries are the pool's and the held-out images together. A row per episode, variant, acquisition and
    number of `labels` has `EpisodeFeatures.facts`, accuracy and difference (from random choice).
    """
    rows = []
    for facts, source, draw in drawn:
        seeded = partial(episode_generator, seed, facts["dataset"], "test, labels", facts["episode"])
        images = task_of(load_episode(source, draw), pool_per_class, seeded())
        for name, variant in variants.items():
            task, classify = _adapted(images, variant)
            for acquisition in ACQUISITIONS:
                curve = learning_curve(task, classify, acquisition, labels, seeded())
                keys = facts | {"variant": name, "acquisition": acquisition}
                rows += [keys | {"labels": bought, "accuracy": accuracy} for bought, accuracy in enumerate(curve)]
    return difference_from(pd.DataFrame(rows), "acquisition", "random")


def task_of(episode: Episode, pool_per_class: int, generator: np.random.Generator) -> Task:
    """The first queries of every class become the pool, in random order; the others are held out."""
    numbers = torch.arange(len(episode.query_labels)).reshape(episode.way, -1)
    pool, held_out = numbers[:, :pool_per_class].flatten(), numbers[:, pool_per_class:].flatten()
    pool = pool[torch.from_numpy(generator.permutation(len(pool)))]
    images, labels = episode.query_images, episode.query_labels
    support = episode.support_images, episode.support_labels
    return Task(*support, images[pool], labels[pool], images[held_out], labels[held_out])


def _adapted(task: Task, variant: LoadedVariant) -> tuple[Task, Classify]:
    """The task of features under the adapted network, and the head that classifies them."""
    model, limits = variant
    film = model.adapt(Episode(task.support, task.support_labels, task.pool))
    sets = task.support, task.pool, task.held_out
    features = model.extract(torch.cat(sets), film).to(model.settings.clustering_dtype)
    support, pool, held_out = features.split(list(map(len, sets)))
    task = task._replace(support=support, pool=pool, held_out=held_out)
    return task, lambda *sets: cluster(*sets, None, model.head, *limits).logits
