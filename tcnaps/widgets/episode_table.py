"""One episode of the results: what was predicted after a refinement step, and the very images it came from.

No PyTorch and no ipywidgets. `explorer_data` finds the episode.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Int, UInt8

from tcnaps.config import Study, UserError
from tcnaps.datasets import open_split
from tcnaps.episodes.sampling import draw_episode
from tcnaps.evaluation import recall
from tcnaps.evaluation.result_files import RowsError, read_rows, rows_file
from tcnaps.evaluation.stopped_rows import recorded_predictions, rows_of_training
from tcnaps.method.variants import VARIANTS


class StaleRowsError(UserError):
    """An episode can't be drawn again as its rows recorded it; the message says what differs and the remedy."""


def rows_of_episode(rows: pd.DataFrame, variant: str, dataset: str, episode: int) -> pd.DataFrame:
    """What a variant's training predicted in one episode, by query."""
    own = rows_of_training(rows, VARIANTS[variant].training)
    own = own[(own["dataset"] == dataset) & (own["episode"] == episode)]
    return own.sort_values("query", ignore_index=True)


def liveliest(study: Study, variant: str, evaluation: str, dataset: str) -> int:
    """The number of the episode in which refinement changes the largest share of labels; 0 if there are no rows."""
    try:
        rows, _ = read_rows(rows_file(study, VARIANTS[variant].training, evaluation, dataset))
    except RowsError:
        return 0
    predictions = recorded_predictions(rows)
    changed = pd.Series(predictions[:, 0] != predictions[:, study.refinement.maximum_steps])
    return int(changed.groupby(rows["episode"]).mean().idxmax())


def class_names(own: pd.DataFrame) -> list[str]:
    """The names of an episode's classes, by label."""
    return list(own.drop_duplicates("label").sort_values("label")["class_name"])


def letter(label: int) -> str:
    """A short name for a class: A, B, …, Z, AA, AB, … A number could be taken for the class's own name."""
    return (letter(label // 26 - 1) if label >= 26 else "") + chr(ord("A") + label % 26)


def shortened(name: str, length: int = 28) -> str:
    """A character in place of its Unicode name; of other long names the ends, which tell classes apart.

    Example:
        >>> shortened("U+03BD GREEK SMALL LETTER NU"), shortened("a field of sunflowers", 12)
        ('ν', 'a field…ers')
    """
    character = re.fullmatch(r"U\+([0-9A-F]{4,6}) [A-Z].*", name)
    if character:
        return chr(int(character[1], 16))
    return name if len(name) <= length else f"{name[: 2 * length // 3].rstrip()}…{name[1 - length // 3 :].lstrip()}"


def counted(number: int | np.integer, what: str) -> str:
    """A number and a noun in singular or plural, such as "1 class" or "3 classes"."""
    return f"{number} {what if number == 1 else what + ('es' if what.endswith('s') else 's')}"


def shots_in_words(shots: Sequence[int]) -> str:
    """The shots of an episode's classes, such as "5-shot" or "shots 1 to 12"."""
    low, high = min(shots), max(shots)
    return f"{low}-shot" if low == high else f"shots {low} to {high}"


def recorded_steps(own: pd.DataFrame) -> int:
    """How many refinement steps the rows record."""
    return recorded_predictions(own).shape[1] - 1


def at_step(own: pd.DataFrame, step: int) -> pd.DataFrame:
    """What is predicted for every query after one step.

    Args:
        own: of `rows_of_episode`.

    Returns:
        `query`, `label`, `class_name`, `step`, `prediction`, `predicted` (its name), `confidence` (the responsibility
        of the predicted class), `right`, and `changed` (whether the step before predicted another class).
    """
    prediction, before = (own[f"prediction_{number}"].to_numpy() for number in (step, max(step - 1, 0)))
    return own[["query", "label", "class_name"]].assign(
        step=step,
        prediction=prediction.astype(int),
        predicted=np.array(class_names(own), dtype=object)[prediction],
        confidence=own[f"confidence_{step}"].astype(float),
        right=prediction == own["label"],
        changed=prediction != before,
    )


def refined(variant: str) -> str:
    """The variant that refines at test time with the same training; itself where it does."""
    training = VARIANTS[variant].training
    return next(name for name, v in VARIANTS.items() if v.training == training and v.refinement_at_test)


def confusion(own: pd.DataFrame, step: int) -> pd.DataFrame:
    """How many queries of each class (rows) are taken for each class (columns) after a step; both by label."""
    labels = range(len(class_names(own)))
    counts = pd.crosstab(own["label"], own[f"prediction_{step}"])
    return counts.reindex(index=labels, columns=labels, fill_value=0)


def recall_by_class(own: pd.DataFrame, step: int) -> pd.DataFrame:
    """Share of each class's queries that are recognised after a step.

    Returns:
        `label`, `class_name`, `shot`, `n_query` and `recall`, by label.
    """
    recalls = recall.class_recall(own.assign(variant="", prediction=own[f"prediction_{step}"]))
    recalls = recalls.sort_values("label", ignore_index=True)
    return recalls[["label", "shot", "n_query", "recall"]].assign(class_name=class_names(own))


def status(row: pd.Series, variant: str, own: pd.DataFrame, step: int, stop: int) -> str:
    """In words: which episode it is, what the variant achieves after a step, and whether it would stop there.

    Args:
        row: of `explorer_data.episodes`.
        own: of `rows_of_episode`.
        stop: the step at which the variant stops.
    """
    found = at_step(own, step)
    if VARIANTS[variant].refinement_at_test:
        place = "where it stops" if step == stop else f"it stops at {stop}"
    else:
        place = "no refinement at test time" if step == 0 else f"as {refined(variant)}; it does not refine itself"
    changed = f" · {counted(int(found['changed'].sum()), 'label')} changed in this step" if step else ""
    return (
        f"{row['dataset']}, episode {row['episode']} · {row['way']}-way, {shots_in_words(row['shots'])}, "
        f"{row['n_support']} support images · {variant}, step {step} of {recorded_steps(own)} ({place}): "
        f"{found['right'].sum()} of {len(found)} queries right, {100 * found['right'].mean():.1f}%{changed}"
    )


@dataclass(frozen=True)
class Replayed:
    """An episode's images: those of the queries in the order of its rows."""

    support_labels: Int[np.ndarray, "n_support"]
    support_images: UInt8[np.ndarray, "n_support height width 3"]
    query_images: UInt8[np.ndarray, "n_query height width 3"]


def replay(study: Study, own: pd.DataFrame) -> Replayed:
    """Draws an episode again from seed, dataset, split and number, and compares it with its rows.

    The images' numbers, labels, classes and shots are compared, but not their pixels.

    Args:
        own: of `rows_of_episode`.

    Raises:
        StaleRowsError: other images or classes come out, as data, seed or protocol have changed since the evaluation.
        DatasetError: the dataset can't be opened.
    """
    first = own.iloc[0]
    name, index = first["evaluation"], int(first["episode"])
    title = f"Episode {index} of {first['dataset']}, evaluation {name}"
    again = "data, seed or protocol have changed since the evaluation. Run `make figures` to evaluate again."
    source = open_split(study, first["dataset"], first["split"])
    try:
        draw = draw_episode(source, study.evaluations[name].protocol, study.seed, index)
    except ValueError as error:
        raise StaleRowsError(f"{title} can't be drawn again: {str(error).rstrip('.')}; {again}") from error
    names = np.array([source.class_names[k] for k in draw.classes], dtype=object)
    drawn = {
        "label": draw.query_labels,
        "image": draw.query_images,
        "shot": np.bincount(draw.support_labels)[draw.query_labels],
        "class_name": names[draw.query_labels],
    }
    differing = [c for c, v in drawn.items() if len(v) != len(own) or (own[c].to_numpy() != v).any()]
    if differing:
        raise StaleRowsError(f"{title} now has other images than its rows recorded ({', '.join(differing)}): {again}")
    return Replayed(draw.support_labels, source.images[draw.support_images], source.images[draw.query_images])
