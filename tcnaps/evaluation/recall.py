"""Class recall against shot, and how often each way and shot occurs."""

import numpy as np
import pandas as pd

from tcnaps.evaluation.intervals import clustered, estimates
from tcnaps.evaluation.statistics import EPISODE, GROUP, averaged_together, reported, shares_right

SHOT_EDGES = (*range(1, 12), 16, 21, 31, 51, 101, 201)  # lowest shot of each bin, rising from 1


def class_recall(predictions: pd.DataFrame) -> pd.DataFrame:
    """The share of each class's queries that are recognised: one row per variant, replicate, episode and class."""
    return shares_right(predictions, ["label"], "recall", ["shot", "class_name"])


def recall_by_shot(recalls: pd.DataFrame, value: str = "recall", fewest: int = 0) -> pd.DataFrame:
    """The mean recall of the classes of each shot, in every group of `averaged_together`: the recall figure.

    Classes of one episode share its images and features, so the 95% interval takes an episode as a cluster.

    Args:
        recalls: from `class_recall`, or from `paired_episodes(a, b, "recall", ["label"])` with value "difference".
        fewest: neighbouring bins are pooled until each has this many classes.
    """
    highest, lows = int(recalls["shot"].max()), np.array(SHOT_EDGES)
    keys = [*GROUP, "shot_low", "shot_high"]
    frames = []
    for domain, classes in averaged_together(recalls).items():
        starts = _pooled_edges(classes, lows, fewest)
        ends = np.append(starts[1:] - 1, max(highest, starts[-1]))
        bins = np.searchsorted(starts, classes["shot"].to_numpy(), side="right") - 1
        classes = classes.assign(shot_low=starts[bins], shot_high=ends[bins])
        means = classes.groupby(keys, observed=True).agg(
            shot=("shot", "mean"), n_classes=("shot", "size"), **{value: (value, "mean")}
        )
        estimated = estimates(clustered(classes, keys, value), keys, value).drop(columns=value)
        estimated = estimated.merge(means.reset_index(), on=keys).assign(domain=domain)
        estimated["n_classes"] //= estimated["n_replicates"]
        frames.append(estimated)
    columns = ["domain", "shot_low", "shot_high", "shot", value, "interval", "n_classes", "n_episodes"]
    return reported(pd.concat(frames, ignore_index=True), [*GROUP, *columns])


def _pooled_edges(classes: pd.DataFrame, lows: np.ndarray, fewest: int) -> np.ndarray:
    """Those edges that leave every bin at least `fewest` classes, from the lowest shot up."""
    shots = classes.drop_duplicates([*EPISODE, "label"])["shot"].to_numpy()
    counts = np.bincount(np.searchsorted(lows, shots, side="right") - 1, minlength=len(lows))
    edges, total = [lows[0]], 0
    for low, count in zip(lows, counts):
        if total >= fewest and low > edges[-1]:
            edges, total = [*edges, low], 0
        total += count
    return np.array(edges[:-1] if total < fewest and len(edges) > 1 else edges)


def way_frequencies(rows: pd.DataFrame) -> pd.DataFrame:
    """The number of `episodes` of each `way`, per evaluation and dataset. An episode counts once."""
    return _frequencies(rows.drop_duplicates(EPISODE), "way", "episodes")


def shot_frequencies(rows: pd.DataFrame) -> pd.DataFrame:
    """The number of `classes` of each `shot`, per evaluation and dataset. A class counts once per episode."""
    return _frequencies(rows.drop_duplicates([*EPISODE, "label"]), "shot", "classes")


def _frequencies(rows: pd.DataFrame, column: str, name: str) -> pd.DataFrame:
    return rows.groupby(["evaluation", "dataset", "domain", column], observed=True).size().reset_index(name=name)
