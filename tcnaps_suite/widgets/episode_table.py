"""One episode as one row per query: predictions after every refinement step, and images. No PyTorch, no ipywidgets."""

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd

from tcnaps.config import Study, UserError
from tcnaps.evaluation.result_files import RowsError, read_rows, rows_file
from tcnaps.evaluation.stopped_rows import recorded_predictions, rows_of_training
from tcnaps.method.variants import ALL_VARIANTS
from tcnaps_suite.episodes import ShownImages, images_of

OUTCOMES = ("became right", "became wrong", "still wrong", "wrong", "right")  # of a query at a step


def letter(label: int) -> str:
    """A short name for a class: A, B, …, Z, AA, AB, …"""
    first = letter(label // 26 - 1) if label >= 26 else ""
    return first + chr(ord("A") + label % 26)


def shortened(name: str, length: int = 28) -> str:
    """A class's name, at most `length` characters long: a Unicode name becomes its character, others lose their middle.

    Example:
        >>> shortened("U+03BD GREEK SMALL LETTER NU"), shortened("place U+2663"), shortened("a field of sunflowers", 12)
        ('ν', 'place ♣', 'a field…ers')
    """
    name = re.sub(r"\bU\+([0-9A-F]{4,6})( [A-Z].*)?$", lambda match: chr(int(match[1], 16)), name)
    if len(name) <= length:
        return name
    return f"{name[: 2 * length // 3].rstrip()}…{name[1 - length // 3 :].lstrip()}"


def counted(number: int | np.integer, what: str) -> str:
    """A number and a noun in singular or plural, such as "1 class" or "3 classes"."""
    plural = what + ("es" if what.endswith("s") else "s")
    return f"{number} {what if number == 1 else plural}"


def shots_in_words(shots: Sequence[int]) -> str:
    """The shots of an episode's classes, such as "5-shot" or "shots 1 to 12"."""
    low, high = min(shots), max(shots)
    return f"{low}-shot" if low == high else f"shots {low} to {high}"


def refined(variant: str) -> str:
    """The variant with the same training that refines at test time, which may be the variant itself."""
    training = ALL_VARIANTS[variant].training
    return next(name for name, v in ALL_VARIANTS.items() if v.training == training and v.refinement_at_test)


def rows_of_episode(rows: pd.DataFrame, variant: str, dataset: str, episode: int) -> pd.DataFrame:
    """The rows of one episode, predicted by a variant's training, in the order of the queries."""
    rows = rows_of_training(rows, ALL_VARIANTS[variant].training)
    rows = rows[(rows["dataset"] == dataset) & (rows["episode"] == episode)]
    return rows.sort_values("query", ignore_index=True)


def most_improved(study: Study, variant: str, evaluation: str, dataset: str) -> int:
    """The number of the episode in which refinement raises accuracy most; 0 if there are no rows."""
    try:
        rows, _ = read_rows(rows_file(study, ALL_VARIANTS[variant].training, evaluation, dataset))
    except RowsError:
        return 0
    predictions = recorded_predictions(rows)[:, : study.refinement.maximum_steps + 1]
    right = (predictions == rows[["label"]].to_numpy()).astype(int)
    return int(pd.Series(right[:, -1] - right[:, 0]).groupby(rows["episode"]).mean().idxmax())


def steps_of(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per refinement step: `step`, `accuracy` and `mean_confidence` in [0, 1], `changed` (labels)."""
    predictions, confidences = (recorded_predictions(rows, what) for what in ("prediction", "confidence"))
    steps = {
        "step": np.arange(predictions.shape[1]),
        "accuracy": (predictions == rows[["label"]].to_numpy()).mean(0),
        "mean_confidence": confidences.mean(0, dtype=float),
        "changed": (np.diff(predictions, axis=1, prepend=predictions[:, :1]) != 0).sum(0),
    }
    return pd.DataFrame(steps)


def at_step(rows: pd.DataFrame, step: int) -> pd.DataFrame:
    """The queries of an episode with their predictions before and after a step; before step 0 stands step 0 itself."""
    label, previous = rows["label"], max(step - 1, 0)
    before, after = rows[f"prediction_{previous}"].astype(int), rows[f"prediction_{step}"].astype(int)
    right, was_right, changed = after == label, before == label, after != before
    cases = [right & ~was_right, ~right & was_right, changed & ~right, right]
    outcome = np.select(cases, ["became right", "became wrong", "still wrong", "right"], "wrong")
    facts = rows[[name for name in ("query", "label", "class_name", "shot") if name in rows]]
    return facts.assign(
        before=before,
        prediction=after,
        confidence_before=rows[f"confidence_{previous}"].astype(float),
        confidence=rows[f"confidence_{step}"].astype(float),
        right=right,
        changed=changed,
        outcome=pd.Categorical(outcome, OUTCOMES, ordered=True),
    )


def replay(study: Study, rows: pd.DataFrame) -> ShownImages:
    """Draws the episode of some rows again. Images' numbers, labels, classes and shots are compared; pixels are not."""
    evaluation, dataset, number = rows["evaluation"].iloc[0], rows["dataset"].iloc[0], int(rows["episode"].iloc[0])
    shown = images_of(study, evaluation, dataset, number)
    if shown.drawn is None:
        return shown
    drawn = {
        "label": shown.query_labels,
        "image": shown.drawn[1].query_images,
        "shot": np.bincount(shown.support_labels)[shown.query_labels],
        "class_name": np.array(shown.class_names, dtype=object)[shown.query_labels],
    }
    if differing := [c for c, v in drawn.items() if len(v) != len(rows) or (rows[c].to_numpy() != v).any()]:
        raise UserError(
            f"Episode {number} of {dataset}, evaluation {evaluation}, has other images than in its rows "
            f"({', '.join(differing)}): data, seed or protocol have changed. Run `make figures` to evaluate again."
        )
    return shown
