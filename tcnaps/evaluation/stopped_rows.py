"""The stopping rule (`tcnaps.method.clustering.stopped`), applied to recorded predictions of every refinement step."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from jaxtyping import Bool, Int, Integer, Shaped

from tcnaps.config.errors import UserError
from tcnaps.evaluation.result_files import needed_trainings
from tcnaps.method.head import check_limits
from tcnaps.method.variants import ALL_VARIANTS

Recorded, Changed = Shaped[np.ndarray, "n_rows n_steps_and_1"], Bool[np.ndarray, "n_episodes n_steps"]
# The columns that identify an episode. All trainings see the same images in it.
EPISODE = ["evaluation", "dataset", "domain", "split", "queries_per_class", "episode"]


def stopping_step(labels: Integer[np.ndarray, "n_steps_and_1 n_query"], minimum: int, maximum: int) -> int:
    """`stopping_steps` of one episode, from the class predicted for each query after refinement steps 0, 1, …"""
    return int(stopping_steps((labels[1:] != labels[:-1]).any(axis=1)[None], minimum, maximum)[0])


def stopping_steps(changed: Changed, minimum: int, maximum: int) -> Int[np.ndarray, "n_episodes"]:
    """The step at which the rule stops in each episode; `changed` says whether a label changed at steps 1, 2, …

    A minimum of 0 acts as 1, one above the maximum as the maximum. A maximum beyond the recorded steps is a ValueError.
    """
    check_limits(minimum, maximum)
    if maximum > (recorded := changed.shape[1]):
        remedy = "Raise refinement.recorded_steps in the study's YAML and evaluate again, or lower the maximum"
        raise ValueError(f"A maximum of {maximum} refinement steps needs as many recorded, not {recorded}. {remedy}.")
    first = min(max(minimum, 1), maximum)
    ends = np.insert(~changed, 0, False, axis=1)  # whether refinement may end at steps 0, 1, …
    ends[:, maximum] = True
    return first + ends[:, first : maximum + 1].argmax(axis=1)


def stopped(rows: pd.DataFrame, minimum: int, maximum: int) -> pd.DataFrame:
    """`step`, at which a row's episode stops, and `prediction`, the label predicted there, on the index of `rows`."""
    predictions, codes = recorded_predictions(rows), _episode_codes(rows)
    step = stopping_steps(_changed_labels(predictions, codes), minimum, maximum)[codes]
    return pd.DataFrame({"step": step, "prediction": predictions[np.arange(len(rows)), step]}, index=rows.index)


def variant_predictions(rows: pd.DataFrame, variants: str | Sequence[str], minimum: int, maximum: int) -> pd.DataFrame:
    """What named variants predict: the rows of their trainings, one variant after the other.

    The columns `variant`, `step` and `prediction` replace those of the recorded steps.
    """
    frames = []
    for name in [variants] if isinstance(variants, str) else variants:
        (training,) = needed_trainings([name])
        variant = ALL_VARIANTS[name]
        if variant.scale_at_test:
            problem = f"were classified with its own scale, not with {name}'s ('{variant.scale_at_test}')"
            raise UserError(f"The rows of '{training}' {problem}: classify anew with tcnaps_suite.experiments.heads.")
        training_rows = rows_of_training(rows, training)
        limits = (minimum, maximum) if variant.refinement_at_test else (0, 0)
        recorded = training_rows.filter(regex=r"^(prediction|confidence)_\d+$")
        frames.append(training_rows.drop(columns=recorded).assign(variant=name, **stopped(training_rows, *limits)))
    return pd.concat(frames, ignore_index=True)


def rows_of_training(rows: pd.DataFrame, training: str) -> pd.DataFrame:
    """The rows of one training; a UserError that names the table's trainings where there are none."""
    if (training_rows := rows[rows["training"] == training]).empty:
        held = ", ".join(sorted(map(str, rows["training"].unique()))) or "none"
        remedy = "Evaluate it first, or add it to the trainings of this evaluation in the study's YAML"
        raise UserError(f"The rows hold no training '{training}'; they hold: {held}. {remedy}.")
    return training_rows


def rule_accuracies(rows: pd.DataFrame, training: str, rules: Mapping[str, tuple[int, int]]) -> pd.DataFrame:
    """The accuracy of every episode under several stopping rules, name → (minimum, maximum); `variant` is the name."""
    rows = rows_of_training(rows, training)
    predictions, codes = recorded_predictions(rows), _episode_codes(rows)
    facts = rows.filter(["replicate", *EPISODE, "images", "way", "n_support"])
    episodes = facts.groupby(codes).head(1).assign(n_query=np.bincount(codes))  # numbered by first appearance
    right = predictions == rows["label"].to_numpy()[:, None]
    accuracy = pd.DataFrame(right).groupby(codes).mean().to_numpy()  # (n_episodes, T + 1)
    changed, frames = _changed_labels(predictions, codes), []
    for name, limits in rules.items():
        step = stopping_steps(changed, *limits)
        frames.append(episodes.assign(variant=name, step=step, accuracy=accuracy[np.arange(len(step)), step]))
    return pd.concat(frames, ignore_index=True)


def recorded_predictions(rows: pd.DataFrame, name: str = "prediction") -> Recorded:
    """The columns <name>_0 … <name>_T as one array."""
    recorded = rows.columns.str.fullmatch(rf"{name}_\d+").sum()
    return rows[[f"{name}_{step}" for step in range(max(recorded, 1))]].to_numpy()


def _changed_labels(predictions: Recorded, codes: Int[np.ndarray, "n_rows"]) -> Changed:
    """Whether any query of each episode changes its label at each of the steps 1 … T."""
    return pd.DataFrame(predictions[:, 1:] != predictions[:, :-1]).groupby(codes).any().to_numpy(dtype=bool)


def _episode_codes(rows: pd.DataFrame) -> Int[np.ndarray, "n_rows"]:
    """The number of each row's episode, by first appearance. Episodes must be whole, because they stop as a whole."""
    keys = ["training", "replicate", *EPISODE]
    codes = rows.groupby(keys, sort=False, observed=True, dropna=False).ngroup().to_numpy()
    queries = rows["query"].groupby(codes).agg(["size", "nunique", "min", "max"])
    whole = (queries["size"] == queries["nunique"]) & (queries["min"] == 0) & (queries["max"] == queries["size"] - 1)
    if not whole.all():
        row = rows.iloc[int(np.flatnonzero(~whole.to_numpy()[codes])[0])]
        episode = f"{row['training']}, {row['evaluation']}, {row['dataset']}, episode {row['episode']}"
        need = "whole episodes: apply it before leaving rows out, and concatenate no evaluation twice"
        raise ValueError(f"{episode}: its queries are not 0, 1, 2, … once each. The stopping rule needs {need}.")
    return codes
