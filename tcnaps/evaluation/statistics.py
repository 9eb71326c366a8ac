"""One row per query → accuracy, 95% intervals, paired differences, ranks, sweeps of the stopping rule.

Pure functions from frame to frame; accuracies and intervals are in [0, 1], an interval being the half-width
of a 95% one (module `intervals`). The order of use is `variant_predictions` (module `stopped_rows`) →
`episode_accuracies` → `accuracy_summary` or `domain_averages`, and `tcnaps.figures` for the result. Averages over
datasets are unweighted: each dataset counts once.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from tcnaps.evaluation.intervals import estimates
from tcnaps.evaluation.stopped_rows import (
    episode_trajectories,
    require_columns,
    rows_of_training,
    stopped_accuracy,
    with_replicate,
)

DOMAINS = {"in": ("in",), "out": ("out",), "all": ("in", "out")}
GROUP = ("variant", "evaluation")  # what the summaries keep apart unless told otherwise
# An episode, whatever the training: the same images for all of them.
EPISODE = ["evaluation", "dataset", "domain", "split", "queries_per_class", "episode"]


def episode_accuracies(predictions: pd.DataFrame) -> pd.DataFrame:
    """One row per variant and episode.

    Args:
        predictions: one row per query, of `variant_predictions`.

    Returns:
        `variant`, the episode's key, `way`, `n_support`, `n_query`, `step` (where refinement stopped),
        `accuracy` and `queries` (a digest of the queries' images and labels, which pairs must share).
    """
    require_columns(predictions, ["variant", *EPISODE, "label", "prediction", "step", "way", "n_support"])
    right = (predictions["label"] == predictions["prediction"]).astype(float)
    hits = with_replicate(predictions).assign(accuracy=right, queries=query_digests(predictions))
    grouped = hits.groupby(["variant", "replicate", *EPISODE], sort=False, observed=True)
    return grouped.agg(
        way=("way", "first"),
        n_support=("n_support", "first"),
        n_query=("label", "size"),
        step=("step", "first"),
        accuracy=("accuracy", "mean"),
        queries=("queries", "sum"),
    ).reset_index()


def query_digests(rows: pd.DataFrame) -> pd.Series:
    """A number for each row made of its query's image and label; their sums tell whether two episodes share them."""
    seen = rows[[column for column in ("query", "image", "label") if column in rows]]
    return pd.util.hash_pandas_object(seen.astype(np.int64), index=False)


def accuracy_summary(
    episodes: pd.DataFrame, by: Sequence[str] = GROUP, value: str = "accuracy", interval: str = "student"
) -> pd.DataFrame:
    """Mean over the episodes of each dataset, and over the replicates, with its 95% interval.

    Args:
        by: columns whose values are summarised apart. Add "queries_per_class" where one evaluation has several.
        value: the column summarised, "accuracy" or "difference".
        interval: "student" or "released", as for `estimates`.

    Returns:
        `by`, `dataset`, `domain`, `value`, `interval` (nan from one episode) and `n_episodes`, in order of
        appearance; `n_replicates` too where there are several.

    Raises:
        ValueError: of `estimates`.
    """
    by = [*by, "dataset", "domain"]
    return told(estimates(episodes, by, value, interval), [*by, value, "interval", "n_episodes"])


def domain_averages(
    episodes: pd.DataFrame, by: Sequence[str] = GROUP, value: str = "accuracy", interval: str = "student"
) -> pd.DataFrame:
    """Unweighted means over the datasets in-domain, out-of-domain and all, from the same frame as `accuracy_summary`.

    Returns:
        `by`, `domain` ("in", "out", "all"; none without datasets), `value`, `interval` and `n_datasets`; `n_replicates`
        too where there are several.
    """
    frames = []
    for domain, members in DOMAINS.items():
        own = episodes[episodes["domain"].isin(members)]
        if len(own):
            frames.append(estimates(own, by, value, interval).assign(domain=domain))
    return told(pd.concat(frames, ignore_index=True), [*by, "domain", value, "interval", "n_datasets"])


def told(found: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """Some columns of `estimates`, and the number of replicates where any has several."""
    return found[columns + ["n_replicates"] * int(found["n_replicates"].max() > 1)]


def paired_episodes(
    a: pd.DataFrame, b: pd.DataFrame, value: str = "accuracy", extra: Sequence[str] = ()
) -> pd.DataFrame:
    """a − b on every episode, as `difference`, for two frames over the same episodes.

    Args:
        extra: further columns that tell rows of one episode apart, as `label` does for class recall.

    Raises:
        ValueError: a frame holds several rows for one episode, or the two hold different episodes or different
            queries in one episode, which are named.
    """
    a, b, keys = with_replicate(a), with_replicate(b), ["replicate", *EPISODE, *extra]
    compared = [value, "queries"] if "queries" in a and "queries" in b else [value]
    if a.duplicated(keys).any() or b.duplicated(keys).any():
        raise ValueError("A frame to be paired holds an episode more than once: pair one variant with one other.")
    pairs = a.merge(b[[*keys, *compared]], on=keys, how="left", suffixes=("", "_b"), indicator="side")
    strays = b[keys].merge(a[keys], on=keys, how="left", indicator="side")
    single = pd.concat([frame.loc[frame["side"] != "both", EPISODE] for frame in (pairs, strays)])
    if len(single):
        single = single.drop_duplicates()
        names = [f"{row.evaluation}, {row.dataset}, episode {row.episode}" for row in single.itertuples()]
        raise ValueError(
            "Paired differences need the same episodes on both sides; "
            f"{len(names)} are on one side only, such as {'; '.join(names[:3])}. "
            "Evaluate both with the same seed and number of episodes."
        )
    if "queries" in compared and len(other := pairs[pairs["queries"] != pairs["queries_b"]]):
        row = other.iloc[0]
        raise ValueError(
            "Paired differences need the same images and labels on both sides; they differ in "
            f"{row['evaluation']}, {row['dataset']}, episode {row['episode']}. Evaluate both again."
        )
    differences = pairs.assign(difference=pairs[value] - pairs[f"{value}_b"])
    return differences.drop(columns=[*(f"{column}_b" for column in compared), "side"])


def paired_difference(a: pd.DataFrame, b: pd.DataFrame, by: Sequence[str] = ("evaluation",)) -> pd.DataFrame:
    """Mean of a − b per dataset, from the same episodes, with the 95% interval of the mean difference.

    Args:
        a, b: frames of `episode_accuracies`, one variant each.

    Returns:
        `by`, `dataset`, `domain`, `difference`, `interval`, `n_episodes`, as `accuracy_summary`. For the mean over
        datasets there is `domain_averages(paired_episodes(a, b), by, "difference")`.

    Raises:
        ValueError: the sets of episodes differ; the message names some.
    """
    return accuracy_summary(paired_episodes(a, b), by, value="difference")


def rule_accuracies(rows: pd.DataFrame, training: str, rules: Mapping[str, tuple[int, int]]) -> pd.DataFrame:
    """Accuracy per episode under several stopping rules, as `episode_accuracies`; `variant` is the rule.

    Args:
        rules: name → (minimum, maximum), such as {"No refinement": (0, 0), "Minimum 2, maximum 4": (2, 4)}.
    """
    trajectories = episode_trajectories(rows_of_training(rows, training))
    episodes = trajectories[["replicate", *EPISODE, "way", "n_support", "n_query"]]
    frames = []
    for name, limits in rules.items():
        step, accuracy = stopped_accuracy(trajectories, *limits)
        frames.append(episodes.assign(variant=name, step=step, accuracy=accuracy))
    return pd.concat(frames, ignore_index=True)


def refinement_grid(
    rows: pd.DataFrame,
    training: str,
    minima: Sequence[int],
    maxima: Sequence[int],
    domain: str = "all",
    rule: tuple[int, int] = (2, 4),
) -> pd.DataFrame:
    """Accuracy for every minimum ≤ maximum number of refinement steps, averaged over datasets.

    Args:
        rows: of one evaluation.
        rule: minimum and maximum that the others are compared with.

    Returns:
        `domain`, `minimum`, `maximum`, `accuracy`, `interval`; `gain` over no refinement and `beyond`, over `rule`, on
        the same episodes, with `gain_interval` and `beyond_interval`.
    """
    cells = [(low, high) for low in minima for high in maxima if low <= high]
    limits = pd.DataFrame(cells, columns=["minimum", "maximum"])
    bases = {"gain": (0, 0), "beyond": (min(rule[0], max(maxima)), min(rule[1], max(maxima)))}
    return pd.concat([limits, _rule_averages(rows, training, cells, domain, bases)], axis=1)


def accuracy_by_step(rows: pd.DataFrame, training: str, steps: Sequence[int], domain: str = "all") -> pd.DataFrame:
    """Accuracy after exactly 0, 1, 2, … refinement steps, averaged over datasets; `gain` is over step 0."""
    return _rule_averages(rows, training, [(t, t) for t in steps], domain, {"gain": (0, 0)}).assign(step=list(steps))


def _rule_averages(
    rows: pd.DataFrame, training: str, cells: list[tuple[int, int]], domain: str, bases: Mapping[str, tuple[int, int]]
) -> pd.DataFrame:
    if domain not in DOMAINS:
        raise ValueError(f"There is no domain '{domain}'; choose among {', '.join(DOMAINS)}.")
    if rows["evaluation"].nunique() > 1:
        raise ValueError(f"The rows mix the evaluations {', '.join(map(str, rows['evaluation'].unique()))}: pick one.")
    rows = rows[rows["domain"].isin(DOMAINS[domain])]
    rules = {f"{low}, {high}": (low, high) for low, high in cells}
    episodes = rule_accuracies(rows, training, {**bases, **rules})
    for name in bases:
        base = episodes.loc[episodes["variant"] == name, "accuracy"].to_numpy()
        episodes[name] = episodes["accuracy"] - np.tile(base, len(bases) + len(rules))
    averages = pd.DataFrame({"domain": domain}, index=pd.Index(rules, name="variant"))
    for value in ("accuracy", *bases):
        found = estimates(episodes, ["variant"], value).set_index("variant").loc[list(rules)]
        averages[value] = found[value]
        averages["interval" if value == "accuracy" else f"{value}_interval"] = found["interval"]
    averages = averages.assign(n_datasets=found["n_datasets"], n_replicates=found["n_replicates"])
    return told(averages, list(averages.columns[:-1])).reset_index(drop=True)


def accuracy_by_query_count(episodes: pd.DataFrame) -> pd.DataFrame:
    """Accuracy against the number of queries per class, averaged over datasets (the paper's appendix B.1).

    Args:
        episodes: of rows that `load_query_counts` gives.

    Raises:
        ValueError: some number of queries lacks a dataset or episode that another has.
    """
    counts = episodes.groupby("evaluation")["queries_per_class"].transform("nunique")
    held = episodes.groupby(["evaluation", "dataset", "episode"])["queries_per_class"].transform("nunique")
    if (held < counts).any():
        row = episodes[held < counts].iloc[0]
        raise ValueError(
            f"{row['evaluation']}, {row['dataset']}, episode {row['episode']} lacks some of the "
            "numbers of queries: keep what all have, as load_query_counts does."
        )
    by = [*GROUP, "queries_per_class"]
    averages = domain_averages(episodes, by)
    return averages[averages["domain"] == "all"].drop(columns="domain").reset_index(drop=True)


def gain_from_queries(episodes: pd.DataFrame) -> pd.DataFrame:
    """What the largest number of queries per class adds to the accuracy at the smallest, averaged over datasets.

    Episodes of one number have the same support images, so the differences are paired.

    Args:
        episodes: as for `accuracy_by_query_count`, of one variant.

    Returns:
        `evaluation`, `fewest`, `most` (queries per class), `difference`, `interval` and `n_datasets`.
    """
    frames = []
    for _, own in episodes.groupby("evaluation", sort=False, observed=True):
        fewest, most = own["queries_per_class"].min(), own["queries_per_class"].max()
        sides = [
            own[own["queries_per_class"] == count].drop(columns="queries").assign(queries_per_class=most)
            for count in (most, fewest)
        ]
        growth = domain_averages(paired_episodes(*sides), ["evaluation"], "difference")
        frames.append(growth[growth["domain"] == "all"].drop(columns="domain").assign(fewest=fewest, most=most))
    return pd.concat(frames, ignore_index=True)
