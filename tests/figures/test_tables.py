"""Tables: what a cell says, where it stands, and that files come out whole and the same."""

import numpy as np
import pandas as pd
import pytest

from tcnaps.evaluation.result_files import read_published, read_published_averages
from tcnaps.evaluation.statistics import accuracy_summary, average_ranks, best, domain_averages, episode_accuracies
from tcnaps.evaluation.stopped_rows import variant_predictions
from tcnaps.figures.tables import accuracy_table, cell, html, published_table


@pytest.fixture
def summary():
    entries = [("A", "letters", "in", 0.5876, 0.0112), ("A", "digits", "out", 0.7, 0.02)]
    entries += [("B", "letters", "in", 0.4, np.nan)]
    return pd.DataFrame(entries, columns=["variant", "dataset", "domain", "accuracy", "interval"])


def test_cells():
    assert cell(0.5876, 0.0112, bold=True) == "**58.8±1.1**"
    assert cell(-0.0314, 0.008, signed=True, digits=2) == "−3.14±0.80"
    assert cell(0.5, np.nan) == "50.0" and cell(np.nan, 0.1) == ""


def test_wide_table_in_order_with_gaps(summary):
    table = accuracy_table(summary.assign(bold=[True, False, False]))
    assert list(table.index) == ["A", "B"] and list(table.columns) == ["letters", "digits"]
    assert table.to_numpy().tolist() == [["**58.8±1.1**", "70.0±2.0"], ["40.0", ""]]


def test_averages_and_ranks_follow(rows):
    episodes = episode_accuracies(variant_predictions(rows, ["Simple", "Transductive"], 2, 4))
    summary = accuracy_summary(episodes)
    averages = domain_averages(episodes)
    table = accuracy_table(summary.assign(bold=best(summary, episodes)), averages, average_ranks(summary))
    means, ranks = [f"Mean {d}" for d in ("in", "out", "all")], [f"Rank {d}" for d in ("in", "out", "all")]
    assert list(table.columns) == ["letters", "textures", "digits", *means, *ranks]
    for row in summary.itertuples():
        assert table.loc[row.variant, row.dataset].strip("*") == f"{100 * row.accuracy:.1f}±{100 * row.interval:.1f}"
    for row in averages.itertuples():
        assert table.loc[row.variant, f"Mean {row.domain}"] == cell(row.accuracy, row.interval)


def published(table, models=None):
    return published_table(read_published(table), None if table == 2 else read_published_averages(table), models)


def test_published_tables_look_like_the_papers():
    first = published(1)
    assert first.loc["Our Method", "MNIST"] == "**95.7±0.3**" and first.loc["MAML", "MNIST"] == ""
    assert first.loc["URT", "Rank in"] == "**1.7**" and first.loc["Our Method", "Rank in"] == "2.1"
    second = published(2)
    assert second.loc["TADAM", "Transductive"] == "BN"
    assert second.loc["Transductive CNAPS", "tiered-ImageNet 10-way 5-shot"] == "72.5±0.6"
    third = published(3, ["Transductive", "COT"])
    assert list(third.index) == ["Transductive", "COT"]
    assert third.loc["COT", "Mean in"] == "**75.4**" and third.loc["COT", "Mean out"] == "69.7"
    assert published(4).loc["No Min/Max", "Mean all"] == "73.4"


def test_html_escapes_and_sets_bold(summary):
    table = accuracy_table(summary.assign(bold=[True, False, False])).rename(index={"B": "<B>"})
    text = html({"Ours & theirs": table})
    assert text._repr_html_() == text
    assert "<b>58.8±1.1</b>" in text and "**" not in text
    assert "&lt;B&gt;" in text and "Ours &amp; theirs" in text
    assert "<caption" not in html(table)


def test_a_dataset_that_occurs_twice_and_an_unknown_model_are_errors(summary):
    with pytest.raises(KeyError, match="Conquest"):
        published(3, ["Conquest"])
    with pytest.raises(ValueError):
        accuracy_table(pd.concat([summary, summary]))
