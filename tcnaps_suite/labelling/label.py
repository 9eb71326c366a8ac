"""Labels a folder of images from a few labelled ones per class: tcnaps label FOLDER

FOLDER/oak/*.jpg, FOLDER/elm/*.jpg, … are classes with a few images each, FOLDER/unlabelled/ holds all others. The
labels are written to FOLDER/labels.csv and can be looked at in FOLDER/contact-sheet.html. If there is FOLDER/truth.csv,
with the columns file and label, accuracy is computed.
"""

import argparse
import sys
from itertools import count
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from PIL import Image
from scipy.stats import binomtest

from tcnaps.config import FixedProtocol, UserError
from tcnaps.config.storage import write_text
from tcnaps.data.image_source import ImageSource
from tcnaps.data.listing import some, walk
from tcnaps.data.readers.folders import EXTENSIONS, subfolders
from tcnaps.episodes.sampling import draw_episode
from tcnaps.estimator import TransductiveMahalanobisClassifier
from tcnaps_suite.experiments.networks import DOWNLOADED, KINDS, PACKAGED, default_network, open_network
from tcnaps_suite.labelling.contact_sheet import contact_sheet
from tcnaps_suite.labelling.embedding import embed
from tcnaps_suite.labelling.sorting import planned, sort, undo
from tcnaps_suite.labelling.trust import Trust, calibrated, distance_to_classes, trust_of

UNLABELLED = ("unlabelled", "unlabeled")  # names of the folder of images without a label, in any case of letters


def main(arguments: list[str] | None = None) -> int:
    """Status 1: the folder, the network or an option is at fault."""
    options = vars(_parser().parse_args(arguments))
    del options["command"]
    try:
        taken_back = options.pop("undo")
        print(label_folder(**options) if taken_back is None else undo(taken_back))
    except UserError as error:
        print(error, file=sys.stderr)
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
    device: torch.device | str = "cpu",
) -> str:
    """Labels the folder's images and returns a summary. The arguments are the command's options.

    Raises:
        UserError: an option, the folder or a file in it is at fault.
    """
    if not 0 <= abstain <= 1:
        raise UserError(f"--abstain {abstain:g}: a probability is between 0 and 1.")
    source = str(features or backbone or default_network())
    images, truth, unreadable = _find_images(folder), _read_truth(folder / "truth.csv"), {}
    if features is None:
        files, codes = [folder / file for file in images["file"]], pd.factorize(images["label"])[0]
        embedded, unreadable = embed(files, codes, open_network(source, device), device)
    else:
        embedded = _given_features(features, images["file"])
    readable = ~images.index.isin(unreadable)
    for label, members in images.groupby(images["label"].fillna("unlabelled/"), sort=False):
        if not readable[members.index].any():
            raise UserError(f"No image in {folder / label} can be read: add some, or delete the folder.")
    table, trust = _classify(images[readable], embedded[readable], abstain, class_prior)
    examples = images[readable & images["label"].notna()]
    plan = None if sort_into is None else planned(folder, table, sort_into, move)
    if dry_run:
        sorting = "" if plan is None else f" and {'move' if move else 'copy'} {len(plan)} into {sort_into}"
        return f"Would label {len(table)} images{sorting}. Nothing was written."
    true = None if truth is None else _true_labels(table, truth)
    sheet = contact_sheet(folder, examples, table, true, _expected(trust))  # before its images are moved
    if plan is not None:
        sort(plan, sort_into, move)
        places = dict(zip(plan["source"], plan["to"]))
        table["sorted_to"] = [places.get(str(folder.resolve() / file), "") for file in table["file"]]
    _keep_backup(folder / "labels.csv")
    write_text(folder / "labels.csv", _for_spreadsheets(table).to_csv(index=False))
    write_text(folder / "contact-sheet.html", sheet)
    said = f"Labelled {len(table)} images, from {len(examples)} examples of {examples['label'].nunique()} classes"
    lines = [f"{said}, by the features of {source}.", *_unreadable(folder, images, unreadable), _expected(trust)]
    lines += _remarks(table, abstain) + ([] if true is None else [_accuracy(table, true)])
    lines.append(f"See {folder / 'labels.csv'} and {folder / 'contact-sheet.html'}.")
    if plan is not None:
        lines.append(f"{'Moved' if move else 'Copied'} {len(plan)} images into {sort_into}; --undo takes it back.")
    return "\n".join(lines)


def _remarks(table: pd.DataFrame, abstain: float | int) -> list[str]:
    foreign, doubtful = (table["none_of_these"] != "").sum(), (table["label"] == "").sum()
    remarks = {
        f"{foreign} look like none of the classes: see 'None of these?' in the contact sheet.": foreign,
        f"{doubtful} have no label: their probability is below {abstain:g}.": doubtful,
    }
    return [remark for remark, number in remarks.items() if number]


def _unreadable(folder: Path, images: pd.DataFrame, reasons: dict[int, str]) -> list[str]:
    """Writes unreadable.csv in place of an earlier call's; the sentence that says so, if there is any such image."""
    (folder / "unreadable.csv").unlink(missing_ok=True)
    if not reasons:
        return []
    table = images.loc[list(reasons), ["file"]].assign(reason=list(reasons.values()))
    write_text(folder / "unreadable.csv", table.to_csv(index=False))
    return [f"{len(reasons)} can't be read; unreadable.csv says why: {some(table['file'])}."]


def write_example(folder: Path, source: ImageSource, way: int = 4, shot: int = 3, others: int = 12) -> None:
    """Writes images of some classes as a folder to be labelled, with truth.csv, unless that is there.

    Args:
        shot: images of each class that go to the folder of their class.
        others: images of each class that go to unlabelled/, in any order.
    """
    if (folder / "truth.csv").exists():
        return
    draw = draw_episode(source, FixedProtocol(way=way, shot=shot, queries_per_class=others), 0, 0)
    names = [source.class_names[k] for k in draw.classes]
    labels, order = draw.query_labels, np.random.default_rng(0).permutation(len(draw.query_labels))
    files = [f"{names[label]}/{row}.png" for label, row in zip(draw.support_labels, draw.support_images)]
    files += [f"unlabelled/{number:03}.png" for number in range(len(order))]
    for file, row in zip(files, [*draw.support_images, *draw.query_images[order]]):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(source.images[row]).save(folder / file)
    truth = pd.DataFrame({"file": files[-len(order) :], "label": [names[label] for label in labels[order]]})
    write_text(folder / "truth.csv", truth.to_csv(index=False))


def _find_images(folder: Path) -> pd.DataFrame:
    """`file`, relative to the folder, and `label` of every image; the label is None for those without."""
    if not folder.is_dir():
        raise UserError(f"There is no folder {folder}.")
    rows = []
    for inner in subfolders(folder):
        files = [Path(place, name) for place, _, names in walk(inner) for name in names]
        files = [file for file in files if file.suffix.lower() in EXTENSIONS]
        if not files:
            raise UserError(f"{inner} has no images: add some, or delete the folder.")
        label = None if inner.name.lower() in UNLABELLED else inner.name
        rows += [(file.relative_to(folder).as_posix(), label) for file in files]
    images = pd.DataFrame(rows, columns=["file", "label"], dtype=object)
    if images["label"].notna().all():
        raise UserError(f"{folder} needs a folder unlabelled/ with the images to be labelled.")
    if images["label"].nunique() < 2:
        raise UserError(f"{folder} needs a folder for each of at least two classes, with a few images of it.")
    return images


def _given_features(file: Path, names: pd.Series) -> np.ndarray:
    """The named images' rows of `features` in an .npz, whose `files` are relative to the folder."""
    try:
        with np.load(file) as arrays:
            features = pd.DataFrame(arrays["features"].astype(np.float32), arrays["files"].astype(str))
            rows = features.reindex(names).to_numpy()
    except Exception as error:  # damage shows in many ways
        raise UserError(f"{file} must be an .npz with 'files' and one row of 'features' for each: {error}") from error
    finite = np.isfinite(rows).all(1)
    if not finite.all():
        raise UserError(f"{file}: features of {some(names[~finite])} are missing or not finite.")
    return rows


def _classify(
    images: pd.DataFrame, features: np.ndarray, abstain: float | int = 0, class_prior: str | None = None
) -> tuple[pd.DataFrame, Trust | None]:
    """The labels of the images without one, and how far to trust them.

    A label stays empty where its probability is below `abstain`. Probabilities are calibrated if there is a `Trust`.
    """
    codes, classes = pd.factorize(images["label"], sort=True)
    estimator = TransductiveMahalanobisClassifier(class_prior=_prior(class_prior, list(classes)))
    trust, unlabelled = trust_of(features, codes, estimator), codes < 0
    probabilities = estimator.fit(features, codes).label_distributions_[unlabelled]
    foreign, sets = np.zeros(len(probabilities), bool), [""] * len(probabilities)
    if trust is not None:
        probabilities = calibrated(probabilities, trust.temperature)
        foreign = distance_to_classes(features, codes)[unlabelled] > trust.farthest
        sets = ["; ".join(classes[row >= min(trust.rarest, row.max())]) for row in probabilities]
    order = (-probabilities).argsort(1, kind="stable")  # (n_unlabelled, way), the most probable class first
    table = pd.DataFrame({"file": images["file"][unlabelled].to_list(), "label": classes[order[:, 0]]})
    table = table.assign(
        probability=probabilities.max(1).round(4), best_guess=table["label"], runner_up=classes[order[:, 1]]
    )
    table = table.assign(possible=sets, none_of_these=np.where(foreign, "perhaps", ""))
    return table.assign(label=table["label"].where(table["probability"] >= abstain, "")), trust


def _expected(trust: Trust | None) -> str:
    if trust is None:
        return "Too few examples to say how many labels are right: give every class two at least, better five."
    return (
        f"Expected accuracy: {trust.accuracy:.0%} (95% interval {100 * trust.low:.0f} to {100 * trust.high:.0f}), from "
        "examples that were left out, if they are typical of your images."
    )


def _prior(text: str | None, classes: list[str]) -> str | list[float] | None:
    """`--class-prior`: "auto", "equal", "estimated", or a share for every class, such as "oak=3,elm=1"."""
    if text in (None, "auto", "equal", "estimated"):
        return {None: "auto", "equal": None}.get(text, text)
    try:
        shares = {name: float(share) for name, _, share in (part.rpartition("=") for part in text.split(","))}
        total = sum(shares.values())
        return [shares.pop(name) / total for name in classes] if len(shares) == len(classes) else [][0]
    except (ValueError, LookupError, ZeroDivisionError):
        wanted = ",".join(f"{name}=SHARE" for name in classes)
        raise UserError(f"--class-prior {text}: write 'auto', 'equal', 'estimated', or {wanted}.") from None


def _for_spreadsheets(table: pd.DataFrame) -> pd.DataFrame:
    """The table with names that a spreadsheet takes for text: no formula, no line break."""

    def safe(text: str) -> str:
        text = text.replace("\r", "\\r").replace("\n", "\\n")
        return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t")) else text

    return table.assign(**{name: table[name].map(safe) for name in table.columns.drop("probability")})


def _keep_backup(file: Path) -> None:
    """Renames a file that is there to labels.1.csv, labels.2.csv, … so that nobody's corrections are lost."""
    if file.exists():
        numbers = (file.with_name(f"{file.stem}.{number}{file.suffix}") for number in count(1))
        file.rename(next(backup for backup in numbers if not backup.exists()))


def _read_truth(file: Path) -> dict[str, str] | None:
    """The true label of each file, or None without such a table."""
    if not file.is_file():
        return None
    try:
        table = pd.read_csv(file, dtype=str, keep_default_na=False)
        return dict(zip(table["file"], table["label"]))
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{file} must be a table with the columns file and label: {error}") from error


def _true_labels(labels: pd.DataFrame, truth: dict[str, str]) -> pd.Series:
    """The true label of each labelled image, or nan; truth.csv may leave out the folder's name."""
    return labels["file"].map(lambda name: truth.get(name, truth.get(name.partition("/")[2])))


def _accuracy(labels: pd.DataFrame, true: pd.Series) -> str:
    """The share of true labels as a sentence with a 95% interval (Wilson's)."""
    known = true.notna() & (labels["label"] != "")
    if not known.any():
        return f"No accuracy: truth.csv has none of the labelled images, such as {labels['file'].iloc[0]}."
    right = int((true[known] == labels["label"][known]).sum())
    result = binomtest(right, int(known.sum()))
    low, high = result.proportion_ci(method="wilson")
    interval = f"95% interval {100 * low:.1f} to {100 * high:.1f}"
    return f"Accuracy {100 * result.statistic:.1f}% ({interval}) on the {known.sum()} labelled images in truth.csv."


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("tcnaps", None, __doc__)
    add = parser.add_argument
    add("command", choices=["label"])
    add("folder", type=Path, help="subfolders are classes; unlabelled/ holds the images to be labelled")
    networks = f"{KINDS}; default: {DOWNLOADED} if its weights are on this machine, else {PACKAGED}"
    add("--backbone", metavar="NAME", help=networks)
    add("--features", type=Path, metavar="FILE", help="an .npz with files and features, in place of a backbone")
    add("--abstain", type=float, default=0, metavar="P", help="leave the label empty where the probability is below P")
    add("--sort-into", type=Path, metavar="DIR", help="then copy the images into DIR/<label>/; DIR lies outside FOLDER")
    add("--move", action="store_true", help="with --sort-into: move instead of copying")
    add("--undo", type=Path, metavar="DIR", help="take back what --sort-into DIR did, and do nothing else")
    add("--dry-run", action="store_true", help="write nothing, say what would be done")
    add("--class-prior", metavar="P", help="auto (default), equal, estimated, or a share for every class: oak=3,elm=1")
    add("--device", default="cpu", help="such as cuda")
    return parser
