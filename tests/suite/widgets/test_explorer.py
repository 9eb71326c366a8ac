"""The explorer driven by its controls, without a browser: what it shows against the library's numbers."""

import base64
import io
import random
import re
from contextlib import nullcontext
from itertools import product

import ipywidgets
import numpy as np
import pandas as pd
import pytest
from blob_rows import blob_rows
from driving import click, set_to, words
from PIL import Image
from small_study import blobs, small_study
from synthetic_rows import synthetic_rows

from tcnaps.data.image_source import DatasetError
from tcnaps.episodes.sampling import draw_episode
from tcnaps.evaluation.result_files import load_rows, needed_trainings, rows_file, write_rows
from tcnaps_suite.widgets import episode_table, explorer, explorer_data, explorer_html, explorer_widget, widget_base
from tcnaps_suite.widgets.explorer_widget import CONFUSION, IMAGES


@pytest.fixture
def study(tmp_path, monkeypatch):
    """An evaluated study whose rows are files and whose images are blobs."""
    (tmp_path / "Snakefile").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(episode_table, "open_split", lambda study, name, split: blobs(name, split))
    small = small_study()
    made = {name: evaluation.model_copy(update={"episodes": 6}) for name, evaluation in small.evaluations.items()}
    small = small.model_copy(update={"evaluations": made})
    for name, evaluation in made.items():
        for (seed, training), dataset in product(enumerate(evaluation.trainings), evaluation.datasets):
            rows = [blob_rows(small, name, dataset, index, training, seed)[0] for index in range(6)]
            write_rows(rows_file(small, training, name, dataset), pd.concat(rows, ignore_index=True), "key")
    return small


def check_all(widget):
    """Everything that is shown follows from the rows and the controls."""
    choice = widget.choice
    assert widget.error is None, widget.notice.value
    better, than = choice.better, choice.than
    rows = load_rows(widget.study, choice.evaluation, needed_trainings([better, than]))
    table = explorer_data.episodes(rows, better, than, choice.limits)
    listed = explorer_data.chosen(table, choice.dataset, choice.ways, choice.shots, choice.sort)
    pd.testing.assert_frame_equal(widget.listed, listed)
    options = [value for _, value in widget.controls["episodes"].options]
    assert options == list(zip(listed["dataset"], listed["episode"]))
    assert explorer_data.in_words(listed, better, than) in words(widget._count)
    assert widget._details.layout.display == ("none" if listed.empty else "")
    if listed.empty:
        return
    dataset, episode = choice.episodes
    row = table[(table["dataset"] == dataset) & (table["episode"] == episode)].iloc[0]
    step, own = choice.step, episode_table.rows_of_episode(rows, choice.variant, dataset, episode)
    stop = int(row["step"] if choice.variant == better else row["step_than"])
    assert explorer_data.status(row, choice.variant, own, step, stop) == words(widget._status)
    wrong, shown = own[f"prediction_{step}"] != own["label"], widget._sheet.value
    if choice.page == IMAGES:
        assert shown.count(explorer_html.WRONG + " ") == wrong.sum() + 1  # and once in the heading
        confidences = [f"{x:.2f}" for x in own[f"confidence_{step}"]]
        assert re.findall(r"\d\.\d\d(?=(?: ↻)?</span></div>)", shown) == confidences
        for label, of_class in own.groupby("label"):
            recall = 100 * (of_class[f"prediction_{step}"] == label).mean()
            assert f"shot {of_class['shot'].iloc[0]} · recall {recall:.0f}%" in shown
    else:
        counts = pd.crosstab(own["label"], own[f"prediction_{step}"]).to_numpy()
        assert [int(n) for n in re.findall(r"<b[^>]*>(\d+)</b>", shown)] == list(counts[counts > 0])


def test_the_first_display_is_complete_when_the_cell_ends(study):
    widget = explorer(study)
    check_all(widget)
    assert widget.variants == ("Transductive", "FEOT")  # the same networks, with and without refinement
    assert widget.row["gain"] == widget.table["gain"].max()
    assert widget.choice.step == widget.row["step"] and widget.controls["step"].max == 4


def test_every_control_changes_what_is_shown(study):
    widget, before = explorer(study), None
    for changes in (
        {"sort": "Largest loss first"},
        {"dataset": ("others",)},
        {"dataset": ("blobs", "others"), "shots": (1, 2)},
        {"ways": (6, 6)},
        {"ways": (5, 6), "limits": (0, 0)},
        {"limits": (1, 4), "step": 2},
        {"variant": "FEOT"},
        {"page": CONFUSION},
        {"step": 3},
        {"than": "Simple"},
        {"better": "COT"},
        {"better": "FEOT", "than": "Transductive", "evaluation": "5-way-1-shot"},
        {"page": IMAGES},
        {"evaluation": "variable"},
    ):
        set_to(widget, **changes)
        check_all(widget)
        places = widget._count, widget._header, widget._status, widget._sheet
        after = [place.value for place in places], widget.controls["episodes"].options
        assert after != before, changes
        before = after


def test_copied_code_makes_the_same_widget_again_and_images_are_saved(study, monkeypatch):
    widget = explorer(study)
    changes = {"limits": (1, 3), "sort": "Largest loss first", "dataset": ("others",), "episodes": ("others", 4)}
    set_to(widget, **changes, variant="FEOT", step=3, page=CONFUSION)
    click(widget, "copy")
    code, before = widget.code(), widget.choice
    monkeypatch.setattr(widget_base, "_KEPT", {})
    names = {"study": study}
    exec(code, names)
    assert names["view"] is not widget and names["view"].choice == before
    check_all(names["view"])
    click(widget, "save")
    assert Image.open(io.BytesIO((study.figures_folder / "views" / "explorer.png").read_bytes())).width > 1000
    assert widget._saved.value.count("download=") == 2


def test_images_are_those_of_the_episode(study):
    widget = explorer(study)
    own = widget.own["Transductive"]
    source = blobs(own["dataset"].iloc[0], "test")
    draw = draw_episode(source, study.evaluations["variable"].protocol, study.seed, int(own["episode"].iloc[0]))
    sheet, rule = widget._style_sheet.value, r"\.([sq]\d+) \{background-image:url\(data:image/png;base64,([^)]*)\)"
    shown = {place: Image.open(io.BytesIO(base64.b64decode(data))) for place, data in re.findall(rule, sheet)}
    for kind, numbers in (("s", draw.support_images), ("q", own["image"])):
        for position, number in enumerate(numbers):
            assert (np.asarray(shown[f"{kind}{position}"]) == source.images[number]).all()


def test_filters_that_leave_nothing_say_so_and_recover(study, monkeypatch):
    widget = explorer(study)
    before, widget.table["shots"] = widget.table["shots"], [(9,)] * len(widget.table)
    set_to(widget, shots=(1, 1), sort="Largest loss first")
    assert "No episode is listed" in widget._count.value and not widget.controls["episodes"].options
    click(widget, "stop", "open")  # nothing to act on
    set_to(widget, step=1)
    assert widget.error is None and not widget._below.children
    widget.table["shots"] = before
    set_to(widget, shots=(1, widget.controls["shots"].max))
    check_all(widget)
    monkeypatch.setattr(explorer_widget, "MOST_LISTED", 5)  # what a browser can hold
    set_to(widget, sort="Largest gain first")
    assert len(widget.controls["episodes"].options) == 5 and len(widget.listed) == 12
    assert "The list holds the first 5 of them." in widget._count.value


def test_what_cannot_be_compared_says_so_and_another_evaluation_is_shown_from_its_top(study):
    widget = explorer(study)
    set_to(widget, than="Transductive")
    assert "can't be compared with itself" in str(widget.error)
    assert not widget.controls["episodes"].options and widget._details.layout.display == "none"
    set_to(widget, than="Simple", evaluation="5-way-1-shot")
    assert "does not name training 'support'; add it to evaluations.5-way-1-shot" in str(widget.error)
    set_to(widget, than="FEOT")
    ways = widget.controls["ways"]
    assert ways.disabled and widget.controls["shots"].disabled
    check_all(widget)
    widget.controls["episodes"].index = 4
    set_to(widget, evaluation="variable")
    assert not ways.disabled and ways.value == (widget.table["way"].min(), widget.table["way"].max())
    assert widget.controls["episodes"].index == 0
    check_all(widget)


def test_rows_of_other_images_show_their_numbers_and_say_why_there_are_no_images(study):
    for training in ("support", "support_and_query"):
        file = rows_file(study, training, "variable", "blobs")
        rows = pd.read_parquet(file)
        write_rows(file, rows.assign(image=rows["image"] + (rows["episode"] == 2)), "key")
    widget = explorer(study)
    set_to(widget, episodes=("blobs", 2))
    assert "other images than its rows recorded" in widget.notice.value and "make figures" in widget.notice.value
    set_to(widget, step=1)
    assert "The images can't be shown" in words(widget._sheet) and "queries right" in widget._status.value
    set_to(widget, page=CONFUSION)
    check_all(widget)
    set_to(widget, page=IMAGES, episodes=("blobs", 1))
    check_all(widget)


def test_images_that_were_missing_are_shown_when_the_cell_runs_again(study, monkeypatch):
    def missing(*_):
        raise DatasetError("blobs is not prepared: run `make figures`")

    with monkeypatch.context() as patch:
        patch.setattr(episode_table, "open_split", missing)
        for _ in range(2):
            widget = explorer(study)
            assert isinstance(widget.error, DatasetError) and "can't be shown: blobs" in words(widget._sheet)
    assert explorer(study) is widget and "ximage" in widget._sheet.value
    check_all(widget)


def test_what_was_chosen_stays_when_the_cell_runs_again_unless_results_are_new(study):
    set_to(explorer(study), sort="Largest loss first", dataset=("others",), step=4)
    again = explorer(study).choice
    assert (again.sort, again.dataset, again.step) == ("Largest loss first", ("others",), 4)
    assert explorer(study, "variable", "COT", "Simple").choice.sort == "Largest gain first"
    file = rows_file(study, "support_and_query", "variable", "others")
    write_rows(file, pd.read_parquet(file), "key")
    assert explorer(study).choice.sort == "Largest gain first"


def test_wrong_names_are_refused(study):
    for arguments, message in {
        ("varied",): "no evaluation of Transductive and FEOT named 'varied'; did you mean 'variable'",
        ("5-way-1-shot", "Transductive", "Simple"): "Transductive and Simple named '5-way-1-shot'; known: variable",
        (None, "Transductiv"): "no variant 'Transductiv'",
        (None, "GMM"): "'small' serves GMM and FEOT: add support_and_query, support_log_det",
    }.items():
        with pytest.raises(ValueError, match=message):
            explorer(study, *arguments)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_fast_and_in_odd_orders_the_last_word_is_shown(study, seed):
    """Sixty random actions without waiting; in the end everything agrees with the controls."""
    widget, chance = explorer(study), random.Random(seed)
    c = widget.controls
    menus = [c[name] for name in ("sort", "dataset", "variant", "evaluation", "better", "than", "episodes", "page")]
    ranges = {"limits": range(5), "shots": range(1, 6), "ways": range(5, 7)}
    for _ in range(60):
        kind, menu, name = chance.random(), chance.choice(menus), chance.choice(list(ranges))
        if kind < 0.6:
            menu.index = chance.randrange(len(menu.options)) if menu.options else None
        elif kind < 0.85:
            c[name].value = tuple(sorted(chance.choices(ranges[name], k=2)))
        else:
            set_to(widget, step=chance.randrange(5))
    set_to(widget, better="Transductive", than="FEOT")
    click(widget, "stop")
    check_all(widget)


def test_the_stepper_opens_below_with_this_episode_and_stopping_rule(study, monkeypatch):
    from tcnaps_suite.widgets import stepper_widget

    class Opened(ipywidgets.VBox):
        def __init__(self, study, *place):
            super().__init__()
            self.place, self.load, self.guarded = place, lambda: None, nullcontext

        def put(self, **values):
            self.rule = values

    monkeypatch.setattr(stepper_widget, "Stepper", Opened)
    widget = explorer(study)
    set_to(widget, episodes=("others", 3), limits=(1, 4))
    click(widget, "open")
    bar, opened = widget._below.children
    assert opened.place == ("Transductive", "variable", "others", 3) and opened.rule == {"minimum": 1, "maximum": 4}
    assert "Transductive, variable, others, episode 3" in bar.children[0].value
    assert "scrollIntoView" in bar.children[0].value and "Episode 3 is open in the stepper" in widget._opened.value
    click(widget, "close")
    assert not widget._below.children and widget._opened.value == ""


def test_names_of_any_kind_are_shown_as_they_are():
    names = [f'<b>class & "{k}" {"long " * 12}' for k in range(20)]
    own = synthetic_rows(("support",), 1, 2, (20,), 2, datasets={"d": "in"})
    own["class_name"] = [names[k] for k in own["label"]]
    drawer, found = explorer_html.Drawer(names, None), episode_table.at_step(own, 1)
    for page in (drawer.sheet(found), drawer.confusion(found)):
        assert "<b>class" not in page and "&lt;b&gt;class &amp; &quot;0&quot;" in page
