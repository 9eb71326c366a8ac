"""What meta-training adds: accuracy and confidence of trained networks beside those of the same networks untrained.

Frames have one row per query. `start` comes from an evaluation with `before_training`, `trained` from one with the same
protocol after it. Only the episodes of both are compared.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from tcnaps.evaluation.intervals import clustered, estimates
from tcnaps.evaluation.statistics import accuracy_summary, domain_averages, episode_accuracies, paired_episodes
from tcnaps.evaluation.stopped_rows import recorded_predictions, rows_of_training, stopped, variant_predictions
from tcnaps.figures import style

EPISODE_COLUMNS = ["replicate", "evaluation", "dataset", "queries_per_class", "episode"]
SMALLEST_SHARE = 0.001  # of the queries; bins of confidence with fewer are not drawn
EDGES = tuple(i / 10 for i in range(11))  # of the bins of confidence


def shared_rows(start: pd.DataFrame, trained: pd.DataFrame) -> list[pd.DataFrame]:
    """The rows of the datasets and episodes of both, under the name of the evaluation after training."""
    names = [*start["evaluation"].unique(), *trained["evaluation"].unique()]
    if len(names) > 2:
        raise ValueError(f"The rows mix the evaluations {', '.join(names)}: pick one before training and one after.")
    keys = ["replicate", "dataset", "episode"]
    start = start.assign(evaluation=names[-1])
    return [a.merge(b[keys].drop_duplicates(), on=keys) for a, b in ((start, trained), (trained, start))]


def gain_of_training(
    start: pd.DataFrame, trained: pd.DataFrame, variants: Sequence[str], limits: tuple[int, int]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The paired gain of each variant: per dataset, as `accuracy_summary`, and its means, as `domain_averages`."""
    before, after = (
        dict(list(episode_accuracies(variant_predictions(rows, variants, *limits)).groupby("variant", sort=False)))
        for rows in shared_rows(start, trained)
    )
    pairs = pd.concat([paired_episodes(after[name], before[name]) for name in variants], ignore_index=True)
    return accuracy_summary(pairs, value="difference"), domain_averages(pairs, value="difference")


def reliability(
    start: pd.DataFrame, trained: pd.DataFrame, training: str, limits: tuple[int, int], edges: Sequence[float] = EDGES
) -> pd.DataFrame:
    """Confidence (the predicted class's responsibility) against accuracy; the queries of one episode are a cluster.

    Returns:
        One row per kind of images ("real" and "rendered" if there are both, else "all"), state ("start", "trained"),
        step ("step 0", "stop") and bin that has queries: mean `confidence`, `accuracy`, `interval` and `share`.
    """
    frames = []
    for state, rows in zip(("start", "trained"), shared_rows(start, trained)):
        rows = rows_of_training(rows, training)
        confidences, predictions = recorded_predictions(rows, "confidence"), recorded_predictions(rows)
        labels, every = rows["label"].to_numpy(), np.arange(len(rows))
        steps = {"step 0": np.zeros(len(rows), int), "stop": stopped(rows, *limits)["step"].to_numpy()}
        for name, step in steps.items():
            right = (predictions[every, step] == labels).astype(float)
            facts = {"state": state, "step": name, "confidence": confidences[every, step], "accuracy": right}
            frames.append(rows[EPISODE_COLUMNS].assign(**facts, images=_kind_of_images(rows)))
    queries = pd.concat(frames, ignore_index=True)
    queries["bin"] = np.searchsorted(edges, queries["confidence"], side="right").clip(1, len(edges) - 1)
    keys = ["images", "state", "step", "bin"]
    bins = estimates(clustered(queries, keys, "accuracy"), keys, "accuracy")
    means = queries.groupby(keys)["confidence"].agg(confidence="mean", share="size").reset_index()
    bins = bins.merge(means, on=keys)
    bins["share"] /= bins.groupby(keys[:-1])["share"].transform("sum")
    return bins[[*keys[:-1], "confidence", "accuracy", "interval", "share"]]


def _kind_of_images(rows: pd.DataFrame) -> pd.Series | str:
    return rows["images"] if "images" in rows and rows["images"].nunique() > 1 else "all"


def calibration(bins: pd.DataFrame) -> pd.DataFrame:
    """Mean `confidence`, `accuracy` and calibration `error` (Σ share · |accuracy − confidence|) per group of bins."""
    bins = bins.assign(error=(bins["accuracy"] - bins["confidence"]).abs())
    weighted = bins[["confidence", "accuracy", "error"]].mul(bins["share"], axis=0)
    return weighted.groupby([bins[key] for key in ("images", "state", "step")], sort=False).sum().reset_index()


def reliability_panels(axes: style.Panels, bins: pd.DataFrame) -> None:
    """Accuracy against confidence, a panel per kind of images and step. Sizes of dots are shares of queries."""
    looks = {"start": (style.ORANGE, "s", "before meta-training"), "trained": (style.BLUE, "o", "after")}
    bins = bins[bins["share"] >= SMALLEST_SHARE]
    for ax, ((kind, step), panel) in zip(axes, bins.groupby(["images", "step"], sort=False), strict=True):
        ax.plot([0, 100], [0, 100], color=style.GREY, linewidth=0.8, linestyle="--")
        for state, line in panel.groupby("state", sort=False):
            colour, marker, label = looks[state]
            x, y = 100 * line["confidence"], 100 * line["accuracy"]
            style.band(ax, x, line["accuracy"], line["interval"], colour, (0, 1))
            ax.plot(x, y, color=colour, label=label)
            ax.scatter(x, y, s=4 + 150 * line["share"], color=colour, marker=marker, linewidth=0, alpha=0.8)
        title = {"step 0": "Without refinement", "stop": "Where refinement stops"}[step]
        title = title if kind == "all" else f"{style.DOMAIN_NAMES[kind]}: {title.lower()}"
        ax.set(title=title, xlabel="Confidence (%)", ylabel="Accuracy (%)", xlim=(0, 101), ylim=(0, 101))
        ax.set_aspect("equal")
        ax.label_outer()
    style.legend_below(axes)
