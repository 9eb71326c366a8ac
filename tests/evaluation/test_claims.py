"""The claims' table from planted rows: differences, verdicts, and what is missing."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from synthetic_rows import synthetic_rows

from tcnaps.config import load_study
from tcnaps.config.settings import Claims
from tcnaps.evaluation import claims, intervals
from tcnaps.evaluation.claims import CLAIMS, _decided, claim_verdicts, claims_markdown, claims_table, in_points
from tcnaps.evaluation.intervals import other_classes
from tcnaps.evaluation.result_files import RowsError
from tcnaps.evaluation.statistics import class_recall, episode_accuracies, paired_episodes, with_classes
from tcnaps.evaluation.stopped_rows import EPISODE, variant_predictions
from tcnaps.method.variants import FURTHER_TRAININGS, TRAININGS

HALVES = [name for name, training in FURTHER_TRAININGS.items() if training.half_scale]


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
    for name, options, shot in (
        ("variable", {"trainings": (*TRAININGS, *HALVES)}, {}),
        ("5-way-1-shot", {"ways": (5,)}, {"shot": 1}),
        ("5-way-1-shot-8-queries", {"ways": (5,), "queries_per_class": 8, "n_episodes": 5}, {"shot": 1}),
    ):
        evaluation_rows = synthetic_rows(evaluation=name, **{"n_episodes": 8} | options).assign(**shot)
        for replicate in range(3):
            for training, training_rows in evaluation_rows.groupby("training", sort=False):
                improved = better(training_rows, share.get(training, 0.05), [replicate, len(parts)])
                parts.append(improved.assign(replicate=replicate))
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
    variable = rows[rows["evaluation"] == "variable"]
    episodes = episode_accuracies(variant_predictions(variable, ["Transductive", "Simple"], 2, 4))
    a, b = (episodes[episodes["variant"] == name] for name in ("Transductive", "Simple"))
    pairs = with_classes(paired_episodes(a, b), rows)
    mean = other_classes(pairs, "difference").set_index("dataset").loc["all"]
    assert (row.difference, row.interval) == pytest.approx((mean["difference"], mean["class_interval"]))
    assert row.episode_interval == pytest.approx(mean["interval"])
    each = pairs.groupby(["replicate", "dataset"])["difference"].mean().groupby("replicate").mean().to_list()
    assert [float(part) / 100 for part in row.replicates.split()] == pytest.approx(each, abs=6e-4)
    assert (row.verdict, row.n_replicates, row.n_episodes, row.n_datasets) == ("holds", 3, 24, 3)
    improved = (pairs["difference"] > 0) + 0.5 * (pairs["difference"] == 0)
    assert row.improved == pytest.approx(improved.mean()) and 0.5 < row.improved < 1
    worst, difference = row.worst.split()
    of_datasets = pairs.groupby("dataset")["difference"].mean()
    assert worst == of_datasets.idxmin() and float(difference) / 100 == pytest.approx(of_datasets.min(), abs=6e-4)
    assert row.plan_trainings > 3 and row.plan_classes > row.n_classes and row.plan_episodes > 24
    assert cell(table, "C5", "GMM-EM minus Transductive").verdict == "holds"
    assert cell(claims_table(swapped(two_trainings(rows))), "C1", "Transductive minus Simple").verdict == "opposite"


def contrasts(claim="C1", images="real", **columns):
    """A table of contrasts with given differences, intervals and p-values, in which all expect a gain."""
    return pd.DataFrame({"interval": 0.02, "sign": 1, **columns}).assign(claim=claim, images=images)


@pytest.mark.parametrize(
    ("difference", "interval", "p", "verdict"),
    [
        (0.03, 0.02, 0.001, "holds"),
        (-0.03, 0.02, 0.001, "opposite"),
        (0.03, 0.04, 0.2, "open"),
        (0.002, 0.001, 0.001, "no effect"),  # told from 0, and too small to matter
        (0.001, 0.003, 0.5, "no effect"),
        (0.001, np.nan, np.nan, "open"),
        (np.nan, np.nan, np.nan, "not evaluated"),
    ],
)
def test_a_verdict_follows_from_the_interval_and_the_margin(difference, interval, p, verdict):
    table = _decided(contrasts(difference=[difference], interval=[interval], p=[p]), margin=0.005)
    assert table["verdict"].item() == verdict


def test_many_contrasts_of_a_claim_are_corrected_for_their_number():
    table = contrasts(difference=[0.03] * 4, p=[0.04, 0.001, 0.015, 0.9])
    assert list(_decided(table, 0.005)["verdict"]) == ["open", "holds", "holds", "open"]  # Holm: .004 .045 .08 .9
    apart = pd.concat([contrasts(difference=[0.03], p=[0.04], claim=claim) for claim in ("C1", "C2")])
    assert set(_decided(apart.reset_index(drop=True), 0.005)["verdict"]) == {"holds"}
    assert claim_verdicts(_decided(table, 0.005))["real", "C1"] == "2 of 4 hold, 2 open"


def test_real_and_rendered_images_are_decided_apart(rows):
    kinds = {"letters": "rendered", "textures": "rendered", "digits": "real"}
    both = rows[rows["training"].isin(["support", "support_and_query"])]
    both = both.assign(images=both["dataset"].map(kinds))
    table = claims_table(both)
    for kind, part in both.groupby("images"):
        alone = claims_table(part.drop(columns="images"))
        apart = table[table["images"] == kind].reset_index(drop=True)
        pd.testing.assert_frame_equal(apart.drop(columns="images"), alone.drop(columns="images"))
    assert cell(table[table["images"] == "real"], "C3", "COT minus Simple", domain="in").verdict == "not evaluated"
    page = claims_markdown(table)
    assert page.index("**Rendered images**") < page.index("**Real images**")


def test_the_paper_says_what_its_tables_print(table):
    assert cell(table, "C1", "Transductive minus Simple").paper == pytest.approx(0.017)
    assert cell(table, "C1", "Transductive minus Simple", "1-shot").paper == pytest.approx((0.024 + 0.029) / 2)
    assert cell(table, "C1", "Transductive minus Simple").shuffled == pytest.approx(0.006)
    assert cell(table, "C5", "GMM-EM+ minus Transductive+").paper == pytest.approx(-0.019)
    row = cell(table, "C6, limits", "Min 2 Max 4 minus No Min/Max")
    assert row.paper == pytest.approx(0.005) and row.excluded == (abs(row.difference - 0.005) > row.interval)
    assert cell(table, "C3", "FEOT minus Simple", domain="out").paper == pytest.approx(0.01)
    assert table.loc[table["claim"].isin(["C2", "C7", "C5, the ½", "C5, log|Q|"]), "paper"].isna().all()


def test_a_minimum_above_the_maximum_acts_as_the_maximum():
    rows = synthetic_rows(n_steps=1)
    assert cell(claims_table(rows, (2, 1)), "C6, maximum", "Min 2 Max 4 minus Min 2 Max 2").difference == 0


def test_the_mixture_s_head_is_taken_apart(table):
    halves, determinants = (table[table["claim"] == f"C5, {part}"] for part in ("the ½", "log|Q|"))
    assert len(table[table["claim"] == "C5"]) == 5 and len(halves) == len(determinants) == 4
    for name, mixture in (("Simple", "GMM"), ("COT", "COT GMM"), ("FEOT", "FEOT GMM"), ("Transductive", "GMM-EM")):
        parts = halves, determinants, table[table["claim"] == "C5"]
        names = f"{name} ½ minus {name}", f"{mixture} minus {name} ½", f"{mixture} minus {name}"
        half, determinant, both = (part.set_index("contrast")["difference"][key] for part, key in zip(parts, names))
        assert half + determinant == pytest.approx(both, abs=1e-12)


def test_recall_contrasts_are_differences_of_pooled_means(rows, table):
    variable = rows[rows["evaluation"] == "variable"]
    sides = [class_recall(variant_predictions(variable, name, 2, 4)) for name in ("Transductive", "Simple")]
    gains = paired_episodes(*sides, "recall", ["label"])
    low, high = (gains.loc[gains["shot"].between(*limits), "difference"].mean() for limits in ((1, 1), (6, 10)))
    row = cell(table, "C2", "gain in recall at shot 1 minus at shots 6 to 10")
    assert row.difference == pytest.approx(low - high) and row.interval > 0
    assert row.worst == "" and np.isnan(row.improved) and pd.isna(row.plan_episodes)  # its units are classes


def test_the_interval_of_recall_is_for_other_classes_and_other_episodes(rows):
    variable = rows[(rows["evaluation"] == "variable") & (rows["replicate"] == 0)]
    sides = [class_recall(variant_predictions(variable, name, 2, 4)) for name in ("Transductive", "Simple")]
    gains = paired_episodes(*sides, "recall", ["label"]).query("shot == 1")
    units, variances = [["dataset", "class_name"], EPISODE, [*EPISODE, "label"]], []
    for unit in units:
        sums = (gains["difference"] - gains["difference"].mean()).groupby([gains[key] for key in unit]).sum()
        variances.append((sums**2).sum() / len(gains) ** 2 * len(sums) / (len(sums) - 1))
    n = len(gains[units[0]].drop_duplicates())
    variance = max(variances[0], variances[0] + variances[1] - variances[2]) * (1 + (2 / (n - 1)) ** 0.5 / 4)
    row = cell(claims_table(variable), "C2", "gain in recall at shot 1")
    assert row.interval == pytest.approx(intervals.student(n) * variance**0.5, rel=0.01)


def test_queries_pair_the_episodes_that_both_numbers_have(rows, table):
    row = cell(table, "C7", "most queries minus fewest", "1-shot")
    assert row.n_episodes == 3 * 5
    means = []
    for name in ("5-way-1-shot-8-queries", "5-way-1-shot"):
        episodes = episode_accuracies(variant_predictions(rows[rows["evaluation"] == name], "Transductive", 2, 4))
        means.append(episodes.loc[episodes["episode"] < 5].groupby("dataset")["accuracy"].mean().mean())
    assert row.difference == pytest.approx(means[0] - means[1])
    other = rows.assign(class_name=rows["class_name"] + rows["evaluation"])  # as without replacement
    assert cell(claims_table(other), "C7", "most queries minus fewest", "1-shot").verdict == "not evaluated"


def test_the_change_of_a_gain_is_a_difference_of_differences(rows):
    rows = rows[rows["evaluation"] == "5-way-1-shot"]
    same = rows.assign(evaluation="5-way-5-shot", shot=5)
    changed = same["training"].eq("support") & same["episode"].between(2, 5)
    steps = [column for column in same if column.startswith("prediction_")]
    helped = same.assign(**{step: same[step].mask(changed, same["label"]) for step in steps})

    def gain(rows, setting):
        return cell(claims_table(rows), "C1", "Transductive minus Simple", setting)

    none, both = (gain(pd.concat([rows, five]), "1-shot minus 5-shot") for five in (same, helped))
    assert none.difference == none.interval == 0  # for the gains are paired by episode
    assert np.isnan(gain(pd.concat([rows, same.assign(class_name="other")]), "1-shot minus 5-shot").difference)
    assert np.isnan(gain(rows.assign(way=3), "1-shot").paper)  # it has no 3-way episodes
    one, five = gain(rows, "1-shot"), gain(helped.assign(shot=1), "1-shot")
    assert both.difference == pytest.approx(one.difference - five.difference) and both.interval > 0
    assert (both.n_datasets, both.n_classes, both.n_episodes) == (one.n_datasets, one.n_classes, one.n_episodes)
    same_classes = gain(rows.assign(class_name=rows["label"].astype(str)), "1-shot")  # in every episode
    assert same_classes.plan_episodes > 24 and pd.isna(same_classes.plan_classes)


def test_what_a_study_lacks_is_not_evaluated_and_all_claims_are_there(rows, table):
    few = claims_table(rows[rows["evaluation"] == "5-way-1-shot"])
    assert set(few["claim"]) == set(CLAIMS) == set(table["claim"])
    verdicts = claim_verdicts(few)["real"]
    assert verdicts.drop("C1").eq("not evaluated").all() and verdicts["C1"] != "not evaluated"
    assert claim_verdicts(table)["real", "C8"] == "not evaluated"
    lines = [line.replace("\\|", "") for line in claims_markdown(table).splitlines()]
    assert len(lines) == 2 + len(CLAIMS) + len(table) and all(line.count("|") == 6 for line in lines)


def test_a_better_backbone_lifts_both_models(rows):
    fixed = rows[rows["evaluation"] == "5-way-1-shot"]
    table = claims_table(fixed, more_classes=better(fixed, 0.5, 7))
    for name, paper in (("Simple", 0.163), ("Transductive", 0.161)):
        row = cell(table, "C8", f"{name}, more classes minus {name}", "1-shot")
        assert row.difference > 0.03 and row.verdict == "holds" and row.paper == pytest.approx(paper)  # of Table 2
    gain = cell(table, "C8", "Transductive, more classes minus Simple, more classes", "1-shot")
    assert gain.difference > 0.02 and gain.paper == pytest.approx(0.0245)
    kinds = fixed.assign(images=np.where(fixed["dataset"] == "digits", "real", "rendered"))
    apart = claims_table(kinds, more_classes=fixed).set_index("contrast")["difference"]
    assert apart["Simple, more classes minus Simple"].dropna().to_list() == [0, 0]  # real and rendered images
    lacking = claims_table(fixed, more_classes=fixed.assign(evaluation="other"))
    assert claim_verdicts(lacking)["real", "C8"] == "not evaluated"


def test_the_second_study_s_missing_rows_are_named(tmp_path):
    study = load_study("configs/miniature.yaml")
    assert claims.rows_of_more_classes(study) is None
    path, text = tmp_path / "absent.yaml", Path("configs/miniature.yaml").read_text("utf-8")
    path.write_text(text.replace("name: miniature", "name: absent"), "utf-8")
    study = study.model_copy(update={"claims": Claims(more_classes=str(path))})
    with pytest.raises(RowsError, match="There are no rows .*absent"):
        claims.rows_of_more_classes(study)
    others = {f"other-{name}": evaluation for name, evaluation in study.evaluations.items()}
    assert claims.rows_of_more_classes(study.model_copy(update={"evaluations": others})) is None


def test_a_difference_has_the_digits_that_its_interval_needs():
    assert in_points(0.0614, 0.0021) == "+6.1 ± 0.2" and in_points(-0.0002, 0.0001) == "−0.02 ± 0.01"
    assert in_points(0.01, np.nan) == "+1.0 (no interval)" and in_points(np.nan, np.nan) == ""


def test_replicates_that_disagree_stay_open(rows):
    rows = two_trainings(rows)
    first = rows[rows["replicate"] == 0]
    row = cell(claims_table(first), "C1", "Transductive minus Simple")
    assert row.difference > row.episode_interval and row.n_replicates == 1 and pd.isna(row.plan_trainings)
    mixed = pd.concat([first, swapped(rows[rows["replicate"] > 0])])
    assert cell(claims_table(mixed), "C1", "Transductive minus Simple").verdict == "open"
