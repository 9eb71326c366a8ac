"""The stopping rule (`tcnaps.method.stopping`), applied to recorded predictions of every refinement step."""

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd
from jaxtyping import Bool, Int, Integer, Shaped

from tcnaps.config.errors import UserError, nearest
from tcnaps.method.stopping import check_limits
from tcnaps.method.variants import ALL_VARIANTS

# The columns that identify one episode of one training.
EPISODE_KEY = ["training", "replicate", "evaluation", "dataset", "domain", "split", "queries_per_class", "episode"]


def stopping_step(labels: Integer[np.ndarray, "n_steps_and_1 n_query"], minimum: int, maximum: int) -> int:
    """`stopping_steps` of one episode, from the class predicted for each query after refinement steps 0, 1, …"""
    changed = (labels[1:] != labels[:-1]).any(axis=1)
    return int(stopping_steps(changed[None], minimum, maximum)[0])


def stopping_steps(
    changed: Bool[np.ndarray, "n_episodes n_steps"], minimum: int, maximum: int
) -> Int[np.ndarray, "n_episodes"]:
    """The step at which the rule stops in each episode; `changed` says whether a label changed at steps 1, 2, …

    A minimum of 0 acts as 1; its upper limit is the maximum. A maximum of 0 means no refinement. A maximum beyond the
    recorded steps is a ValueError.
    """
    check_limits(minimum, maximum)
    recorded = changed.shape[1]
    if maximum > recorded:
        raise ValueError(
            f"A maximum of {maximum} refinement steps needs as many recorded, not {recorded}. Raise "
            "refinement.recorded_steps in the study's YAML and evaluate again, or lower the maximum."
        )
    first = min(max(minimum, 1), maximum)
    if first == maximum:
        return np.full(len(changed), maximum)
    unchanged = ~changed[:, first - 1 : maximum]
    return np.where(unchanged.any(axis=1), first + unchanged.argmax(axis=1), maximum)


def stopped(rows: pd.DataFrame, minimum: int, maximum: int) -> pd.DataFrame:
    """`step`, at which a row's episode stops, and `prediction`, the label predicted there, on the index of `rows`."""
    predictions = recorded_predictions(rows)
    codes = _episode_codes(rows)
    step = stopping_steps(_changed_labels(predictions, codes) > 0, minimum, maximum)[codes]
    return pd.DataFrame({"step": step, "prediction": predictions[np.arange(len(rows)), step]}, index=rows.index)


def variant_predictions(rows: pd.DataFrame, variants: str | Sequence[str], minimum: int, maximum: int) -> pd.DataFrame:
    """What named variants predict: the rows of their trainings, one variant after the other.

    The columns `variant`, `step` and `prediction` replace those of the recorded steps. A UserError names a variant that
    does not exist or whose training the rows lack.
    """
    frames = []
    for name in [variants] if isinstance(variants, str) else variants:
        if name not in ALL_VARIANTS:
            raise UserError(f"There is no variant '{name}'{nearest(name, ALL_VARIANTS)}")
        variant = ALL_VARIANTS[name]
        if variant.scale_at_test:
            raise UserError(
                f"The rows of '{variant.training}' were classified with its own scale, not with {name}'s "
                f"('{variant.scale_at_test}'): classify anew with tcnaps_suite.experiments.heads."
            )
        training_rows = rows_of_training(rows, variant.training)
        limits = (minimum, maximum) if variant.refinement_at_test else (0, 0)
        recorded = [c for c in training_rows.columns if re.fullmatch(r"(prediction|confidence)_\d+", c)]
        frames.append(training_rows.drop(columns=recorded).assign(variant=name, **stopped(training_rows, *limits)))
    return pd.concat(frames, ignore_index=True)


def rows_of_training(rows: pd.DataFrame, training: str) -> pd.DataFrame:
    """The rows of one training; a UserError that names the table's trainings where there are none."""
    training_rows = rows[rows["training"] == training]
    if training_rows.empty:
        held = ", ".join(sorted(map(str, rows["training"].unique()))) or "none"
        raise UserError(
            f"The rows hold no training '{training}'; they hold: {held}. Evaluate it first, "
            "or add it to the trainings of this evaluation in the study's YAML."
        )
    return training_rows


def episode_trajectories(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per episode, by first appearance: the accuracy after every step, and how many labels each step changed.

    It has the columns of `EPISODE_KEY`, `way`, `n_support`, `n_query`, `accuracy_0` … and `changed_1` ….
    """
    predictions, codes = recorded_predictions(rows), _episode_codes(rows)
    first_rows = pd.Series(codes).drop_duplicates().index  # episodes are numbered by first appearance
    columns = [column for column in (*EPISODE_KEY, "images", "way", "n_support") if column in rows]
    episodes = rows[columns].iloc[first_rows].reset_index(drop=True)
    right = predictions == rows["label"].to_numpy()[:, None]  # (n_rows, T + 1)
    accuracy = pd.DataFrame(right).groupby(codes).mean().add_prefix("accuracy_")
    changed = _changed_labels(predictions, codes)  # (n_episodes, T)
    counts = {f"changed_{step}": column for step, column in enumerate(changed.T, 1)}
    return pd.concat([episodes, pd.DataFrame({"n_query": np.bincount(codes), **accuracy, **counts})], axis=1)


def stopped_accuracy(trajectories: pd.DataFrame, minimum: int, maximum: int) -> tuple[np.ndarray, np.ndarray]:
    """The step at which each episode of `episode_trajectories` stops, and its accuracy there."""
    n_steps = sum(bool(re.fullmatch(r"changed_\d+", c)) for c in trajectories.columns)
    changed = trajectories[[f"changed_{t}" for t in range(1, n_steps + 1)]].to_numpy() > 0
    accuracy = trajectories[[f"accuracy_{t}" for t in range(n_steps + 1)]].to_numpy()
    step = stopping_steps(changed, minimum, maximum)
    return step, accuracy[np.arange(len(step)), step]


def recorded_predictions(rows: pd.DataFrame, name: str = "prediction") -> Shaped[np.ndarray, "n_rows n_steps_and_1"]:
    """The columns <name>_0 … <name>_T as one array."""
    steps = [int(column.rsplit("_", 1)[1]) for column in rows.columns if re.fullmatch(rf"{name}_\d+", column)]
    return rows[[f"{name}_{step}" for step in range(max(steps, default=0) + 1)]].to_numpy()


def _changed_labels(
    predictions: Shaped[np.ndarray, "n_rows n_steps_and_1"], codes: Int[np.ndarray, "n_rows"]
) -> Int[np.ndarray, "n_episodes n_steps"]:
    """How many queries of each episode change their label at each of the steps 1 … T."""
    return pd.DataFrame(predictions[:, 1:] != predictions[:, :-1]).groupby(codes).sum().to_numpy()


def _episode_codes(rows: pd.DataFrame) -> Int[np.ndarray, "n_rows"]:
    """The number of each row's episode, by first appearance. Episodes must be whole, because they stop as a whole."""
    codes = rows.groupby(EPISODE_KEY, sort=False, observed=True, dropna=False).ngroup().to_numpy()
    queries = rows["query"].groupby(codes).agg(["size", "nunique", "min", "max"])
    whole = (queries["size"] == queries["nunique"]) & (queries["min"] == 0) & (queries["max"] == queries["size"] - 1)
    if not whole.all():
        row = rows.iloc[int(np.flatnonzero(~whole.to_numpy()[codes])[0])]
        raise ValueError(
            f"{row['training']}, {row['evaluation']}, {row['dataset']}, episode {row['episode']}: its queries are not "
            "0, 1, 2, … once each. The stopping rule needs whole episodes: apply it before leaving rows out, and "
            "concatenate no evaluation twice."
        )
    return codes
