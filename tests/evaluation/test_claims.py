"""The claims' table from planted rows: differences, verdicts, and what is missing."""

import numpy as np
import pandas as pd
import pytest
from synthetic_rows import synthetic_rows

from tcnaps.evaluation.claims import CLAIMS, claim_verdicts, claims_markdown, claims_table
from tcnaps.evaluation.recall import class_recall
from tcnaps.evaluation.statistics import domain_averages, episode_accuracies, paired_episodes
from tcnaps.evaluation.stopped_rows import variant_predictions
from tcnaps.method.variants import TRAININGS


def better(rows, share, seed):
    """The rows with some predictions put right, at every step alike."""
    right = np.random.default_rng(seed).random(len(rows)) < share
    columns = [column for column in rows if column.startswith("prediction_")]
    return rows.assign(**{column: rows[column].where(~right, rows["label"]) for column in columns})


def two_trainings(rows):
    """What the contrast of Transductive and Simple needs, on one dataset."""
    needed = rows["training"].isin(["support", "support_and_query"]) & rows["dataset"].eq("letters")
    return rows[needed & rows["evaluation"].eq("variable")]


def swapped(rows):
    names = {"support": "support_and_query", "support_and_query": "support"}
    return rows.assign(training=rows["training"].replace(names))


@pytest.fixture(scope="module")
def rows():
    """Three replicates; Transductive's training is much better, and a mixture's worse, in each of them."""
    share = {"support_and_query": 0.8, "support": 0.2, "support_and_query_refined": 0.2}
    parts = []
    for name, options in {
        "variable": {"trainings": tuple(TRAININGS), "ways": (3, 4, 5)},
        "5-way-1-shot": {"ways": (5,), "shot": 1},
        "5-way-1-shot-8-queries": {"ways": (5,), "shot": 1, "queries_per_class": 8, "n_episodes": 5},
    }.items():
        shot = options.pop("shot", None)
        evaluation_rows = synthetic_rows(evaluation=name, **{"n_episodes": 8} | options)
        evaluation_rows = evaluation_rows.assign(shot=shot) if shot else evaluation_rows
        for replicate in range(3):
            for training, training_rows in evaluation_rows.groupby("training", sort=False):
                parts.append(
                    better(training_rows, share.get(training, 0.05), [replicate, len(parts)]).assign(
                        replicate=replicate
                    )
                )
    return pd.concat(parts, ignore_index=True)


@pytest.fixture(scope="module")
def table(rows):
    return claims_table(rows)


def cell(table, claim, contrast, setting="variable", domain="all"):
    columns = ["claim", "contrast", "setting", "domain"]
    (row,) = table[(table[columns] == [claim, contrast, setting, domain]).all(axis=1)].itertuples()
    return row


def test_a_planted_gain_holds_and_a_planted_loss_fails(rows, table):
    row = cell(table, "C1", "Transductive minus Simple")
    episodes = episode_accuracies(
        variant_predictions(rows[rows["evaluation"] == "variable"], ["Transductive", "Simple"], 2, 4)
    )
    a, b = (episodes[episodes["variant"] == name] for name in ("Transductive", "Simple"))
    mean = domain_averages(paired_episodes(a, b), ["evaluation"], "difference").set_index("domain").loc["all"]
    assert (row.difference, row.interval) == pytest.approx((mean["difference"], mean["interval"]))
    pairs = paired_episodes(a, b).groupby(["replicate", "dataset"])["difference"].mean()
    each = pairs.groupby("replicate").mean().to_list()
    assert [float(part) / 100 for part in row.replicates.split()] == pytest.approx(each, abs=6e-4)
    assert (row.verdict, row.n_replicates, row.n_episodes) == ("holds", 3, 24)
    assert cell(table, "C5", "GMM-EM minus Transductive").verdict == "holds"
    assert cell(claims_table(swapped(two_trainings(rows))), "C1", "Transductive minus Simple").verdict == "fails"


def test_the_paper_says_what_its_tables_print(table):
    assert cell(table, "C1", "Transductive minus Simple").paper == pytest.approx(0.017)
    assert cell(table, "C1", "Transductive minus Simple", "1-shot").paper == pytest.approx((0.024 + 0.029) / 2)
    assert cell(table, "C6", "Min 2 Max 4 minus No Min/Max").paper == pytest.approx(0.005)
    assert cell(table, "C3", "FEOT minus Simple", domain="out").paper == pytest.approx(0.01)
    assert table.loc[table["claim"].isin(["C2", "C7", "C8"]), "paper"].isna().all()


def test_recall_contrasts_are_differences_of_pooled_means(rows, table):
    variable = rows[rows["evaluation"] == "variable"]
    sides = [class_recall(variant_predictions(variable, name, 2, 4)) for name in ("Transductive", "Simple")]
    gains = paired_episodes(*sides, "recall", ["label"])
    low, high = (gains.loc[gains["shot"].between(*limits), "difference"].mean() for limits in ((1, 1), (6, 10)))
    row = cell(table, "C2", "gain in recall at shot 1 minus at shots 6 to 10")
    assert row.difference == pytest.approx(low - high) and row.interval > 0


def test_queries_pair_the_episodes_that_both_numbers_have(rows, table):
    row = cell(table, "C7", "most queries minus fewest", "1-shot")
    assert row.n_episodes == 3 * 5
    means = []
    for name in ("5-way-1-shot-8-queries", "5-way-1-shot"):
        episodes = episode_accuracies(variant_predictions(rows[rows["evaluation"] == name], "Transductive", 2, 4))
        means.append(episodes.loc[episodes["episode"] < 5].groupby("dataset")["accuracy"].mean().mean())
    assert row.difference == pytest.approx(means[0] - means[1])


def test_the_change_of_a_gain_is_a_difference_of_differences(rows):
    rows = rows[rows["evaluation"] == "5-way-1-shot"]
    five = rows[rows["evaluation"] == "5-way-1-shot"].assign(evaluation="5-way-5-shot", shot=5)
    worse = five["training"].eq("support_and_query")
    five.loc[worse, "prediction_0"] = (five.loc[worse, "label"] + 1) % 5  # only FEOT's and nothing refined
    table = claims_table(pd.concat([rows, five]))
    one = cell(table, "C1", "Transductive minus Simple", "1-shot")
    both = cell(table, "C1", "Transductive minus Simple", "1-shot minus 5-shot")
    assert both.difference == pytest.approx(0, abs=1e-12) and both.verdict == "open" and one.difference > 0.02
    assert both.interval == pytest.approx(2**0.5 * one.interval, rel=0.5)


def test_what_a_study_lacks_is_not_evaluated_and_all_claims_are_there(rows, table):
    few = claims_table(rows[rows["evaluation"] == "5-way-1-shot"])
    assert set(few["claim"]) == set(CLAIMS) == set(table["claim"])
    verdicts = claim_verdicts(few)
    assert verdicts.drop("C1").eq("not evaluated").all() and verdicts["C1"] != "not evaluated"
    assert claim_verdicts(table)["C8"] == "not evaluated"
    lines = claims_markdown(table).splitlines()
    assert len(lines) == 2 + len(CLAIMS) + len(table) and all(line.count("|") == 6 for line in lines)


def test_replicates_that_disagree_stay_open(rows):
    rows = two_trainings(rows)
    first = rows[rows["replicate"] == 0]
    row = cell(claims_table(first), "C1", "Transductive minus Simple")
    assert row.verdict == "holds" and row.n_replicates == 1
    mixed = pd.concat([first, swapped(rows[rows["replicate"] > 0])])
    row = cell(claims_table(mixed), "C1", "Transductive minus Simple")
    assert row.verdict == "open"
