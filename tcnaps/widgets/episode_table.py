"""The rows of one episode → what was predicted after a refinement step: queries, confusion, class recall.

No PyTorch and no ipywidgets. `explorer_data` finds the episode.
"""

import numpy as np
import pandas as pd

from tcnaps.evaluation import recall
from tcnaps.evaluation.result_files import needed_trainings
from tcnaps.evaluation.stopped_rows import recorded_predictions, require_columns, rows_of_training
from tcnaps.method.variants import VARIANTS


def rows_of_episode(rows: pd.DataFrame, variant: str, dataset: str, episode: int) -> pd.DataFrame:
    """What a variant's training predicted in one episode, by query.

    Raises:
        ValueError: there is no such variant or episode among the rows.
    """
    needed_trainings([variant])
    own = rows_of_training(rows, VARIANTS[variant].training)
    own = own[(own["dataset"] == dataset) & (own["episode"] == episode)]
    if own.empty:
        raise ValueError(
            f"The rows of {variant} hold no episode {episode} of {dataset}; they hold: "
            f"{', '.join(rows['dataset'].unique())}, with episodes 0 to {rows['episode'].max()}."
        )
    return own.sort_values("query").reset_index(drop=True)


def class_names(own: pd.DataFrame) -> list[str]:
    """The names of an episode's classes, by label."""
    require_columns(own, ["label", "class_name"])
    return list(own.drop_duplicates("label").sort_values("label")["class_name"])


def letter(label: int) -> str:
    """A short name for a class: A, B, …, Z, AA, AB, … A number could be taken for the class's own name."""
    return (letter(label // 26 - 1) if label >= 26 else "") + chr(ord("A") + label % 26)


def shortened(name: str, length: int = 28) -> str:
    """A long name without its middle, as what tells classes apart is often at the end."""
    if len(name) <= length:
        return name
    head = (length - 1) * 2 // 3
    return f"{name[:head].rstrip()}…{name[-(length - 1 - head) :].lstrip()}"


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

    Raises:
        ValueError: the step was not recorded.
    """
    labels = recorded_predictions(own)
    recorded = labels.shape[1] - 1
    if not 0 <= step <= recorded:
        raise ValueError(
            f"Step {step} was not recorded: steps are 0 to {recorded}. Raise refinement.recorded_steps in "
            "the study's YAML and evaluate again for more."
        )
    prediction, before = labels[:, step], labels[:, max(step - 1, 0)]
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
    found, way = at_step(own, step), len(class_names(own))
    counts = pd.crosstab(found["label"], found["prediction"])
    return counts.reindex(index=range(way), columns=range(way), fill_value=0)


def mistakes(own: pd.DataFrame, step: int) -> pd.DataFrame:
    """Which classes are taken for which others after a step, the most frequent first: `label`, `prediction`, `n`."""
    found = at_step(own, step)
    wrong = found[~found["right"]].groupby(["label", "prediction"]).size().reset_index(name="n")
    return wrong.sort_values("n", ascending=False, kind="stable", ignore_index=True)


def recall_by_class(own: pd.DataFrame, step: int) -> pd.DataFrame:
    """Share of each class's queries that are recognised after a step.

    Returns:
        `label`, `class_name`, `shot`, `n_query` and `recall`, by label.
    """
    predictions = own.assign(variant="", prediction=at_step(own, step)["prediction"])
    recalls = recall.class_recall(predictions).sort_values("label", ignore_index=True)
    return recalls[["label", "shot", "n_query", "recall"]].assign(class_name=class_names(own))


def status(row: pd.Series, variant: str, own: pd.DataFrame, step: int, stop: int) -> str:
    """In words: which episode it is, what the variant achieves after a step, and whether it would stop there.

    Args:
        row: of `explorer_data.episodes`.
        own: of `rows_of_episode`.
        stop: the step at which the variant stops.
    """
    found = at_step(own, step)
    n_changed = int(found["changed"].sum())
    low, high = row["lowest_shot"], row["highest_shot"]
    shots = f"{low}-shot" if low == high else f"shots {low} to {high}"
    if VARIANTS[variant].refinement_at_test:
        place = "where it stops" if step == stop else f"it stops at {stop}"
    else:
        place = "no refinement at test time" if step == 0 else f"as {refined(variant)}; it does not refine itself"
    changed = f" · {n_changed} label{'' if n_changed == 1 else 's'} changed in this step" if step else ""
    return (
        f"{row['dataset']}, episode {row['episode']} · {row['way']}-way, {shots}, {row['n_support']} support "
        f"images · {variant}, step {step} of {recorded_steps(own)} ({place}): {found['right'].sum()} of "
        f"{len(found)} queries right, {100 * found['right'].mean():.1f}%{changed}"
    )
