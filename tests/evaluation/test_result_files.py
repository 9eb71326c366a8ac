"""Writing, finding and reading the rows of a study: what is missing, damaged or of something else is named."""

import json
import random

import pandas as pd
import pytest
from small_study import small_study
from synthetic_rows import synthetic_rows

from tcnaps.config import study as config
from tcnaps.evaluation.recall import class_recall
from tcnaps.evaluation.result_files import (
    RowsError,
    incomplete_evaluations,
    load_query_counts,
    load_rows,
    needed_trainings,
    read_rows,
    rows_file,
    write_manifest,
    write_rows,
)
from tcnaps.evaluation.statistics import episode_accuracies, paired_difference, paired_episodes
from tcnaps.evaluation.stopped_rows import variant_predictions

TRAININGS = ["support", "support_and_query"]


@pytest.fixture
def study(tmp_path, monkeypatch):
    """A study whose evaluation `variable` has been run: two trainings, two datasets, two episodes."""
    monkeypatch.setattr(config, "project_root", lambda: tmp_path)
    study = small_study()
    for training in TRAININGS:
        files = []
        for dataset in ("blobs", "others"):
            files.append(rows_file(study, training, "variable", dataset))
            write_rows(files[-1], rows_of(training, dataset), "key")
        write_manifest(study, training, files)
    return study


def rows_of(training, dataset, **changes):
    both = synthetic_rows(TRAININGS, n_episodes=2, datasets={dataset: "in"}, **changes)
    return both[both["training"] == training].reset_index(drop=True)


def test_rows_come_back_as_they_were_written(study):
    rows, key = read_rows(rows_file(study, "support", "variable", "blobs"))
    pd.testing.assert_frame_equal(rows, rows_of("support", "blobs"), check_dtype=False)
    assert key == "key"
    assert set(load_rows(study, "variable")["training"]) == set(TRAININGS)
    assert incomplete_evaluations(study) == {}


def test_other_rows_make_another_manifest(study):
    """Snakemake compares contents: a manifest that stayed the same would leave figures of the earlier rows."""
    file = rows_file(study, "support", "variable", "blobs")
    before = write_manifest(study, "support", [file]).read_text()
    assert write_manifest(study, "support", [file]).read_text() == before
    write_rows(file, rows_of("support", "blobs", seed=1), "key")
    assert write_manifest(study, "support", [file]).read_text() != before
    assert incomplete_evaluations(study) == {}


def test_no_flipped_bit_loads_as_other_rows(study):
    path, original = rows_file(study, "support", "variable", "blobs"), rows_of("support", "blobs")
    content, generator, refused = path.read_bytes(), random.Random(0), 0
    for _ in range(150):
        bit = generator.randrange(8 * len(content))
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            rows = read_rows(path)[0]
        except RowsError as error:
            refused += 1
            assert f"{path} is damaged" in str(error)
        else:
            pd.testing.assert_frame_equal(rows, original, check_dtype=False)
    assert refused > 75


@pytest.mark.parametrize("size", [0, 100, 5000])
def test_cut_files_and_missing_ones_make_an_evaluation_incomplete(study, size):
    path = rows_file(study, "support", "variable", "others")
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(RowsError, match="others.parquet is damaged"):
        load_rows(study, "variable")
    (problem,) = incomplete_evaluations(study).items()
    assert problem[0].name == "support.json" and "others.parquet is damaged" in problem[1]
    path.unlink()
    assert "no rows" in str(incomplete_evaluations(study))
    write_rows(path, rows_of("support", "others"), "key")
    assert incomplete_evaluations(study) == {}
    content, generator = problem[0].read_bytes(), random.Random(0)
    for _ in range(40):
        place, bit = generator.randrange(len(content)), 1 << generator.randrange(8)
        problem[0].write_bytes(content[:place] + bytes([content[place] ^ bit]) + content[place + 1 :])
        found = incomplete_evaluations(study)
        if found:
            assert list(found) == [problem[0]] and str(problem[0].parent) in found[problem[0]]
        else:
            assert json.loads(problem[0].read_bytes()) == json.loads(content)
    problem[0].write_text("{")
    assert "support.json is damaged" in str(incomplete_evaluations(study))
    problem[0].write_text('{"/": "of something else"}')
    assert "support.json: There are no rows" in incomplete_evaluations(study)[problem[0]]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (rows_of("support_and_query", "blobs"), "holds rows of the training 'support_and_query', not 'support'"),
        (rows_of("support", "others"), "holds rows of the dataset 'others', not 'blobs'"),
        (rows_of("support", "blobs", evaluation="5-way"), "holds rows of the evaluation '5-way', not 'variable'"),
        (rows_of("support", "blobs").iloc[:0], "does not hold the episodes 0 to 1"),
        (rows_of("support", "blobs").query("episode == 1"), "does not hold the episodes 0 to 1"),
        (rows_of("support", "blobs").drop(columns=["shot", "image"]), "lacks the columns shot, image"),
        (rows_of("support", "blobs").assign(label=7), "holds labels that are no class"),
        (rows_of("support", "blobs").assign(prediction_2=-1), "holds labels that are no class"),
        (
            rows_of("support", "blobs").assign(label="0", way=3.5),
            "has values of another kind in the columns way, label",
        ),
    ],
    ids=["training", "dataset", "evaluation", "empty", "episode", "columns", "label", "prediction", "kinds"],
)
def test_rows_of_something_else_are_refused(study, rows, message):
    write_rows(rows_file(study, "support", "variable", "blobs"), rows.reset_index(drop=True), "key")
    with pytest.raises(RowsError, match=rf"support/variable/blobs.parquet {message}.* Run notebooks/04-evaluate.ipynb"):
        load_rows(study, "variable", TRAININGS)


@pytest.mark.parametrize("column", ["label", "image"])
def test_trainings_that_saw_other_queries_are_not_paired(study, column):
    path = rows_file(study, "support", "variable", "blobs")
    rows = rows_of("support", "blobs")
    rows[column] = rows[column].where(rows["episode"] != 1, rows[column].iloc[::-1].to_numpy())
    write_rows(path, rows, "key")
    predictions = variant_predictions(load_rows(study, "variable"), ["Simple", "Transductive"], 2, 4)
    episodes = dict(list(episode_accuracies(predictions).groupby("variant")))
    with pytest.raises(ValueError, match="the same images and labels on both sides; .* variable, blobs, episode 1"):
        paired_difference(episodes["Transductive"], episodes["Simple"])
    recalls = dict(list(class_recall(predictions).groupby("variant")))
    with pytest.raises(ValueError, match="blobs, episode 1"):
        paired_episodes(recalls["Transductive"], recalls["Simple"], "recall", ["label"])


def test_trainings_that_serve_variants():
    assert needed_trainings(["Simple", "COT", "Transductive"]) == TRAININGS
    with pytest.raises(ValueError, match="no variant 'MAML'; known: GMM-EM\\+"):
        needed_trainings(["MAML"])


def study_of_counts():
    fixed = {"kind": "fixed", "way": 5, "shot": 1}
    facts = {"trainings": ["support_and_query"]}
    return small_study(
        evaluations={
            f"{n}-queries": {"protocol": fixed | {"queries_per_class": n}, "datasets": names, "episodes": e} | facts
            for n, names, e in ((10, ["blobs", "others"], 3), (20, ["blobs"], 2))
        }
    )


def test_query_counts_are_read_on_the_datasets_and_episodes_that_all_have(tmp_path, monkeypatch):
    monkeypatch.setattr(config, "project_root", lambda: tmp_path)
    study = study_of_counts()
    for name, evaluation in study.evaluations.items():
        for dataset in evaluation.datasets:
            count, trainings = evaluation.protocol.queries_per_class, ["support_and_query"]
            facts = {"n_episodes": evaluation.episodes, "queries_per_class": count, "evaluation": name, "ways": (5,)}
            rows = synthetic_rows(trainings, datasets={dataset: "in"}, **facts)
            write_rows(rows_file(study, "support_and_query", name, dataset), rows, "key")
    rows = load_query_counts(study, ["support_and_query"])
    assert set(rows["dataset"]) == {"blobs"} and set(rows["evaluation"]) == {"5-way 1-shot"}
    assert rows.groupby("queries_per_class")["episode"].unique().map(list).to_dict() == {10: [0, 1], 20: [0, 1]}


def test_no_query_counts_to_compare():
    with pytest.raises(ValueError, match="no two fixed evaluations of support"):
        load_query_counts(study_of_counts(), ["support"])
