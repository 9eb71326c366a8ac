"""What meta-training adds, the sentence that a study ends with, and the cells of Table 2, from made-up rows."""

import json

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from synthetic_rows import DATASETS, synthetic_rows

from tcnaps.evaluation.statistics import EPISODE, accuracy_summary
from tcnaps_suite.experiments.before_and_after import gain_of_training
from tcnaps_suite.experiments.main_result import main_result
from tcnaps_suite.experiments.published_cells import GAIN, draw_cells, in_words, published_cells


def gain_of(datasets):
    rows = [
        (0, "5-way", dataset, "in", "test", 10, episode, 0.1 + 0.01 * episode, tuple("abcdefg"[episode : episode + 3]))
        for dataset in datasets
        for episode in range(5)
    ]
    return pd.DataFrame(rows, columns=["replicate", *EPISODE, "difference", "classes"])


def test_the_main_result_is_the_paired_gain():
    pairs = gain_of(["blobs"])
    result = main_result(pairs, "A minus B")
    (gain,), row = result["gains"], accuracy_summary(pairs, ["evaluation"], "difference").iloc[0]
    assert gain["difference"] == pytest.approx(0.12) == row["difference"] and gain["interval"] == row["interval"]
    assert gain["class_interval"] > gain["interval"]
    assert result["sentence"].startswith("A minus B: blobs: +12.0 ± 2.0 points (for other classes: ± ")
    assert result["sentence"].endswith("± is for other episodes, of this one training")
    assert json.loads(json.dumps(result)) == result
    alike = main_result(pairs.assign(classes=[("a", "b")] * 5), "A minus B")  # nothing tells the classes apart
    assert "other classes" not in alike["sentence"] and list(alike["gains"][0]) == ["images", "difference", "interval"]


def test_real_and_rendered_images_are_apart():
    real, rendered = gain_of(["photographs"]), gain_of(["blobs", "others"])
    real["difference"] += 0.1
    result = main_result(pd.concat([real.assign(images="real"), rendered.assign(images="rendered")]), "A minus B")
    assert [gain["images"] for gain in result["gains"]] == ["real", "rendered"]
    assert "real images, photographs: +22.0" in result["sentence"]
    assert "rendered images, mean of 2 datasets: +12.0 ± 1.2 points" in result["sentence"]


def test_the_gain_is_paired_per_dataset_and_variant(rows):
    wrong = rows[rows["episode"] < 7].assign(evaluation="start", **{f"prediction_{t}": -1 for t in range(7)})
    gains, averages = gain_of_training(wrong, rows, ["Simple", "Transductive"], (2, 4))
    assert list(gains["dataset"]) == [*DATASETS, *DATASETS]
    digits = rows[(rows["training"] == "support") & (rows["dataset"] == "digits") & (rows["episode"] < 7)]
    accuracy = (digits["prediction_0"] == digits["label"]).groupby(digits["episode"]).mean()
    row = gains.set_index(["variant", "dataset"]).loc[("Simple", "digits")]
    assert row["difference"] == pytest.approx(accuracy.mean()) and row["n_episodes"] == 7
    assert set(averages["domain"]) == {"in", "out", "all"} and (averages["difference"] > 0).all()


BENCHMARKS = {"mini": "mini-ImageNet"}


@pytest.fixture
def fixed_rows():
    """5-way, 1-shot and 5-shot; the classes of an episode are five of eleven."""
    kind = {"datasets": {"mini": "in"}, "ways": (5,)}
    frames = [synthetic_rows(evaluation=f"5-way-{n}-shot", seed=n, **kind).assign(shot=n) for n in (1, 5)]
    return pd.concat(frames, ignore_index=True)


def test_cells_stand_beside_those_of_their_setting_and_are_reached_or_not(fixed_rows):
    table = published_cells(fixed_rows, BENCHMARKS, (2, 4)).set_index(["shot", "method"])
    assert table["published"].round(3).to_dict() == {
        (1, "Simple"): 0.532, (1, "Transductive"): 0.556, (1, GAIN): 0.024,
        (5, "Simple"): 0.708, (5, "Transductive"): 0.731, (5, GAIN): 0.023,
    }  # fmt: skip
    simple = fixed_rows[(fixed_rows["training"] == "support") & (fixed_rows["shot"] == 1)]
    right = (simple["prediction_0"] == simple["label"]).groupby(simple["episode"]).mean()
    assert table.loc[(1, "Simple"), "accuracy"] == pytest.approx(right.mean())
    assert (table["reached"] == (table["accuracy"] + table["class_interval"] >= table["published"])).all()
    assert set(table["reached"]) == {True, False} and (table["n_classes"] == 11).all()
    accuracy, interval, *found = table.loc[(5, "Simple"), ["accuracy", "interval", "difference", "difference_interval"]]
    assert found == pytest.approx([accuracy - 0.708, (interval**2 + 0.007**2) ** 0.5])
    feti = published_cells(fixed_rows, BENCHMARKS, (2, 4), " + FETI")
    assert feti.loc[feti["method"] == "Transductive", "published"].round(3).tolist() == [0.799, 0.915]


def test_the_figure_and_the_sentence_show_every_cell(fixed_rows):
    table = published_cells(fixed_rows, BENCHMARKS, (2, 4))
    figure, ax = plt.subplots()
    draw_cells(ax, table)
    assert [label.get_text() for label in ax.get_xticklabels()] == ["5-way\n1-shot", "5-way\n5-shot"]
    assert len(ax.containers) == 6  # published, and both intervals, of two variants
    plt.close(figure)
    higher = in_words(table.assign(difference=1.0, difference_interval=0.1))
    assert higher.startswith("Of 4 published accuracies 0 agree with these on the same classes, 4 are lower; ")
    assert f"{table['reached'][table['method'] != GAIN].sum()} are reached" in in_words(table)
