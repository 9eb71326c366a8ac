"""Puts labelled images into a folder for each label, whole or not at all, and takes it back again."""

import os
import shutil
from collections import Counter
from pathlib import Path

import pandas as pd

from tcnaps.config import UserError
from tcnaps.config.storage import file_digest, write_text
from tcnaps.data.listing import some

LOG = "sorted.csv"  # in the target: where each image came from, and whether it was copied or moved


def planned(folder: Path, labels: pd.DataFrame, target: Path, move: bool = False) -> pd.DataFrame:
    """`source` and `to` of every image with a label: target/<label>/<path below unlabelled/>."""
    inside, outside = folder.resolve(), target.resolve()
    if inside in (outside, *outside.parents):
        raise UserError(f"--sort-into {target} lies in {folder}: its images would become examples. Choose another.")
    chosen = labels[labels["label"] != ""]
    sources = [inside / file for file in chosen["file"]]
    places = [outside / label / file.partition("/")[2] for file, label in zip(chosen["file"], chosen["label"])]
    if twice := [str(new) for new, count in Counter(places).items() if count > 1]:
        raise UserError(f"More than one image would become {some(twice)}: nothing was sorted. Rename the others.")
    if taken := [str(file) for file in ([target] if target.is_file() else places) if os.path.lexists(file)]:
        raise UserError(f"{some(taken)} exist already: nothing was sorted. Name another folder for --sort-into.")
    linked = [str(file) for file in sources if file.resolve() != file]
    if move and linked:
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
    if (target / LOG).exists():
        log = pd.concat([pd.read_csv(target / LOG, dtype=str), log])
    write_text(target / LOG, log.to_csv(index=False))  # before anything is in its place, so that --undo knows all
    for number, (source, to) in enumerate(zip(plan["source"], plan["to"])):
        Path(to).parent.mkdir(parents=True, exist_ok=True)
        os.rename(staged / str(number), to)
        if move:
            os.unlink(source)
    staged.rmdir()


def undo(target: Path) -> str:
    """Takes back what `sort` did, by its log: copies are deleted, moved images return. What has changed stays."""
    if not (target / LOG).is_file():
        raise UserError(f"There is no {target / LOG}: nothing was sorted into {target}, or it was taken back.")
    log, kept = pd.read_csv(target / LOG, dtype=str), []
    for row in log.itertuples():
        source, to = Path(row.source), Path(row.to)
        if row.action == "moved" and source.is_file() and not os.path.lexists(to):
            continue  # it never left its place
        if not to.is_file() or file_digest(to) != row.digest or (row.action == "moved" and os.path.lexists(source)):
            kept.append(row.Index)
        elif row.action == "moved":
            source.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(to, source)
        else:
            to.unlink()
    if kept:
        write_text(target / LOG, log.loc[kept].to_csv(index=False))
        return f"Took back {len(log) - len(kept)} images; {len(kept)} have changed since and stay, see {target / LOG}."
    (target / LOG).unlink()
    for place in sorted(target.rglob("*"), reverse=True):
        if place.is_dir() and not any(place.iterdir()):
            place.rmdir()
    return f"Took back {len(log)} images."
