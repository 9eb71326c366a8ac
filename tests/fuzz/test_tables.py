"""Malformed rows, manifests and CSVs: an error that names the file or column, or the numbers that were there."""

import json
from contextlib import chdir

import pandas as pd
import pytest
from fuzzing import JUNK, accepted, cases, damaged, mutated
from hypothesis import given, strategies as st
from small_study import small_study
from synthetic_rows import synthetic_rows

from tcnaps.config import UserError
from tcnaps.evaluation import result_files, statistics
from tcnaps.evaluation.result_files import load_rows
from tcnaps.evaluation.stopped_rows import variant_predictions

pytestmark = pytest.mark.fuzz
FIXED = {"kind": "fixed", "way": 5, "shot": 1}
ROWS = synthetic_rows(("support", "support_and_query"), 2, 4, datasets={"blobs": "in"}).assign(split="test")


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A study with one whole evaluation, in a project of its own."""
    own = {"datasets": ["blobs"], "trainings": ["support", "support_and_query"], "episodes": 2}
    variable = {"protocol": {"kind": "variable"}} | own
    with chdir(tmp_path_factory.mktemp("project")):
        yield small_study(evaluations={"variable": variable, "5-way-1-shot": {"protocol": FIXED} | own})


def written(study, rows, evaluation="variable"):
    """The files of one training's rows."""
    file = result_files.rows_file(study, "support", evaluation, "blobs")
    result_files.write_rows(file, rows.assign(evaluation=evaluation), "key")
    return file


@cases(60)
@given(data=st.data())
def test_damaged_rows_are_refused_by_name_or_unchanged(data, study):
    file = written(study, ROWS[ROWS["training"] == "support"])
    original, _ = result_files.read_rows(file)
    file.write_bytes(data.draw(damaged(file.read_bytes())))
    if found := accepted(lambda: result_files.read_rows(file), result_files.RowsError, str(file)):
        pd.testing.assert_frame_equal(found[0], original)


CELLS = st.sampled_from([-1, 0, 3, 99, 2**40, None, float("nan"), float("inf"), "", "support", 0.5, True])


@st.composite
def changed_rows(draw, rows):
    """Rows with a column gone, renamed, of another kind or wrong somewhere; or with lines gone, doubled or shuffled."""
    rows = rows.copy()
    column = draw(st.sampled_from(list(rows.columns)))
    change = draw(st.sampled_from(["cell", "cell", "column", "drop", "rename", "lines", "twice", "none", "order"]))
    if change == "cell":
        values = rows[column].astype(object)
        values.iloc[draw(st.integers(0, len(rows) - 1))] = draw(CELLS)
        rows[column] = values.infer_objects()
    elif change == "column":
        rows[column] = draw(CELLS)
    elif change == "drop":
        rows = rows.drop(columns=column)
    elif change == "rename":
        rows = rows.rename(columns={column: draw(st.sampled_from(["prediction_9", "x", "", "label2"]))})
    elif change == "lines":
        rows = rows.iloc[: draw(st.integers(0, len(rows)))]
    elif change == "twice":
        rows = pd.concat([rows, rows.iloc[: draw(st.integers(1, 3))]], ignore_index=True)
    elif change == "none":
        rows = rows.iloc[:0]
    else:
        rows = rows.sample(frac=1, random_state=draw(st.integers(0, 99)))
    return rows


@cases(20)
@given(rows=changed_rows(ROWS[ROWS["training"] == "support"].reset_index(drop=True)))
def test_rows_that_are_not_those_asked_for_are_refused_by_name(rows, study):
    try:
        file = written(study, rows) if "evaluation" in rows else None
    except (ValueError, TypeError):  # of Arrow: a column of several kinds
        return
    if file is not None:
        loaded = accepted(lambda: load_rows(study, "variable", ["support"]), UserError, str(file.parent))
        numbers = None if loaded is None else accepted(lambda: statistics_of(loaded), ValueError)
        assert numbers is None or numbers.between(0, 1).all()


def statistics_of(rows):
    """What figures are made of."""
    predictions = variant_predictions(rows, "Simple", 2, 4)
    episodes = statistics.episode_accuracies(predictions)
    grid = statistics.refinement_grid(rows, "support", [0, 1], [1, 2])
    accuracies = [statistics.accuracy_summary(episodes), statistics.domain_averages(episodes), grid]
    recalls = statistics.recall_by_shot(statistics.class_recall(predictions))["recall"]
    return pd.concat([recalls, *(table["accuracy"] for table in accuracies)])


@cases(60)
@given(data=st.data())
def test_a_manifest_is_whole_or_named(data, study):
    rows = ROWS[ROWS["training"] == "support"]
    files = [written(study, rows), written(study, rows, "5-way-1-shot")]
    manifest = result_files.write_manifest(study, "support", files)
    whole = manifest.read_bytes()
    other = (mutated(json.loads(whole)).map(lambda case: case[0]) | JUNK).map(json.dumps).map(str.encode)
    manifest.write_bytes(data.draw(damaged(whole) | other))
    found = result_files.incomplete_evaluations(study)
    assert set(found) <= {manifest}
    for problem in found.values():
        assert str(study.results_folder / "rows") in problem
    manifest.unlink()
