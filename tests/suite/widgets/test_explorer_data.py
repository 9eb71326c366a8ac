"""The explorer's tables against counts by hand, and episodes drawn again against what an evaluation records."""

import numpy as np
import pandas as pd
import pytest
from blob_rows import blob_rows
from small_study import blobs, small_study
from synthetic_rows import predictions_of

from tcnaps.config import UserError
from tcnaps.evaluation.result_files import rows_file, write_rows
from tcnaps.evaluation.stopped_rows import stopping_step
from tcnaps_suite import episodes
from tcnaps_suite.widgets import episode_table, explorer_data


@pytest.fixture(scope="module")
def table(rows):
    return explorer_data.episodes(rows, "Transductive", "Simple", (2, 4))


def by_hand(rows, training, dataset, episode, limits):
    """Accuracy and stopping step of one episode, in plain loops."""
    own = rows[(rows["training"] == training) & (rows["dataset"] == dataset) & (rows["episode"] == episode)]
    labels = predictions_of(own)
    step = stopping_step(labels, *limits)
    right = sum(int(p == k) for p, k in zip(labels[step], own["label"]))
    return right / len(own), step, own


def test_every_episode_has_its_gain_counted_by_hand(rows, table):
    assert len(table) == 36
    for row in table.itertuples():
        accuracy, step, own = by_hand(rows, "support_and_query", row.dataset, row.episode, (2, 4))
        accuracy_than, step_than, _ = by_hand(rows, "support", row.dataset, row.episode, (0, 0))
        assert (row.accuracy, row.accuracy_than) == pytest.approx((accuracy, accuracy_than))
        assert row.gain == pytest.approx(accuracy - accuracy_than)
        assert (row.step, row.step_than, row.n_query, row.way) == (step, step_than, len(own), own["way"].iloc[0])
        assert row.shots == tuple(own.drop_duplicates("label").sort_values("label")["shot"])


def test_variants_on_different_episodes_and_one_with_itself_are_refused(rows):
    fewer = rows[(rows["training"] == "support_and_query") | (rows["episode"] != 3)]
    with pytest.raises(ValueError):
        explorer_data.episodes(fewer, "Transductive", "Simple", (2, 4))
    with pytest.raises(ValueError, match="FEOT"):
        explorer_data.episodes(rows, "FEOT", "FEOT", (2, 4))


def test_filters_keep_exactly_what_they_say(table):
    kept = explorer_data.chosen(table, ["letters", "digits"])
    assert sorted(kept.index) == [row.Index for row in table.itertuples() if row.dataset != "textures"]
    assert len(explorer_data.chosen(table)) == len(table) > len(kept) and explorer_data.chosen(table, []).empty


def test_orders(table):
    gains = explorer_data.chosen(table, sort="Largest gain first")["gain"].to_numpy()
    assert (np.diff(gains) <= 1e-9).all()
    losses = explorer_data.chosen(table, sort="Largest loss first")["gain"].to_numpy()
    assert losses == pytest.approx(gains[::-1])
    pd.testing.assert_frame_equal(explorer_data.chosen(table, sort="Dataset and episode"), table)
    tied = table.assign(gain=0.1 + np.where(np.arange(len(table)) % 2, 1e-17, -1e-17))
    assert list(explorer_data.chosen(tied, sort="Largest gain first").index) == list(table.index)


def test_the_table_in_words_and_lines(table):
    gains = 100 * table["gain"]
    numbers = gains.groupby(table["dataset"]).mean().mean(), gains.min(), gains.max()
    mean, low, high = (f"{gain:+.1f}".replace("-", "−") for gain in numbers)
    words = explorer_data.in_words(table, "Transductive", "Simple")
    assert words.startswith("36 episodes of 3 datasets") and f"{mean}±" in words
    assert words.endswith(f"from {low} to {high}.")
    one = explorer_data.in_words(table.iloc[:1], "Transductive", "Simple")
    assert one.startswith("1 episode of 1 dataset. ") and "±" not in one and "nan" not in one
    for nothing in (table.iloc[:0], pd.DataFrame()):
        assert explorer_data.in_words(nothing, "Transductive", "Simple").startswith("No episode is listed")
    options = explorer_data.lines(table, "Transductive", "Simple")
    assert [value for _, value in options] == list(zip(table["dataset"], table["episode"]))
    text, row = options[0][0], table.iloc[0]
    assert text.startswith(f"{row['dataset']} {row['episode']}: ") and f"{100 * row['accuracy']:.1f}%" in text


@pytest.fixture(scope="module")
def own(rows):
    return episode_table.rows_of_episode(rows, "Transductive", "digits", 5)


def test_the_most_improved_episode_gains_most_right_labels(rows, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    study = small_study(refinement={"recorded_steps": 6, "minimum_steps": 2, "maximum_steps": 3})
    assert episode_table.most_improved(study, "Transductive", "variable", "others") == 0  # nothing is recorded
    own = rows[(rows["training"] == "support_and_query") & (rows["dataset"] == "digits")].reset_index(drop=True)
    write_rows(rows_file(study, "support_and_query", "variable", "others"), own, "key")

    def gains(last):
        right = own.assign(gain=(own[last] == own["label"]) * 1 - (own["prediction_0"] == own["label"]))
        return right.groupby("episode")["gain"].mean()

    found = episode_table.most_improved(study, "FEOT", "variable", "others")  # the same training as Transductive
    assert gains("prediction_3")[found] == gains("prediction_3").max() > gains("prediction_3").min()
    raised = small_study(refinement={"recorded_steps": 9, "maximum_steps": 9})  # more steps than are recorded
    found = episode_table.most_improved(raised, "FEOT", "variable", "others")
    assert gains("prediction_6")[found] == gains("prediction_6").max()


def test_names_are_shortened_and_characters_shown_by_themselves():
    assert episode_table.shortened("U+1F600 GRINNING FACE", 5) == "😀"
    assert episode_table.shortened("U-boat") == "U-boat"
    long = episode_table.shortened("a very long name of a class that ends in 7", 20)
    assert len(long) <= 20 and long.startswith("a very") and long.endswith("in 7")
    assert len({episode_table.letter(k) for k in range(800)}) == 800


@pytest.mark.parametrize(
    ("variant", "stop", "place"),
    [
        ("Transductive", 4, "where it stops"),
        ("Transductive", 2, "it stops at 2"),
        ("Simple", 4, "as COT; it does not refine itself"),
    ],
)
def test_the_status_says_what_is_achieved_and_where_it_stops(table, own, variant, stop, place):
    row = table[(table["dataset"] == "digits") & (table["episode"] == 5)].iloc[0]
    right = int((own["prediction_4"] == own["label"]).sum())
    changed = int((own["prediction_4"] != own["prediction_3"]).sum())
    words = explorer_data.status(row, variant, own, 4, stop)
    assert f"{variant}, step 4 of 6 ({place})" in words and words.startswith("digits, episode 5 · ")
    assert f"{right} of {len(own)} queries right, {100 * right / len(own):.1f}%" in words
    assert f"{changed} label" in words


def test_what_a_study_can_compare():
    study = small_study()
    assert explorer_data.evaluations_of(study, ["Transductive", "Simple"]) == ["variable"]
    assert explorer_data.evaluations_of(study, ["Transductive", "FEOT"]) == ["variable", "5-way-1-shot"]
    assert explorer_data.variants_of(["support_and_query"]) == ["FEOT", "Transductive"]
    options = dict(explorer_data.dataset_filters(study, "5-way-1-shot"))
    assert options["All datasets"] == options["All in-domain"] == ("blobs",) and "All out-of-domain" not in options


@pytest.fixture
def study(monkeypatch):
    monkeypatch.setattr(episodes, "open_split", lambda study, name, split: blobs(name, split))
    return small_study()


@pytest.mark.parametrize("index", [0, 7])
def test_an_episode_is_rebuilt_from_its_rows(study, index):
    own, draw = blob_rows(study, "variable", "others", index)
    found, images = episode_table.replay(study, own), blobs("others", "test").images
    assert (found.query_images == images[own["image"]]).all()
    assert (found.support_images == images[draw.support_images]).all()
    assert (found.support_labels == draw.support_labels).all()


def test_an_episode_that_is_drawn_differently_now_is_refused(study, monkeypatch):
    own, _ = blob_rows(study, "variable", "others", 0)
    changed = {name: own.assign(**{name: own[name].to_numpy()[::-1]}) for name in ("image", "label", "shot")}
    for column, rows in (changed | {"class_name": own.assign(class_name="renamed")}).items():
        with pytest.raises(UserError, match=rf"others.*{column}"):
            episode_table.replay(study, rows)
    with pytest.raises(UserError):
        episode_table.replay(study.model_copy(update={"seed": 1}), own)
    with pytest.raises(UserError):
        episode_table.replay(study, own.iloc[1:])
    monkeypatch.setattr(episodes, "open_split", lambda study, name, split: blobs(name, split, n_classes=3))
    with pytest.raises(ValueError, match="minimum_way"):
        episode_table.replay(study, own)
