"""Corrections: what they do to the labels, the table that keeps them, and Label Studio's JSON there and back."""

import json
from urllib.parse import quote

import pytest
from planted_folders import image_folder

from tcnaps.config import UserError
from tcnaps_suite.labelling.classify import label_images
from tcnaps_suite.labelling.corrections import label_studio_tasks, load_corrections, read_corrections, save_corrections
from tcnaps_suite.labelling.folder import NONE


@pytest.fixture
def folder(tmp_path):
    """Three examples of each class and six unlabelled images near each; those of fir lie beside elm's."""
    return image_folder(tmp_path, {"=oak": "0 é%{}", "elm": "1 é%{}", "fir": "2 é%{}"}, 3, 6, 4, 0.3, seed=0)


def test_a_correction_is_a_further_example_and_none_is_left_out(folder):
    wrong, foreign = "unlabelled/0 é%0.png", "unlabelled/1 é%0.png"
    before = label_images(folder, {}).table.set_index("file")
    after = label_images(folder, {wrong: "fir", foreign: NONE, "elm/0.png": "fir"})
    table = after.table.set_index("file")
    assert before.loc[[wrong, foreign], "label"].tolist() == ["=oak", "elm"] and "elm/0.png" not in before.index
    assert table.loc[wrong, ["label", "probability", "corrected"]].tolist() == ["fir", 1, "yes"]
    assert table.loc[foreign, ["label", "none_of_these", "corrected"]].tolist() == ["", "yes", "yes"]
    assert table.loc["elm/0.png", "label"] == "fir" and len(after.examples) == 8
    others = before.index.drop([wrong, foreign])
    assert (table.loc[others, "probability"] != before.loc[others, "probability"]).any()
    alone = {file: "elm" for file in before.index}
    assert (label_images(folder, alone).table["label"] == "elm").all()
    with pytest.raises(UserError, match="elm has no example left"):
        label_images(folder, {f"elm/{number}.png": NONE for number in range(3)})


def test_corrections_are_kept_beside_those_of_another_page_and_taken_back(folder):
    save_corrections(folder, {"unlabelled/0 é%0.png": "=oak", "elm/0.png": NONE})
    save_corrections(folder, {"unlabelled/0 é%1.png": "fir"})
    expected = {"unlabelled/0 é%0.png": "=oak", "elm/0.png": NONE, "unlabelled/0 é%1.png": "fir"}
    assert load_corrections(folder) == (expected, [])
    assert "'=oak" in (folder.path / "corrections.csv").read_text()  # no formula in a spreadsheet
    save_corrections(folder, {"unlabelled/0 é%0.png": None, "elm/0.png": "elm"})
    assert load_corrections(folder) == ({"unlabelled/0 é%1.png": "fir"}, [])
    with open(folder.path / "corrections.csv", "a") as file:
        file.write("unlabelled/gone.png,elm\n")
    assert load_corrections(folder) == ({"unlabelled/0 é%1.png": "fir"}, ["unlabelled/gone.png"])


def test_label_studio_gets_predictions_and_gives_annotations(folder):
    labels = label_images(folder, {"unlabelled/0 é%0.png": "fir", "unlabelled/0 é%1.png": NONE})
    tasks = json.loads(label_studio_tasks(folder, labels))
    by_file = {task["data"]["name"]: task for task in tasks}
    assert len(by_file) == 27 and sum(bool(task["annotations"]) for task in tasks) == 11
    task = by_file["unlabelled/2 é%0.png"]
    assert task["data"]["image"] == f"/data/local-files/?d={folder.path.name}/unlabelled/2%20%C3%A9%250.png"
    (prediction,) = task["predictions"]
    assert 0 <= prediction["score"] <= 1 and prediction["result"] == [
        {"from_name": "label", "to_name": "image", "type": "choices", "value": {"choices": ["fir"]}}
    ]
    cancelled = {"was_cancelled": True, "result": [{"type": "choices", "value": {"choices": ["elm"]}}]}
    task["annotations"] = [{"result": [{"type": "choices", "value": {"choices": ["=oak"]}}]}, cancelled]
    by_file["unlabelled/2 é%1.png"]["annotations"] = [{"result": []}]
    (folder.path / "export.json").write_text(json.dumps(tasks))
    save_corrections(folder, read_corrections(folder.path / "export.json", folder))
    expected = {"unlabelled/0 é%0.png": "fir", "unlabelled/0 é%1.png": NONE, "unlabelled/2 é%0.png": "=oak"}
    assert load_corrections(folder) == (expected, [])


def exported(name, *annotations):
    """A task as Label Studio 1.23.2 exports it. Of each annotation: choice, time of change, and whether skipped."""
    listed = [
        {"id": 16, "result": [{"value": {"choices": [choice]}, "origin": "prediction-changed", "type": "choices"}]}
        | {"was_cancelled": skipped, "created_at": "2026-11-26T07:30:12.534218Z", "ground_truth": False}
        | {"updated_at": f"2026-11-26T{changed}Z", "draft_created_at": None, "prediction": {}, "task": 16}
        for choice, changed, skipped in annotations
    ]
    data = {"image": f"/data/local-files/?d=trees/{quote(name)}", "name": name}
    task = {"id": 16, "annotations": listed, "drafts": [], "predictions": [1], "data": data, "meta": {}}
    return task | {"updated_at": "2026-11-26T07:31:15.109323Z", "total_annotations": 1}


def test_the_annotation_that_was_changed_last_counts_whichever_task_has_it(folder):
    tasks = [
        exported("elm/0.png", ("elm", "07:30:12.534292", False)),
        exported("elm/1.png", (NONE, "07:36:16.238093", False)),
        exported("elm/1.png", ("elm", "07:30:12.534301", False)),  # the same tasks, imported again
        exported("unlabelled/0 é%0.png", ("=oak", "07:33:05.686634", False), ("fir", "07:32:56.158463", False)),
        exported("unlabelled/0 é%1.png", ("fir", "07:31:24.470000", True)),
        exported("unlabelled/0 é%2.png", ("elm", "07:35:52.748098", False), ("fir", "07:36:02.670000", True)),
        exported("unlabelled/0 é%3.png"),
    ]
    (folder.path / "export.json").write_text(json.dumps(tasks))
    found = read_corrections(folder.path / "export.json", folder)
    expected = {"elm/1.png": NONE, "unlabelled/0 é%0.png": "=oak", "unlabelled/0 é%2.png": "elm"}
    assert found == {"elm/0.png": "elm", **expected}
    labels = label_images(folder, found)  # elm/0.png has its class from its folder
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
        ("own.csv", "file,label\nelm/0.png,\n", "none of these"),
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
def test_what_cannot_be_read_is_named(folder, name, content, named):
    if content is not None:
        (folder.path / name).write_text(content)
    with pytest.raises(UserError, match=named) as error:
        read_corrections(folder.path / name, folder)
    assert str(folder.path / name) in str(error.value)


@pytest.mark.parametrize(
    "place", ["/data/local-files/?d=photos/trees/", "http://here:8080/data/local-files/?d=", "/home/me/"]
)
def test_images_are_found_by_the_end_of_their_name(folder, place):
    file = folder.path / "export.json"
    file.write_text(json.dumps([annotated(f"{place}unlabelled/0 é%{'25' * ('?d=' in place)}0.png", "fir")]))
    assert read_corrections(file, folder) == {"unlabelled/0 é%0.png": "fir"}
