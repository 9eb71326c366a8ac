"""Seeded protocols: which images make episode i. Episodes are a function of (seed, dataset, split, index) alone.

The variable protocol is Meta-Dataset's (Triantafillou et al. 2020, section 3.2). Its parts are functions of plain
numbers, so that each can be checked on its own. Images are drawn without replacement, uniformly within their class.
Throughout, `class_sizes` are images per class, and `remaining` those that are left after the queries.
"""

import math
import zlib
from collections import Counter
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from tcnaps.config import FixedProtocol, VariableProtocol
from tcnaps.data.image_source import ImageSource


@dataclass(frozen=True)
class Draw:
    """The images of one episode. Image numbers count in the source's array; label k stands for `classes[k]`."""

    dataset: str
    split: str
    index: int
    classes: Int[np.ndarray, "way"]
    support_images: Int[np.ndarray, "n_support"]
    support_labels: Int[np.ndarray, "n_support"]
    query_images: Int[np.ndarray, "n_query"]
    query_labels: Int[np.ndarray, "n_query"]


@dataclass(frozen=True)
class Description:
    """What an episode is made of, before any image is chosen. `n_query` is the number of queries of each class."""

    classes: Int[np.ndarray, "way"]
    n_query: int
    shots: Int[np.ndarray, "way"]


def episode_generator(seed: int, dataset: str, split: str, index: int) -> np.random.Generator:
    """The random numbers of one episode, the same on every machine and whichever episode is drawn first."""
    return np.random.default_rng([seed, zlib.crc32(dataset.encode()), zlib.crc32(split.encode()), index])


def draw_episode(source: ImageSource, protocol: FixedProtocol | VariableProtocol, seed: int, index: int) -> Draw:
    """Chooses classes and images of episode `index`.

    Under the fixed protocol, a draw with more queries per class has the same support set and the same first queries.

    Raises:
        ValueError: the split has too few classes or a class too few images for the protocol.
    """
    generator = episode_generator(seed, source.dataset, source.split, index)
    try:
        episode = describe_episode(generator, source, protocol)
    except ValueError as error:
        raise ValueError(f"dataset '{source.dataset}', split '{source.split}': {error}") from error
    classes, n_query, shots = episode.classes, episode.n_query, episode.shots
    orders = [source.class_starts[k] + generator.permutation(source.class_sizes[k]) for k in classes]
    return Draw(
        source.dataset,
        source.split,
        index,
        classes,
        support_images=np.concatenate([order[:shot] for order, shot in zip(orders, shots)]),
        support_labels=np.arange(len(classes)).repeat(shots),
        query_images=np.concatenate([order[shot : shot + n_query] for order, shot in zip(orders, shots)]),
        query_labels=np.arange(len(classes)).repeat(n_query),
    )


def describe_episode(
    generator: np.random.Generator, source: ImageSource, protocol: FixedProtocol | VariableProtocol
) -> Description:
    """Chooses the classes of an episode and how many images of each.

    The fixed protocol draws its classes from the whole split and ignores a hierarchy: neither an alphabet nor a node
    has the number of classes that was asked for.

    Raises:
        ValueError: the split has too few classes or a class too few images for the protocol.
    """
    if isinstance(protocol, FixedProtocol):
        if source.n_classes < protocol.way:
            raise ValueError(f"{source.n_classes} classes are fewer than way {protocol.way}; lower the way")
        classes = generator.choice(source.n_classes, protocol.way, replace=False)
        shot, n_query = protocol.shot, protocol.queries_per_class
        wanted = f"{shot} support + {n_query} query images; lower shot or queries_per_class"
        _check_sizes(source, classes, shot + n_query, wanted)
        return Description(classes, n_query, np.full(protocol.way, shot))
    ways = protocol.minimum_way, protocol.maximum_way
    hierarchy = source.spans, protocol.maximum_span
    classes = sample_classes(generator, source.n_classes, source.superclasses, *ways, *hierarchy)
    _check_sizes(source, classes, 2, "1 support + 1 query image; leave it out of the dataset")
    sizes = source.class_sizes[classes]
    n_query = int(min(protocol.queries_per_class, sizes.min() // 2))
    remaining = sizes - n_query
    limits = protocol.maximum_support_size, protocol.maximum_support_per_class
    if protocol.shots == "uniform":
        return Description(classes, n_query, sample_uniform_shots(generator, remaining, *limits))
    support_size = sample_support_size(generator, remaining, *limits)
    return Description(classes, n_query, sample_shots(generator, sizes, remaining, support_size))


def sample_classes(
    generator: np.random.Generator,
    n_classes: int,
    superclasses: tuple[str, ...] | None,
    minimum_way: int,
    maximum_way: int,
    spans: tuple[np.ndarray, ...] | None = None,
    maximum_span: int = 392,
) -> Int[np.ndarray, "way"]:
    """Class numbers of an episode, without replacement.

    * Without a hierarchy, way is uniform in {minimum_way, ..., min(maximum_way, n_classes)}, and so are the classes.
    * With superclasses (Omniglot's alphabets): the same within one superclass, which is drawn uniformly among those
      with at least `minimum_way` classes.
    * With spans (ImageNet's WordNet): the classes of `sample_span`, or `maximum_way` of them where there are more.

    Args:
        superclasses: one per class, or None.
        spans: class numbers below each inner node of the hierarchy, or None.

    Raises:
        ValueError: there are fewer than `minimum_way` classes, or no superclass or node has as many.
    """
    if spans is not None:
        span = sample_span(generator, spans, minimum_way, maximum_span)
        return span if len(span) <= maximum_way else generator.choice(span, maximum_way, replace=False)
    pool = np.arange(n_classes)
    if superclasses is not None:
        eligible = sorted(name for name, count in Counter(superclasses).items() if count >= minimum_way)
        if not eligible:
            raise ValueError(f"no superclass has the {minimum_way} classes that an episode needs; lower minimum_way")
        chosen = eligible[generator.integers(len(eligible))]
        pool = np.flatnonzero([name == chosen for name in superclasses])
    if len(pool) < minimum_way:
        raise ValueError(f"{len(pool)} classes are fewer than minimum_way {minimum_way}; lower it")
    way = generator.integers(minimum_way, min(maximum_way, len(pool)) + 1)
    return generator.choice(pool, way, replace=False)


def sample_span(
    generator: np.random.Generator, spans: tuple[np.ndarray, ...], minimum_way: int, maximum_span: int
) -> Int[np.ndarray, "span"]:
    """The classes below a node drawn uniformly among those with `minimum_way` to `maximum_span` classes below them.

    Nodes with the very same classes below them count one by one.

    Raises:
        ValueError: there is no such node.
    """
    eligible = [span for span in spans if minimum_way <= len(span) <= maximum_span]
    if not eligible:
        wanted = f"{minimum_way} to {maximum_span} classes"
        raise ValueError(f"no node of the hierarchy has {wanted} below it; lower minimum_way or raise maximum_span")
    return eligible[generator.integers(len(eligible))]


def sample_support_size(
    generator: np.random.Generator, remaining: Int[np.ndarray, "way"], maximum: int, maximum_per_class: int
) -> int:
    """Support images of all classes: min(maximum, Σ_k ⌈u · min(maximum_per_class, remaining_k)⌉), u in (0, 1]."""
    u = 1 - generator.random()
    return int(min(maximum, np.ceil(u * np.minimum(remaining, maximum_per_class)).sum()))


def sample_shots(
    generator: np.random.Generator,
    class_sizes: Int[np.ndarray, "way"],
    remaining: Int[np.ndarray, "way"],
    support_size: int,
    minimum_log_weight: float = math.log(0.5),
    maximum_log_weight: float = math.log(2),
) -> Int[np.ndarray, "way"]:
    """Support images of every class: one, and a share of the rest in proportion to image count × exp(a_k).

    a_k is uniform in [minimum_log_weight, maximum_log_weight]. Shares are rounded down and a class gives no more
    images than it has left, so the shots sum to `support_size` or less. That is no less than the way.
    """
    way = len(class_sizes)
    weights = class_sizes * np.exp(generator.uniform(minimum_log_weight, maximum_log_weight, way))
    shots = np.floor(weights / weights.sum() * (support_size - way)).astype(np.int64) + 1
    return np.minimum(shots, remaining)


def sample_uniform_shots(
    generator: np.random.Generator, remaining: Int[np.ndarray, "way"], maximum_support_size: int, maximum_per_class: int
) -> Int[np.ndarray, "way"]:
    """Support images of every class, uniform in {1, ..., min(maximum_per_class, remaining_k)}, as section 4.1 has it.

    Where these are more than `maximum_support_size` in all, every class keeps one image, and of all others as many as
    still fit are kept, drawn uniformly without replacement. So shots shrink in proportion, on average.
    """
    shots = generator.integers(1, np.minimum(remaining, maximum_per_class), endpoint=True)
    if shots.sum() <= maximum_support_size:
        return shots
    return 1 + generator.multivariate_hypergeometric(shots - 1, maximum_support_size - len(shots))


def _check_sizes(source: ImageSource, classes: Int[np.ndarray, "way"], needed: int, wanted: str) -> None:
    for k in classes[source.class_sizes[classes] < needed]:
        images = "1 image" if source.class_sizes[k] == 1 else f"{source.class_sizes[k]} images"
        raise ValueError(f"class '{source.class_names[k]}' has {images}, fewer than {wanted}")
