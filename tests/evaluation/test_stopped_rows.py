"""The stopping rule on tables of rows, against the released loop episode by episode."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp
from oracles import naive_stopping_step
from synthetic_rows import predictions_of

from tcnaps.evaluation.stopped_rows import rule_accuracies, stopped, stopping_step, variant_predictions

KEYS = ["training", "dataset", "episode"]


@pytest.mark.parametrize("limits", [(0, 0), (0, 6), (2, 4), (5, 2)])
def test_stopped_is_the_rule_in_every_episode(rows, limits):
    # Out of order and with an index of its own, as a filtered table is.
    shuffled = rows.sample(frac=1, random_state=1)
    result = stopped(shuffled, *limits)
    assert result.index.equals(shuffled.index)
    for _, episode in shuffled.groupby(KEYS):
        step = naive_stopping_step(predictions_of(episode), *limits)
        assert (result.loc[episode.index, "step"] == step).all()
        assert (result.loc[episode.index, "prediction"] == episode[f"prediction_{step}"]).all()


def test_variants_pick_training_and_step(rows):
    table = variant_predictions(rows, ["Simple", "Transductive"], 2, 4)
    simple, transductive = (table[table["variant"] == name] for name in ("Simple", "Transductive"))
    training_rows = rows[rows["training"] == "support"]
    assert (simple["step"] == 0).all() and (simple["training"] == "support").all()
    np.testing.assert_array_equal(simple["prediction"], training_rows["prediction_0"])
    training_rows = rows[rows["training"] == "support_and_query"]
    np.testing.assert_array_equal(transductive["prediction"], stopped(training_rows, 2, 4)["prediction"])
    assert transductive["step"].between(2, 4).all()
    assert not [column for column in table if column.startswith(("prediction_", "confidence_"))]


def test_accuracies_of_rules_are_naive_counts(rows):
    rules = {"none": (0, 0), "paper": (2, 4), "all": (6, 6)}
    accuracies = rule_accuracies(rows, "support", rules).set_index(["variant", "dataset", "episode"])
    for key, episode in rows[rows["training"] == "support"].groupby(KEYS[1:]):
        predictions = predictions_of(episode)
        for name, limits in rules.items():
            row, step = accuracies.loc[(name, *key)], naive_stopping_step(predictions, *limits)
            assert row["accuracy"] == pytest.approx((predictions[step] == episode["label"].to_numpy()).mean())
            assert (row["step"], row["n_query"], row["way"]) == (step, len(episode), episode["way"].iloc[0])


@pytest.mark.parametrize("column", ["query", "prediction_3"])
def test_a_missing_column_is_named(rows, column):
    with pytest.raises(KeyError, match=column):
        stopped(rows.drop(columns=column), 2, 4)


def test_absent_training_and_variant(rows):
    with pytest.raises(ValueError, match="support_log_determinant"):
        variant_predictions(rows, "GMM", 2, 4)
    with pytest.raises(ValueError, match="Simpel.*Simple"):
        variant_predictions(rows, "Simpel", 2, 4)


@pytest.mark.parametrize("spoil", [lambda r: r.drop(index=7), lambda r: pd.concat([r, r.iloc[:50]])])
def test_incomplete_or_doubled_episodes_are_refused(rows, spoil):
    with pytest.raises(ValueError, match="letters, episode 0"):
        stopped(spoil(rows), 2, 4)


@given(
    hnp.arrays(np.int64, st.tuples(st.integers(1, 8), st.integers(1, 4)), elements=st.integers(0, 2)),
    st.integers(0, 9),
    st.integers(0, 9),
)
def test_stopping_step_is_the_released_loop(labels, minimum, maximum):
    maximum = min(maximum, len(labels) - 1)
    assert stopping_step(labels, minimum, maximum) == naive_stopping_step(labels, minimum, maximum)


def test_limits_beyond_recorded_labels_are_refused():
    with pytest.raises(ValueError, match=r"maximum of 3 refinement steps .* not 2\. Raise refinement\.recorded_steps"):
        stopping_step(np.zeros((3, 2), dtype=int), 0, 3)
    with pytest.raises(ValueError, match="counted from 0, not minimum -1"):
        stopping_step(np.zeros((3, 2), dtype=int), -1, 2)
