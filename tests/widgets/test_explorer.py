"""The explorer driven by its controls, without a browser: what it shows against the library's numbers."""

import base64
import html
import io
import random
import re
import threading

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from small_study import blobs, small_study
from synthetic_rows import synthetic_rows

from tcnaps.episodes.sampling import draw_episode
from tcnaps.evaluation.result_files import write_rows
from tcnaps.widgets import (
    episode_figures,
    episode_table as episode_rows,
    explorer,
    explorer_controls,
    explorer_data as exploring,
    explorer_html,
    explorer_widget,
    replay as reopening,
)

FAR = 30  # seconds until a background thread counts as stuck


def evaluated(study, evaluation, dataset, training, seed):
    """Rows as an evaluation of blobs records them, with made-up predictions."""
    source, frames = blobs(dataset, "test"), []
    for index in range(study.evaluations[evaluation].episodes):
        draw = draw_episode(source, study.evaluations[evaluation].protocol, study.seed, index)
        labels, way = draw.query_labels, len(draw.classes)
        generator = np.random.default_rng([seed, index, len(dataset)])
        made = synthetic_rows(
            (training,),
            n_episodes=1,
            n_steps=4,
            ways=(way,),
            datasets={dataset: "in"},
            queries_per_class=len(labels) // way,
            seed=index,
        )
        shots = np.bincount(draw.support_labels)
        prediction, columns = labels, {}
        for step in range(5):
            moved = generator.random(len(labels)) < (0.4 if step == 0 else 0.15)
            prediction = np.where(moved, generator.integers(0, way, len(labels)), prediction)
            columns[f"prediction_{step}"] = prediction.astype(np.int16)
        frames.append(
            made.assign(
                evaluation=evaluation,
                episode=index,
                domain=study.datasets[dataset].domain,
                way=way,
                n_support=len(draw.support_labels),
                query=np.arange(len(labels)),
                label=labels,
                shot=shots[labels],
                class_name=[source.class_names[draw.classes[k]] for k in labels],
                image=draw.query_images,
                **columns,
            )
        )
    return pd.concat(frames, ignore_index=True)


@pytest.fixture
def study(tmp_path, monkeypatch):
    """An evaluated study whose rows are files and whose images are blobs."""
    (tmp_path / "Snakefile").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(reopening, "open_split", lambda study, name, split: blobs(name, split))
    made = small_study()
    made = made.model_copy(
        update={
            "evaluations": {
                name: evaluation.model_copy(update={"episodes": 6}) for name, evaluation in made.evaluations.items()
            }
        }
    )
    for name, evaluation in made.evaluations.items():
        for seed, training in enumerate(evaluation.trainings):
            for dataset in evaluation.datasets:
                file = made.results_folder / "rows" / training / name / f"{dataset}.parquet"
                write_rows(file, evaluated(made, name, dataset, training, seed), "key")
    return made


def settle(widget):
    """Until everything under way is shown."""
    for work in (widget.loading, widget.fetching, widget.averaging, widget.opening):
        work.wait(FAR)
    widget.fetching.wait(FAR)  # what was loaded has started it


def text(value):
    """HTML without its tags."""
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", value)))


def check_all(widget):
    """Everything that is shown follows from the rows and the controls."""
    c = widget.c
    assert widget.notice.error is None
    evaluation, better, than, limits = c.settings()
    rows = exploring.read(widget.study, evaluation, [better, than])
    table = exploring.episodes(rows, better, than, limits)
    listed = exploring.chosen(table, c.datasets(table), c.ways.value, c.shots.value, c.sort.value)
    pd.testing.assert_frame_equal(widget.listed, listed)
    assert [value for _, value in c.episodes.options] == list(zip(listed["dataset"], listed["episode"]))
    assert exploring.in_words(listed, better, than) in text(c.count.value)
    if listed.empty:
        assert c.details.layout.display == "none"
        return
    assert c.details.layout.display == ""
    dataset, episode = c.episodes.value
    row = table[(table["dataset"] == dataset) & (table["episode"] == episode)].iloc[0]
    assert row["gain"] == widget.row["gain"]
    own = episode_rows.rows_of_episode(rows, c.variant.value, dataset, episode)
    stop = int(row["step"] if c.variant.value == better else row["step_than"])
    status = episode_rows.status(row, c.variant.value, own, c.step.value, stop)
    assert status in text(c.status.value)
    right = (own[f"prediction_{c.step.value}"] == own["label"]).sum()
    assert f"{right} of {len(own)} queries right" in status
    if c.tabs.selected_index == explorer_controls.IMAGES:
        assert c.sheet.value.count(explorer_html.WRONG + " ") == len(own) - right + 1  # and once in the heading
        confidences = [f"{x:.2f}" for x in own[f"confidence_{c.step.value}"]]
        assert re.findall(r"\d\.\d\d(?=(?: ↻)?</span></div>)", c.sheet.value) == confidences
    elif c.tabs.selected_index == explorer_controls.STEPS:
        found = episode_rows.some_queries(own, c.which.value, c.step.value)
        assert c.by_step.value.count("<tr>") == found["query"].nunique() + bool(len(found))
    elif c.tabs.selected_index == explorer_controls.CONFUSION:
        counts = episode_rows.confusion(own, c.step.value).to_numpy()
        assert [int(n) for n in re.findall(r"<b>(\d+)</b>", c.matrix.value)] == list(counts[counts > 0])


def test_the_first_display_is_complete_when_the_cell_ends(study):
    widget = explorer(study)
    assert not widget.loading.busy and not widget.fetching.busy
    assert widget.images.query_images.shape[1:] == (32, 32, 3)
    check_all(widget)
    assert widget.row["gain"] == widget.table["gain"].max()
    assert widget.c.step.value == widget.row["step"] and widget.c.step.max == 4
    assert "data:image/png;base64," in widget.c.style_sheet.value


def test_every_control_changes_what_is_shown(study):
    widget = explorer(study)
    c = widget.c
    changes = [
        (c.sort, "value", "Largest loss first"),
        (c.dataset, "value", ("domain", "out")),
        (c.dataset, "value", ("dataset", "blobs")),
        (c.dataset, "value", ("domain", "all")),
        (c.shots, "value", (1, 2)),
        (c.ways, "value", (6, 6)),
        (c.ways, "value", (5, 6)),
        (c.limits, "value", (0, 0)),
        (c.limits, "value", (1, 4)),
        (c.tabs, "selected_index", 1),
        (c.which, "value", "all"),
        (c.which, "value", "that are wrong in this step"),
        (c.step, "value", 4),
        (c.variant, "value", "Simple"),
        (c.tabs, "selected_index", 2),
        (c.step, "value", 3),
        (c.than, "value", "FEOT"),
        (c.better, "value", "COT"),
        (c.evaluation, "value", "5-way-1-shot"),
        (c.tabs, "selected_index", 0),
        (c.evaluation, "value", "variable"),
    ]
    before = None
    for control, trait, value in changes:
        setattr(control, trait, value)
        settle(widget)
        check_all(widget)
        after = (
            c.count.value,
            c.header.value,
            c.status.value,
            c.sheet.value,
            c.by_step.value,
            c.matrix.value,
            c.episodes.options,
        )
        assert after != before, (trait, value)
        before = after


def test_choosing_an_episode_shows_it_at_its_stop(study):
    widget = explorer(study)
    for _, value in widget.c.episodes.options:
        widget.c.episodes.value = value
        settle(widget)
        check_all(widget)
        assert (widget.row["dataset"], widget.row["episode"]) == value
        assert widget.c.step.value == widget.row["step"]
        widget.c.step.value = 0
        widget.c.stop.click()
        assert widget.c.step.value == widget.row["step"]


def test_images_are_those_of_the_episode(study):
    widget = explorer(study)
    shown = explorer_html.thumbnails(widget.images)
    own = widget.own["Transductive"]
    draw = widget.images.draw
    assert shown.count == len(draw.support_images) + len(own) and len(shown.query) == len(own)
    mosaic = np.asarray(Image.open(io.BytesIO(base64.b64decode(shown.address.split(",")[1]))))
    images = blobs(own["dataset"].iloc[0], "test").images

    def tile(position):
        row, column = divmod(position, explorer_html.COLUMNS)
        return mosaic[32 * row : 32 * row + 32, 32 * column : 32 * column + 32]

    for query, position in enumerate(shown.query):
        assert (tile(position) == images[own["image"].iloc[query]]).all()
    for label, positions in enumerate(shown.support):
        numbers = draw.support_images[draw.support_labels == label]
        assert all((tile(p) == images[n]).all() for p, n in zip(positions, numbers)) and positions


def test_filters_that_leave_nothing_say_so_and_recover(study):
    widget = explorer(study)
    widget.c.shots.value = (1, 1)
    before, widget.table["shots"] = widget.table["shots"], [(9,)] * len(widget.table)
    widget.c.sort.value = "Largest loss first"
    settle(widget)
    assert "No episode passes the filters" in widget.c.count.value and not widget.c.episodes.options
    for action in (widget.c.stop.click, widget.c.open.click):  # nothing to act on
        action()
    widget.c.step.value = 1
    assert widget.notice.error is None and not widget.c.below.children
    widget.table["shots"] = before
    widget.c.shots.value = (1, widget.c.shots.max)
    settle(widget)
    check_all(widget)
    assert widget.c.details.layout.display == "" and widget.own


def test_a_variant_is_not_compared_with_itself(study):
    widget = explorer(study)
    widget.c.than.value = "Transductive"
    assert "can't be compared with itself" in html.unescape(widget.notice.value)
    assert widget.c.than.value == "Simple"
    widget.c.sort.value = "Largest loss first"
    settle(widget)
    check_all(widget)


def test_an_evaluation_without_the_variants_offers_its_own(study):
    widget = explorer(study)
    widget.c.evaluation.value = "5-way-1-shot"
    settle(widget)
    assert (widget.c.better.value, widget.c.than.value) == ("Transductive", "FEOT")
    assert widget.c.ways.disabled and widget.c.shots.disabled
    check_all(widget)
    widget.c.evaluation.value = "variable"
    settle(widget)
    assert not widget.c.ways.disabled and widget.c.ways.value == (widget.table["way"].min(), widget.table["way"].max())
    check_all(widget)


def test_a_failure_shows_and_the_controls_say_again_what_is_shown(study):
    widget = explorer(study)
    (study.results_folder / "rows/support_and_query/5-way-1-shot/blobs.parquet").unlink()
    widget.c.evaluation.value = "5-way-1-shot"
    settle(widget)
    assert "make figures STUDY=" in widget.notice.value and "blobs.parquet" in widget.notice.value
    assert widget.c.settings() == ("variable", "Transductive", "Simple", (2, 3))
    widget.c.sort.value = "Largest loss first"
    settle(widget)
    check_all(widget)


def test_missing_rows_show_with_the_remedy_and_are_read_when_the_cell_runs_again(study):
    file = study.results_folder / "rows/support_and_query/variable/others.parquet"
    kept = file.read_bytes()
    file.unlink()
    widget = explorer(study)
    assert "make figures STUDY=" in widget.notice.value and widget.c.details.layout.display == "none"
    with pytest.raises(ValueError, match="No episodes have been compared"):
        exploring.in_words(widget.listed, *widget.variants)
    widget.c.sort.value = "Largest loss first"  # nothing to sort
    file.write_bytes(kept)
    again = explorer(study)
    check_all(again)


def test_rows_of_other_images_show_their_numbers_and_say_why_there_are_no_images(study):
    for training in ("support", "support_and_query"):
        file = study.results_folder / f"rows/{training}/variable/blobs.parquet"
        rows = pd.read_parquet(file)
        write_rows(file, rows.assign(image=rows["image"] + (rows["episode"] == 2)), "key")
    widget = explorer(study)
    widget.c.episodes.value = ("blobs", 2)
    settle(widget)
    assert "drawn differently now" in widget.notice.value and "make figures" in widget.notice.value
    assert widget.images is None and "The images can&#x27;t be shown" in widget.c.sheet.value
    assert "queries right" in widget.c.status.value
    widget.c.step.value = 1
    assert "The images can&#x27;t be shown" in widget.c.sheet.value
    widget.c.tabs.selected_index = explorer_controls.STEPS
    check_all(widget)
    widget.c.tabs.selected_index = explorer_controls.IMAGES
    widget.c.episodes.value = ("blobs", 1)
    settle(widget)
    check_all(widget)


def test_what_was_chosen_stays_when_the_cell_runs_again(study):
    first = explorer(study)
    first.c.sort.value, first.c.dataset.value = "Largest loss first", ("dataset", "others")
    settle(first)
    first.c.step.value = 4
    again = explorer(study)
    assert (again.c.sort.value, again.c.dataset.value, again.c.step.value) == (
        "Largest loss first",
        ("dataset", "others"),
        4,
    )
    check_all(again)
    assert explorer(study, "variable", "COT", "Simple").c.sort.value == "Largest gain first"
    file = study.results_folder / "rows/support_and_query/variable/others.parquet"
    write_rows(file, pd.read_parquet(file), "key")
    assert explorer(study).c.sort.value == "Largest gain first", "results were written anew"


def test_wrong_names_are_refused(study):
    for arguments, message in {
        ("varied",): "no evaluation 'varied'; it has variable, 5-way-1-shot",
        ("5-way-1-shot",): "'5-way-1-shot' does not serve Transductive and Simple; these do: variable",
        (None, "Transductiv"): "no variant 'Transductiv'",
        (None, "GMM"): "No evaluation of study 'small' serves GMM and Simple",
        (None, "Simple"): "Simple can't be compared with itself",
    }.items():
        with pytest.raises(ValueError, match=message):
            explorer(study, *arguments)


@pytest.mark.parametrize("seed", range(3))
def test_fast_and_in_odd_orders_the_last_word_is_shown(study, seed):
    """Sixty random actions without waiting; in the end everything agrees with the controls."""
    widget, chance = explorer(study), random.Random(seed)
    c = widget.c
    actions = [
        lambda: setattr(c.sort, "value", chance.choice(list(exploring.SORTS))),
        lambda: setattr(c.dataset, "value", chance.choice(c.dataset.options)[1]),
        lambda: setattr(c.limits, "value", tuple(sorted(chance.choices(range(5), k=2)))),
        lambda: setattr(c.shots, "value", tuple(sorted(chance.choices(range(1, 6), k=2)))),
        lambda: setattr(c.ways, "value", tuple(sorted(chance.choices(range(5, 7), k=2)))),
        lambda: c.episodes.options and setattr(c.episodes, "value", chance.choice(c.episodes.options)[1]),
        lambda: setattr(c.variant, "value", chance.choice(c.variant.options)),
        lambda: setattr(c.step, "value", chance.randrange(5)),
        lambda: setattr(c.tabs, "selected_index", chance.randrange(3)),
        lambda: setattr(c.evaluation, "value", chance.choice(["variable", "5-way-1-shot"])),
        lambda: setattr(c.better, "value", "COT" if "COT" in c.better.options else "Transductive"),
        lambda: setattr(c.than, "value", "FEOT"),
        c.stop.click,
        lambda: widget.loading.cancel(),
        lambda: widget.fetching.cancel(),
    ]
    for _ in range(60):
        chance.choice(actions)()
    settle(widget)
    c.sort.value = "Dataset and episode"  # a cancelled fetch leaves the old episode: choose once more
    widget._choose()
    settle(widget)
    c.tabs.selected_index = chance.randrange(3)
    c.stop.click()
    check_all(widget)


def test_cancelling_a_load_keeps_what_is_shown(study, monkeypatch):
    widget, gate = explorer(study), threading.Event()
    real = explorer_widget.exploring.reading

    def slow(*arguments):
        gate.wait(FAR)
        yield 0.0, "Reading"
        return (yield from real(*arguments))

    monkeypatch.setattr(explorer_widget.exploring, "reading", slow)
    widget.c.evaluation.value = "5-way-1-shot"
    assert widget.loading.busy
    before = widget.c.status.value
    widget.loading.cancel()
    gate.set()
    settle(widget)
    assert widget.c.settings()[:3] == ("variable", "Transductive", "Simple")
    assert widget.c.status.value == before
    check_all(widget)


def test_the_stepper_opens_below_with_this_episode(study, monkeypatch):
    import ipywidgets

    import tcnaps.widgets

    asked = []
    monkeypatch.setattr(tcnaps.widgets, "stepper", lambda *a, **k: asked.append(k) or ipywidgets.VBox(), raising=False)
    widget = explorer(study)
    widget.c.episodes.value = ("others", 3)
    settle(widget)
    widget.c.open.click()
    settle(widget)
    assert asked == [{"variant": "Transductive", "evaluation": "variable", "dataset": "others", "episode": 3}]
    assert "Transductive, variable, others, episode 3" in widget.c.below.children[0].children[0].value
    widget.c.close.click()
    assert not widget.c.below.children


def test_a_stepper_that_fails_says_why(study):
    widget = explorer(study)
    widget.c.open.click()  # nothing has been trained
    settle(widget)
    shown = widget.notice.value + "".join(getattr(w, "value", "") for w in widget.c.below.children)
    assert widget.notice.error is not None or widget.c.below.children, shown


def test_pictures_are_drawn_when_looked_at_and_only_once(study):
    widget = explorer(study)
    assert not widget.c.classes.value and not widget.c.curves.value
    for page, place in ((explorer_controls.CLASSES, widget.c.classes), (explorer_controls.SHOTS, widget.c.curves)):
        widget.c.tabs.selected_index = page
        settle(widget)
        assert widget.notice.error is None
        first = bytes(place.value)
        assert bytes(first[:4]) == b"\x89PNG" and len(first) > 5_000
        widget.c.step.value = (widget.c.step.value + 1) % 5
        assert bytes(place.value) == first
    widget.c.dataset.value = ("dataset", "others")
    settle(widget)
    assert widget.notice.error is None and bytes(widget.c.curves.value) != first
    widget.c.tabs.selected_index = explorer_controls.CLASSES
    assert widget.notice.error is None


@pytest.mark.parametrize("way", [2, 20, 60])
def test_tables_of_many_classes_with_names_of_any_kind(way):
    names = [f'<b>class & "{k}" {"long " * 12}' for k in range(way)]
    drawer = explorer_html.Drawer(names, None)
    own = pd.DataFrame(
        {
            "query": range(2 * way),
            "label": np.arange(way).repeat(2),
            "shot": 1,
            "class_name": [names[k] for k in np.arange(way).repeat(2)],
            "evaluation": "p",
            "dataset": "d",
            "domain": "in",
            "split": "test",
            "queries_per_class": 2,
            "episode": 0,
        }
    )
    for step in range(2):
        own[f"prediction_{step}"], own[f"confidence_{step}"] = (own["label"] + own["query"] % (2 - step)) % way, 0.5
    found = episode_rows.at_step(own, 1)
    pages = [
        drawer.sheet(found, episode_rows.recall_by_class(own, 1)),
        drawer.steps(episode_rows.queries(own), 1, 1),
        drawer.confusion(episode_rows.confusion(own, 0), episode_rows.mistakes(own, 0)),
    ]
    for page in pages:
        assert "<b>class" not in page and "&lt;b&gt;class &amp; &quot;0&quot;" in page


def test_every_class_has_a_letter_of_its_own():
    letters = [episode_figures.letter(k) for k in range(800)]
    assert len(set(letters)) == 800 and letters[24:28] == ["Y", "Z", "AA", "AB"]


def test_a_long_name_keeps_both_ends():
    assert episode_figures.shortened("sparrow") == "sparrow"
    short = episode_figures.shortened("U+21B9 LEFTWARDS ARROW TO BAR OVER RIGHTWARDS ARROW TO BAR", 20)
    assert short == "U+21B9 LEFTW…TO BAR" and len(short) <= 20


def test_list_is_cut_to_what_a_browser_can_hold(study, monkeypatch):
    monkeypatch.setattr(explorer_controls, "MOST_LISTED", 5)
    widget = explorer(study)
    assert len(widget.c.episodes.options) == 5 and len(widget.listed) == 12
    assert "The list holds the first 5 of them." in widget.c.count.value
