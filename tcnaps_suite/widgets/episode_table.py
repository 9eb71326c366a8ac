"""One episode as one row per query: what was predicted after every refinement step, and the images it came from.

The rows are those of an evaluation, or the stepper's own. No PyTorch and no ipywidgets.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Int, UInt8

from tcnaps.config import Study, UserError
from tcnaps.data import open_split
from tcnaps.episodes.sampling import draw_episode
from tcnaps.evaluation.result_files import RowsError, read_rows, rows_file
from tcnaps.evaluation.stopped_rows import recorded_predictions, rows_of_training
from tcnaps.method.variants import VARIANTS
from tcnaps_suite.widgets.demonstration import recorded

OUTCOMES = ("became right", "became wrong", "still wrong", "wrong", "right")  # of a query at a step


class StaleRowsError(UserError):
    """An episode can't be drawn again as its rows recorded it; the message says what differs and the remedy."""


# ---- words


def letter(label: int) -> str:
    """A short name for a class: A, B, …, Z, AA, AB, … A number could be taken for the class's own name."""
    return (letter(label // 26 - 1) if label >= 26 else "") + chr(ord("A") + label % 26)


def shortened(name: str, length: int = 28) -> str:
    """A character in place of its code and Unicode name; of other long names the ends, which tell classes apart.

    Example:
        >>> shortened("U+03BD GREEK SMALL LETTER NU"), shortened("place U+2663"), shortened("a field of sunflowers", 12)
        ('ν', 'place ♣', 'a field…ers')
    """
    name = re.sub(r"\bU\+([0-9A-F]{4,6})( [A-Z].*)?$", lambda found: chr(int(found[1], 16)), name)
    return name if len(name) <= length else f"{name[: 2 * length // 3].rstrip()}…{name[1 - length // 3 :].lstrip()}"


def counted(number: int | np.integer, what: str) -> str:
    """A number and a noun in singular or plural, such as "1 class" or "3 classes"."""
    return f"{number} {what if number == 1 else what + ('es' if what.endswith('s') else 's')}"


def shots_in_words(shots: Sequence[int]) -> str:
    """The shots of an episode's classes, such as "5-shot" or "shots 1 to 12"."""
    low, high = min(shots), max(shots)
    return f"{low}-shot" if low == high else f"shots {low} to {high}"


def refined(variant: str) -> str:
    """The variant that refines at test time with the same training; itself where it does."""
    training = VARIANTS[variant].training
    return next(name for name, v in VARIANTS.items() if v.training == training and v.refinement_at_test)


# ---- predictions


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
    predictions = recorded_predictions(rows)[:, : study.refinement.maximum_steps + 1]
    changed = pd.Series(predictions[:, 0] != predictions[:, -1])
    return int(changed.groupby(rows["episode"]).mean().idxmax())


def class_names(own: pd.DataFrame) -> list[str]:
    """The names of an episode's classes, by label."""
    return list(own.drop_duplicates("label").sort_values("label")["class_name"])


def steps_of(own: pd.DataFrame) -> pd.DataFrame:
    """One row per refinement step: `step`, `accuracy` and `mean_confidence` in [0, 1], `changed` (labels).

    Args:
        own: one row per query of an episode: `query`, `label`, `class_name`, `prediction_0` … and `confidence_0` ….
    """
    predictions, confidences = (recorded_predictions(own, what) for what in ("prediction", "confidence"))
    found = {
        "step": np.arange(predictions.shape[1]),
        "accuracy": (predictions == own[["label"]].to_numpy()).mean(0),
        "mean_confidence": confidences.mean(0, dtype=float),
        "changed": (np.diff(predictions, axis=1, prepend=predictions[:, :1]) != 0).sum(0),
    }
    return pd.DataFrame(found)


def at_step(own: pd.DataFrame, step: int) -> pd.DataFrame:
    """What one step made of every query.

    Args:
        own: as for `steps_of`.

    Returns:
        `query`, `label`, `class_name`; `before` and `prediction` (labels; the step before step 0 is that itself),
        `confidence_before` and `confidence` (the responsibility of the predicted class), `right`, `changed`, and
        `outcome`, one of `OUTCOMES`.
    """
    label, previous = own["label"], max(step - 1, 0)
    before, after = own[f"prediction_{previous}"].astype(int), own[f"prediction_{step}"].astype(int)
    right, was_right, changed = after == label, before == label, after != before
    cases = [right & ~was_right, ~right & was_right, changed & ~right, right]
    outcome = np.select(cases, ["became right", "became wrong", "still wrong", "right"], "wrong")
    facts = own[[name for name in ("query", "label", "class_name", "shot") if name in own]]
    return facts.assign(
        before=before,
        prediction=after,
        confidence_before=own[f"confidence_{previous}"].astype(float),
        confidence=own[f"confidence_{step}"].astype(float),
        right=right,
        changed=changed,
        outcome=pd.Categorical(outcome, OUTCOMES, ordered=True),
    )


# ---- images


class Replayed(NamedTuple):
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
    if found := recorded(study, name, first["dataset"], index):
        return Replayed(found.support_labels, found.support_images, found.query_images)
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
