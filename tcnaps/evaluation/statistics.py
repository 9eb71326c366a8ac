"""From one row per query to accuracies, 95% intervals, ranks, paired differences, recall and sweeps.

Use these in their order: `variant_predictions` (module `stopped_rows`), `episode_accuracies`, then `accuracy_summary`
or `domain_averages`. In means over datasets each dataset counts once; real and rendered images are never averaged.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from tcnaps.evaluation.intervals import clustered, estimates
from tcnaps.evaluation.stopped_rows import EPISODE, rule_accuracies

Columns, Steps = Sequence[str], Sequence[int]
DOMAINS = {"in": ("in",), "out": ("out",), "all": ("in", "out")}
GROUP = ("variant", "evaluation")  # the columns that summaries keep apart by default
SHOT_EDGES = (*range(1, 12), 16, 21, 31, 51, 101, 201)  # lowest shot of each bin, rising from 1


def episode_accuracies(predictions: pd.DataFrame) -> pd.DataFrame:
    """One row per variant, replicate and episode, from `variant_predictions`.

    `step` is where refinement stopped; `queries` is a digest of the queries' images and labels, which pairs must share.
    """
    return shares_right(predictions, [], "accuracy", ["way", "n_support", "step"])


def shares_right(predictions: pd.DataFrame, keys: Columns, value: str, kept: Columns) -> pd.DataFrame:
    """The share of queries predicted right, in the column `value`, per variant, replicate, episode and `keys`."""
    right = (predictions["label"] == predictions["prediction"]).astype(float)
    # A number for each query, from its image and label. Groups with equal sums have the same queries.
    identity = predictions.filter(["query", "image", "label"]).astype(np.int64)
    columns = {column: (column, "first") for column in [*kept, *(["images"] if "images" in predictions else [])]}
    columns |= {"n_query": (value, "size"), value: (value, "mean"), "queries": ("queries", "sum")}
    queries = predictions.assign(**{value: right, "queries": pd.util.hash_pandas_object(identity, index=False)})
    groups = queries.groupby(["variant", "replicate", *EPISODE, *keys], sort=False, observed=True)
    return groups.agg(**columns).reset_index()


def accuracy_summary(episodes: pd.DataFrame, by: Columns = GROUP, value: str = "accuracy") -> pd.DataFrame:
    """The mean of `value` ("accuracy" or "difference") on each dataset, with its 95% interval; see `estimates`.

    Values of the columns in `by` are summarised apart. Add "queries_per_class" where one evaluation has several.
    """
    by = [*by, "dataset", "domain", *(["images"] if "images" in episodes else [])]
    return reported(estimates(episodes, by, value), [*by, value, "interval", "n_episodes"])


def domain_averages(episodes: pd.DataFrame, by: Columns = GROUP, value: str = "accuracy") -> pd.DataFrame:
    """Unweighted means over the datasets of each group of `averaged_together`, named in `domain`; see `estimates`."""
    frames = [estimates(rows, by, value).assign(domain=name) for name, rows in averaged_together(episodes).items()]
    return reported(pd.concat(frames, ignore_index=True), [*by, "domain", value, "interval", "n_datasets"])


def with_classes(episodes: pd.DataFrame, rows: pd.DataFrame, of_class: str = "class_name") -> pd.DataFrame:
    """Adds `classes`, tuples of each episode's classes by name, or of their "shot"; `rows` hold one row per query."""
    place = ["evaluation", "dataset", "episode"]
    one = rows[rows["replicate"] == rows["replicate"].iloc[0]]  # all trainings and replicates have the same episodes
    one = one.drop_duplicates([*place, "label"]).sort_values("label")
    return episodes.merge(one.groupby(place)[of_class].agg(tuple).rename("classes").reset_index(), on=place)


def averaged_together(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The rows "in"-domain, "out"-of-domain and of "all" datasets, or "real" and "rendered" where there are both."""
    if "images" in frame and frame["images"].nunique() > 1:
        return {kind: frame[frame["images"] == kind] for kind in ("real", "rendered")}
    return {name: rows for name, domains in DOMAINS.items() if len(rows := frame[frame["domain"].isin(domains)])}


def overall(averages: pd.DataFrame) -> pd.DataFrame:
    """The rows of `domain_averages` for "all" datasets, or where there are both kinds of images, for each kind."""
    return averages[~averages["domain"].isin(["in", "out"])].reset_index(drop=True)


def reported(estimated: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """Some columns of `estimates`, with the number of replicates where any row has several."""
    return estimated[columns + ["n_replicates"] * int(estimated["n_replicates"].max() > 1)]


def average_ranks(summary: pd.DataFrame) -> pd.DataFrame:
    """The average rank of each variant over each group of `averaged_together`; 1 is best.

    A variant's rank is 1 + the number of variants whose interval lies wholly above its own, or touches it, which gives
    the paper's ranks for its own method. `summary` is of one evaluation; a variant may lack datasets.
    """
    _check_unique(summary)
    accuracy, interval, dataset = (summary[name].to_numpy() for name in ("accuracy", "interval", "dataset"))
    apart = (accuracy - interval)[None, :] >= (accuracy + interval)[:, None] - 1e-9  # may touch, as in the paper
    above = (accuracy[None, :] > accuracy[:, None]) & (dataset[None, :] == dataset[:, None])
    groups = averaged_together(summary.assign(rank=1 + (apart & above).sum(axis=1)))
    ranked = pd.concat(members.assign(domain=domain) for domain, members in groups.items())
    means = ranked.groupby(["variant", "domain"], observed=True)["rank"].agg(rank="mean", n_datasets="size")
    return ranked[["variant", "domain"]].drop_duplicates().merge(means.reset_index())


def best(summary: pd.DataFrame, episodes: pd.DataFrame) -> pd.Series:
    """Which variants are not significantly worse than the best of their dataset; a table sets them in bold.

    The test is paired, on `episodes` from `episode_accuracies`, which detects smaller differences than intervals do.
    """
    _check_unique(summary)
    if episodes["evaluation"].nunique() > 1:
        raise ValueError(f"The episodes mix the evaluations {', '.join(episodes['evaluation'].unique())}: pick one.")
    bold = pd.Series(False, index=summary.index)
    for dataset, cell in summary.groupby("dataset", sort=False, observed=True):
        top = cell["accuracy"].idxmax()
        by_method = dict(list(episodes[episodes["dataset"] == dataset].groupby("variant", observed=True)))
        for row, name in cell["variant"].items():
            pairs = paired_episodes(by_method[cell.at[top, "variant"]], by_method[name])
            lead = accuracy_summary(pairs, ["evaluation"], "difference")
            bold[row] = row == top or not lead["difference"].item() > lead["interval"].item()
    return bold


def _check_unique(summary: pd.DataFrame) -> None:
    if summary.duplicated(["variant", "dataset"]).any():
        raise ValueError("The summary holds a variant and dataset more than once: pick one evaluation first.")


def paired_episodes(a: pd.DataFrame, b: pd.DataFrame, value: str = "accuracy", extra: Columns = ()) -> pd.DataFrame:
    """a − b on every episode, as `difference`. A ValueError if a and b differ in episodes or in an episode's queries.

    Columns in `extra` tell rows of one episode apart, such as `label` for class recall.
    """
    name = "{evaluation}, {dataset}, episode {episode}".format_map
    keys = ["replicate", *EPISODE, *extra]
    compared = [value, "queries"] if "queries" in a and "queries" in b else [value]
    pairs = a.merge(b[[*keys, *compared]], on=keys, suffixes=("", "_b"), validate="one_to_one")
    if len(unpaired := pd.concat([a[keys], b[keys]]).drop_duplicates(keep=False)):
        names = [name(row) for _, row in unpaired.drop_duplicates(EPISODE).iterrows()]
        lone = f"{len(names)} are on one side only, such as {'; '.join(names[:3])}"
        remedy = "Evaluate both with the same seed and number of episodes"
        raise ValueError(f"Paired differences need the same episodes on both sides; {lone}. {remedy}.")
    if "queries" in compared and len(other := pairs[pairs["queries"] != pairs["queries_b"]]):
        problem = "Paired differences need the same images and labels on both sides; they differ in"
        raise ValueError(f"{problem} {name(other.iloc[0])}. Evaluate both again.")
    differences = pairs.assign(difference=pairs[value] - pairs[f"{value}_b"])
    return differences.drop(columns=[f"{column}_b" for column in compared])


def refinement_grid(
    rows: pd.DataFrame, training: str, minima: Steps, maxima: Steps, domain: str = "all", rule: tuple[int, int] = (2, 4)
) -> pd.DataFrame:
    """The accuracy for every minimum ≤ maximum number of refinement steps, averaged over datasets; one evaluation.

    `gain` is over no refinement, `beyond` over `rule`; both are paired, with `gain_interval` and `beyond_interval`.
    Where minimum and maximum are equal, an episode is refined exactly so many times.
    """
    groups = averaged_together(rows)
    if domain not in groups:
        raise ValueError(f"The rows have no group '{domain}'; they have {', '.join(groups)}.")
    if rows["evaluation"].nunique() > 1:
        raise ValueError(f"The rows mix the evaluations {', '.join(map(str, rows['evaluation'].unique()))}: pick one.")
    cells = {f"{low}, {high}": (low, high) for low in minima for high in maxima if low <= high}
    bases = {"gain": (0, 0), "beyond": (min(rule[0], max(maxima)), min(rule[1], max(maxima)))}
    episodes = rule_accuracies(groups[domain], training, {**bases, **cells})
    for name in bases:  # every rule has the same episodes in the same order
        base = episodes.loc[episodes["variant"] == name, "accuracy"].to_numpy()
        episodes[name] = episodes["accuracy"] - np.tile(base, len(bases) + len(cells))
    minimum, maximum = zip(*cells.values())
    averages = {"minimum": minimum, "maximum": maximum, "domain": domain}
    for value in ("accuracy", *bases):
        estimated = estimates(episodes, ["variant"], value).set_index("variant").loc[list(cells)]
        averages |= {value: estimated[value], f"{value}_interval".removeprefix("accuracy_"): estimated["interval"]}
    return reported(estimated.assign(**averages), [*averages, "n_datasets"]).reset_index(drop=True)


def gain_by_query_count(episodes: pd.DataFrame) -> pd.DataFrame:
    """What more queries per class add to the accuracy with the fewest, paired; from rows of `load_query_counts`."""
    frames = []
    for _, group in episodes.groupby(["evaluation", "variant"], sort=False, observed=True):
        by_count = dict(list(group.groupby("queries_per_class")))  # rising
        for number, most in by_count.items():
            pairs = paired_query_counts(most, by_count[min(by_count)])
            frames.append(overall(domain_averages(pairs, value="difference")).assign(queries_per_class=number))
    return pd.concat(frames, ignore_index=True)


def paired_query_counts(most: pd.DataFrame, fewest: pd.DataFrame) -> pd.DataFrame:
    """The paired differences between two numbers of queries per class, on the episodes that both have.

    An episode's support images are the same with any number of queries; its queries are not, and are not compared.
    """
    keys = ["dataset", "episode", "replicate"]
    sides = (most.merge(fewest[keys], on=keys), fewest.merge(most[keys], on=keys))
    facts = {"evaluation": most["evaluation"].iloc[0], "queries_per_class": most["queries_per_class"].iloc[0]}
    return paired_episodes(*(side.drop(columns="queries").assign(**facts) for side in sides))


def class_recall(predictions: pd.DataFrame) -> pd.DataFrame:
    """The share of each class's queries that are recognised: one row per variant, replicate, episode and class."""
    return shares_right(predictions, ["label"], "recall", ["shot", "class_name"])


def recall_by_shot(recalls: pd.DataFrame, value: str = "recall", fewest: int = 0) -> pd.DataFrame:
    """The mean recall of the classes of each shot, in every group of `averaged_together`; an episode is a cluster.

    `recalls` come from `class_recall` or, for "difference", `paired_episodes`. Evaluations share bins, of which each
    holds `fewest` of their classes or more.
    """
    highest, frames = int(recalls["shot"].max()), []
    keys = [*GROUP, "shot_low", "shot_high"]
    for domain, classes in averaged_together(recalls).items():
        starts = _pooled_edges(classes, fewest)
        ends = np.append(starts[1:] - 1, max(highest, starts[-1]))
        bins = np.searchsorted(starts, classes["shot"].to_numpy(), side="right") - 1
        classes = classes.assign(shot_low=starts[bins], shot_high=ends[bins])
        columns = {"shot": ("shot", "mean"), "n_classes": ("shot", "size"), value: (value, "mean")}
        means = classes.groupby(keys, observed=True).agg(**columns)
        estimated = estimates(clustered(classes, keys, value), keys, value).drop(columns=value)
        estimated = estimated.merge(means.reset_index(), on=keys).assign(domain=domain)
        estimated["n_classes"] //= estimated["n_replicates"]
        frames.append(estimated)
    columns = ["domain", "shot_low", "shot_high", "shot", value, "interval", "n_classes", "n_episodes"]
    return reported(pd.concat(frames, ignore_index=True), [*GROUP, *columns])


def _pooled_edges(classes: pd.DataFrame, fewest: int) -> np.ndarray:
    """Those `SHOT_EDGES` that leave every bin at least `fewest` classes, from the lowest shot up."""
    counts, _ = np.histogram(classes.drop_duplicates([*EPISODE, "label"])["shot"], [*SHOT_EDGES, np.inf])
    edges, total = [SHOT_EDGES[0]], 0
    for low, count in zip(SHOT_EDGES, counts):
        if total >= fewest and low > edges[-1]:
            edges, total = [*edges, low], 0
        total += count
    return np.array(edges[:-1] if total < fewest and len(edges) > 1 else edges)


def frequencies(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    """How many `episodes` have each "way", or how many `classes` each "shot", per evaluation and dataset."""
    name, counted = {"way": ("episodes", EPISODE), "shot": ("classes", [*EPISODE, "label"])}[column]
    groups = rows.drop_duplicates(counted).groupby(["evaluation", "dataset", "domain", column], observed=True)
    return groups.size().reset_index(name=name)
