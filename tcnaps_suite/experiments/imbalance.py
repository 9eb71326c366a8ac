"""Query sets with unequal class frequencies. Transductive methods are usually tested with equal ones."""

from dataclasses import replace

import numpy as np
from jaxtyping import Int

from tcnaps.episodes.sampling import Draw, episode_generator


def dirichlet_counts(
    generator: np.random.Generator, way: int, n_query: int, concentration: float | int
) -> Int[np.ndarray, "way"]:
    """The number of query images of every class, with proportions from a Dirichlet distribution (Veilleux et al. 2021).

    Args:
        concentration: α, the same for all classes; smaller is less balanced. The paper has 2.
    """
    return generator.multinomial(n_query, generator.dirichlet(np.full(way, concentration)))


def sparse_counts(generator: np.random.Generator, way: int, n_query: int, present: int) -> Int[np.ndarray, "way"]:
    """The number of query images of every class: equal, up to one image, for `present` of the classes, 0 for others."""
    counts = np.zeros(way, np.int64)
    shares = np.diff(np.linspace(0, n_query, present + 1).astype(int))
    counts[generator.choice(way, present, replace=False)] = shares
    return counts


def unbalanced(draw: Draw, seed: int, concentration: float | int | None = None, present: int | None = None) -> Draw:
    """The same episode with unequal numbers of queries per class, in all as many as one class had.

    Args:
        draw: an episode with equally many queries in every class.
        concentration, present: see `dirichlet_counts` and `sparse_counts`. Without either, shares are equal.
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
