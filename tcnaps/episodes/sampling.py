"""Seeded protocols: which images make episode i. An episode depends on (seed, dataset, split, index) alone.

The variable protocol is Meta-Dataset's (Triantafillou et al. 2020, section 3.2). Images are drawn without replacement,
uniformly within their class. `class_sizes` counts the images per class, and `remaining` those left after the queries.
"""

import math
import zlib
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Int
from numpy.random import Generator

from tcnaps.config.settings import AnyProtocol, FixedProtocol, VariableProtocol
from tcnaps.data.image_source import ImageSource

PerClass = Int[np.ndarray, "way"]  # a number for every class of an episode
LOG_WEIGHTS = (math.log(0.5), math.log(2))  # of classes among which support images are shared out


@dataclass(frozen=True)
class Draw:
    """The images of one episode, as indices into the source's array. Label k stands for `classes[k]`."""

    dataset: str
    split: str
    index: int
    classes: PerClass
    support_images: Int[np.ndarray, "n_support"]
    support_labels: Int[np.ndarray, "n_support"]
    query_images: Int[np.ndarray, "n_query"]
    query_labels: Int[np.ndarray, "n_query"]


class Description(NamedTuple):
    """The composition of an episode before its images are chosen; `n_query` queries per class."""

    classes: PerClass
    n_query: int
    shots: PerClass


def episode_generator(seed: int, dataset: str, split: str, index: int) -> Generator:
    """The random generator of one episode: the same on every machine, in whatever order episodes are drawn."""
    return np.random.default_rng([seed, zlib.crc32(dataset.encode()), zlib.crc32(split.encode()), index])


def draw_episode(source: ImageSource, protocol: AnyProtocol, seed: int, index: int) -> Draw:
    """Chooses the classes and images of episode `index`; a ValueError says what the split lacks for the protocol.

    Under the fixed protocol with replacement, raising `queries_per_class` keeps the support set and the first queries.
    """
    generator = episode_generator(seed, source.dataset, source.split, index)
    try:
        # All images of each class, shuffled: the first are the support set, the next are the queries.
        if isinstance(protocol, FixedProtocol) and not protocol.replacement:
            classes, orders = _disjoint_episode(source, protocol, seed, index)
            n_query, shots = protocol.queries_per_class, np.full(protocol.way, protocol.shot)
        else:
            classes, n_query, shots = describe_episode(generator, source, protocol)
            orders = [generator.permutation(source.class_sizes[k]) for k in classes]
    except ValueError as error:
        raise ValueError(f"dataset '{source.dataset}', split '{source.split}': {error}") from error
    n_queries = np.full(len(classes), n_query)
    if protocol.query_concentration is not None:  # unequal numbers, at least 1, in a Dirichlet distribution's shares
        shares = generator.dirichlet(np.full(len(classes), protocol.query_concentration))
        n_queries = np.ceil(n_query * (shares / shares.max())).clip(1).astype(int)
    orders = [source.class_starts[k] + order for k, order in zip(classes, orders)]
    support = np.concatenate([order[:shot] for order, shot in zip(orders, shots)])
    query = np.concatenate([order[shot : shot + n] for order, shot, n in zip(orders, shots, n_queries)])
    support_labels, query_labels = (np.arange(len(classes)).repeat(number) for number in (shots, n_queries))
    return Draw(source.dataset, source.split, index, classes, support, support_labels, query, query_labels)


def describe_episode(generator: Generator, source: ImageSource, protocol: AnyProtocol) -> Description:
    """Chooses the classes of an episode and the number of images of each; errors are those of `draw_episode`.

    The fixed protocol ignores any hierarchy, for a superclass or a node may have fewer classes than the way.
    """
    if isinstance(protocol, FixedProtocol):
        way, shot, n_query = protocol.way, protocol.shot, protocol.queries_per_class
        if source.n_classes < way:
            raise ValueError(f"{source.n_classes} classes are fewer than way {way}; lower the way")
        classes = generator.choice(source.n_classes, way, replace=False)
        needed = f"{shot} support + {n_query} query images; lower shot or queries_per_class"
        _check_sizes(source, classes, shot + n_query, needed)
        return Description(classes, n_query, np.full(way, shot))
    classes = sample_classes(generator, source, protocol)
    _check_sizes(source, classes, 2, "1 support + 1 query image; leave it out of the dataset")
    sizes = source.class_sizes[classes]
    n_query = int(min(protocol.queries_per_class, sizes.min() // 2))
    remaining = sizes - n_query
    limits = protocol.maximum_support_size, protocol.maximum_support_per_class
    if protocol.shots == "uniform":
        shots = sample_uniform_shots(generator, remaining, *limits)
    else:
        shots = sample_shots(generator, sizes, remaining, sample_support_size(generator, remaining, *limits))
    return Description(classes, n_query, shots)


def _disjoint_episode(source: ImageSource, protocol: FixedProtocol, seed: int, index: int) -> tuple:
    """The classes of episode `index` without replacement, and images of each that no other episode has."""
    size, place = protocol.shot + protocol.queries_per_class, (seed, source.dataset, source.split)
    schedule = disjoint_schedule(*place, tuple(source.class_sizes.tolist()), protocol.way, size)
    if index >= len(schedule):
        problem = f"its images make {len(schedule)} episodes without replacement"
        raise ValueError(f"{problem}; ask for so many at most, or set the protocol's replacement to true")
    classes, used = schedule[index]
    generators = [episode_generator(seed, source.dataset, f"{source.split}, class {k}", 0) for k in classes]
    orders = [generator.permutation(source.class_sizes[k]) for generator, k in zip(generators, classes)]
    return classes, [order[start : start + size] for order, start in zip(orders, used)]


@lru_cache(maxsize=64)
def disjoint_schedule(
    seed: int, dataset: str, split: str, class_sizes: tuple[int, ...], way: int, size: int
) -> list[tuple[PerClass, PerClass]]:
    """All episodes without replacement: each one's classes, and how many images of them earlier episodes have used.

    An episode draws its classes uniformly among those with `size` unused images left, and takes that many of each.
    The list ends when fewer than `way` such classes are left (Lafargue et al. 2024, arXiv 2409.02850).
    """
    sizes, used, episodes = np.array(class_sizes), np.zeros(len(class_sizes), int), []
    while len(eligible := np.flatnonzero(sizes - used >= size)) >= way:
        classes = episode_generator(seed, dataset, split, len(episodes)).choice(eligible, way, replace=False)
        episodes.append((classes, used[classes]))
        used[classes] += size
    return episodes


def sample_classes(generator: Generator, source: ImageSource, protocol: VariableProtocol) -> PerClass:
    """Class numbers of an episode, without replacement; with spans (ImageNet's WordNet), those of `sample_span`.

    Else the way is uniform in {minimum_way, ..., min(maximum_way, number of classes)}, and so are the classes: among
    all, or within a superclass that is drawn uniformly among those with at least `minimum_way` classes.
    """
    minimum_way, maximum_way = protocol.minimum_way, protocol.maximum_way
    if source.spans is not None:
        span = sample_span(generator, source.spans, minimum_way, protocol.maximum_span)
        return span if len(span) <= maximum_way else generator.choice(span, maximum_way, replace=False)
    pool = np.arange(source.n_classes)
    if source.superclasses is not None:
        eligible = sorted(name for name, count in Counter(source.superclasses).items() if count >= minimum_way)
        if not eligible:
            raise ValueError(f"no superclass has the {minimum_way} classes that an episode needs; lower minimum_way")
        chosen = eligible[generator.integers(len(eligible))]
        pool = np.flatnonzero([name == chosen for name in source.superclasses])
    if len(pool) < minimum_way:
        raise ValueError(f"{len(pool)} classes are fewer than minimum_way {minimum_way}; lower it")
    return generator.choice(pool, generator.integers(minimum_way, min(maximum_way, len(pool)) + 1), replace=False)


def sample_span(
    generator: Generator, spans: tuple[np.ndarray, ...], minimum_way: int, maximum_span: int
) -> Int[np.ndarray, "span"]:
    """The classes below one node, drawn uniformly among nodes with `minimum_way` to `maximum_span` classes."""
    eligible = [span for span in spans if minimum_way <= len(span) <= maximum_span]
    if not eligible:
        wanted = f"{minimum_way} to {maximum_span} classes"
        raise ValueError(f"no node of the hierarchy has {wanted} below it; lower minimum_way or raise maximum_span")
    return eligible[generator.integers(len(eligible))]


def sample_support_size(generator: Generator, remaining: PerClass, maximum: int, maximum_per_class: int) -> int:
    """Size of the support set: min(maximum, Σ_k ⌈u · min(maximum_per_class, remaining_k)⌉), with u in (0, 1]."""
    contributions = np.ceil((1 - generator.random()) * np.minimum(remaining, maximum_per_class))
    return int(min(maximum, contributions.sum()))


def sample_shots(generator: Generator, class_sizes: PerClass, remaining: PerClass, support_size: int) -> PerClass:
    """Support images per class: one, plus a share of the rest in proportion to class_size · exp(a_k).

    a_k is uniform in `LOG_WEIGHTS`. Shares are rounded down; their sum is at most `support_size`, at least the way.
    """
    way = len(class_sizes)
    weights = class_sizes * np.exp(generator.uniform(*LOG_WEIGHTS, way))
    return np.minimum(np.floor(weights / weights.sum() * (support_size - way)).astype(np.int64) + 1, remaining)


def sample_uniform_shots(
    generator: Generator, remaining: PerClass, maximum_support_size: int, maximum_per_class: int
) -> PerClass:
    """Support images per class, uniform in {1, ..., min(maximum_per_class, remaining_k)}, as in section 4.1.

    Above `maximum_support_size` in all, every class keeps one image, and the rest is drawn uniformly from all others.
    """
    shots = generator.integers(1, np.minimum(remaining, maximum_per_class), endpoint=True)
    if shots.sum() <= maximum_support_size:
        return shots
    return 1 + generator.multivariate_hypergeometric(shots - 1, maximum_support_size - len(shots))


def _check_sizes(source: ImageSource, classes: PerClass, needed: int, description: str) -> None:
    """Raises ValueError if a class has fewer images than an episode needs."""
    for k in classes[source.class_sizes[classes] < needed]:
        images = "1 image" if source.class_sizes[k] == 1 else f"{source.class_sizes[k]} images"
        raise ValueError(f"class '{source.class_names[k]}' has {images}, fewer than {description}")
