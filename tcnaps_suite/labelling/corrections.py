"""Corrections by hand: FOLDER/corrections.csv, and exchange with Label Studio (image classification)."""

import json
from collections.abc import Mapping, Set
from pathlib import Path
from urllib.parse import quote, unquote

import pandas as pd
from filelock import FileLock

from tcnaps.config import UserError
from tcnaps.config.errors import nearest
from tcnaps.config.storage import naming, write_text
from tcnaps.data.listing import normal, some
from tcnaps_suite.labelling.classify import Labels
from tcnaps_suite.labelling.folder import NONE, ImageFolder, read_rows, read_table

CORRECTIONS = "corrections.csv"  # in the folder: file and label, which may be `NONE`
LOCAL_FILES = "/data/local-files/?d="  # how Label Studio names files of its own machine
NAMES = {"from_name": "label", "to_name": "image", "type": "choices"}  # as in the labelling interface in the docs


def load_corrections(folder: ImageFolder) -> tuple[dict[str, str], list[str]]:
    """The folder's corrections, file → class or `NONE`, and those files among them that are not there any more."""
    place = folder.path / CORRECTIONS
    return _resolved(place, read_table(place), folder)[:2] if place.exists() else ({}, [])


def read_corrections(file: Path, folder: ImageFolder) -> tuple[dict[str, str], list[str]]:
    """As `load_corrections`, from a table as corrections.csv or from annotations in Label Studio's JSON (*.json)."""
    pairs = _read_label_studio(file) if file.suffix.lower() == ".json" else read_table(file)
    found, gone, _ = _resolved(file, pairs, folder)
    if gone and not found:
        raise UserError(f"{file}: {folder.path} has no {some(gone)}. Names must be relative to the folder.")
    return found, gone


def save_corrections(folder: ImageFolder, changes: Mapping[str, str | None]) -> None:
    """Adds corrections to corrections.csv, beside those that another page may have saved meanwhile.

    The label None takes a correction back, and so does the class whose folder the image is in. The other rows stay as
    they are, and the table's further columns, such as notes: without a label where their correction was taken back.
    """
    own, place = dict(zip(folder.images["file"], folder.images["label"])), folder.path / CORRECTIONS
    with naming(place), FileLock(folder.path / f".{CORRECTIONS}.lock"):
        table = read_rows(place) if place.exists() else pd.DataFrame(columns=["file", "label"])
        _, _, names = _resolved(place, dict(zip(table["file"], table["label"])), folder)
        rows = {names.get(row["file"], number): row for number, row in enumerate(table.to_dict("records"))}
        for file, label in changes.items():
            row = rows.pop(file, {"file": for_spreadsheets(file)})
            label = "" if label in (None, own.get(file)) else for_spreadsheets(label)
            if label or any(row[name] for name in row.keys() - {"file", "label"}):
                rows[file] = row | {"label": label}
        write_text(place, pd.DataFrame(rows.values(), columns=table.columns).to_csv(index=False, lineterminator="\r\n"))


def for_spreadsheets(text: str) -> str:
    """A name that a spreadsheet takes for text: no formula, no line break."""
    text = text.replace("\r", "\\r").replace("\n", "\\n")
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t")) else text


def label_studio_tasks(folder: ImageFolder, labels: Labels) -> str:
    """Label Studio's JSON, a task for every image: labels as predictions, examples and corrections as annotations."""
    rows = labels.table.assign(label=labels.table["best_guess"].where(labels.table["none_of_these"] != "yes", NONE))
    tasks = [_task(folder, row, None) for row in labels.examples.itertuples()]
    tasks += [_task(folder, row, None if row.corrected else row.probability) for row in rows.itertuples()]
    return json.dumps(tasks, indent=1, ensure_ascii=False)


def _task(folder: ImageFolder, row: tuple, score: float | None) -> dict:
    """A task with a row's label as a prediction, or as an annotation where there is no score."""
    address = LOCAL_FILES + quote(f"{folder.path.resolve().name}/{row.file}")
    result = {"result": [NAMES | {"value": {"choices": [row.label]}}]}
    prediction = result | {"score": score, "model_version": f"tcnaps {folder.source}"}
    annotations, predictions = ([result], []) if score is None else ([], [prediction])
    return {"data": {"image": address, "name": row.file}, "annotations": annotations, "predictions": predictions}


def _read_label_studio(file: Path) -> dict[str, str]:
    """Each image's choice in the annotation that was changed last, over all its tasks, without skipped annotations."""
    try:
        tasks = json.loads(file.read_text(encoding="utf-8"))
        pairs = [(task["data"]["image"], annotation) for task in tasks for annotation in task["annotations"]]
        pairs.sort(key=lambda pair: pair[1].get("updated_at", ""))
        found = {_text(image): _choices(last) for image, last in pairs if not last.get("was_cancelled")}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise UserError(f"{file} must be Label Studio's export as JSON (not JSON-MIN or CSV): {reason}") from error
    if several := [image for image, choices in found.items() if len(choices) > 1]:
        raise UserError(f"{file}: {some(several)} have several choices. Choose one for each image.")
    return {image: choices[0] for image, choices in found.items() if choices}


def _choices(annotation: dict) -> list[str]:
    results = annotation["result"]
    return [_text(name) for result in results if result["type"] == "choices" for name in result["value"]["choices"]]


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} should be a text")
    return value


def _resolved(
    file: Path, pairs: Mapping[str, str], folder: ImageFolder
) -> tuple[dict[str, str], list[str], dict[str, str]]:
    """The pairs by the folder's own names of images and classes, the images that it lacks, and its names of others."""
    files, classes = ({name: name for name in names} for names in (folder.images["file"], [*folder.classes, NONE]))
    for names in (files, classes):
        names |= {form(name): name for name in names for form in (normal, for_spreadsheets)} | names
    unlabelled = folder.images["file"][folder.images["label"].isna()]
    bare = {normal(name.partition("/")[2]): name for name in unlabelled if name.count("/") == 1}
    found, unknown, names = {}, [], {}
    folders = {name.partition("/")[0] for name in files} - {folder.path.resolve().name}
    for image, label in pairs.items():
        if (known := classes.get(label, classes.get(normal(label)))) is None and label:
            raise UserError(f"{file}: {image} has the label '{label}'{nearest(label, [*folder.classes, NONE])}")
        if (name := _name_in_folder(image, files, folders) or bare.get(normal(image))) is None:
            unknown += [image] if image else []  # a row may hold a note alone
        else:
            names[image] = name
            if label:
                found[name] = known
    return found, unknown, names


def _name_in_folder(image: str, files: Mapping[str, str], folders: Set[str]) -> str | None:
    """The image's name in the folder; others may stand before it, unless it begins with one of the inner `folders`."""
    parts = (unquote(image.partition(LOCAL_FILES)[2]) if LOCAL_FILES in image else image).split("/")
    above = len(parts) - 1 if LOCAL_FILES in image or normal(parts[0]) not in folders else 0
    names = ("/".join(parts[k:]) for k in range(above + 1))
    return next((file for name in names if (file := files.get(name, files.get(normal(name))))), None)
