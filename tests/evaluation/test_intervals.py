"""Intervals in which trainings are random: against analysis of variance by hand, and their coverage in simulation."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tcnaps.evaluation.intervals import clustered, estimates, half_width


def layout(values):
    """A frame of values[simulation, replicate, dataset, episode]."""
    index = pd.MultiIndex.from_product(map(range, values.shape), names=["run", "replicate", "dataset", "episode"])
    return pd.Series(values.ravel(), index, name="value").reset_index()


def simulated(n, replicates, datasets, episodes, sizes, seed):
    """Sums of what belongs to the training, the episode and both, of mean 0; `sizes` are their standard deviations."""
    random, shape = np.random.default_rng(seed), (n, replicates, datasets, episodes)
    parts = [(n, replicates, 1, 1), (n, 1, datasets, episodes), shape]
    return layout(sum(size * random.normal(size=part) for size, part in zip(sizes, parts)) + np.zeros(shape))


def test_parts_are_those_of_the_analysis_of_variance_by_hand():
    y = np.random.default_rng(0).normal(size=(1, 3, 2, 7)) + np.arange(3)[None, :, None, None] / 9
    (row,) = estimates(layout(y), ["run"], "value").itertuples()
    training, components = y[0].mean(2).mean(1).var(ddof=1) / 3, []
    for values in y[0].transpose(1, 0, 2):  # of one dataset: replicate × episode
        replicate_means, episode_means = values.mean(1, keepdims=True), values.mean(0, keepdims=True)
        residual = values - replicate_means - episode_means + values.mean()
        components.append(max(3 * episode_means.var(ddof=1) - (residual**2).sum() / (2 * 6), 0) / (3 * 7) / 2**2)
    episodes, freedom = sum(components), sum(components) ** 2 / sum(part**2 / 6 for part in components)
    assert (row.value, row.n_datasets, row.n_episodes, row.n_replicates) == (pytest.approx(y.mean()), 2, 14, 3)
    assert (row.of_trainings, row.of_episodes, row.freedom) == pytest.approx((training, episodes, freedom))
    variance = training + episodes
    satterthwaite = stats.t.ppf(0.975, variance**2 / (training**2 / 2 + episodes**2 / freedom))
    cochran = (stats.t.ppf(0.975, 2) * training + stats.t.ppf(0.975, freedom) * episodes) / variance
    assert row.interval == pytest.approx((satterthwaite + cochran) / 2 * variance**0.5)


@pytest.mark.parametrize(
    ("replicates", "sizes"),
    [(3, (0, 1, 0)), (3, (0, 0, 1)), (3, (0.3, 1, 1)), (3, (1, 1, 1)), (5, (0.1, 1, 1)), (5, (0.2, 1, 3))],
)
def test_intervals_cover_19_cases_of_20(replicates, sizes):
    """Nothing, little and much of each: training, episode and both together."""
    n = 3000
    estimated = estimates(simulated(n, replicates, 2, 15, sizes, seed=1), ["run"], "value")
    assert 0.93 < (estimated["value"].abs() <= estimated["interval"]).mean() < 0.97


def test_equal_trainings_leave_the_interval_of_the_episodes():
    one = simulated(1, 1, 1, 30, (0, 1, 0), seed=3)
    both = pd.concat([one, one.assign(replicate=1)])
    alone, pair = (estimates(frame, ["run"], "value")["interval"].item() for frame in (one, both))
    assert alone == pytest.approx(half_width(one["value"].std(), 30)) == pytest.approx(pair)


def test_a_cluster_counts_once_in_every_training():
    """The same class ten times over says no more; classes of several trainings pair by episode."""
    classes = simulated(1, 3, 1, 20, (0.1, 1, 1), seed=4)
    ten = pd.concat([classes] * 10)
    single, tenfold = (estimates(clustered(frame, ["run"], "value"), ["run"], "value") for frame in (classes, ten))
    pd.testing.assert_frame_equal(single, tenfold)
    pd.testing.assert_frame_equal(single, estimates(classes, ["run"], "value"))


def test_replicates_need_the_same_episodes():
    frame = simulated(1, 2, 1, 5, (1, 1, 1), seed=5)
    with pytest.raises(ValueError):
        estimates(frame.iloc[:-1], ["run"], "value")
