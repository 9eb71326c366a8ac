"""Tables as CSV: the transcription of the paper's against the averages that it prints, and how ours are written."""

import pandas as pd
import pytest

from tcnaps.evaluation.result_files import read_published, read_published_averages, write_csv
from tcnaps.evaluation.statistics import average_ranks
from tcnaps.method.variants import VARIANTS

HALF_A_DIGIT = 0.0005 + 1e-9  # the paper prints percent with one decimal
DOMAINS = {"in": ["in"], "out": ["out"], "all": ["in", "out"]}


def row(table: int, model: str) -> pd.DataFrame:
    frame = read_published(table)
    return frame[frame["model"] == model].set_index("dataset")[["accuracy", "interval"]]


@pytest.mark.parametrize(("table", "n_models", "n_rows"), [(1, 12, 138), (2, 14, 96), (3, 10, 130), (4, 4, 52)])
def test_every_printed_cell_is_there_once(table, n_models, n_rows):
    # Table 1: 12 · 13 less 6 rows without MNIST, CIFAR10 and CIFAR100. Table 2: 14 · 8 less 2 · 6 and 1 · 4.
    frame = read_published(table)
    setting = ["benchmark", "way", "shot"] if table == 2 else ["dataset"]
    assert (frame["model"].nunique(), len(frame)) == (n_models, n_rows)
    assert not frame.duplicated(["model", *setting]).any()
    assert not frame.isna().any().any()
    assert frame["accuracy"].between(0.2, 1).all() and frame["interval"].between(0.001, 0.02).all()
    assert set(frame["source"]) == {f"Table {table}"}


@pytest.mark.parametrize("table", [3, 4])
def test_printed_averages_follow_from_the_rows(table):
    rows = read_published(table)
    printed = read_published_averages(table)
    assert len(printed) == 3 * rows["model"].nunique()
    for entry in printed.itertuples():
        cells = rows[(rows["model"] == entry.model) & rows["domain"].isin(DOMAINS[entry.domain])]
        assert len(cells) == {"in": 8, "out": 5, "all": 13}[entry.domain]
        assert abs(cells["accuracy"].mean() - entry.accuracy) <= HALF_A_DIGIT, entry


def test_rows_printed_in_several_tables_agree():
    for one, *others in (
        ((1, "Our Method"), (3, "Transductive"), (4, "Min 2 Max 4")),
        ((1, "Simple CNAPS"), (3, "Simple"), (4, "Simple CNAPS")),
        ((3, "FEOT"), (4, "No Refinements")),
    ):
        assert len(row(*one)) == 13
        for other in others:
            pd.testing.assert_frame_equal(row(*one), row(*other))


def test_average_ranks_of_the_papers_method():
    ranks = average_ranks(read_published(1).rename(columns={"model": "variant"}))
    printed = read_published_averages(1)
    ours = ranks[ranks["variant"] == "Our Method"].set_index("domain")["rank"].round(1)
    expected = printed[printed["model"] == "Our Method"].set_index("domain")["rank"]
    assert ours.to_dict() == expected.to_dict() == {"in": 2.1, "out": 1.6, "all": 1.9}


def test_variants_are_table_3():
    assert list(read_published(3)["model"].unique()) == list(VARIANTS)


def test_csv_is_the_same_twice(tmp_path):
    frame = pd.DataFrame({"dataset": ["a", "b"], "accuracy": [1 / 3, 0.1 + 0.2], "n": [1, 2]})
    first = write_csv(frame, tmp_path / "new" / "folder" / "one.csv")
    second = write_csv(frame.copy(), tmp_path / "two.csv")
    assert first.read_bytes() == second.read_bytes() == b"dataset,accuracy,n\na,0.333333,1\nb,0.3,2\n"
    assert [file.name for file in first.parent.iterdir()] == ["one.csv"]
