"""The explorer driven by its controls, without a browser: what it shows against the library's numbers."""

import random
from itertools import product

import pandas as pd
import pytest
from blob_rows import blob_rows
from driving import set_to, words
from small_study import blobs, small_study

from tcnaps.config import UserError
from tcnaps.episodes.sampling import draw_episode
from tcnaps.evaluation.result_files import load_rows, needed_trainings, rows_file, write_rows
from tcnaps_suite import episodes
from tcnaps_suite.widgets import episode_table, explorer_data, explorer_widget
from tcnaps_suite.widgets.explorer_widget import explorer


@pytest.fixture
def study(root, monkeypatch):
    """An evaluated study whose rows are files and whose images are blobs."""
    monkeypatch.setattr(episodes, "open_split", lambda study, name, split: blobs(name, split))
    small = small_study()
    made = {name: evaluation.model_copy(update={"episodes": 6}) for name, evaluation in small.evaluations.items()}
    small = small.model_copy(update={"evaluations": made})
    for name, evaluation in made.items():
        for (seed, training), dataset in product(enumerate(evaluation.trainings), evaluation.datasets):
            rows = [blob_rows(small, name, dataset, index, training, seed)[0] for index in range(6)]
            write_rows(rows_file(small, training, name, dataset), pd.concat(rows, ignore_index=True), "key")
    return small


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
    widget = explorer(study)
    monkeypatch.setattr(explorer_widget, "MOST_LISTED", 5)  # the most that a browser can hold
    set_to(widget, sort="Largest loss first")
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


def test_wrong_names_are_refused(study):
    for arguments, name in {
        ("varied",): "'variable'",
        ("5-way-1-shot", "Transductive", "Simple"): "variable",
        (None, "Transductiv"): "'Transductiv'",
        (None, "GMM"): "support_log_det",
    }.items():
        with pytest.raises(ValueError, match=name):
            explorer(study, *arguments)


def test_fast_and_in_odd_orders_the_last_choice_is_shown(study, no_pictures):
    """Random actions without waiting; in the end everything agrees with the controls."""
    widget, chance = explorer(study), random.Random(0)
    c = widget.controls
    menus = [c[name] for name in ("sort", "dataset", "variant", "episodes")]
    ranges = {"limits": range(5)}
    for _ in range(25):
        kind, menu, name = chance.random(), chance.choice(menus), chance.choice(list(ranges))
        if kind < 0.6:
            menu.index = chance.randrange(len(menu.options)) if menu.options else None
        elif kind < 0.85:
            c[name].value = tuple(sorted(chance.choices(ranges[name], k=2)))
        else:
            set_to(widget, step=chance.randrange(5))
    check_all(widget)
