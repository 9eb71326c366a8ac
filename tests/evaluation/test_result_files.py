"""Writing, finding and reading the rows of a study: missing, damaged and wrong files are named."""

import contextlib

import pandas as pd
import pytest
from small_study import small_study
from synthetic_rows import synthetic_rows

from tcnaps.evaluation import result_files
from tcnaps.evaluation.result_files import RowsError, load_rows, rows_file, write_manifest, write_rows
from tcnaps.evaluation.statistics import episode_accuracies, paired_episodes
from tcnaps.evaluation.stopped_rows import variant_predictions

TRAININGS = ["support", "support_and_query"]
DOMAINS = {"blobs": "in", "others": "out"}


def rows_of(training, dataset, **changes):
    both = synthetic_rows(TRAININGS, n_episodes=2, datasets={dataset: DOMAINS[dataset]}, **changes)
    return both[both["training"] == training].reset_index(drop=True)


@pytest.fixture
def study(root):
    """A study whose evaluation `variable` has been run: two trainings, two datasets, two episodes."""
    study = small_study()
    for training in TRAININGS:
        files = [rows_file(study, training, "variable", dataset) for dataset in ("blobs", "others")]
        for file in files:
            write_rows(file, rows_of(training, file.stem), "key")
        write_manifest(study, training, files)
    return study


def test_rows_come_back_as_they_were_written(study):
    rows, key = result_files.read_rows(rows_file(study, "support", "variable", "blobs"))
    pd.testing.assert_frame_equal(rows, rows_of("support", "blobs"), check_dtype=False)
    assert key == "key"
    assert set(load_rows(study, "variable")["training"]) == set(TRAININGS)
    assert result_files.incomplete_evaluations(study) == {}


def test_other_rows_make_another_manifest(study):
    """Snakemake compares contents: a manifest that stayed the same would leave figures of the earlier rows."""
    file = rows_file(study, "support", "variable", "blobs")
    before = write_manifest(study, "support", [file]).read_text()
    write_rows(file, rows_of("support", "blobs"), "key")
    assert write_manifest(study, "support", [file]).read_text() == before
    write_rows(file, rows_of("support", "blobs", seed=1), "key")
    assert write_manifest(study, "support", [file]).read_text() != before


def test_cut_and_missing_files_and_damaged_manifests_make_an_evaluation_incomplete(study):
    path = rows_file(study, "support", "variable", "others")
    content = path.read_bytes()
    for size in (0, 5000):
        path.write_bytes(content[:size])
        with pytest.raises(RowsError, match="others.parquet"):
            load_rows(study, "variable")
        (problem,) = result_files.incomplete_evaluations(study).items()
        assert problem[0].name == "support.json" and "others.parquet" in problem[1]
    path.unlink()
    assert "others.parquet" in str(result_files.incomplete_evaluations(study))
    write_rows(path, rows_of("support", "others"), "key")
    assert result_files.incomplete_evaluations(study) == {}
    for damaged in ("{", "[]", '{"/": "digest"}', problem[0].read_text().replace("others", "other")):
        problem[0].write_text(damaged)
        assert list(result_files.incomplete_evaluations(study)) == [problem[0]]


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        (rows_of("support_and_query", "blobs"), "support_and_query"),
        (rows_of("support", "others"), "others"),
        (rows_of("support", "blobs").query("episode == 1"), "episodes 0 to 1"),
        (rows_of("support", "blobs").drop(columns=["shot", "image"]), "shot, image"),
        (rows_of("support", "blobs").rename(columns={"prediction_1": "prediction_9"}), "prediction_1"),
        (rows_of("support", "blobs").assign(domain="out"), "domain 'out', not 'in'"),
    ],
)
def test_rows_of_something_else_are_refused(study, rows, named):
    write_rows(rows_file(study, "support", "variable", "blobs"), rows.reset_index(drop=True), "key")
    with pytest.raises(RowsError, match=rf"support/variable/blobs.parquet .*{named}"):
        load_rows(study, "variable", TRAININGS)


def test_rows_of_other_settings_than_the_study_has_now_are_refused(study):
    asked, rows = result_files.asked_of(study, "variable"), rows_of("support", "blobs")
    for change, refused in (({}, False), ({"seed": 99}, True), ({"protocol": asked["protocol"] | {"way": 9}}, True)):
        write_rows(rows_file(study, "support", "variable", "blobs"), rows, "key", asked | change)
        with pytest.raises(RowsError, match=f"with {[*change][0]}") if refused else contextlib.nullcontext():
            load_rows(study, "variable", ["support"])


@pytest.mark.parametrize("column", ["label", "image"])
def test_trainings_that_saw_other_queries_are_not_paired(study, column):
    rows = rows_of("support", "blobs")
    rows[column] = rows[column].where(rows["episode"] != 1, rows[column].iloc[::-1].to_numpy())
    write_rows(rows_file(study, "support", "variable", "blobs"), rows, "key")
    predictions = variant_predictions(load_rows(study, "variable"), ["Simple", "Transductive"], 2, 4)
    simple, transductive = (frame for _, frame in episode_accuracies(predictions).groupby("variant"))
    with pytest.raises(ValueError, match="variable, blobs, episode 1"):
        paired_episodes(transductive, simple)


def test_trainings_that_serve_variants():
    assert result_files.needed_trainings(["Simple", "COT", "Transductive"]) == TRAININGS
    with pytest.raises(ValueError, match="MAML"):
        result_files.needed_trainings(["MAML"])


def test_query_counts_are_read_on_the_datasets_and_episodes_that_all_have(root):
    training, fixed = "support_and_query", {"kind": "fixed", "way": 5, "shot": 1}
    both, cases = ["blobs", "others"], {}
    for name, n, names, episodes in (("few", 10, both, 3), ("again", 10, both, 3), ("many", 20, both[:1], 2)):
        cases[name] = {"protocol": fixed | {"queries_per_class": n}, "datasets": names, "episodes": episodes}
    study = small_study(evaluations={name: facts | {"trainings": [training]} for name, facts in cases.items()})
    for name, evaluation in study.evaluations.items():
        facts = {"n_episodes": evaluation.episodes, "queries_per_class": evaluation.protocol.queries_per_class}
        for dataset in evaluation.datasets:
            rows = synthetic_rows([training], datasets={dataset: DOMAINS[dataset]}, evaluation=name, ways=(5,), **facts)
            write_rows(rows_file(study, training, name, dataset), rows, "key")
    rows = result_files.load_query_counts(study, [training])
    assert set(rows["dataset"]) == {"blobs"} and set(rows["evaluation"]) == {"5-way 1-shot"}
    assert rows.groupby("queries_per_class")["episode"].unique().map(list).to_dict() == {10: [0, 1], 20: [0, 1]}
    with pytest.raises(ValueError, match="queries_per_class"):
        result_files.load_query_counts(study, ["support"])
