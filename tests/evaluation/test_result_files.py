"""Finding and reading the rows of a study: what is missing is named; query counts share their episodes."""

import pandas as pd
import pytest
from small_study import small_study

from tcnaps.config import study as config
from tcnaps.evaluation.result_files import load_query_counts, needed_trainings, rows_file


def study_of_counts(**changes):
    fixed = {"kind": "fixed", "way": 5, "shot": 1}
    evaluations = {
        f"{n}-queries": {
            "protocol": fixed | {"queries_per_class": n},
            "datasets": datasets,
            "trainings": ["support_and_query"],
            "episodes": episodes,
        }
        for n, datasets, episodes in ((10, ["blobs", "others"], 3), (20, ["blobs"], 2))
    }
    return small_study(evaluations=evaluations | changes)


def test_trainings_that_serve_variants():
    assert needed_trainings(["Simple", "COT", "Transductive"]) == ["support", "support_and_query"]
    with pytest.raises(ValueError, match="no variant 'MAML'; known: GMM-EM\\+"):
        needed_trainings(["MAML"])


def test_query_counts_are_read_on_the_datasets_and_episodes_that_all_have(tmp_path, monkeypatch):
    monkeypatch.setattr(config, "project_root", lambda: tmp_path)
    study = study_of_counts()
    for name, evaluation in study.evaluations.items():
        for dataset in evaluation.datasets:
            path = rows_file(study, "support_and_query", name, dataset)
            path.parent.mkdir(parents=True, exist_ok=True)
            count = evaluation.protocol.queries_per_class
            rows = [
                {"dataset": dataset, "episode": e, "queries_per_class": count, "evaluation": name}
                for e in range(evaluation.episodes)
            ]
            pd.DataFrame(rows).to_parquet(path)
    rows = load_query_counts(study, ["support_and_query"])
    assert set(rows["dataset"]) == {"blobs"} and set(rows["evaluation"]) == {"5-way 1-shot"}
    assert rows.groupby("queries_per_class")["episode"].apply(list).to_dict() == {10: [0, 1], 20: [0, 1]}


def test_no_query_counts_to_compare():
    with pytest.raises(ValueError, match="no two fixed evaluations of support"):
        load_query_counts(study_of_counts(), ["support"])
