"""Labels a folder of images from a few labelled ones per class, by the command tcnaps label FOLDER.

The folders FOLDER/oak/, FOLDER/elm/, … hold a few images of each class, FOLDER/unlabelled/ holds all others. Labels
are written to FOLDER/labels.csv and can be looked at in FOLDER/contact-sheet.html. FOLDER/corrections.csv, with the
columns file and label, holds further examples. If FOLDER/truth.csv has these columns, accuracy is computed.
"""

import argparse
import sys
from itertools import count
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from PIL import Image

from tcnaps.config import FixedProtocol, UserError
from tcnaps.config.storage import write_text
from tcnaps.data.image_source import ImageSource
from tcnaps.data.listing import normal, some
from tcnaps.episodes.sampling import draw_episode
from tcnaps_suite.experiments.networks import DOWNLOADED, KINDS, PACKAGED
from tcnaps_suite.labelling import corrections as by_hand
from tcnaps_suite.labelling.classify import Labels, accuracy, expected, label_images
from tcnaps_suite.labelling.contact_sheet import contact_sheet
from tcnaps_suite.labelling.folder import OF_STUDY, ImageFolder, open_folder
from tcnaps_suite.labelling.sorting import planned, sort, undo

STOPPED = "\nStopped. The same command goes on from the features so far; --undo DIR takes back what was sorted."


def main(arguments: list[str]) -> int:
    """The first argument is "label". Status 1: a folder, network or option is at fault, or Ctrl-C stopped it."""
    parser = _parser()
    options = vars(parser.parse_args(arguments[1:]))
    taken_back = options.pop("undo")
    if options["folder"] is taken_back is None:
        parser.error("the following arguments are required: folder")
    try:
        print(label_folder(**options) if taken_back is None else undo(taken_back))
    except (UserError, KeyboardInterrupt) as error:
        print(str(error) or STOPPED, file=sys.stderr)
        return 1
    return 0


def label_folder(
    folder: Path,
    backbone: str | None = None,
    features: Path | None = None,
    abstain: float | int = 0,
    sort_into: Path | None = None,
    move: bool = False,
    dry_run: bool = False,
    class_prior: str | None = None,
    corrections: Path | None = None,
    label_studio: Path | None = None,
    device: torch.device | str = "cpu",
) -> str:
    """Labels the folder's images and returns a summary. The arguments are the command's options."""
    if not 0 <= abstain <= 1:
        raise UserError(f"--abstain {abstain:g}: a probability is between 0 and 1.")
    if move and sort_into is None:
        raise UserError("--move needs --sort-into DIR, the folder to move the images into.")
    images = open_folder(folder, backbone, features, device)
    known, gone = by_hand.load_corrections(images)
    added, absent = ({}, []) if corrections is None else by_hand.read_corrections(corrections, images)
    labels = label_images(images, known | added, abstain, class_prior)
    table, plan = labels.table, None if sort_into is None else planned(folder, labels.table, sort_into, move)
    lines = _summary(images, labels, [*dict.fromkeys(gone + absent)], abstain)
    if dry_run:
        return "\n".join([f"A trial: no labels are written{', and no images sorted' * bool(sort_into)}.", *lines])
    if added:
        by_hand.save_corrections(images, added)
    if label_studio is not None:
        write_text(label_studio, by_hand.label_studio_tasks(images, labels))
    sheet = contact_sheet(folder, labels)  # before its images are moved
    if plan is not None:
        sort(plan, sort_into, move)
        places = dict(zip(plan["source"], plan["to"]))
        table = table.assign(sorted_to=[places.get(str(folder.resolve() / file), "") for file in table["file"]])
    write_labels(folder, table)
    write_text(folder / "contact-sheet.html", sheet)
    (folder / "unreadable.csv").unlink(missing_ok=True)  # an earlier call's
    if len(images.left_out):
        write_text(folder / "unreadable.csv", images.left_out.map(by_hand.for_spreadsheets).to_csv(index=False))
    lines.append(f"See {folder / 'labels.csv'} and {folder / 'contact-sheet.html'}.")
    if plan is not None:
        lines.append(f"{'Moved' if move else 'Copied'} {len(plan)} images into {sort_into}; --undo takes it back.")
    return "\n".join(lines)


def write_labels(folder: Path, table: pd.DataFrame) -> None:
    """Writes labels.csv. One that was edited since becomes labels.1.csv, labels.2.csv, … so that no work is lost."""
    file, written = folder / "labels.csv", folder / ".features" / "labels.csv"  # the latter as it was written
    text = table.assign(**table.drop(columns="probability").map(by_hand.for_spreadsheets)).to_csv(index=False)
    if file.exists() and file.read_bytes() not in (text.encode(), written.exists() and written.read_bytes()):
        file.rename(next(new for number in count(1) if not (new := folder / f"labels.{number}.csv").exists()))
    write_text(file, text)
    write_text(written, text)


def _summary(folder: ImageFolder, labels: Labels, gone: list[str], abstain: float | int) -> list[str]:
    table, left_out = labels.table, folder.left_out["file"]
    said = f"Labelled {len(table)} images, from {len(labels.examples)} examples of {len(folder.classes)} classes"
    corrected, doubtful = (table["corrected"] == "yes").sum(), (table["label"] + table["corrected"] == "").sum()
    foreign, strange = (table["none_of_these"] == "perhaps").sum(), {*(folder.truth or {}).values()} - {*folder.classes}
    named = {normal(name) for file in folder.images["file"] for name in (file, file.partition("/")[2])}
    unknown = sorted({*(folder.truth or {})} - named)
    first = table[table["label_next"] != ""].sort_values("label_next", key=lambda places: places.astype(int))["file"]
    remarks = [
        (len(left_out), f"{len(left_out)} of the files can't be used; unreadable.csv says why: {some(left_out)}."),
        (corrected, f"Of these images, {by_hand.CORRECTIONS} has labelled {corrected}."),
        (len(gone), f"The corrections name images that are not there, or can't be read: {some(gone)}."),
        (True, expected(labels.trust)),
        (folder.source.startswith("study:"), OF_STUDY),
        (foreign, f"Like none of the classes: {foreign}, under 'None of these?' in the contact sheet."),
        (doubtful, f"Left without a label, because the probability is below {abstain:g}: {doubtful}."),
        (len(unknown), f"truth.csv names images that are not there, or can't be read: {some(unknown)}."),
        (len(strange), f"truth.csv has labels that are no class: {some(sorted(strange))}."),
        (folder.truth is not None, folder.truth is not None and accuracy(labels)),
        (len(first), f"Label these next; they help most: {', '.join(first[:3])}, … (column label_next)."),
    ]
    return [f"{said}, by the features of {folder.source}.", *(remark for number, remark in remarks if number)]


def write_example(folder: Path, source: ImageSource, way: int = 4, shot: int = 3, others: int = 12) -> None:
    """Writes images of some classes as a folder to be labelled, with truth.csv, unless that is there.

    Of each class, `shot` images go to the folder of their class and `others` to unlabelled/, in any order.
    """
    if (folder / "truth.csv").exists():
        return
    draw = draw_episode(source, FixedProtocol(way=way, shot=shot, queries_per_class=others), 0, 0)
    names = [source.class_names[k].replace("/", " ") for k in draw.classes]
    labels, order = draw.query_labels, np.random.default_rng(0).permutation(len(draw.query_labels))
    files = [f"{names[label]}/{row}.png" for label, row in zip(draw.support_labels, draw.support_images)]
    files += [f"unlabelled/{number:03}.png" for number in range(len(order))]
    for file, row in zip(files, [*draw.support_images, *draw.query_images[order]]):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(source.images[row]).save(folder / file)
    truth = pd.DataFrame({"file": files[-len(order) :], "label": [names[label] for label in labels[order]]})
    write_text(folder / "truth.csv", truth.to_csv(index=False))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("tcnaps label", None, __doc__)
    add = parser.add_argument
    add("folder", type=Path, nargs="?", help="subfolders are classes; unlabelled/ holds the images to be labelled")
    either = parser.add_mutually_exclusive_group().add_argument
    either("--backbone", metavar="NAME", help=f"{KINDS}; default: {DOWNLOADED} if its weights are here, or {PACKAGED}")
    either("--features", type=Path, metavar="FILE", help="an .npz with files and features, in place of a backbone")
    add("--abstain", type=float, default=0, metavar="P", help="leave the label empty where the probability is below P")
    add("--sort-into", type=Path, metavar="DIR", help="copy the images into DIR/<label>/; DIR must lie outside FOLDER")
    add("--move", action="store_true", help="with --sort-into: move instead of copying")
    either = parser.add_mutually_exclusive_group().add_argument
    either("--undo", type=Path, metavar="DIR", help="take back what --sort-into DIR did, and do nothing else")
    either("--dry-run", action="store_true", help="say what the labels would be like, but write none")
    add("--class-prior", metavar="P", help="auto (default), equal, estimated, or a share for every class: oak=3,elm=1")
    add("--corrections", type=Path, metavar="FILE", help="a table (file, label) or Label Studio's annotations (JSON)")
    add("--label-studio", type=Path, metavar="FILE", help="write all images with their labels as Label Studio's JSON")
    add("--device", default="cpu", help="such as cuda")
    return parser
