"""Malformed rows, manifests and CSVs: an error that names the file or column, or the numbers that were there."""

import json

import numpy as np
import pandas as pd
import pytest
from fuzzing import JUNK, cases, damaged, mutated
from hypothesis import given, strategies as st
from small_study import small_study
from synthetic_rows import synthetic_rows

from tcnaps.config import UserError
from tcnaps.evaluation.recall import class_recall, recall_by_shot
from tcnaps.evaluation.result_files import (
    RowsError,
    incomplete_evaluations,
    load_rows,
    read_rows,
    rows_file,
    rows_folder,
    write_manifest,
    write_rows,
)
from tcnaps.evaluation.statistics import accuracy_summary, domain_averages, episode_accuracies, refinement_grid
from tcnaps.evaluation.stopped_rows import variant_predictions

pytestmark = pytest.mark.fuzz
FIXED = {"kind": "fixed", "way": 5, "shot": 1}
ROWS = synthetic_rows(("support", "support_and_query"), 2, 4, datasets={"blobs": "in"}).assign(split="test")


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A study with one whole evaluation, in a project of its own."""
    patch = pytest.MonkeyPatch()
    root = tmp_path_factory.mktemp("project")
    patch.chdir(root)
    own = {"datasets": ["blobs"], "trainings": ["support", "support_and_query"], "episodes": 2}
    variable = {"protocol": {"kind": "variable"}} | own
    yield small_study(evaluations={"variable": variable, "5-way-1-shot": {"protocol": FIXED} | own})
    patch.undo()


def written(study, rows, evaluation="variable"):
    """The files of one training's rows."""
    file = rows_file(study, "support", evaluation, "blobs")
    write_rows(file, rows.assign(evaluation=evaluation), "key")
    return file


@cases(60)
@given(data=st.data())
def test_damaged_rows_are_refused_by_name_or_unchanged(data, study):
    rows = ROWS[ROWS["training"] == "support"]
    file = written(study, rows)
    original, _ = read_rows(file)
    file.write_bytes(data.draw(damaged(file.read_bytes())))
    try:
        rows, _ = read_rows(file)
    except RowsError as error:
        assert str(file) in str(error)
    else:
        pd.testing.assert_frame_equal(rows, original)


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
    if file is None:
        return
    try:
        loaded = load_rows(study, "variable", ["support"])
    except UserError as error:
        assert str(file.parent) in str(error)
        return
    check_statistics(loaded)


def check_statistics(rows):
    """What figures are made of: finite, or an error of the table's own."""
    try:
        predictions = variant_predictions(rows, "Simple", 2, 4)
        episodes = episode_accuracies(predictions)
        found = [accuracy_summary(episodes)["accuracy"], domain_averages(episodes)["accuracy"]]
        found += [recall_by_shot(class_recall(predictions))["recall"]]
        found += [refinement_grid(rows, "support", [0, 1], [1, 2])["accuracy"]]
    except ValueError as error:
        assert len(str(error)) > 15
        return
    for numbers in found:
        assert np.isfinite(numbers).all() and numbers.between(0, 1).all()


MANIFEST = {"support/variable/blobs.parquet": "digest", "support/5-way-1-shot/blobs.parquet": "other"}


@cases(60)
@given(data=st.data())
def test_a_manifest_is_whole_or_named(data, study):
    rows = ROWS[ROWS["training"] == "support"]
    manifest = write_manifest(study, "support", [written(study, rows), written(study, rows, "5-way-1-shot")])
    whole = manifest.read_bytes()
    changed = data.draw(
        damaged(whole) | mutated(json.loads(whole)).map(lambda case: json.dumps(case[0]).encode()) | JUNK.map(dumped)
    )
    manifest.write_bytes(changed)
    found = incomplete_evaluations(study)
    assert set(found) <= {manifest}
    for problem in found.values():
        assert str(rows_folder(study)) in problem
    manifest.unlink()


def dumped(value):
    return json.dumps(value).encode()
