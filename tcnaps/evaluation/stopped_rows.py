"""The stopping rule (`tcnaps.method.stopping`) applied to the table of one row per query.

An evaluation records what was predicted after *every* refinement step, so that one table answers what any
minimum and maximum number of steps would have given.
"""

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd
from jaxtyping import Shaped

from tcnaps.config.errors import UserError, nearest
from tcnaps.evaluation.result_files import strange_columns
from tcnaps.method.stopping import stopping_steps
from tcnaps.method.variants import ALL_VARIANTS

# What tells one episode of one evaluation from another, in the table of one row per query.
EPISODE_KEY = ["training", "replicate", "evaluation", "dataset", "domain", "split", "queries_per_class", "episode"]


def with_replicate(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with a column `replicate`: rows that lack it are of replicate 0."""
    return frame if "replicate" in frame else frame.assign(replicate=0)


def stopped(rows: pd.DataFrame, minimum: int, maximum: int) -> pd.DataFrame:
    """The rule applied to every episode of the table at once.

    Returns:
        `step`, at which the row's episode stops, and `prediction`, the label predicted there; on the index of
        `rows`.

    Raises:
        ValueError: a column is missing, the maximum exceeds the recorded steps, or an episode is incomplete.
    """
    predictions = recorded_predictions(rows)
    codes = _episode_codes(rows)
    step = stopping_steps(_changed(predictions, codes) > 0, minimum, maximum)[codes]
    chosen = predictions[np.arange(len(rows)), step]
    return pd.DataFrame({"step": step, "prediction": chosen}, index=rows.index)


def variant_predictions(rows: pd.DataFrame, variants: str | Sequence[str], minimum: int, maximum: int) -> pd.DataFrame:
    """What named systems predict: their trainings' rows, and the label where the rule stops.

    Args:
        rows: one row per query, of one or more trainings.
        variants: one name of `ALL_VARIANTS` or several. Those without refinement at test time predict at step 0.

    Returns:
        The variants' rows, one variant after the other, with columns `variant`, `step` and `prediction` in
        place of the recorded steps.

    Raises:
        UserError: there is no such variant, its training is absent from the rows, or its scale is not the training's.
    """
    names = [variants] if isinstance(variants, str) else list(variants)
    frames = []
    for name in names:
        if name not in ALL_VARIANTS:
            raise UserError(f"There is no variant '{name}'{nearest(name, ALL_VARIANTS)}")
        variant = ALL_VARIANTS[name]
        if variant.scale_at_test:
            raise UserError(
                f"The rows of '{variant.training}' are of its own scale, not of {name}'s ('{variant.scale_at_test}'): "
                "classify anew with tcnaps_suite.experiments.heads."
            )
        own = with_replicate(rows_of_training(rows, variant.training))
        limits = (minimum, maximum) if variant.refinement_at_test else (0, 0)
        kept = own.drop(columns=[c for c in own.columns if re.fullmatch(r"(prediction|confidence)_\d+", c)])
        frames.append(kept.assign(variant=name, **stopped(own, *limits)))
    return pd.concat(frames, ignore_index=True)


def rows_of_training(rows: pd.DataFrame, training: str) -> pd.DataFrame:
    """The rows of one training.

    Raises:
        UserError: there are none; the message names the trainings there are.
    """
    require_columns(rows, ["training"])
    own = rows[rows["training"] == training]
    if own.empty:
        there = ", ".join(sorted(map(str, rows["training"].unique()))) or "none"
        raise UserError(
            f"The rows hold no training '{training}'; they hold: {there}. Evaluate it first, "
            "or add it to the trainings of this evaluation in the study's YAML."
        )
    return own


def episode_trajectories(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per episode: its accuracy after every step and how many labels changed there.

    Returns:
        The columns of `EPISODE_KEY`, `way`, `n_support`, `n_query`, `accuracy_0` … `accuracy_T` in [0, 1] and
        `changed_1` … `changed_T`, in the order in which the episodes first appear.
    """
    require_columns(rows, ["label", "way", "n_support"])
    rows = with_replicate(rows)
    predictions, codes = recorded_predictions(rows), _episode_codes(rows)
    first = pd.Series(codes).drop_duplicates().index  # codes are numbered by first appearance
    episodes = rows[[*EPISODE_KEY, "way", "n_support"]].iloc[first].reset_index(drop=True)
    accuracy = pd.DataFrame(predictions == rows["label"].to_numpy()[:, None]).groupby(codes).mean()
    columns = {"n_query": np.bincount(codes), **accuracy.add_prefix("accuracy_")}
    columns |= {f"changed_{t}": counts for t, counts in enumerate(_changed(predictions, codes).T, 1)}
    return pd.concat([episodes, pd.DataFrame(columns)], axis=1)


def stopped_accuracy(trajectories: pd.DataFrame, minimum: int, maximum: int) -> tuple[np.ndarray, np.ndarray]:
    """The step at which each episode of `episode_trajectories` stops, and its accuracy there."""
    n_steps = sum(bool(re.fullmatch(r"changed_\d+", c)) for c in trajectories.columns)
    changed = trajectories[[f"changed_{t}" for t in range(1, n_steps + 1)]].to_numpy() > 0
    accuracy = trajectories[[f"accuracy_{t}" for t in range(n_steps + 1)]].to_numpy()
    step = stopping_steps(changed, minimum, maximum)
    return step, accuracy[np.arange(len(step)), step]


def recorded_predictions(rows: pd.DataFrame, what: str = "prediction") -> Shaped[np.ndarray, "n_rows n_steps_and_1"]:
    """Columns prediction_0 … prediction_T, or those of another name, as one array.

    Raises:
        ValueError: there are none, or one between is missing.
    """
    steps = sorted(int(column.rsplit("_", 1)[1]) for column in rows.columns if re.fullmatch(rf"{what}_\d+", column))
    columns = [f"{what}_{t}" for t in range(steps[-1] + 1 if steps else 1)]
    require_columns(rows, columns)
    return rows[columns].to_numpy()


def require_columns(frame: pd.DataFrame, columns: Sequence[str]) -> None:
    """
    Raises:
        ValueError: a column is missing or the frame holds no row; the message names the columns.
    """
    missing = [c for c in columns if c not in frame.columns]
    if missing:
        raise ValueError(
            f"The table lacks column{'s' * (len(missing) > 1)} {', '.join(missing)}; "
            f"it holds: {', '.join(map(str, frame.columns)) or 'none'}."
        )
    if frame.empty:
        raise ValueError("The table holds no rows: check the filter that made it, or evaluate first.")


def _changed(predictions: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """(n_episodes, T): number of queries of each episode whose label changed at steps 1 … T."""
    return pd.DataFrame(predictions[:, 1:] != predictions[:, :-1]).groupby(codes).sum().to_numpy()


def _episode_codes(rows: pd.DataFrame) -> np.ndarray:
    """Number of each row's episode, by first appearance; episodes must be whole, as convergence is theirs."""
    rows = with_replicate(rows)
    require_columns(rows, [*EPISODE_KEY, "query"])
    if strange := strange_columns(rows):
        raise ValueError(f"The table has values of another kind in the columns {', '.join(strange)}.")
    codes = rows.groupby(EPISODE_KEY, sort=False, observed=True, dropna=False).ngroup().to_numpy()
    facts = rows["query"].groupby(codes).agg(["size", "nunique", "min", "max"])
    whole = (facts["size"] == facts["nunique"]) & (facts["min"] == 0) & (facts["max"] == facts["size"] - 1)
    if not whole.all():
        row = rows.iloc[int(np.flatnonzero(~whole.to_numpy()[codes])[0])]
        name = f"{row['training']}, {row['evaluation']}, {row['dataset']}, episode {row['episode']}"
        raise ValueError(
            f"{name}: its queries are not 0, 1, 2, … once each. The stopping rule needs whole "
            "episodes: apply it before leaving rows out, and concatenate no evaluation twice."
        )
    return codes
