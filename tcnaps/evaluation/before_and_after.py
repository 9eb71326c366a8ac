"""What meta-training adds: accuracy and confidence of trained networks beside those of their untrained start.

Both are frames of one row per query, on the same episodes: `start` of task encoder and FiLM generator as they were
initialised on the pretrained backbone, `trained` of the same after meta-training.
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


def gain_of_training(
    start: pd.DataFrame, trained: pd.DataFrame, variants: Sequence[str], limits: tuple[int, int]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Accuracy gained from start to trained, paired.

    Returns:
        per dataset, as `paired_difference`, and their means, as `domain_averages`; both with a column `variant`.

    Raises:
        ValueError: the two frames hold different episodes.
    """
    sides = (episode_accuracies(variant_predictions(rows, variants, *limits)) for rows in (trained, start))
    of_trained, of_start = (dict(list(side.groupby("variant", sort=False))) for side in sides)
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
    for state, rows in (("start", start), ("trained", trained)):
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
