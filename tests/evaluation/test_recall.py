"""Class recall against shot, and how often ways and shots occur, against counts by hand."""

import pytest
from scipy import stats
from synthetic_rows import DATASETS

from tcnaps.evaluation import statistics as recall
from tcnaps.evaluation.stopped_rows import variant_predictions


@pytest.fixture(scope="module")
def recalls(rows):
    return recall.class_recall(variant_predictions(rows, ["Simple", "Transductive"], 2, 4))


def test_class_recall_is_counted_by_hand(rows, recalls):
    episode = rows[(rows["training"] == "support") & (rows["dataset"] == "letters") & (rows["episode"] == 3)]
    table = recalls[(recalls["variant"] == "Simple") & (recalls["dataset"] == "letters") & (recalls["episode"] == 3)]
    assert sorted(table["label"]) == sorted(episode["label"].unique())
    for row in table.itertuples():
        queries = episode[episode["label"] == row.label]
        assert row.recall == pytest.approx((queries["prediction_0"] == row.label).mean())
        assert row.shot == queries["shot"].iloc[0] and row.n_query == len(queries) == 4


def test_recall_by_shot_is_a_naive_cluster_robust_mean(recalls, monkeypatch):
    monkeypatch.setattr(recall, "SHOT_EDGES", (1, 2, 5))
    table = recall.recall_by_shot(recalls)
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
    monkeypatch.setattr(recall, "SHOT_EDGES", range(1, 15))  # every shot has its own bin
    apart = recall.recall_by_shot(recalls)
    assert (apart["shot_low"] == apart["shot"]).all() and (apart["shot_high"] == apart["shot"]).all()
    pooled = recall.recall_by_shot(recalls, fewest=40).query("domain == 'all'")
    assert (pooled["n_classes"] >= 40).all() and pooled["n_classes"].sum() == len(recalls)


def test_frequencies_count_each_episode_once(rows):
    ways, shots = recall.frequencies(rows, "way"), recall.frequencies(rows, "shot")
    assert ways["episodes"].sum() == 12 * len(DATASETS)  # not times the trainings
    one = rows[rows["training"] == "support_and_query"].groupby(["dataset", "episode"])
    for (dataset, way), count in ways.groupby(["dataset", "way"]):
        assert count["episodes"].item() == sum(e["way"].iloc[0] == way for (d, _), e in one if d == dataset)
    assert shots["classes"].sum() == one["way"].first().sum()
    assert (shots["classes"] * shots["shot"]).sum() == one["n_support"].first().sum()
