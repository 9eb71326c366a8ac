"""Puts labelled images into a folder for each label, whole or not at all, and takes it back again."""

import contextlib
import os
import shutil
from collections import Counter
from pathlib import Path

import pandas as pd

from tcnaps.config import UserError
from tcnaps.config.storage import file_digest, write_text
from tcnaps.data.listing import normal, some

LOG = "sorted.csv"  # in the target: where each image came from, and whether it was copied or moved


def planned(folder: Path, labels: pd.DataFrame, target: Path, move: bool = False) -> pd.DataFrame:
    """`source` and `to` of every image with a label: target/<label>/<path below unlabelled/>."""
    inside, outside = folder.resolve(), target.resolve()
    if inside in (outside, *outside.parents):
        raise UserError(f"--sort-into {target} lies in {folder}: its images would become examples. Choose another.")
    _read_log(target)  # an error where the file is somebody else's
    chosen = labels[labels["label"] != ""]
    sources = [inside / file for file in chosen["file"]]
    places = [outside / label / file.partition("/")[2] for file, label in zip(chosen["file"], chosen["label"])]
    alike = Counter(normal(str(new)).casefold() for new in places)  # some disks keep only one of A.jpg and a.jpg
    if twice := [str(new) for new in dict.fromkeys(places) if alike[normal(str(new)).casefold()] > 1]:
        raise UserError(f"More than one image would become {some(twice)}: nothing was sorted. Rename the others.")
    if taken := [str(file) for file in ([target] if target.is_file() else places) if os.path.lexists(file)]:
        raise UserError(f"{some(taken)} exist already: nothing was sorted. Name another folder for --sort-into.")
    if move and (linked := [str(file) for file in sources if file.resolve() != file]):
        raise UserError(f"{some(linked)} are reached through links, so --move would take the originals: leave it out.")
    return pd.DataFrame({"source": map(str, sources), "to": map(str, places)}, dtype=object)


def sort(plan: pd.DataFrame, target: Path, move: bool = False) -> None:
    """Carries out a plan. Images are first copied to the target's disk, so that a full one changes nothing."""
    staged = target.resolve() / ".partial"
    shutil.rmtree(staged, ignore_errors=True)  # copies that a killed run left
    made = staged if target.exists() else staged.parent
    try:
        staged.mkdir(parents=True)
        for number, source in enumerate(plan["source"]):
            shutil.copy2(source, staged / str(number))
    except OSError as error:
        shutil.rmtree(made, ignore_errors=True)
        raise UserError(f"The images can't be copied to {target} ({error}). Nothing was sorted.") from error
    log = plan.assign(action="moved" if move else "copied", digest=[file_digest(Path(file)) for file in plan["source"]])
    log = pd.concat([_read_log(target), log])
    write_text(target / LOG, log.to_csv(index=False))  # before anything is in its place, so that --undo knows all
    try:
        for number, (source, to) in enumerate(zip(plan["source"], plan["to"])):
            Path(to).parent.mkdir(parents=True, exist_ok=True)
            os.rename(staged / str(number), to)
            if move:
                os.unlink(source)
        staged.rmdir()
    except OSError as error:
        raise UserError(f"Not all images were sorted ({error}): --undo {target} takes back those that were.") from error


def undo(target: Path) -> str:
    """Takes back what `sort` did, by its log: deletes copies of images that are still there, and moves others back."""
    if not (target / LOG).is_file():
        raise UserError(f"There is no {target / LOG}: nothing was sorted into {target}, or it was taken back.")
    log, kept = _read_log(target), []
    if len(log) and not any(target.resolve() in Path(to).parents for to in log["to"]):
        raise UserError(f"{target / LOG} names no image in {target}: give the folder the name back that it had.")
    for row in log.itertuples():
        source, to = Path(row.source), Path(row.to)
        if not os.path.lexists(to) and (row.action == "copied" or source.is_file()):
            continue  # it never came there, or was taken back
        there = source.is_file() and source.resolve() != to.resolve() and file_digest(source) == row.digest
        taken = not there and (row.action == "copied" or os.path.lexists(source))
        if not to.is_file() or file_digest(to) != row.digest or taken:
            kept.append(row.Index)
        elif there:
            to.unlink()
        else:
            source.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(to, source)
    made = {place for to in log["to"] for place in Path(to).parents if target.resolve() in place.parents}
    for place in sorted(made, reverse=True):
        with contextlib.suppress(OSError):  # it holds something else
            place.rmdir()
    shutil.rmtree(target / ".partial", ignore_errors=True)  # copies that a killed run left
    if kept:
        write_text(target / LOG, log.loc[kept].to_csv(index=False))
        stay = f"{len(kept)} have changed, or lost their originals, and stay: see {target / LOG}."
        return f"Took back {len(log) - len(kept)} images; {stay}"
    (target / LOG).unlink()
    return f"Took back {len(log)} images."


def _read_log(target: Path) -> pd.DataFrame:
    """The target's log, without rows where there is none; a UserError where the file is something else."""
    columns, file = ["source", "to", "action", "digest"], target / LOG
    try:
        return pd.read_csv(file, dtype=str)[columns] if file.exists() else pd.DataFrame(columns=columns, dtype=str)
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{file} is no list of sorted images: move it away, or name another folder.") from error
