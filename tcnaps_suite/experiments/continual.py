"""Continual learning: classes arrive a few at a time, and nothing but sums is kept of their images.

The protocol is that of the authors' follow-up code (Bateni et al. 2022, arXiv 2201.05151). After each arrival all
classes so far are tested, with one head (all classes compete) or several (only those of the query's arrival compete).

As there, FiLM follows the task embedding of the `first` arrival, of the `latest`, or the `average` of all so far. An
arrival's task embedding comes from its support and query images, also with one head. All queries use the present FiLM;
each arrival's sums were made with the FiLM of their time. The released code keeps class means and inverse covariances,
which refinement overwrites, and tests each arrival's queries apart. Here n_k, Σ x and Σ x xᵀ are kept, so under one
FiLM the head equals that of all images at once, and all queries refine it together.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tcnaps.episodes.loading import load_episode
from tcnaps.method.class_statistics import ClassStatistics, class_distances, divisor, one_hot, regularised_covariances
from tcnaps.method.clustering import soft_k_means, stopped
from tcnaps.method.episode import Episode
from tcnaps.method.head import Head
from tcnaps_suite.experiments.comparison import Drawn, LoadedVariant, difference_from

ALL_KEPT = "all images kept"  # adapted to the images of all arrivals: nothing is forgotten
FILM = (ALL_KEPT, "first", "average", "latest")
HEADS = ("one head", "several heads")


def class_sums(
    features: Float[Tensor, "n d"], responsibilities: Float[Tensor, "n way"]
) -> Float[Tensor, "way d_and_1 d_and_1"]:
    """All that is kept of images: Σ_j w_jk [1, x_j]ᵀ [1, x_j], which holds n_k, Σ x and Σ x xᵀ, in float64."""
    x = torch.nn.functional.pad(features.double(), (1, 0), value=1)
    return torch.stack([(weights * x.T) @ x for weights in responsibilities.double().T])


def statistics_from(sums: Float[Tensor, "way d_and_1 d_and_1"], head: Head) -> ClassStatistics:
    """What `class_statistics` computes from the images themselves; a ValueError for one image and a divisor n − 1."""
    counts, totals, products = sums[:, 0, 0], sums[:, 0, 1:], sums[:, 1:, 1:]
    if head.class_covariance_divisor == "n-1" and counts.min() <= 1:
        raise ValueError("a class has one image, so n − 1 is 0: use more, or the class covariances' divisor 'n'")
    n = counts.sum()
    means, mean = totals / counts[:, None], totals.sum(0) / n
    scatters = products - means[:, :, None] * totals[:, None, :]
    class_covariances = scatters / divisor(counts, head.class_covariance_divisor)[:, None, None]  # Σ_k
    task_covariance = (products.sum(0) - n * mean.outer(mean)) / divisor(n, head.task_covariance_divisor)  # Σ
    return ClassStatistics(means, regularised_covariances(class_covariances, task_covariance, counts, head), counts)


def in_span(
    sums: Float[Tensor, "way d_and_1 d_and_1"], query: Float[Tensor, "n_query d"]
) -> tuple[Float[Tensor, "way r_and_1 r_and_1"], Float[Tensor, "n_query r"]]:
    """Sums and queries in coordinates of the span of all images: there are fewer of these, and no distance changes."""
    query = query.double()
    values, vectors = torch.linalg.eigh(sums[:, 1:, 1:].sum(0) + query.T @ query)
    basis = vectors[:, values > 1e-12 * values[-1]]  # (d, r)
    with_1 = torch.block_diag(basis.new_ones(1, 1), basis)
    return with_1.T @ sums @ with_1, query @ basis


def classify(
    kept: Float[Tensor, "way d_and_1 d_and_1"],
    query: Float[Tensor, "n_query d"],
    head: Head,
    limits: tuple[int, int],
    competing: Bool[Tensor, "n_query way"],
) -> Int[Tensor, "n_query"]:
    """Labels of the queries from the `kept` sums, among competing classes, with the stopping rule (Algorithm 1)."""

    def distances_from(responsibilities: Float[Tensor, "n_query way"] | None):
        if responsibilities is None:
            return class_distances(query, statistics_from(kept, head), head)
        sums = kept + class_sums(query, responsibilities)
        statistics = statistics_from(sums, replace(head, class_covariance_divisor="n"))
        return class_distances(query, statistics, head)

    return stopped(soft_k_means(distances_from, len(query), head, competing), *limits).labels


def accuracy_by_arrival(
    variant: LoadedVariant, episode: Episode, per_arrival: int, film: str
) -> Iterator[tuple[int, str, float]]:
    """After each arrival, the number of classes so far, a name of `HEADS`, and its accuracy on all their queries.

    The episode's classes arrive in their order, equally many each time. `film` is a name of `FILM`.
    """
    if episode.way % per_arrival:
        raise ValueError(f"{episode.way} classes can't arrive {per_arrival} at a time; choose a divisor of the way")
    (model, limits), kept, embedding = variant, None, None
    for arrival, seen in enumerate(range(per_arrival, episode.way + 1, per_arrival), start=1):
        start = 0 if film == ALL_KEPT else seen - per_arrival
        new, tested = _classes(episode, start, seen), _classes(episode, 0, seen)
        latest = model.embed(new)
        if film == "average" and kept is not None:
            embedding = embedding + (latest - embedding) / arrival
        elif film != "first" or kept is None:
            embedding = latest
        images = torch.cat([new.support_images, tested.query_images])
        support, query = model.extract(images, model.film_generator(embedding)).tensor_split([len(new.support_labels)])
        sums = class_sums(support, one_hot(new.support_labels + start, episode.way, support))
        kept = sums if start == 0 else kept + sums
        truth, sums_and_query = tested.query_labels, in_span(kept[:seen], query)
        same_arrival = truth[:, None] // per_arrival == torch.arange(seen).to(truth) // per_arrival
        for head, competing in zip(HEADS, (torch.ones_like(same_arrival), same_arrival)):
            labels = classify(*sums_and_query, model.head, limits, competing)
            yield seen, head, (labels == truth).double().mean().item()


@torch.no_grad()
def continual_learning(drawn: Iterable[Drawn], variants: Mapping[str, LoadedVariant], per_arrival: int) -> pd.DataFrame:
    """Accuracy after every arrival, of every variant, way of adapting FiLM, and head, on the same episodes.

    A row per episode, variant, film, head and number of `classes` so far has `EpisodeFeatures.facts`, accuracy and
    difference (from `ALL_KEPT`).
    """
    rows = [
        facts | {"variant": name, "film": film, "head": head, "classes": seen, "accuracy": accuracy}
        for facts, source, draw in drawn
        for episode in [load_episode(source, draw)]
        for name, variant in variants.items()
        for film in FILM
        for seen, head, accuracy in accuracy_by_arrival(variant, episode, per_arrival, film)
    ]
    return difference_from(pd.DataFrame(rows), "film", ALL_KEPT)


def _classes(episode: Episode, start: int, stop: int) -> Episode:
    """The part of an episode that consists of some consecutive classes, numbered from 0."""
    support, query = ((labels >= start) & (labels < stop) for labels in (episode.support_labels, episode.query_labels))
    images, labels = episode.support_images[support], episode.support_labels[support] - start
    return Episode(images, labels, episode.query_images[query], episode.query_labels[query] - start)
