"""The page for labelling, and a folder in the stepper, without a browser."""

import json
from dataclasses import replace

import pandas as pd
import pytest
from driving import click, set_to, words
from PIL import Image
from planted_folders import image_folder
from small_study import small_study

from tcnaps_suite.labelling import page as pages
from tcnaps_suite.labelling.corrections import load_corrections
from tcnaps_suite.labelling.episode import folder_episode
from tcnaps_suite.labelling.folder import NONE
from tcnaps_suite.labelling.page import EMPTY, FOREIGN, NEXT, LabelPage, keys_of
from tcnaps_suite.widgets.stepper_data import described
from tcnaps_suite.widgets.stepper_widget import stepper

CLASSES = ["ash", "elm", "fir"]


@pytest.fixture
def folder(tmp_path):
    """Five examples of each class, seven other images near each; one is a picture, the others can't be read."""
    (tmp_path / "ash").mkdir()
    Image.new("RGB", (300, 200), "red").save(tmp_path / "ash/0.png")
    truth = {f"{name}-{number}.png": name for name in CLASSES for number in range(7)}
    folder = image_folder(tmp_path, {name: f"{name}-{{}}" for name in CLASSES}, 5, 7, 3, 0.4, 1, truth)
    folder.features[5] = [30, 30, 30]  # unlabelled/ash-0.png is like no class
    return folder


@pytest.fixture
def page(folder):
    return LabelPage(folder, abstain=0.4).loaded()


def press(page, key, number):
    page._press({"key": key, "number": number})


def shown(page):
    return [picture["title"].partition(":")[0] for picture in page.gallery.pictures]


def test_classes_get_digits_and_first_letters_that_are_no_other_s():
    keys = keys_of(["ash", "aspen", "Birch", "nettle", "ulex", *(f"z{k}" for k in range(9))])
    assert [keys[str(k)] for k in (1, 2, 9)] == ["ash", "aspen", "z3"] and keys["b"] == "Birch"
    assert not {"a", "n", "u", "z", "10"} & set(keys)


def test_every_image_is_in_one_pile_with_its_examples_first(page, folder):
    assert EMPTY in [value for _, value in LabelPage(folder, abstain=1).loaded().controls["pile"].options]
    files, piles = [], [value for _, value in page.controls["pile"].options]
    assert piles[:3] == CLASSES and FOREIGN in piles and EMPTY not in piles and piles[-1] == NEXT
    for pile in piles[:-1]:
        set_to(page, pile=pile)
        files += shown(page)
    assert sorted(files) == sorted(page.folder.images["file"])
    set_to(page, pile=NEXT)
    table = page.labels.table.set_index("label_next")["file"]
    assert shown(page) == [table[str(place)] for place in range(1, 11)]
    set_to(page, pile="ash", order="least certain first")
    least = shown(page)
    set_to(page, order="most certain first")
    assert least[:5] == shown(page)[:5] == [f"ash/{number}.png" for number in range(5)]
    assert least[5:] == shown(page)[:4:-1] and len(least) > 6
    first, *others = (picture["address"] for picture in page.gallery.pictures)
    assert first.startswith("data:image") and not any(others)
    assert {picture["verdict"] for picture in page.gallery.pictures[5:]} == {"right"}


def test_corrections_are_saved_at_once_taken_back_and_used(page, folder):
    set_to(page, pile="ash")
    first, second = shown(page)[5:7]
    press(page, "e", 5)
    assert load_corrections(folder)[0] == {first: "elm"} and page.gallery.marks[5] == "→ elm"
    press(page, "n", 6)
    press(page, "3", 6)
    press(page, "u", 0)
    assert load_corrections(folder)[0] == {first: "elm", second: NONE} and page.gallery.selected == 6
    page.gallery.selected = 0
    click(page, "class-1")
    assert load_corrections(folder)[0]["ash/0.png"] == "elm" and page.gallery.selected == 1
    click(page, "undo")
    click(page, "again")
    table = page.labels.table.set_index("file")
    assert page.error is None and table.loc[[first, second], "label"].tolist() == ["elm", ""]
    assert first not in shown(page) and not any(page.gallery.marks)
    set_to(page, pile=FOREIGN)
    assert second in shown(page)
    click(page, "undo", "undo", "undo", "undo")
    press(page, "e", 99)
    assert page.error is None and load_corrections(folder)[0] == {}


def test_two_pages_lose_no_correction_and_errors_are_shown(page, folder):
    other = LabelPage(folder).loaded()
    set_to(page, pile="ash")
    set_to(other, pile="fir")
    press(page, "e", 6)
    press(other, "e", 6)
    assert len(load_corrections(folder)[0]) == 2
    (folder.path / "corrections.csv").write_text("file,label\nash/0.png,oak\n")
    click(page, "again")
    assert "corrections.csv" in words(page.notice) and "oak" in words(page.notice)
    press(page, "e", 7)
    assert page.error is not None and "oak" in (folder.path / "corrections.csv").read_text()
    late = LabelPage(folder).loaded()
    assert late.error is not None
    (folder.path / "corrections.csv").unlink()
    click(late, "again")
    click(page, "again")
    assert late.error is None and page.error is None and shown(late)


def test_many_pictures_come_page_by_page(page, monkeypatch):
    monkeypatch.setattr(pages, "SHOWN", 4)
    set_to(page, pile="fir")
    total, seen = len(page._piles["fir"]), shown(page)
    for _ in range(4):
        click(page, "forward")
        seen += [file for file in shown(page) if file not in seen]
    assert len(seen) == total > 8 and words(page._page) == f"9 to {total} of {total}"
    click(page, "back", "back", "back")
    assert words(page._page) == f"1 to 4 of {total}" and shown(page) == seen[:4]


def test_labels_are_exported_and_annotations_are_read(page, folder):
    set_to(page, pile="ash")
    file = shown(page)[5]
    press(page, "e", 5)
    click(page, "table", "tasks")
    assert pd.read_csv(folder.path / "labels.csv").set_index("file").loc[file, "label"] == "elm"
    tasks = json.loads((folder.path / "label-studio.json").read_text())
    for task in tasks:
        if task["data"]["name"] == "unlabelled/fir-0.png":
            task["annotations"] = [{"result": [{"type": "choices", "value": {"choices": ["ash"]}}]}]
    content = json.dumps(tasks).encode()
    upload = {"name": "../export.json", "content": content, "type": "", "size": 1, "last_modified": pd.Timestamp(0)}
    set_to(page, upload=(upload,))
    assert load_corrections(folder)[0] == {file: "elm", "unlabelled/fir-0.png": "ash"} and not page.choice.upload
    set_to(page, upload=(upload | {"content": b"["},))
    assert "export.json" in words(page.notice)
    set_to(page, upload=())
    click(page, "undo")
    assert load_corrections(folder)[0] == {file: "elm"}


@pytest.mark.parametrize("known", [True, False])
def test_a_folder_opens_in_the_stepper(page, folder, known, tmp_path, monkeypatch):
    press(page, "f", 5)
    click(page, "again")
    episode = folder_episode(folder if known else replace(folder, truth=None), page.labels)
    assert len(episode.support_labels) == 16 and len(episode.query_labels) == 20
    assert ("truth.csv" in episode.place[0]) == known
    view = stepper(small_study(), given=episode)
    assert view.error is None and words(view._about) == described(episode)
    click(view, "forward", "answer")
    assert view.error is None and view.choice.step > 0
