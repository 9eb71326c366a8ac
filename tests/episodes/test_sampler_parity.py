"""Our sampler against Meta-Dataset's: 20,000 episode descriptions of every dataset and split, number by number.

Every p-value is uniform if both draw from one distribution: the smallest is held against 1% over their number
(Bonferroni). Numbers of one episode depend on each other: of those, mean vectors of counts are compared (`same_mean`).
"""

import json
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import jaxtyping
import numpy as np
import pytest
from scipy import stats
from small_study import sized

from tcnaps.config import VariableProtocol
from tcnaps.data import ImageSource
from tcnaps.data.readers.meta_dataset import read_specification
from tcnaps.episodes import sampling
from tcnaps.episodes.sampling import Description, describe_episode, sample_span

EPISODES = 20_000
FAMILYWISE = 0.01
DATASETS = "aircraft cu_birds dtd fungi ilsvrc_2012 mscoco omniglot quickdraw traffic_sign vgg_flower".split()
SPLITS_OF = {"mscoco": ("valid", "test"), "traffic_sign": ("test",)}
ALL = "train", "train_w40s400", "valid", "test"
FILES = [f"{dataset}_{split}" for dataset in DATASETS for split in SPLITS_OF.get(dataset, ALL)]
LEVEL = FAMILYWISE / (9 * len(FILES))  # at most nine comparisons a file


@dataclass(frozen=True, eq=False)
class Reference:
    """One file of the reference beside the split that it describes."""

    measured: dict
    split: ImageSource
    protocol: VariableProtocol


@cache
def load(folder: Path, name: str) -> Reference:
    measured = json.loads((folder / "sampler" / f"{name}.json").read_text())
    specification = read_specification(folder / "dataset_specs" / f"{measured['dataset']}_dataset_spec.json")
    used = measured["config"]
    protocol = VariableProtocol(
        minimum_way=used["min_ways"],
        maximum_way=used["max_ways_upper_bound"],
        queries_per_class=used["max_num_query"],
        maximum_support_size=used["max_support_set_size"],
        maximum_support_per_class=used["max_support_size_contrib_per_class"],
    )
    classes, above = specification.classes[measured["split"]], specification.superclasses
    split = sized(
        *(size for _, size in classes.values()),
        superclasses=tuple(above[name] for name in classes) if above else None,
        spans=specification.spans.get(measured["split"]),
    )
    return Reference(measured, split, protocol)


def describe(reference: Reference, seed: int) -> list[Description]:
    generator = np.random.default_rng(seed)
    jaxtyping.config.update("jaxtyping_disable", True)  # checking shapes takes five times longer than drawing
    try:
        return [describe_episode(generator, reference.split, reference.protocol) for _ in range(EPISODES)]
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


def same_distribution(ours: np.ndarray, theirs: dict[str, int]) -> float:
    """p-value of the chi-square test that `ours` (n,) and `theirs`, value -> count, are of one distribution."""
    values = np.array(sorted(set(map(int, theirs)) | set(ours.tolist())))
    counts = np.array([[np.sum(ours == v) for v in values], [theirs.get(str(v), 0) for v in values]])
    bins = np.searchsorted(cuts(counts.sum(axis=0), 50), np.arange(len(values)), side="right")
    table = np.stack([np.bincount(bins, row) for row in counts])
    return 1.0 if table.shape[1] == 1 else float(stats.chi2_contingency(table, correction=False).pvalue)


def cuts(counts: np.ndarray, at_least: float) -> np.ndarray:
    """Where bins of neighbouring values start, but for the first, so that each holds `at_least`."""
    starts, held = [], 0
    for k, count in enumerate(counts[:-1]):
        held += count
        if held >= at_least and counts[k + 1 :].sum() >= at_least:
            starts.append(k + 1)
            held = 0
    return np.array(starts, int)


def same_mean(difference: np.ndarray, covariance: np.ndarray, n: int, m: float) -> float:
    """p-value of equal means of `n` and `m` vectors of one `covariance`; `difference` (d,) is their means'."""
    values, directions = np.linalg.eigh(covariance)
    varying = values > 1e-9 * values.max()
    difference = directions.T @ difference
    if not np.allclose(difference[~varying], 0, atol=1e-9):
        return 0.0  # what never varies differs
    squares = difference[varying] ** 2 / (values[varying] * (1 / n + 1 / m))
    return float(stats.chi2.sf(squares.sum(), varying.sum()))


def comparisons(reference: Reference, episodes: list[Description], seed: int) -> dict[str, float]:
    """p-values of everything that the reference has counted."""
    measured, n = reference.measured, reference.measured["n_episodes"]
    way = np.array([len(e.classes) for e in episodes])
    n_query = np.array([e.n_query for e in episodes])
    size = np.array([e.shots.sum() for e in episodes])
    imbalance = np.array([e.shots.max() / e.shots.min() for e in episodes])
    moments = np.stack([imbalance, imbalance**2], axis=1)
    theirs = measured["imbalance_max_over_min_shot"]
    their_moments = [theirs["mean"], theirs["std"] ** 2 + theirs["mean"] ** 2]
    shots, their_shots = shots_in_bins(episodes, measured["shots_per_class_hist"], n)
    drawn = np.bincount(np.concatenate([e.classes for e in episodes]), minlength=len(reference.split.class_sizes))
    classes = drawn / EPISODES - np.array(measured["class_selection_counts"]) / n
    together, covariance = alike(reference), classes_expected(reference)[1]
    found = {
        "way": same_distribution(way, measured["way_hist"]),
        "queries per class": same_distribution(n_query, measured["query_per_class_hist"]),
        "query set size": same_distribution(n_query * way, measured["query_set_size_hist"]),
        "support set size": same_distribution(size, measured["support_set_size_hist"]),
        "support set size by way": same_mean_by_way(way, size, measured),
        "imbalance": same_mean(moments.mean(axis=0) - their_moments, np.cov(moments, rowvar=False), EPISODES, n),
        "shots": same_mean(shots.mean(axis=0) - their_shots, np.cov(shots, rowvar=False), EPISODES, n),
        "classes": same_mean(together @ classes, together @ covariance @ together.T, EPISODES, n),
    }
    if reference.split.spans is not None:
        generator = np.random.default_rng([seed, 1])
        limits = reference.protocol.minimum_way, reference.protocol.maximum_span
        drawn = [len(sample_span(generator, reference.split.spans, *limits)) for _ in range(EPISODES)]
        found["span"] = same_distribution(np.array(drawn), measured["sampled_node_span_hist"])
    return found


def shots_in_bins(episodes: list[Description], theirs: dict[str, int], n: int) -> tuple[np.ndarray, np.ndarray]:
    """Classes of each episode by bins of shots, (episodes, bins), and the reference's mean of the same, (bins,)."""
    values = np.array(sorted(map(int, theirs)))
    counts = np.array([theirs[str(v)] for v in values])
    edges = values[cuts(counts, counts.sum() / 40)]
    tails = values[[np.searchsorted(counts.cumsum(), q * counts.sum()) for q in (0.99, 0.998)]]
    edges = np.union1d(edges, tails)
    shots = np.concatenate([e.shots for e in episodes])
    episode = np.repeat(np.arange(len(episodes)), [len(e.shots) for e in episodes])
    width = len(edges) + 1
    cells = np.bincount(episode * width + np.searchsorted(edges, shots, side="right"), minlength=len(episodes) * width)
    return cells.reshape(-1, width), np.bincount(np.searchsorted(edges, values, side="right"), counts, width) / n


@cache
def classes_expected(reference: Reference) -> tuple[np.ndarray, np.ndarray]:
    """Mean, (n_classes,), and covariance of the vector that says which classes an episode has, by the protocol's text.

    Every episode draws a pool of classes, then a way, then so many classes of the pool without replacement.
    """
    protocol, n_classes = reference.protocol, len(reference.split.class_sizes)
    minimum, maximum = protocol.minimum_way, protocol.maximum_way
    groups = reference.split.superclasses
    if reference.split.spans is not None:
        pools = [s for s in reference.split.spans if minimum <= len(s) <= protocol.maximum_span]
        ways = [np.array([min(len(pool), maximum)]) for pool in pools]
    else:
        pools = [np.arange(n_classes)]
        if groups is not None:
            pools = [np.flatnonzero(np.array(groups) == group) for group in sorted(set(groups))]
        ways = [np.arange(minimum, min(len(pool), maximum) + 1) for pool in pools]
    together = np.zeros((n_classes, n_classes))
    for pool, way in zip(pools, ways):
        one, two = np.mean(way / len(pool)), np.mean(way * (way - 1) / (len(pool) * (len(pool) - 1)))
        together[np.ix_(pool, pool)] += (two + (one - two) * np.eye(len(pool))) / len(pools)
    mean = together.diagonal().copy()
    return mean, together - np.outer(mean, mean)


def alike(reference: Reference) -> np.ndarray:
    """(groups, n_classes), 1 where a class is of a group. With a graph, classes below the very same nodes form a group.

    Only the cut to the maximum way tells the classes of such a group apart. It acts in the few episodes of the largest
    nodes: too few for sums over them to be normal in hundreds of directions. Elsewhere every class is its own group.
    """
    n_classes = len(reference.split.class_sizes)
    if reference.split.spans is None:
        return np.eye(n_classes)
    eligible = [s for s in reference.split.spans if reference.protocol.minimum_way <= len(s)]
    below = np.array([np.isin(np.arange(n_classes), s) for s in eligible])
    _, group = np.unique(below, axis=1, return_inverse=True)
    return np.eye(group.max() + 1)[:, group.ravel()]


def same_mean_by_way(way: np.ndarray, size: np.ndarray, measured: dict) -> float:
    """p-value of equal mean support sizes at every way that both have drawn 100 times."""
    their_ways, their_means = measured["way_hist"], measured["support_set_size_mean_by_way"]
    ways = [v for v, n in their_ways.items() if min(n, np.sum(way == int(v))) >= 100]
    ours = [size[way == int(v)] for v in ways]
    difference = np.array([sizes.mean() - their_means[v] for v, sizes in zip(ways, ours)])
    errors = [sizes.var() * (1 / len(sizes) + 1 / their_ways[v]) for v, sizes in zip(ways, ours)]
    return same_mean(difference, np.diag(errors), 2, 2)  # 1/2 + 1/2: the errors hold the numbers of episodes already


def as_specified(reference: Reference, places: int = 0) -> float:
    """p-value of the reference drawing each class as often as says the place in the specification `places` before."""
    (mean, covariance), together, n = classes_expected(reference), alike(reference), reference.measured["n_episodes"]
    difference = np.roll(reference.measured["class_selection_counts"], places) / n - mean
    return same_mean(together @ difference, together @ covariance @ together.T, n, np.inf)


def test_every_file_of_the_reference_is_compared(reference):
    assert {file.stem for file in (reference / "sampler").glob("*.json")} == set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_our_sampler_draws_as_meta_datasets_does(reference, name):
    read, seed = load(reference, name), FILES.index(name)
    found = comparisons(read, describe(read, seed), seed)
    assert min(found.values()) > LEVEL, found
    assert as_specified(read) > FAMILYWISE / len(FILES)


@pytest.mark.parametrize(
    "name, keys, log_weights, settings",
    [
        ("aircraft_test", ["shots", "imbalance"], (0, 0), {}),
        ("quickdraw_train", ["way", "query set size"], sampling.LOG_WEIGHTS, {"maximum_way": 49}),
        ("ilsvrc_2012_train", ["span", "classes"], sampling.LOG_WEIGHTS, {"maximum_span": 391}),
    ],
)
def test_another_sampler_is_told_apart(reference, monkeypatch, name, keys, log_weights, settings):
    read = load(reference, name)
    other = replace(read, protocol=VariableProtocol(**{**read.protocol.model_dump(), **settings}))
    monkeypatch.setattr(sampling, "LOG_WEIGHTS", log_weights)
    found = comparisons(other, describe(other, 0), 0)
    assert all(found[key] < LEVEL for key in keys), found


def test_classes_of_another_order_are_told_apart(reference):
    """Omniglot's alphabets and ImageNet's leaves in another order than the reference's are found out."""
    assert all(as_specified(load(reference, name), 5) < LEVEL for name in ("omniglot_valid", "ilsvrc_2012_test"))
