"""Query sets whose classes are not equally frequent. Transductive methods are usually tested where they are."""

from dataclasses import replace

import numpy as np
from jaxtyping import Int

from tcnaps.episodes.sampling import Draw, episode_generator


def dirichlet_counts(
    generator: np.random.Generator, way: int, n_query: int, concentration: float | int
) -> Int[np.ndarray, "way"]:
    """Query images of every class, multinomial with proportions from a Dirichlet distribution (Veilleux et al. 2021).

    Args:
        concentration: α, the same for all classes: the smaller, the less balanced. The paper has 2.
    """
    return generator.multinomial(n_query, generator.dirichlet(np.full(way, concentration)))


def sparse_counts(generator: np.random.Generator, way: int, n_query: int, present: int) -> Int[np.ndarray, "way"]:
    """Query images of every class where only `present` of the classes have any, in equal numbers up to one image."""
    counts = np.zeros(way, np.int64)
    counts[generator.choice(way, present, replace=False)] = np.diff(np.linspace(0, n_query, present + 1).astype(int))
    return counts


def unbalanced(draw: Draw, seed: int, concentration: float | int | None = None, present: int | None = None) -> Draw:
    """The same episode with as many query images in all as it had in each class, in unequal shares.

    Args:
        draw: with equally many queries in every class.
        concentration, present: of `dirichlet_counts` or `sparse_counts`; with neither, equal shares up to one image.
    """
    way = len(draw.classes)
    n_query = len(draw.query_images) // way
    generator = episode_generator(seed, draw.dataset, f"{draw.split}, unbalanced", draw.index)
    if concentration is not None:
        counts = dirichlet_counts(generator, way, n_query, concentration)
    else:
        counts = sparse_counts(generator, way, n_query, present or way)
    kept = np.concatenate([np.flatnonzero(draw.query_labels == k)[:count] for k, count in enumerate(counts)])
    return replace(draw, query_images=draw.query_images[kept], query_labels=draw.query_labels[kept])
