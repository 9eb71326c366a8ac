"""Class recall against shot, and how often each way and shot occurs."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from tcnaps.evaluation.intervals import clustered, estimates
from tcnaps.evaluation.statistics import DOMAINS, EPISODE, GROUP, query_digests, told
from tcnaps.evaluation.stopped_rows import require_columns, with_replicate

SHOT_EDGES = (*range(1, 12), 16, 21, 31, 51, 101, 201)  # lowest shot of each bin


def class_recall(predictions: pd.DataFrame) -> pd.DataFrame:
    """Share of each class's queries that are recognised: one row per variant, episode and class."""
    require_columns(predictions, ["variant", *EPISODE, "label", "prediction", "shot"])
    right = (predictions["label"] == predictions["prediction"]).astype(float)
    hits = with_replicate(predictions).assign(recall=right, queries=query_digests(predictions))
    grouped = hits.groupby(["variant", "replicate", *EPISODE, "label"], sort=False, observed=True)
    return grouped.agg(
        shot=("shot", "first"), n_query=("recall", "size"), recall=("recall", "mean"), queries=("queries", "sum")
    ).reset_index()


def recall_by_shot(
    recalls: pd.DataFrame,
    by: Sequence[str] = GROUP,
    value: str = "recall",
    edges: Sequence[int] | None = SHOT_EDGES,
    fewest: int = 0,
) -> pd.DataFrame:
    """Mean recall of the classes of each shot, in-domain, out-of-domain and over all: the recall figure.

    Classes of one episode share its images and features, so the 95% interval is robust to clusters, an
    episode being one.

    Args:
        recalls: of `class_recall`, or of `paired_episodes(a, b, "recall", ["label"])` with value
        "difference".
        edges: lowest shot of each bin, rising from 1; None keeps every shot apart.
        fewest: neighbouring bins are pooled until each has so many classes.

    Returns:
        `by`, `domain`, `shot_low`, `shot_high`, `shot` (mean in the bin), `value`, `interval` (nan from one
        episode), `n_classes`, `n_episodes`; `n_replicates` too where there are several.
    """
    highest = int(recalls["shot"].max())
    lows = np.arange(1, highest + 1) if edges is None else np.asarray(edges)
    if lows[0] != 1 or (np.diff(lows) <= 0).any():
        raise ValueError(f"The edges {tuple(lows)} must rise from 1.")
    frames, keys = [], [*by, "shot_low", "shot_high"]
    for domain, members in DOMAINS.items():
        own = with_replicate(recalls[recalls["domain"].isin(members)])
        if len(own):
            starts = _pooled(own, lows, fewest)
            bins = np.searchsorted(starts, own["shot"].to_numpy(), side="right") - 1
            highs = np.append(starts[1:] - 1, max(highest, starts[-1]))
            own = own.assign(shot_low=starts[bins], shot_high=highs[bins])
            facts = {"shot": ("shot", "mean"), "n_classes": ("shot", "size"), value: (value, "mean")}
            facts = own.groupby(keys, observed=True).agg(**facts).reset_index()
            found = estimates(clustered(own, keys, value), keys, value).drop(columns=value).merge(facts, on=keys)
            n_classes = found["n_classes"] // found["n_replicates"]
            frames.append(found.assign(domain=domain, n_classes=n_classes))
    columns = ["domain", "shot_low", "shot_high", "shot", value, "interval", "n_classes", "n_episodes"]
    return told(pd.concat(frames, ignore_index=True), [*by, *columns])


def _pooled(classes: pd.DataFrame, lows: np.ndarray, fewest: int) -> np.ndarray:
    """The edges that leave every bin at least so many classes, from the lowest shot up."""
    shots = classes.drop_duplicates([*EPISODE, "label"])["shot"].to_numpy()
    counts = np.bincount(np.searchsorted(lows, shots, side="right") - 1, minlength=len(lows))
    edges, total = [lows[0]], 0
    for low, count in zip(lows, counts):
        if total >= fewest and low > edges[-1]:
            edges, total = [*edges, low], 0
        total += count
    return np.array(edges[:-1] if total < fewest and len(edges) > 1 else edges)


def way_frequencies(rows: pd.DataFrame) -> pd.DataFrame:
    """Number of `episodes` of each `way`, per evaluation and dataset; the trainings' episodes are the same."""
    once = rows.drop_duplicates(EPISODE)
    counts = once.groupby(["evaluation", "dataset", "domain", "way"], observed=True).size()
    return counts.reset_index(name="episodes")


def shot_frequencies(rows: pd.DataFrame) -> pd.DataFrame:
    """Number of `classes` of each `shot`, per evaluation and dataset; a class counts once per episode."""
    once = rows.drop_duplicates([*EPISODE, "label"])
    counts = once.groupby(["evaluation", "dataset", "domain", "shot"], observed=True).size()
    return counts.reset_index(name="classes")
