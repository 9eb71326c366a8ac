"""Corrections: what they do, their table, Label Studio's JSON there and back, and the page, without a browser."""

import json
import unicodedata
from dataclasses import replace
from urllib.parse import quote

import numpy as np
import pandas as pd
import pytest
import torch
from driving import click, set_to, words
from PIL import Image
from small_study import small_study

from tcnaps.config import UserError
from tcnaps_suite.labelling import page as pages
from tcnaps_suite.labelling.classify import label_images
from tcnaps_suite.labelling.corrections import label_studio_tasks, load_corrections, read_corrections, save_corrections
from tcnaps_suite.labelling.episode import folder_episode
from tcnaps_suite.labelling.folder import NONE, ImageFolder
from tcnaps_suite.labelling.page import EMPTY, FOREIGN, NEXT, LabelPage, keys_of
from tcnaps_suite.widgets.stepper_data import described
from tcnaps_suite.widgets.stepper_widget import stepper

CLASSES = ["ash", "elm", "fir"]


def image_folder(path, names, shot, others, length, noise, seed, truth=None):
    """A folder of images near the corners of a simplex; names are those of classes → of their unlabelled images."""
    rows = []
    for k, (name, file) in enumerate(names.items()):
        rows += [(f"{name}/{number}.png", name, k) for number in range(shot)]
        rows += [(f"unlabelled/{file.format(number)}.png", None, k) for number in range(others)]
    files, labels, codes = zip(*rows)
    images = pd.DataFrame({"file": files, "label": pd.Series(labels, dtype=object)}, dtype=object)
    features = length * np.eye(len(names))[list(codes)]
    features += np.random.default_rng(seed).normal(0, noise, features.shape)
    left_out = pd.DataFrame(columns=["file", "reason"])
    return ImageFolder(path, "features.npz", images, features.astype(np.float32), left_out, truth)


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
    page._press({"key": key, "file": dict(enumerate(page._files)).get(number, "of a page that was turned.png")})


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
    assert shown(page) == [page.labels.table.set_index("label_next")["file"][str(place)] for place in range(1, 11)]
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
    set_to(page, pile="fir")
    page._press({"key": "3", "file": second})  # a key whose message comes late
    set_to(page, pile="ash")
    press(page, "u", 0)
    assert load_corrections(folder)[0] == {first: "elm", second: NONE} and page.gallery.selected == second
    page.gallery.selected = "ash/0.png"
    click(page, "class-1")
    assert load_corrections(folder)[0]["ash/0.png"] == "elm" and page.gallery.selected == "ash/1.png"
    click(page, "undo")
    click(page, "again")
    table = page.labels.table.set_index("file")
    assert page.error is None and table.loc[[first, second], "label"].tolist() == ["elm", ""]
    assert first not in shown(page) and not any(page.gallery.marks)
    set_to(page, pile=FOREIGN)
    assert second in shown(page)
    click(page, "undo", "undo", "undo", "undo")
    press(page, "e", 99)
    page.gallery.selected = "of a page that was turned.png"
    click(page, "class-1")
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
    variance = torch.cat([episode.support_features, episode.query_features]).var(0, correction=0).sum()
    assert episode.head.identity_weight < 0.2 * variance, "0.3 of it with one label per class, less with several"
    every = label_images(folder, dict.fromkeys(page.labels.table["file"], "elm"))
    with pytest.raises(UserError, match="no image is left"):
        folder_episode(folder, every)
    view = stepper(small_study(), given=episode)
    assert view.error is None and words(view._about) == described(episode)
    click(view, "forward", "answer")
    assert view.error is None and view.choice.step > 0


@pytest.fixture
def trees(tmp_path):
    """Three examples of each class and six unlabelled images near each; those of fir lie beside elm's."""
    return image_folder(tmp_path, {"=oak": "0 é%{}", "elm": "1 é%{}", "fir": "2 é%{}"}, 3, 6, 4, 0.3, seed=0)


def test_a_correction_is_a_further_example_and_none_is_left_out(trees):
    wrong, foreign = "unlabelled/0 é%0.png", "unlabelled/1 é%0.png"
    before = label_images(trees, {}).table.set_index("file")
    after = label_images(trees, {wrong: "fir", foreign: NONE, "elm/0.png": "fir"})
    table = after.table.set_index("file")
    assert before.loc[[wrong, foreign], "label"].tolist() == ["=oak", "elm"] and "elm/0.png" not in before.index
    assert table.loc[wrong, ["label", "probability", "corrected"]].tolist() == ["fir", 1, "yes"]
    assert table.loc[foreign, ["label", "none_of_these", "corrected"]].tolist() == ["", "yes", "yes"]
    assert table.loc["elm/0.png", "label"] == "fir" and len(after.examples) == 8
    others = before.index.drop([wrong, foreign])
    assert (table.loc[others, "probability"] != before.loc[others, "probability"]).any()
    assert (label_images(trees, {file: "elm" for file in before.index}).table["label"] == "elm").all()
    with pytest.raises(UserError, match="elm has no example left"):
        label_images(trees, {f"elm/{number}.png": NONE for number in range(3)})


def test_corrections_are_kept_beside_those_of_another_page_and_taken_back(trees):
    save_corrections(trees, {"unlabelled/0 é%0.png": "=oak", "elm/0.png": NONE})
    save_corrections(trees, {"unlabelled/0 é%1.png": "fir"})
    expected = {"unlabelled/0 é%0.png": "=oak", "elm/0.png": NONE, "unlabelled/0 é%1.png": "fir"}
    assert load_corrections(trees) == (expected, [])
    assert "'=oak" in (trees.path / "corrections.csv").read_text()  # no formula in a spreadsheet
    save_corrections(trees, {"unlabelled/0 é%0.png": None, "elm/0.png": "elm"})
    assert load_corrections(trees) == ({"unlabelled/0 é%1.png": "fir"}, [])
    with open(trees.path / "corrections.csv", "a") as file:
        file.write(f"unlabelled/gone.png,elm\nunlabelled/elm/0.png,fir\n{trees.path.name}/unlabelled/0 é%2.png,elm\n")
    save_corrections(trees, {"unlabelled/0 é%2.png": None})
    assert load_corrections(trees) == ({"unlabelled/0 é%1.png": "fir"}, ["unlabelled/gone.png", "unlabelled/elm/0.png"])


def test_other_columns_of_the_corrections_stay(trees):
    first, second, third = (f"unlabelled/0 é%{number}.png" for number in range(3))
    lines = ["note,file,label", '"a\rb",gone.png,elm', f'"=a, b",trees/{first},fir', f",{second},fir"]
    (trees.path / "corrections.csv").write_text("\n".join(lines), encoding="utf-8-sig")
    save_corrections(trees, {first: "elm", second: None, third: "=oak"})
    expected = [*lines[:2], f'"=a, b",trees/{first},elm', f",{third},'=oak"]
    assert (trees.path / "corrections.csv").read_bytes().decode().split("\r\n") == [*expected, ""]
    save_corrections(trees, {first: None})
    assert f'"=a, b",trees/{first},\r\n' in (trees.path / "corrections.csv").read_bytes().decode()
    assert load_corrections(trees) == ({third: "=oak"}, ["gone.png"])


def test_rows_of_no_image_stay_as_they_are(trees):
    lines = ["file,label,note", ",,first", ",,second", "gone.png,elm,first", "gone.png,elm,second"]
    (trees.path / "corrections.csv").write_text("\n".join(lines))
    save_corrections(trees, {"unlabelled/0 é%0.png": "fir"})
    assert (trees.path / "corrections.csv").read_text().split("\n") == [*lines, "unlabelled/0 é%0.png,fir,", ""]
    assert load_corrections(trees)[1] == ["gone.png"]


def test_label_studio_gets_predictions_and_gives_annotations(trees):
    labels = label_images(trees, {"unlabelled/0 é%0.png": "fir", "unlabelled/0 é%1.png": NONE})
    tasks = json.loads(label_studio_tasks(trees, labels))
    by_file = {task["data"]["name"]: task for task in tasks}
    assert len(by_file) == 27 and sum(bool(task["annotations"]) for task in tasks) == 11
    task = by_file["unlabelled/2 é%0.png"]
    assert task["data"]["image"] == f"/data/local-files/?d={trees.path.name}/unlabelled/2%20%C3%A9%250.png"
    (prediction,) = task["predictions"]
    assert 0 <= prediction["score"] <= 1 and prediction["result"] == [
        {"from_name": "label", "to_name": "image", "type": "choices", "value": {"choices": ["fir"]}}
    ]
    cancelled = {"was_cancelled": True, "result": [{"type": "choices", "value": {"choices": ["elm"]}}]}
    task["annotations"] = [{"result": [{"type": "choices", "value": {"choices": ["=oak"]}}]}, cancelled]
    by_file["unlabelled/2 é%1.png"]["annotations"] = [{"result": []}]
    (trees.path / "export.json").write_text(json.dumps(tasks))
    save_corrections(trees, read_corrections(trees.path / "export.json", trees)[0])
    expected = {"unlabelled/0 é%0.png": "fir", "unlabelled/0 é%1.png": NONE, "unlabelled/2 é%0.png": "=oak"}
    assert load_corrections(trees) == (expected, [])


def exported(name, *annotations):
    """A task as Label Studio 1.23.2 exports it. Of each annotation: choice, time of change, and whether skipped."""
    listed = [
        {"id": 16, "result": [{"value": {"choices": [choice]}, "origin": "prediction-changed", "type": "choices"}]}
        | {"was_cancelled": skipped, "created_at": "2026-11-26T07:30:12.534218Z", "ground_truth": False}
        | {"updated_at": f"2026-11-26T{changed}Z", "draft_created_at": None, "prediction": {}, "task": 16}
        for choice, changed, skipped in annotations
    ]
    data = {"image": f"/data/local-files/?d=elm/trees/{quote(name)}", "name": name}
    task = {"id": 16, "annotations": listed, "drafts": [], "predictions": [1], "data": data, "meta": {}}
    return task | {"updated_at": "2026-11-26T07:31:15.109323Z", "total_annotations": 1}


def test_the_annotation_that_was_changed_last_counts_whichever_task_has_it(trees):
    tasks = [
        exported("elm/0.png", ("elm", "07:30:12.534292", False)),
        exported("elm/1.png", (NONE, "07:36:16.238093", False)),
        exported("elm/1.png", ("elm", "07:30:12.534301", False)),  # the same tasks, imported again
        exported("unlabelled/0 é%0.png", ("=oak", "07:33:05.686634", False), ("fir", "07:32:56.158463", False)),
        exported("unlabelled/0 é%1.png", ("fir", "07:31:24.470000", True)),
        exported("unlabelled/0 é%2.png", ("elm", "07:35:52.748098", False), ("fir", "07:36:02.670000", True)),
        exported("unlabelled/0 é%3.png"),
        exported("deleted.png", ("elm", "07:30:12.534292", False)),
    ]
    (trees.path / "export.json").write_text(json.dumps(tasks))
    found, gone = read_corrections(trees.path / "export.json", trees)
    expected = {"elm/1.png": NONE, "unlabelled/0 é%0.png": "=oak", "unlabelled/0 é%2.png": "elm"}
    assert found == {"elm/0.png": "elm", **expected} and gone == ["/data/local-files/?d=elm/trees/deleted.png"]
    labels = label_images(trees, found)  # elm/0.png has its class from its folder
    assert labels.table["corrected"].eq("yes").sum() == 3 and "elm/0.png" in labels.examples["file"].tolist()


def annotated(image="unlabelled/0 é%0.png", *choices):
    return {"data": {"image": image}, "annotations": [{"result": [{"type": "choices", "value": {"choices": choices}}]}]}


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        ("own.csv", "image,label\na,b\n", "columns file and label"),
        ("own.csv", 'file,label\n"a', "columns file and label"),
        ("own.csv", "file,label\nunlabelled/none.png,elm\n", "unlabelled/none.png"),
        ("own.csv", "file,label\nelm/0.png,elms\n", "did you mean 'elm'"),
        ("own.json", "[{", "as JSON"),
        ("own.json", "[" * 100_000, "as JSON"),
        ("own.json", json.dumps([{"image": "elm/0.png", "name": "elm/0.png", "id": 1, "label": "elm"}]), "JSON-MIN"),
        ("own.csv", "annotation_id,id,image,label,name\n1,1,elm/0.png,elm,elm/0.png\n", "columns file and label"),
        ("own.json", json.dumps([annotated("elm/9.png", "elm")]), "elm/9.png"),
        ("own.json", json.dumps([annotated("elm/0.png", "Elm")]), "did you mean 'elm'"),
        ("own.json", json.dumps([annotated("elm/0.png", "elm", "fir")]), "several choices"),
        ("own.json", json.dumps([annotated("elm/0.png", ["elm"])]), "as JSON"),
        ("none.csv", None, "none.csv"),
    ],
)
def test_what_cannot_be_read_is_named(trees, name, content, named):
    if content is not None:
        (trees.path / name).write_text(content)
    with pytest.raises(UserError, match=named) as error:
        read_corrections(trees.path / name, trees)
    assert str(trees.path / name) in str(error.value)


@pytest.mark.parametrize("place", ["/data/local-files/?d=photos/trees/", "http://here:80/data/local-files/?d=", "/me/"])
def test_images_are_found_by_the_end_of_their_name(trees, place):
    file = trees.path / "export.json"
    name = unicodedata.normalize("NFD", f"{place}unlabelled/0 é%{'25' * ('?d=' in place)}0.png")  # as macOS writes it
    file.write_text(json.dumps([annotated(name, "fir")]))
    (trees.path / "own.csv").write_text("file,label\n0 é%0.png,fir\n", encoding="utf-8")  # as in truth.csv
    for table in (file, trees.path / "own.csv"):
        assert read_corrections(table, trees) == ({"unlabelled/0 é%0.png": "fir"}, [])
