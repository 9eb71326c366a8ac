"""What meta-training adds: accuracy and confidence of trained networks beside those of their untrained start.

Both are frames of one row per query: `start` of an evaluation with `before_training`, whose task encoder and FiLM
generator are as they were initialised, `trained` of one with the same protocol after meta-training. What is compared
are the datasets and episodes that both have.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from tcnaps.evaluation.intervals import clustered, estimates
from tcnaps.evaluation.statistics import accuracy_summary, domain_averages, episode_accuracies, paired_episodes
from tcnaps.evaluation.stopped_rows import (
    recorded_predictions,
    rows_of_training,
    stopped,
    variant_predictions,
    with_replicate,
)

UNIT = ["replicate", "evaluation", "dataset", "queries_per_class", "episode"]
EDGES = tuple(i / 10 for i in range(11))  # of the bins of confidence


def shared(start: pd.DataFrame, trained: pd.DataFrame) -> list[pd.DataFrame]:
    """The rows of the datasets and episodes that both have, under the name of the evaluation after training.

    Raises:
        ValueError: a frame mixes evaluations.
    """
    start, trained = with_replicate(start), with_replicate(trained)
    names = [*start["evaluation"].unique(), *trained["evaluation"].unique()]
    if len(names) > 2:
        raise ValueError(f"The rows mix the evaluations {', '.join(names)}: pick one before training and one after.")
    start, keys = start.assign(evaluation=names[-1]), ["replicate", "dataset", "episode"]
    return [a.merge(b[keys].drop_duplicates(), on=keys) for a, b in ((start, trained), (trained, start))]


def gain_of_training(
    start: pd.DataFrame, trained: pd.DataFrame, variants: Sequence[str], limits: tuple[int, int]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Accuracy gained from start to trained, paired.

    Returns:
        per dataset, as `paired_difference`, and their means, as `domain_averages`; both with a column `variant`.

    Raises:
        ValueError: a frame mixes evaluations, or the same numbers are other episodes.
    """
    sides = (episode_accuracies(variant_predictions(rows, variants, *limits)) for rows in shared(start, trained))
    of_start, of_trained = (dict(list(side.groupby("variant", sort=False))) for side in sides)
    pairs = [paired_episodes(of_trained[name], of_start[name]) for name in variants]
    both = pd.concat(pairs, ignore_index=True)
    return accuracy_summary(both, value="difference"), domain_averages(both, value="difference")


def reliability(
    start: pd.DataFrame, trained: pd.DataFrame, training: str, limits: tuple[int, int], edges: Sequence[float] = EDGES
) -> pd.DataFrame:
    """Confidence against accuracy, before and after meta-training, at step 0 and where refinement stops.

    The confidence of a query is the responsibility of its predicted class. Queries of one episode are one cluster.

    Args:
        edges: of the bins of confidence, from 0 to 1.

    Returns:
        One row per state ("start", "trained"), step ("step 0", "stop") and bin that has queries: mean
        `confidence`, `accuracy`, its `interval` and `share` (of the queries).
    """
    frames = []
    for state, rows in zip(("start", "trained"), shared(start, trained)):
        own = with_replicate(rows_of_training(rows, training))
        confidences, predictions = recorded_predictions(own, "confidence"), recorded_predictions(own)
        stops = {"step 0": np.zeros(len(own), int), "stop": stopped(own, *limits)["step"].to_numpy()}
        for step, at in stops.items():
            taken = np.arange(len(own)), at
            facts = {"confidence": confidences[taken], "accuracy": predictions[taken] == own["label"].to_numpy()}
            frames.append(own[UNIT].assign(state=state, step=step, **facts))
    queries = pd.concat(frames, ignore_index=True)
    bins = np.searchsorted(edges, queries["confidence"], side="right").clip(1, len(edges) - 1)
    queries = queries.assign(bin=bins, accuracy=queries["accuracy"].astype(float))
    keys = ["state", "step", "bin"]
    found = estimates(clustered(queries, keys, "accuracy"), keys, "accuracy")
    grouped = queries.groupby(keys)["confidence"].agg(confidence="mean", share="size").reset_index()
    found = found.merge(grouped, on=keys)
    found["share"] /= found.groupby(["state", "step"])["share"].transform("sum")
    return found[["state", "step", "confidence", "accuracy", "interval", "share"]]


def calibration(bins: pd.DataFrame) -> pd.DataFrame:
    """Mean `confidence`, `accuracy` and calibration `error` (Σ share · |accuracy − confidence|) per state and step."""
    bins = bins.assign(error=(bins["accuracy"] - bins["confidence"]).abs())
    columns = ["confidence", "accuracy", "error"]
    weighted = bins[columns].mul(bins["share"], axis=0).groupby([bins["state"], bins["step"]], sort=False)
    return weighted.sum().reset_index()
