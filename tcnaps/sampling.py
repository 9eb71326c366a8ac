"""Seeded protocols: which images make episode i. Episodes are a function of (seed, dataset, split, index) alone.

The variable protocol is Meta-Dataset's (Triantafillou et al. 2020, section 3.2). Its parts are functions of plain
numbers, so that each can be checked on its own. Images are drawn without replacement, uniformly within their class.
"""

import zlib
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from tcnaps.config import FixedProtocol, VariableProtocol
from tcnaps.datasets.source import ImageSource


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


def episode_generator(seed: int, dataset: str, split: str, index: int) -> np.random.Generator:
    """The random numbers of one episode, the same on every machine and in any order of asking."""
    return np.random.default_rng([seed, zlib.crc32(dataset.encode()), zlib.crc32(split.encode()), index])


def draw_episode(source: ImageSource, protocol: FixedProtocol | VariableProtocol, seed: int, index: int) -> Draw:
    """Chooses classes and images of episode `index`.

    Under the fixed protocol, the draw for more queries a class contains the one for fewer: the support set stays.

    Raises:
        ValueError: the split has too few classes or a class too few images for the protocol.
    """
    generator = episode_generator(seed, source.dataset, source.split, index)
    place = f"dataset '{source.dataset}', split '{source.split}'"
    sizes = source.class_sizes
    if isinstance(protocol, FixedProtocol):
        if source.n_classes < protocol.way:
            raise ValueError(f"{place} has {source.n_classes} classes, fewer than way {protocol.way}; lower the way")
        classes = generator.choice(source.n_classes, protocol.way, replace=False)
        n_query = protocol.queries_per_class
        shots = np.full(protocol.way, protocol.shot)
        short = [k for k in classes if sizes[k] < protocol.shot + n_query]
        if short:
            raise ValueError(
                f"{place}: class '{source.class_names[short[0]]}' has {sizes[short[0]]} images, fewer than "
                f"{protocol.shot} support + {n_query} query images; lower shot or queries_per_class"
            )
    else:
        try:
            classes = sample_classes(
                generator, source.n_classes, source.superclasses, protocol.minimum_way, protocol.maximum_way
            )
            n_query = queries_per_class(sizes[classes], protocol.queries_per_class)
        except ValueError as error:
            raise ValueError(f"{place}: {error}") from error
        support_size = sample_support_size(
            generator, sizes[classes], n_query, protocol.maximum_support_size, protocol.maximum_support_per_class
        )
        shots = sample_shots(generator, sizes[classes], n_query, support_size)
    orders = [source.class_starts[k] + generator.permutation(sizes[k]) for k in classes]
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


def sample_classes(
    generator: np.random.Generator,
    n_classes: int,
    superclasses: tuple[str, ...] | None,
    minimum_way: int,
    maximum_way: int,
) -> Int[np.ndarray, "way"]:
    """Class numbers of an episode, without replacement.

    Way is uniform in {minimum_way, ..., min(maximum_way, classes to choose from)}. With superclasses (Omniglot's
    alphabets), all classes come from one superclass, uniform among those with at least `minimum_way` classes.

    Raises:
        ValueError: there are fewer than `minimum_way` classes, or no superclass has as many.
    """
    pool = np.arange(n_classes)
    if superclasses is not None:
        names = np.asarray(superclasses)
        eligible = [name for name, count in zip(*np.unique(names, return_counts=True)) if count >= minimum_way]
        if not eligible:
            raise ValueError(f"no superclass has the {minimum_way} classes that an episode needs; lower minimum_way")
        pool = np.flatnonzero(names == eligible[generator.integers(len(eligible))])
    way = sample_way(generator, len(pool), minimum_way, maximum_way)
    return generator.choice(pool, way, replace=False)


def sample_way(generator: np.random.Generator, n_classes: int, minimum_way: int, maximum_way: int) -> int:
    """Uniform in {minimum_way, ..., min(maximum_way, n_classes)}.

    Raises:
        ValueError: there are fewer than `minimum_way` classes.
    """
    if n_classes < minimum_way:
        raise ValueError(f"{n_classes} classes are fewer than minimum_way {minimum_way}; lower it")
    return int(generator.integers(minimum_way, min(maximum_way, n_classes) + 1))


def queries_per_class(class_sizes: Int[np.ndarray, "way"], maximum: int) -> int:
    """Query images of every class: at most `maximum`, at most half of the smallest class.

    Raises:
        ValueError: a class has a single image, so that it can't have both a support and a query image.
    """
    if class_sizes.min() < 2:
        raise ValueError("a class has fewer than 2 images: one for the support and one for the query set are needed")
    return int(min(maximum, class_sizes.min() // 2))


def sample_support_size(
    generator: np.random.Generator,
    class_sizes: Int[np.ndarray, "way"],
    n_query: int,
    maximum: int,
    maximum_per_class: int,
) -> int:
    """Support images of all classes: min(maximum, Σ_k ⌈u · min(maximum_per_class, images left)⌉), u in (0, 1]."""
    u = 1 - generator.random()
    left = np.minimum(class_sizes - n_query, maximum_per_class)
    return int(min(maximum, np.ceil(u * left).sum()))


def sample_shots(
    generator: np.random.Generator, class_sizes: Int[np.ndarray, "way"], n_query: int, support_size: int
) -> Int[np.ndarray, "way"]:
    """Support images of every class: one, and a share of the rest in proportion to image count × exp(a_k).

    a_k is uniform in [log ½, log 2]; a class never gives more images than it has left after its queries.

    Raises:
        ValueError: the support size is below the way.
    """
    way = len(class_sizes)
    if support_size < way:
        raise ValueError(f"a support set of {support_size} images can't hold one of each of {way} classes")
    weights = class_sizes * np.exp(generator.uniform(np.log(0.5), np.log(2), way))
    shots = np.floor(weights / weights.sum() * (support_size - way)).astype(np.int64) + 1
    return np.minimum(shots, class_sizes - n_query)
