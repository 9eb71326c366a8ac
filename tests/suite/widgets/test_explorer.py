"""The explorer's tables against counts by hand, and the explorer driven by its controls, without a browser."""

import random
import shutil
from itertools import product

import numpy as np
import pandas as pd
import pytest
from driving import set_to, words
from small_study import blobs, small_study
from synthetic_rows import predictions_of, synthetic_rows

from tcnaps.config import UserError
from tcnaps.episodes.sampling import draw_episode
from tcnaps.evaluation.result_files import load_rows, needed_trainings, rows_file, write_rows
from tcnaps.evaluation.stopped_rows import stopping_step
from tcnaps_suite import episodes
from tcnaps_suite.widgets import episode_table, explorer_data, explorer_widget
from tcnaps_suite.widgets.explorer_widget import explorer


def blob_rows(study, evaluation, dataset, index, training="support", seed=0):
    """An episode of blobs with made-up predictions, one row per query."""
    source = blobs(dataset, "test")
    draw = draw_episode(source, study.evaluations[evaluation].protocol, study.seed, index)
    labels, way = draw.query_labels, len(draw.classes)
    domains, n_queries = {dataset: study.datasets[dataset].domain}, len(labels) // way
    made = synthetic_rows((training,), 1, 4, (way,), n_queries, evaluation, domains, seed=100 * seed + index)
    return made.sort_values("label", ignore_index=True).assign(
        episode=index,
        n_support=len(draw.support_labels),
        query=np.arange(len(labels)),
        shot=np.bincount(draw.support_labels)[labels],
        class_name=[source.class_names[draw.classes[k]] for k in labels],
        image=draw.query_images,
    )


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    """A root with a study's rows in files, and the study."""
    root, small = tmp_path_factory.mktemp("evaluated"), small_study()
    made = {name: evaluation.model_copy(update={"episodes": 6}) for name, evaluation in small.evaluations.items()}
    small = small.model_copy(update={"evaluations": made})
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        for name, evaluation in made.items():
            for (seed, training), dataset in product(enumerate(evaluation.trainings), evaluation.datasets):
                rows = [blob_rows(small, name, dataset, index, training, seed) for index in range(6)]
                write_rows(rows_file(small, training, name, dataset), pd.concat(rows, ignore_index=True), "key")
    return root, small


@pytest.fixture
def study(evaluated, root, monkeypatch):
    """The study, evaluated; its images are blobs."""
    monkeypatch.setattr(episodes, "open_split", lambda study, name, split: blobs(name, split))
    shutil.copytree(evaluated[0], root, dirs_exist_ok=True)
    return evaluated[1]


@pytest.fixture
def no_pictures(monkeypatch):
    """Leaves out the drawing of pictures, which takes most of the time."""
    monkeypatch.setattr(explorer_widget, "on_page", lambda figure, text: f"picture: {text}")
    monkeypatch.setattr(explorer_widget.Explorer, "figure", lambda self: None)


def check_all(widget):
    """Everything that is shown follows from the rows and the controls."""
    choice = widget.choice
    assert widget.error is None, widget.notice.value
    better, than = widget.variants
    rows = load_rows(widget.study, widget.evaluation, needed_trainings([better, than]))
    table = explorer_data.episodes(rows, better, than, choice.limits)
    listed = explorer_data.chosen(table, choice.dataset, choice.sort)
    pd.testing.assert_frame_equal(widget.listed, listed)
    assert widget.controls["episodes"].options == tuple(explorer_data.lines(listed, better, than))
    assert explorer_data.in_words(listed, better, than) in words(widget._count)
    assert widget._details.layout.display == ""
    dataset, episode = choice.episodes
    row = table[(table["dataset"] == dataset) & (table["episode"] == episode)].iloc[0]
    step, own = choice.step, episode_table.rows_of_episode(rows, choice.variant, dataset, episode)
    stop = int(row["step"] if choice.variant == better else row["step_than"])
    status = explorer_data.status(row, choice.variant, own, step, stop)
    assert words(widget._status) == status
    assert status in widget._picture.value


def test_the_first_display_is_complete_when_the_cell_ends(study):
    widget = explorer(study)
    check_all(widget)
    assert widget.variants == ("Transductive", "FEOT")  # the same networks, with and without refinement
    assert widget.row["gain"] == widget.table["gain"].max()
    assert widget.choice.step == widget.row["step"] and widget.controls["step"].max == 4
    assert "<img " in widget._picture.value
    own = widget.predictions["Transductive"]
    source = blobs(own["dataset"].iloc[0], "test")
    draw = draw_episode(source, study.evaluations["variable"].protocol, study.seed, int(own["episode"].iloc[0]))
    assert (widget.images.support_images == source.images[draw.support_images]).all()
    assert (widget.images.support_labels == draw.support_labels).all()
    assert (widget.images.query_images == source.images[own["image"]]).all()


def test_every_control_changes_what_is_shown(study, no_pictures):
    widget, before = explorer(study), None
    for changes in (
        {"sort": "Largest loss first", "dataset": ("others",)},
        {"dataset": ("blobs", "others")},
        {"limits": (1, 4), "step": 2},
        {"variant": "FEOT"},
    ):
        set_to(widget, **changes)
        check_all(widget)
        after = [place.value for place in (widget._count, widget._status, widget._picture)]
        after.append(widget.controls["episodes"].options)
        assert after != before, changes
        before = after


def test_a_long_list_says_that_it_is_cut(study, no_pictures, monkeypatch):
    monkeypatch.setattr(explorer_widget, "MOST_LISTED", 5)  # the most that a browser can hold
    widget = explorer(study)
    assert len(widget.controls["episodes"].options) == 5 and len(widget.listed) == 12
    assert "first 5" in widget._count.value


def test_missing_rows_are_an_error_until_they_are_there(study, no_pictures):
    file = rows_file(study, "support_and_query", "5-way-1-shot", "blobs")
    rows = file.read_bytes()
    file.unlink()
    widget = explorer(study, "5-way-1-shot")
    set_to(widget, sort="Largest loss first")
    assert widget.error is None and not widget.controls["episodes"].options
    set_to(widget, limits=(1, 4))
    assert "make figures" in widget.notice.value and widget._details.layout.display == "none"
    file.write_bytes(rows)
    set_to(widget, limits=(2, 4))
    check_all(widget)


def test_rows_of_other_images_show_their_numbers_and_say_why_there_are_no_images(study, no_pictures):
    for training in ("support", "support_and_query"):
        file = rows_file(study, training, "variable", "blobs")
        rows = pd.read_parquet(file)
        write_rows(file, rows.assign(image=rows["image"] + (rows["episode"] == 2)), "key")
    widget = explorer(study)
    set_to(widget, episodes=("blobs", 2))
    assert isinstance(widget.error, UserError) and "make figures" in widget.notice.value
    set_to(widget, step=1)
    assert "can't be shown" in words(widget._picture) and "queries right" in widget._status.value
    set_to(widget, episodes=("blobs", 1))
    check_all(widget)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("varied",), "'variable'"),
        (("5-way-1-shot", "Transductive", "Simple"), "variable"),
        ((None, "Transductiv"), "'Transductiv'"),
        ((None, "GMM"), "support_log_det"),
    ],
)
def test_wrong_names_are_refused(arguments, name):
    with pytest.raises(ValueError, match=name):
        explorer(small_study(), *arguments)


def test_fast_and_in_odd_orders_the_last_choice_is_shown(study, no_pictures):
    """Random actions without waiting; in the end everything agrees with the controls."""
    widget, chance = explorer(study), random.Random(0)
    c = widget.controls
    for _ in range(15):
        kind, menu = chance.random(), c[chance.choice(("sort", "dataset", "variant", "episodes"))]
        if kind < 0.6:
            menu.index = chance.randrange(len(menu.options))
        elif kind < 0.85:
            set_to(widget, limits=tuple(sorted(chance.choices(range(5), k=2))))
        else:
            set_to(widget, step=chance.randrange(5))
    check_all(widget)


@pytest.fixture(scope="module")
def table(rows):
    return explorer_data.episodes(rows, "Transductive", "Simple", (2, 4))


def by_hand(rows, training, dataset, episode, limits):
    """Accuracy and stopping step of one episode."""
    own = rows[(rows["training"] == training) & (rows["dataset"] == dataset) & (rows["episode"] == episode)]
    labels = predictions_of(own)
    step = stopping_step(labels, *limits)
    return (labels[step] == own["label"]).mean(), step, own


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


def test_filters_and_orders(table):
    kept = explorer_data.chosen(table, ["letters", "digits"])
    assert sorted(kept.index) == [row.Index for row in table.itertuples() if row.dataset != "textures"]
    assert len(explorer_data.chosen(table)) == len(table) > len(kept) and explorer_data.chosen(table, []).empty
    gains = explorer_data.chosen(table, sort="Largest gain first")["gain"].to_numpy()
    assert (np.diff(gains) <= 1e-9).all()
    assert explorer_data.chosen(table, sort="Largest loss first")["gain"].to_numpy() == pytest.approx(gains[::-1])
    pd.testing.assert_frame_equal(explorer_data.chosen(table, sort="Dataset and episode"), table)
    tied = table.assign(gain=0.1 + np.where(np.arange(len(table)) % 2, 1e-17, -1e-17))
    assert list(explorer_data.chosen(tied, sort="Largest gain first").index) == list(table.index)


def test_the_table_in_words_and_lines(table):
    gains = 100 * table["gain"]
    numbers = gains.groupby(table["dataset"]).mean().mean(), gains.min(), gains.max()
    mean, low, high = (f"{gain:+.1f}".replace("-", "−") for gain in numbers)
    words = explorer_data.in_words(table, "Transductive", "Simple")
    assert words.startswith("36 episodes") and f"{mean} ± " in words and words.endswith(f"from {low} to {high}.")
    kinds = np.where(table["dataset"] == table["dataset"].iloc[0], "real", "rendered")
    apart = explorer_data.in_words(table.assign(images=kinds), "Transductive", "Simple")
    assert "average for real images, " in apart and "average for rendered images, from" in apart and mean not in apart
    one = explorer_data.in_words(table.iloc[:1], "Transductive", "Simple")
    assert one.startswith("1 episode of") and "±" not in one and "nan" not in one
    assert "No episode" in explorer_data.in_words(pd.DataFrame(), "Transductive", "Simple")
    options = explorer_data.lines(table, "Transductive", "Simple")
    assert [value for _, value in options] == list(zip(table["dataset"], table["episode"]))
    assert f"{100 * table['accuracy'].iloc[0]:.1f}%" in options[0][0]


def test_the_most_improved_episode_gains_most_right_labels(rows, root):
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
def test_the_status_says_what_is_achieved_and_where_it_stops(rows, table, variant, stop, place):
    own = episode_table.rows_of_episode(rows, "Transductive", "digits", 5)
    row = table[(table["dataset"] == "digits") & (table["episode"] == 5)].iloc[0]
    right = int((own["prediction_4"] == own["label"]).sum())
    changed = int((own["prediction_4"] != own["prediction_3"]).sum())
    words = explorer_data.status(row, variant, own, 4, stop)
    assert f"{variant}, step 4 of 6 ({place}): {right} of {len(own)} queries right" in words
    assert words.startswith("digits, episode 5 · ") and f"{changed} label" in words


def test_what_a_study_can_compare():
    study = small_study()
    assert explorer_data.evaluations_of(study, ["Transductive", "Simple"]) == ["variable"]
    assert explorer_data.evaluations_of(study, ["Transductive", "FEOT"]) == ["variable", "5-way-1-shot"]
    assert explorer_data.variants_of(["support_and_query"]) == ["FEOT", "Transductive"]
    options = dict(explorer_data.dataset_filters(study, "5-way-1-shot"))
    assert options["All datasets"] == options["All in-domain"] == ("blobs",) and "All out-of-domain" not in options


def test_an_episode_that_is_drawn_differently_now_is_refused(study, monkeypatch):
    own = blob_rows(study, "variable", "others", 0)
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
