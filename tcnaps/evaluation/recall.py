"""Class recall against shot, and how often each way and shot occurs."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from tcnaps.evaluation.statistics import DOMAINS, EPISODE, GROUP, query_digests, student

SHOT_EDGES = (*range(1, 12), 16, 21, 31, 51, 101, 201)  # lowest shot of each bin


def class_recall(predictions: pd.DataFrame) -> pd.DataFrame:
    """Share of each class's queries that are recognised: one row per variant, episode and class."""
    right = (predictions["label"] == predictions["prediction"]).astype(float)
    hits = predictions.assign(recall=right, queries=query_digests(predictions))
    grouped = hits.groupby(["variant", *EPISODE, "label"], sort=False, observed=True)
    return grouped.agg(
        shot=("shot", "first"), n_query=("recall", "size"), recall=("recall", "mean"), queries=("queries", "sum")
    ).reset_index()


def recall_by_shot(
    recalls: pd.DataFrame, by: Sequence[str] = GROUP, value: str = "recall", edges: Sequence[int] | None = SHOT_EDGES
) -> pd.DataFrame:
    """Mean recall of the classes of each shot, in-domain, out-of-domain and over all: the recall figure.

    Classes of one episode share its images and features, so the 95% interval is robust to clusters, an
    episode being one.

    Args:
        recalls: of `class_recall`, or of `paired_episodes(a, b, "recall", ["label"])` with value
        "difference".
        edges: lowest shot of each bin, rising from 1; None keeps every shot apart.

    Returns:
        `by`, `domain`, `shot_low`, `shot_high`, `shot` (mean in the bin), `value`, `interval` (nan from one
        episode), `n_classes`, `n_episodes`.
    """
    highest = int(recalls["shot"].max())
    lows = np.arange(1, highest + 1) if edges is None else np.asarray(edges)
    if lows[0] != 1 or (np.diff(lows) <= 0).any():
        raise ValueError(f"The edges {tuple(lows)} must rise from 1.")
    bins = np.searchsorted(lows, recalls["shot"].to_numpy(), side="right") - 1
    highs = np.append(lows[1:] - 1, max(highest, lows[-1]))
    binned = recalls.assign(shot_low=lows[bins], shot_high=highs[bins])
    frames = []
    for domain, members in DOMAINS.items():
        chosen = binned[binned["domain"].isin(members)]
        if len(chosen):
            means = _clustered_means(chosen, [*by, "shot_low", "shot_high"], value)
            frames.append(means.assign(domain=domain))
    result = pd.concat(frames, ignore_index=True)
    columns = ["domain", "shot_low", "shot_high", "shot", value, "interval", "n_classes", "n_episodes"]
    return result[[*by, *columns]]


def _clustered_means(classes: pd.DataFrame, by: list[str], value: str) -> pd.DataFrame:
    """Means over N classes in G episodes, of variance G/(G − 1) · Σ (sum of an episode's residuals)² / N²."""
    grouped = classes.groupby(by, sort=True, observed=True)
    residual = classes[value] - grouped[value].transform("mean")
    cluster = [*by, *(column for column in EPISODE if column not in by)]
    totals = classes.assign(total=residual).groupby(cluster, observed=True)["total"].sum() ** 2
    clusters = totals.groupby(by, sort=True, observed=True)
    n, g = grouped.size(), clusters.size()
    correction = g / (g - 1).where(g > 1)  # nan where one episode leaves no variance between episodes
    half_width = student(g) * np.sqrt(clusters.sum() * correction) / n
    means = {"shot": grouped["shot"].mean(), value: grouped[value].mean(), "interval": half_width}
    return pd.DataFrame({**means, "n_classes": n, "n_episodes": g}).reset_index()


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
