"""Intervals in which trainings are random: against analysis of variance by hand, and their coverage in simulation."""

import numpy as np
import pandas as pd
import pytest
from coverage_of_intervals import gains_of_episodes, layout, values_of_trainings
from scipy import stats

from tcnaps.evaluation import intervals
from tcnaps.evaluation.intervals import clustered, estimates, half_width, other_classes


def simulated(n, replicates, datasets, episodes, sizes, seed):
    """Sums of what belongs to the training, the episode and both, of mean 0; `sizes` are their standard deviations."""
    random, shape = np.random.default_rng(seed), (n, replicates, datasets, episodes)
    parts = [(n, replicates, 1, 1), (n, 1, datasets, episodes), shape]
    return layout(sum(size * random.normal(size=part) for size, part in zip(sizes, parts)) + np.zeros(shape))


def test_parts_are_those_of_the_analysis_of_variance_by_hand():
    y = np.random.default_rng(0).normal(size=(1, 3, 2, 7)) + np.arange(3)[None, :, None, None] / 9
    (row,) = estimates(layout(y), ["run"], "value").itertuples()
    means = y[0].mean(2)  # replicate × dataset
    interaction = means - means.mean(0) - means.mean(1, keepdims=True) + means.mean()
    noise, components = 0.0, []
    for values in y[0].transpose(1, 0, 2):  # of one dataset: replicate × episode
        replicate_means, episode_means = values.mean(1, keepdims=True), values.mean(0, keepdims=True)
        residual = values - replicate_means - episode_means + values.mean()
        noise += (residual**2).sum() / (2 * 6) / 7 / 2  # the mean over two datasets of MS_ε / E
        components.append(max(3 * episode_means.var(ddof=1) - (residual**2).sum() / (2 * 6), 0) / (3 * 7) / 2**2)
    training = max(means.mean(1).var(ddof=1), (interaction**2).sum() / 2 / 2, noise / 2) / 3
    episodes, freedom = sum(components), sum(components) ** 2 / sum(part**2 / 6 for part in components)
    assert (row.value, row.n_datasets, row.n_episodes, row.n_replicates) == (pytest.approx(y.mean()), 2, 14, 3)
    assert (row.of_trainings, row.of_episodes, row.freedom) == pytest.approx((training, episodes, freedom))
    variance = training + episodes
    satterthwaite = stats.t.ppf(0.975, variance**2 / (training**2 / 2 + episodes**2 / freedom))
    cochran = (stats.t.ppf(0.975, 2) * training + stats.t.ppf(0.975, freedom) * episodes) / variance
    assert row.interval == pytest.approx((satterthwaite + cochran) / 2 * variance**0.5)


@pytest.mark.parametrize(
    ("replicates", "sizes"), [(3, (0, 1, 0)), (3, (0.3, 1, 1)), (3, (1, 1, 1)), (5, (0.1, 1, 1)), (5, (0.3, 1, 1))]
)
def test_intervals_cover_19_cases_of_20(replicates, sizes):
    """Nothing, little and much of each: training, episode and both together."""
    estimated = estimates(simulated(3000, replicates, 2, 15, sizes, seed=1), ["run"], "value")
    assert 0.93 < (estimated["value"].abs() <= estimated["interval"]).mean() < 0.98


@pytest.mark.parametrize("replicates", [3, 5])
def test_trainings_never_add_less_than_their_noise(replicates):
    """On one dataset, where trainings differ by nothing but chance: they agree often, and the interval stays wide."""
    estimated = estimates(simulated(2000, replicates, 1, 15, (0, 0, 1), seed=1), ["run"], "value")
    assert (estimated["value"].abs() <= estimated["interval"]).mean() > 0.95
    assert estimated["interval"].min() > estimated["interval"].median() / 2


@pytest.mark.parametrize(("in_common", "interaction"), [(0, 1), (0.3, 1), (0.5, 1)])
def test_trainings_that_agree_by_luck_do_not_make_the_interval_narrow(in_common, interaction):
    """Of the narrowest fifth of intervals, too, at least nine of ten cover: trainings interact with datasets."""
    estimated = estimates(values_of_trainings(2000, 3, 8, in_common, interaction, seed=2), ["run"], "value")
    covers = estimated["value"].abs() <= estimated["interval"]
    narrowest = estimated["interval"] <= estimated["interval"].quantile(0.2)
    assert covers.mean() > 0.94 and covers[narrowest].mean() > 0.9


def test_at_the_level_of_the_p_value_the_interval_reaches_zero():
    (row,) = estimates(simulated(1, 3, 2, 15, (0.3, 1, 1), seed=4), ["run"], "value").to_dict("records")
    for difference in (0.1, 1.0, 3.0):
        assert intervals.crossed_half_width(row, 1 - intervals.p_value(row, difference)) == pytest.approx(difference)
    assert intervals.p_value(row, row["interval"]) == pytest.approx(0.05) and intervals.p_value(row, 100.0) < 1e-3
    assert np.isnan(intervals.p_value(row | {"of_episodes": np.nan}, 1.0))


def test_the_number_needed_is_the_smallest_that_is_narrow_enough():
    n = intervals.needed(4.0, 0.5)
    widths = [half_width(2.0, number) for number in (n - 1, n)]
    assert widths[0] > 0.5 >= widths[1] and intervals.needed(0.0, 0.5) == 2


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
    second = frame[frame["replicate"] == 0].assign(dataset="in the first replicate alone")
    others = [frame.iloc[:-1], frame.assign(episode=frame["episode"] + 5 * frame["replicate"])]
    for other in (*others, pd.concat([frame, second])):
        with pytest.raises(ValueError, match="hold different episodes"):
            estimates(other, ["run"], "value")


def test_a_missing_value_counts_for_nothing():
    frame = simulated(1, 1, 1, 20, (1, 1, 1), seed=5)
    first = frame["episode"] < 5
    missing = frame.assign(value=frame["value"].where(first))
    pd.testing.assert_frame_equal(*(estimates(part, ["run"], "value") for part in (missing, frame[first])))


@pytest.mark.parametrize("ways", [(5, 5), (5, 20)], ids=["5-way", "variable"])
@pytest.mark.parametrize("n_classes", [20, 64])
def test_an_interval_for_other_classes_covers_them(n_classes, ways):
    """The mean effect of all possible classes is 0; an interval over episodes alone covers it in half of the cases."""
    samples = [gains_of_episodes(n_classes, 300, ways, 0.05, 0.08, seed) for seed in range(80)]
    rows = other_classes(pd.concat(samples), "gain").set_index("dataset").drop("all")
    classes, episodes = ((rows["gain"].abs() <= rows[name]).mean() for name in ("class_interval", "interval"))
    assert 0.89 <= classes <= 0.99 and episodes < 0.85
    assert (rows["n_classes"] == n_classes).all()


def test_at_a_fixed_way_the_variance_is_that_of_the_class_means():
    """m² (C − 1) / (C (C − m)²) times the spread of the means over the episodes that hold a class, less their noise."""
    table, m, c = gains_of_episodes(12, 5000, (5, 5), 0.3, 0.08, 0), 5, 12
    means = table.explode("classes").groupby("classes")["gain"].mean()
    noise = (c - 1) * table["gain"].var() * (1 - m / c) / (len(table) * m / c)
    spread = ((means - table["gain"].mean()) ** 2).sum() - noise
    by_hand = m**2 * (c - 1) / (c * (c - m) ** 2) * spread + table["gain"].var() / len(table)
    variance, n_classes = intervals.class_variance(table["gain"].to_numpy(), list(table["classes"]))
    assert n_classes == c
    # A quarter of the standard error of a variance with c − 1 degrees of freedom, √(2 / 11), is added.
    assert variance == pytest.approx(by_hand * (1 + (2 / 11) ** 0.5 / 4), rel=0.03)


def test_classes_that_are_in_every_episode_tell_nothing_of_others():
    table = gains_of_episodes(5, 30, (5, 5), 0.05, 0.08, 0).assign(dataset="blobs")
    assert other_classes(table, "gain")["class_interval"].isna().all()
    many = gains_of_episodes(20, 30, (5, 5), 0.05, 0.08, 1).assign(dataset="many")
    both = other_classes(pd.concat([table, many]), "gain").set_index("dataset")
    assert np.isnan(both.loc["blobs", "class_interval"])  # and counts in the mean with its episodes alone
    single = other_classes(pd.concat([table.iloc[:1], many]), "gain").set_index("dataset")
    assert np.isnan(single.loc["all", ["class_interval", "interval"]].astype(float)).all()  # one episode has none
    expected = (both.loc["blobs", "of_episodes"] + both.loc["many", "of_classes"]) / 4
    assert both.loc["all", "of_classes"] == pytest.approx(expected)


def test_the_mean_over_datasets_counts_each_dataset_once():
    tables = [gains_of_episodes(20, n, (5, 5), 0.05, 0.08, n) for n in (50, 200)]
    table = other_classes(pd.concat(tables), "gain").set_index("dataset")
    assert table.loc["all", "gain"] == pytest.approx(np.mean([frame["gain"].mean() for frame in tables]))
    assert table.loc["all", "n_classes"] == 40
    assert table.loc["all", "class_interval"] < table.loc[["50", "200"], "class_interval"].max()
