"""From one row per query to accuracies, 95% intervals, paired differences and sweeps of the stopping rule.

Use these in their order: `variant_predictions` (module `stopped_rows`), `episode_accuracies`, then `accuracy_summary`
or `domain_averages`. In means over datasets each dataset counts once; real and rendered images are never averaged.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from tcnaps.evaluation.intervals import estimates
from tcnaps.evaluation.stopped_rows import episode_trajectories, rows_of_training, stopped_accuracy

DOMAINS = {"in": ("in",), "out": ("out",), "all": ("in", "out")}
GROUP = ("variant", "evaluation")  # the columns that summaries keep apart by default
# The columns that identify an episode. All trainings see the same images in it.
EPISODE = ["evaluation", "dataset", "domain", "split", "queries_per_class", "episode"]


def episode_accuracies(predictions: pd.DataFrame) -> pd.DataFrame:
    """One row per variant, replicate and episode, from `variant_predictions`.

    It has the columns of `EPISODE`, `way`, `n_support`, `step` (where refinement stopped), `n_query`, `accuracy` and
    `queries` (a digest of the queries' images and labels, which pairs must share).
    """
    return shares_right(predictions, [], "accuracy", ["way", "n_support", "step"])


def shares_right(predictions: pd.DataFrame, keys: Sequence[str], value: str, kept: Sequence[str]) -> pd.DataFrame:
    """The share of queries predicted right, in the column `value`, per variant, replicate, episode and `keys`."""
    groups = ["variant", "replicate", *EPISODE, *keys]
    right = (predictions["label"] == predictions["prediction"]).astype(float)
    # A number for each query, from its image and label. Groups with equal sums have the same queries.
    identity = predictions[[column for column in ("query", "image", "label") if column in predictions]]
    digests = pd.util.hash_pandas_object(identity.astype(np.int64), index=False)
    columns = {column: (column, "first") for column in [*kept, *(["images"] if "images" in predictions else [])]}
    columns |= {"n_query": (value, "size"), value: (value, "mean"), "queries": ("queries", "sum")}
    queries = predictions.assign(**{value: right, "queries": digests})
    return queries.groupby(groups, sort=False, observed=True).agg(**columns).reset_index()


def accuracy_summary(episodes: pd.DataFrame, by: Sequence[str] = GROUP, value: str = "accuracy") -> pd.DataFrame:
    """The mean of `value` ("accuracy" or "difference") on each dataset, with its 95% interval; see `estimates`.

    Values of the columns in `by` are summarised apart. Add "queries_per_class" where one evaluation has several. Rows
    are in order of appearance, with `domain` and `images`; `n_replicates` is there where there are several.
    """
    by = [*by, "dataset", "domain", *(["images"] if "images" in episodes else [])]
    return reported(estimates(episodes, by, value), [*by, value, "interval", "n_episodes"])


def domain_averages(episodes: pd.DataFrame, by: Sequence[str] = GROUP, value: str = "accuracy") -> pd.DataFrame:
    """Unweighted means over the datasets of each group of `averaged_together`, named in `domain`; see `estimates`."""
    groups = averaged_together(episodes)
    frames = [estimates(members, by, value).assign(domain=name) for name, members in groups.items()]
    return reported(pd.concat(frames, ignore_index=True), [*by, "domain", value, "interval", "n_datasets"])


def with_classes(episodes: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """Adds the column `classes`, the names of each episode's classes; `rows` hold one row per query."""
    place = ["evaluation", "dataset", "episode"]
    one = rows[rows["replicate"] == rows["replicate"].iloc[0]]  # all trainings and replicates have the same episodes
    one = one.drop_duplicates([*place, "label"])
    classes = one.groupby(place, observed=True)["class_name"].agg(tuple)
    return episodes.merge(classes.rename("classes").reset_index(), on=place)


def averaged_together(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The rows of the datasets in-domain ("in"), out-of-domain ("out") and "all", as far as there are any.

    Where some images are real and some rendered, those of each kind instead ("real", "rendered").
    """
    if "images" in frame and frame["images"].nunique() > 1:
        return {kind: frame[frame["images"] == kind] for kind in ("real", "rendered")}
    groups = {name: frame[frame["domain"].isin(domains)] for name, domains in DOMAINS.items()}
    return {name: rows for name, rows in groups.items() if len(rows)}


def overall(averages: pd.DataFrame) -> pd.DataFrame:
    """The rows of `domain_averages` for "all" datasets, or where there are both kinds of images, for each kind."""
    return averages[~averages["domain"].isin(["in", "out"])].reset_index(drop=True)


def reported(estimated: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """Some columns of `estimates`, with the number of replicates where any row has several."""
    return estimated[columns + ["n_replicates"] * int(estimated["n_replicates"].max() > 1)]


def paired_episodes(
    a: pd.DataFrame, b: pd.DataFrame, value: str = "accuracy", extra: Sequence[str] = ()
) -> pd.DataFrame:
    """a − b on every episode, as `difference`; a ValueError where the two differ in episodes or in one's queries.

    Columns in `extra` tell rows of one episode apart, such as `label` for class recall.
    """
    keys = ["replicate", *EPISODE, *extra]
    compared = [value, "queries"] if "queries" in a and "queries" in b else [value]
    pairs = a.merge(b[[*keys, *compared]], on=keys, suffixes=("", "_b"), validate="one_to_one")
    unpaired = pd.concat([a[keys], b[keys]]).drop_duplicates(keep=False)
    if len(unpaired):
        names = [_name(row) for _, row in unpaired.drop_duplicates(EPISODE).iterrows()]
        raise ValueError(
            f"Paired differences need the same episodes on both sides; {len(names)} are on one side only, such as "
            f"{'; '.join(names[:3])}. Evaluate both with the same seed and number of episodes."
        )
    if "queries" in compared and len(other := pairs[pairs["queries"] != pairs["queries_b"]]):
        raise ValueError(
            "Paired differences need the same images and labels on both sides; they differ in "
            f"{_name(other.iloc[0])}. Evaluate both again."
        )
    differences = pairs.assign(difference=pairs[value] - pairs[f"{value}_b"])
    return differences.drop(columns=[f"{column}_b" for column in compared])


def _name(row: pd.Series) -> str:
    return f"{row['evaluation']}, {row['dataset']}, episode {row['episode']}"


def rule_accuracies(rows: pd.DataFrame, training: str, rules: Mapping[str, tuple[int, int]]) -> pd.DataFrame:
    """The accuracy of every episode under several stopping rules, name → (minimum, maximum); `variant` is the name."""
    trajectories = episode_trajectories(rows_of_training(rows, training))
    columns = ["replicate", *EPISODE, "images", "way", "n_support", "n_query"]
    episodes = trajectories[[column for column in columns if column in trajectories]]
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
    """The accuracy for every minimum ≤ maximum number of refinement steps, averaged over datasets; one evaluation.

    Returns:
        `domain`, `minimum`, `maximum`, `accuracy`, `interval`; `gain` (over no refinement) and `beyond` (over `rule`),
        paired, with `gain_interval` and `beyond_interval`.
    """
    cells = [(low, high) for low in minima for high in maxima if low <= high]
    bases = {"gain": (0, 0), "beyond": (min(rule[0], max(maxima)), min(rule[1], max(maxima)))}
    limits = pd.DataFrame(cells, columns=["minimum", "maximum"])
    return pd.concat([limits, _rule_averages(rows, training, cells, domain, bases)], axis=1)


def accuracy_by_step(rows: pd.DataFrame, training: str, steps: Sequence[int], domain: str = "all") -> pd.DataFrame:
    """The accuracy after exactly 0, 1, 2, … refinement steps, averaged over datasets; `gain` is over step 0."""
    return _rule_averages(rows, training, [(t, t) for t in steps], domain, {"gain": (0, 0)}).assign(step=list(steps))


def _rule_averages(
    rows: pd.DataFrame, training: str, cells: list[tuple[int, int]], domain: str, bases: Mapping[str, tuple[int, int]]
) -> pd.DataFrame:
    """Averages of every rule in `cells`, and their paired differences from each rule in `bases`."""
    groups = averaged_together(rows)
    if domain not in groups:
        raise ValueError(f"The rows have no group '{domain}'; they have {', '.join(groups)}.")
    if rows["evaluation"].nunique() > 1:
        raise ValueError(f"The rows mix the evaluations {', '.join(map(str, rows['evaluation'].unique()))}: pick one.")
    rules = {f"{low}, {high}": (low, high) for low, high in cells}
    episodes = rule_accuracies(groups[domain], training, {**bases, **rules})
    for name in bases:  # every rule has the same episodes in the same order
        base = episodes.loc[episodes["variant"] == name, "accuracy"].to_numpy()
        episodes[name] = episodes["accuracy"] - np.tile(base, len(bases) + len(rules))
    averages = pd.DataFrame({"domain": domain}, index=pd.Index(rules, name="variant"))
    for value in ("accuracy", *bases):
        estimated = estimates(episodes, ["variant"], value).set_index("variant").loc[list(rules)]
        averages[value] = estimated[value]
        averages["interval" if value == "accuracy" else f"{value}_interval"] = estimated["interval"]
    columns = [*averages.columns, "n_datasets"]
    averages = averages.assign(n_datasets=estimated["n_datasets"], n_replicates=estimated["n_replicates"])
    return reported(averages, columns).reset_index(drop=True)


def gain_by_query_count(episodes: pd.DataFrame) -> pd.DataFrame:
    """What more queries per class add to the accuracy with the fewest, paired (the paper's appendix B.1).

    It takes the accuracies of rows from `load_query_counts`, where every number of queries has the same episodes.
    """
    frames = []
    for _, group in episodes.groupby(["evaluation", "variant"], sort=False, observed=True):
        counts = group["queries_per_class"]
        for number in sorted(counts.unique()):
            pairs = paired_query_counts(group[counts == number], group[counts == counts.min()])
            averages = overall(domain_averages(pairs, value="difference"))
            frames.append(averages.assign(queries_per_class=number))
    return pd.concat(frames, ignore_index=True)


def paired_query_counts(most: pd.DataFrame, fewest: pd.DataFrame) -> pd.DataFrame:
    """The paired differences between two numbers of queries per class, on the episodes that both have.

    An episode's support images are the same with any number of queries; its queries are not, and are not compared.
    """
    keys = ["dataset", "episode", "replicate"]
    sides = (most.merge(fewest[keys], on=keys), fewest.merge(most[keys], on=keys))
    facts = {"evaluation": most["evaluation"].iloc[0], "queries_per_class": most["queries_per_class"].iloc[0]}
    return paired_episodes(*(side.drop(columns="queries").assign(**facts) for side in sides))
