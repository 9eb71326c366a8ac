"""Statistics against naive loops over the rows and planted answers."""

import numpy as np
import pandas as pd
import pytest
from oracles import naive_stopping_step
from scipy import stats
from synthetic_rows import DATASETS, predictions_of, synthetic_rows

from tcnaps.evaluation import statistics
from tcnaps.evaluation.stopped_rows import variant_predictions


@pytest.fixture(scope="module")
def episodes(rows):
    return statistics.episode_accuracies(variant_predictions(rows, ["Simple", "FEOT", "COT", "Transductive"], 2, 4))


def test_episode_accuracies_recompute_from_the_rows(rows, episodes):
    accuracies = episodes[(episodes["variant"] == "COT") & (episodes["dataset"] == "digits")].set_index("episode")
    for index, episode in rows[(rows["training"] == "support") & (rows["dataset"] == "digits")].groupby("episode"):
        step = naive_stopping_step(predictions_of(episode), 2, 4)
        right = sum(p == q for p, q in zip(episode[f"prediction_{step}"], episode["label"]))
        assert accuracies.loc[index, "accuracy"] == pytest.approx(right / len(episode))
        assert accuracies.loc[index, "step"] == step


def test_student_interval_is_scipys(episodes):
    summary = statistics.accuracy_summary(episodes).set_index(["variant", "dataset"])
    for key, group in episodes.groupby(["variant", "dataset"]):
        sample, row = group["accuracy"], summary.loc[key]
        low, high = stats.t.interval(0.95, len(sample) - 1, sample.mean(), stats.sem(sample))
        assert row["accuracy"] == pytest.approx(sample.mean())
        assert (row["accuracy"] - row["interval"], row["accuracy"] + row["interval"]) == pytest.approx((low, high))
        assert row["n_episodes"] == len(sample)


def test_domain_averages_are_unweighted(episodes):
    # Datasets of unequal size count alike.
    episodes = episodes[(episodes["dataset"] != "letters") | (episodes["episode"] < 5)]
    summary = statistics.accuracy_summary(episodes)
    averages = statistics.domain_averages(episodes).set_index(["variant", "domain"])
    for variant, group in summary.groupby("variant"):
        cells = group.set_index("dataset")
        for domain, names in {"in": ["letters", "textures"], "out": ["digits"], "all": list(DATASETS)}.items():
            row = averages.loc[variant, domain]
            assert row["accuracy"] == pytest.approx(sum(cells.loc[n, "accuracy"] for n in names) / len(names))
            sizes = np.array([cells.loc[n, "n_episodes"] for n in names])
            variances = np.array([cells.loc[n, "interval"] for n in names]) ** 2 / stats.t.ppf(0.975, sizes - 1) ** 2
            freedom = variances.sum() ** 2 / (variances**2 / (sizes - 1)).sum()  # Satterthwaite
            half_width = stats.t.ppf(0.975, freedom) * variances.sum() ** 0.5 / len(names)
            assert row["interval"] == pytest.approx(half_width)
            assert row["n_datasets"] == len(names)


def test_the_mean_of_pairs_has_the_paired_t_interval(episodes):
    a, b = (episodes[episodes["variant"] == name] for name in ("Transductive", "Simple"))
    # The order of the rows must not matter.
    pairs = statistics.paired_episodes(a, b.sample(frac=1, random_state=0))
    result = statistics.accuracy_summary(pairs, ["evaluation"], "difference").set_index("dataset")
    for dataset in DATASETS:
        x, y = (f[f["dataset"] == dataset].sort_values("episode")["accuracy"].to_numpy() for f in (a, b))
        interval = stats.ttest_rel(x, y).confidence_interval(0.95)
        row = result.loc[dataset]
        assert row["difference"] == pytest.approx((x - y).mean())
        assert row["difference"] - row["interval"] == pytest.approx(interval.low)
        assert row["difference"] + row["interval"] == pytest.approx(interval.high)
    mean = statistics.domain_averages(pairs, ["evaluation"], "difference").set_index("domain")
    assert mean.loc["all", "difference"] == pytest.approx(result["difference"].mean())


def test_ranks():
    """0.66 + 0.02 touches 0.70 − 0.02: the paper's own ranks follow when that counts as worse."""
    entries = [("A", "one", "in", 0.50), ("B", "one", "in", 0.60), ("C", "one", "in", 0.61)]
    entries += [("A", "two", "out", 0.70), ("C", "two", "out", 0.66)]
    summary = pd.DataFrame(entries, columns=["variant", "dataset", "domain", "accuracy"]).assign(interval=0.02)
    ranks = statistics.average_ranks(summary).sort_values("variant").groupby("domain")["rank"]
    assert ranks.apply(list).to_dict() == {"in": [3, 1, 1], "out": [1, 2], "all": [2, 1, 1.5]}


def test_best_by_pairs_sees_smaller_differences(episodes):
    simple = episodes[episodes["variant"] == "Simple"]
    # Better by a little in every episode: the intervals overlap widely, the paired difference is certain.
    small = simple["accuracy"] - 0.01 - 0.001 * (simple["episode"] % 2)
    other = simple["accuracy"] - 0.001 + 0.1 * (simple["episode"] % 2 - 0.5)
    others = [simple.assign(variant="worse", accuracy=small), simple.assign(variant="other", accuracy=other)]
    both = pd.concat([simple, *others])
    summary = statistics.accuracy_summary(both)
    paired = summary[statistics.best(summary, both)]
    assert set(paired["variant"]) == {"Simple", "other"} and len(paired) == 6


def test_grid_cells_are_the_rule_run_directly(rows, episodes):
    grid = statistics.refinement_grid(rows, "support_and_query", (0, 2, 5), (0, 1, 4, 6))
    assert len(grid) == 7 and (grid["minimum"] <= grid["maximum"]).all()
    training_rows = rows[rows["training"] == "support_and_query"]
    for cell in grid.itertuples():
        found = []
        for (dataset, _), episode in training_rows.groupby(["dataset", "episode"]):
            step = naive_stopping_step(predictions_of(episode), cell.minimum, cell.maximum)
            right = [(episode[f"prediction_{t}"] == episode["label"]).mean() for t in (step, 0)]
            found.append((dataset, *right))
        accuracy, start = pd.DataFrame(found).groupby(0).mean().mean()  # of each dataset, and of all
        assert cell.accuracy == pytest.approx(accuracy)
        assert cell.gain == pytest.approx(accuracy - start)
    rule = grid[(grid["minimum"] == 2) & (grid["maximum"] == 4)].iloc[0]
    assert rule["beyond"] == rule["beyond_interval"] == 0
    transductive = episodes[episodes["variant"] == "Transductive"]
    averages = statistics.domain_averages(transductive).set_index("domain").loc["all"]
    assert (rule["accuracy"], rule["interval"]) == pytest.approx((averages["accuracy"], averages["interval"]))
    pairs = statistics.paired_episodes(*(episodes[episodes["variant"] == name] for name in ("Transductive", "FEOT")))
    gain = statistics.domain_averages(pairs, ["evaluation"], "difference").set_index("domain").loc["all"]
    assert (rule["gain"], rule["gain_interval"]) == pytest.approx((gain["difference"], gain["interval"]))
    steps = statistics.refinement_grid(rows, "support_and_query", [0, 2], [0, 2]).query("minimum == maximum")
    assert list(steps["minimum"]) == [0, 2] and steps["gain"].iloc[0] == 0 == steps["gain_interval"].iloc[0]
    with pytest.raises(ValueError):
        statistics.refinement_grid(rows, "support_and_query", [0], [0], domain="both")


def test_more_queries_gain_what_pairs_of_episodes_differ_by():
    parts = [synthetic_rows(("support",), n_episodes=4, queries_per_class=q, evaluation="5-way 1-shot") for q in (2, 4)]
    episodes = statistics.episode_accuracies(variant_predictions(pd.concat(parts), "Simple", 2, 4))
    fewest, most = statistics.gain_by_query_count(episodes).itertuples()
    wide = episodes.pivot(index=["dataset", "episode"], columns="queries_per_class", values="accuracy")
    assert (fewest.queries_per_class, fewest.difference, fewest.interval) == (2, 0, 0)
    assert (most.queries_per_class, most.n_datasets, most.domain) == (4, 3, "all")
    assert most.difference == pytest.approx((wide[4] - wide[2]).groupby("dataset").mean().mean())


def test_episodes_are_never_pooled_silently(episodes, rows):
    more = pd.concat([episodes, episodes.assign(queries_per_class=20)])
    with pytest.raises(ValueError, match="letters, episode 0 .*queries_per_class"):
        statistics.accuracy_summary(more)
    summary = statistics.accuracy_summary(episodes)
    both = pd.concat([summary, summary.assign(evaluation="other")])
    for call in (statistics.average_ranks, lambda summary: statistics.best(summary, episodes)):
        with pytest.raises(ValueError):
            call(both)
    with pytest.raises(ValueError):
        statistics.best(summary, pd.concat([episodes, episodes.assign(evaluation="other")]))
    with pytest.raises(ValueError):
        statistics.refinement_grid(pd.concat([rows, rows.assign(evaluation="other")]), "support_and_query", [0], [1])


def test_pairs_need_the_same_episodes(episodes):
    a, b = (episodes[episodes["variant"] == name] for name in ("Simple", "Transductive"))
    short = b[(b["dataset"] != "digits") | (b["episode"] != 11)]
    for pair in ((a, short), (short, a)):
        with pytest.raises(ValueError, match="variable, digits, episode 11"):
            statistics.paired_episodes(*pair)
    with pytest.raises(ValueError):
        statistics.paired_episodes(episodes, b)


def test_real_and_rendered_images_are_never_averaged_together(episodes):
    kinds = {"letters": "rendered", "textures": "rendered", "digits": "real"}
    both = episodes.assign(images=episodes["dataset"].map(kinds))
    averages = statistics.domain_averages(both).set_index(["variant", "domain"])
    assert set(averages.index.get_level_values("domain")) == {"real", "rendered"}
    alone = statistics.domain_averages(both[both["images"] == "rendered"]).set_index(["variant", "domain"])
    for variant in averages.index.unique("variant"):
        ours, theirs = averages.loc[variant, "rendered"], alone.loc[variant, "all"]
        assert ours["n_datasets"] == 2
        assert (ours["accuracy"], ours["interval"]) == pytest.approx((theirs["accuracy"], theirs["interval"]))
    assert list(statistics.overall(averages.reset_index())["domain"].unique()) == ["real", "rendered"]
    assert list(statistics.overall(statistics.domain_averages(episodes))["domain"].unique()) == ["all"]


@pytest.fixture(scope="module")
def recalls(rows):
    return statistics.class_recall(variant_predictions(rows, ["Simple", "Transductive"], 2, 4))


def test_class_recall_is_counted_by_hand(rows, recalls):
    episode = rows[(rows["training"] == "support") & (rows["dataset"] == "letters") & (rows["episode"] == 3)]
    table = recalls[(recalls["variant"] == "Simple") & (recalls["dataset"] == "letters") & (recalls["episode"] == 3)]
    assert sorted(table["label"]) == sorted(episode["label"].unique())
    for row in table.itertuples():
        queries = episode[episode["label"] == row.label]
        assert row.recall == pytest.approx((queries["prediction_0"] == row.label).mean())
        assert row.shot == queries["shot"].iloc[0] and row.n_query == len(queries) == 4


def test_recall_by_shot_is_a_naive_cluster_robust_mean(recalls, monkeypatch):
    monkeypatch.setattr(statistics, "SHOT_EDGES", (1, 2, 5))
    table = statistics.recall_by_shot(recalls)
    for row in table.itertuples():
        domains = ("in", "out") if row.domain == "all" else (row.domain,)
        classes = recalls[(recalls["variant"] == row.variant) & recalls["domain"].isin(domains)]
        classes = classes[classes["shot"].between(row.shot_low, row.shot_high)]
        residuals = {key: 0 for key in zip(classes["dataset"], classes["episode"])}
        for r in classes.itertuples():
            residuals[r.dataset, r.episode] += r.recall - classes["recall"].mean()
        n, g = len(classes), len(residuals)
        variance = g / (g - 1) * sum(total**2 for total in residuals.values()) / n**2
        assert row.recall == pytest.approx(classes["recall"].mean())
        assert row.shot == pytest.approx(classes["shot"].mean())
        assert (row.n_classes, row.n_episodes) == (n, g)
        assert row.interval == pytest.approx(stats.t.ppf(0.975, g - 1) * variance**0.5)
    assert set(zip(table["shot_low"], table["shot_high"])) == {(1, 1), (2, 4), (5, 14)}
    monkeypatch.setattr(statistics, "SHOT_EDGES", range(1, 15))  # every shot has its own bin
    apart = statistics.recall_by_shot(recalls)
    assert (apart["shot_low"] == apart["shot"]).all() and (apart["shot_high"] == apart["shot"]).all()
    pooled = statistics.recall_by_shot(recalls, fewest=40).query("domain == 'all'")
    assert (pooled["n_classes"] >= 40).all() and pooled["n_classes"].sum() == len(recalls)


def test_frequencies_count_each_episode_once(rows):
    ways, shots = statistics.frequencies(rows, "way"), statistics.frequencies(rows, "shot")
    assert ways["episodes"].sum() == 12 * len(DATASETS)  # not times the trainings
    one = rows[rows["training"] == "support_and_query"].groupby(["dataset", "episode"])
    for (dataset, way), count in ways.groupby(["dataset", "way"]):
        assert count["episodes"].item() == sum(e["way"].iloc[0] == way for (d, _), e in one if d == dataset)
    assert shots["classes"].sum() == one["way"].first().sum()
    assert (shots["classes"] * shots["shot"]).sum() == one["n_support"].first().sum()
