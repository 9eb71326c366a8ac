"""Means of value[replicate, dataset, episode], with 95% intervals for other episodes, trainings and test classes.

The variance of a mean is A + B: A is the share of the trainings, B that of the episodes or, for other test classes, of
the classes; docs/glossary.md (Intervals) derives both. With one replicate there is no A, and an interval holds for it.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy import optimize, stats

from tcnaps.evaluation.stopped_rows import EPISODE


def student(n: int | float | np.integer | np.ndarray | pd.Series, level: float = 0.95) -> float | np.ndarray:
    """The quantile of Student's t for the `level` interval of a mean of n values; nan for n = 1."""
    return stats.t.ppf((1 + level) / 2, np.asarray(n) - 1)


def half_width(spread: float, n: int) -> float:
    """Half-width of the 95% interval of the mean of n values with standard deviation `spread` (divisor n − 1)."""
    return float(student(n) * spread / np.sqrt(n))


def estimates(frame: pd.DataFrame, by: Sequence[str], value: str) -> pd.DataFrame:
    """The mean over replicates, episodes and datasets; each dataset counts once. Without `replicate` there is one.

    The columns: `by`, `value`, `interval` (nan for one episode), `n_datasets`, `n_episodes`, `n_replicates`, and the
    interval's parts: `of_trainings` (A; 0 for one replicate), `of_episodes` (B) and its degrees of `freedom`.
    """
    by, keys = list(by), list(dict.fromkeys([*by, "dataset"]))
    table = _crossed(frame, keys, by, value)
    episodes, trained = table.mean(axis=1).groupby(level=keys), table.groupby(level=keys).mean()
    n, noise = episodes.size(), _unexplained(table, keys)  # E, MS_ε
    variance = (episodes.var() - (noise / trained.count(axis=1)).fillna(0)).clip(lower=0) / n  # of the episodes
    facts = {value: episodes.mean(), "variance": variance, "noise": noise / n, "n": n}
    datasets = pd.DataFrame(facts | {"square": variance**2 / (n - 1)}).groupby(level=by)

    trainings, n_datasets = trained.groupby(level=by).mean(), datasets.size()  # M_r
    n_replicates, b = trainings.count(axis=1), datasets["variance"].agg(lambda parts: parts.sum(skipna=False))
    floor = np.fmax(_unexplained(trained, by), datasets["noise"].mean()) / n_datasets  # of MS_TD and MS_ε / E
    result = pd.DataFrame({value: datasets[value].mean(), "n_datasets": n_datasets, "n_episodes": datasets["n"].sum()})
    result["n_replicates"] = n_replicates
    result["of_trainings"] = np.fmax(trainings.var(axis=1), floor).fillna(0) / n_replicates  # A
    result["of_episodes"] = b / n_datasets**2  # B
    result["freedom"] = (b**2 / datasets["square"].sum()).fillna(1)  # without spread any number will do
    result["interval"] = crossed_half_width(result)
    return frame[by].drop_duplicates().merge(result.reset_index(), on=by)


def _crossed(frame: pd.DataFrame, keys: list[str], by: list[str], value: str) -> pd.DataFrame:
    """The values, a row for each of `keys` and episode, a column for each replicate: those of `by` hold the same."""
    index = [*keys, "episode", "replicate"]
    frame = frame.assign(replicate=frame.get("replicate", 0))
    if len(repeated := frame[frame.duplicated(index)]):
        row = repeated.iloc[0]
        problem = f"occurs more than once for one {', '.join(keys)}"
        remedy = "name the column in which they differ (queries_per_class?) in `by`, or keep one of its values"
        raise ValueError(f"{row['dataset']}, episode {row['episode']} {problem}: {remedy}.")
    table = frame.set_index(index)[value].unstack().dropna(how="all")
    held = table.notna()
    ragged = held.sum(axis=1) < held.groupby(level=by).transform("max").sum(axis=1)
    if ragged.any():
        raise ValueError(f"The replicates of {ragged.idxmax()} hold different episodes: evaluate each of them again.")
    return table


def _unexplained(table: pd.DataFrame, keys: list[str]) -> pd.Series:
    """The mean square of what neither rows nor columns explain, for each of `keys`; nan for one row or column."""
    rest = table.sub(table.mean(axis=1), axis=0)
    squares = (rest - rest.groupby(level=keys).transform("mean")) ** 2
    counts = table.groupby(level=keys).count()
    freedom = (counts.max(axis=1) - 1) * ((counts > 0).sum(axis=1) - 1)
    return squares.groupby(level=keys).sum().sum(axis=1) / freedom.where(freedom > 0)


def crossed_half_width(parts: pd.DataFrame | Mapping, level: float = 0.95) -> np.ndarray:
    """Half-width of the interval from its parts, named as in the result of `estimates`."""
    a, b, freedom = (np.asarray(parts[name], float) for name in ("of_trainings", "of_episodes", "freedom"))
    n = np.maximum(parts["n_replicates"], 2)  # one replicate has a = 0
    with np.errstate(all="ignore"):
        satterthwaite = stats.t.ppf((1 + level) / 2, (a + b) ** 2 / (a**2 / (n - 1) + b**2 / freedom))
        cochran = (a * student(n, level) + b * stats.t.ppf((1 + level) / 2, freedom)) / (a + b)
    return np.where(a + b == 0, 0, (satterthwaite + cochran) / 2 * np.sqrt(a + b))


def p_value(parts: Mapping, difference: float) -> float:
    """1 − the level at which the interval around `difference` just reaches 0; nan without an interval."""
    if not 0 < crossed_half_width(parts) < np.inf:
        return np.nan

    def beyond(log_p: float) -> float:  # falls with p
        return float(crossed_half_width(parts, 1 - np.exp(log_p))) - abs(difference)

    if beyond(-30.0) <= 0 or beyond(-1e-9) >= 0:
        return float(beyond(-30.0) > 0)
    return float(np.exp(optimize.brentq(beyond, -30.0, -1e-9)))


def clustered(frame: pd.DataFrame, by: Sequence[str], value: str, cluster: Sequence[str] = EPISODE) -> pd.DataFrame:
    """Turns several values per cluster (an episode) into one, such that `estimates` gives their mean and its interval.

    The one value is m + G/N · Σ (y − m), where m is the mean of all N values in G clusters and the sum runs over the
    cluster's own values. The variance of these over G is the cluster-robust variance of m.
    """
    frame, by = frame.assign(replicate=frame.get("replicate", 0)), list(by)
    keys = [key for key in cluster if key in frame and key not in by]
    frame = frame.assign(episode=frame.groupby(keys, sort=False, observed=True).ngroup(), dataset="")
    groups = frame.groupby(by, sort=True, observed=True)[value]
    residuals = frame.assign(total=frame[value] - groups.transform("mean"))
    totals = residuals.groupby([*by, "dataset", "episode", "replicate"], observed=True)["total"].sum()
    totals = totals.unstack("replicate", fill_value=0.0).stack().rename("total").reset_index()
    share = totals.groupby(by, observed=True).size() / groups.size()  # G / N
    totals = totals.merge(pd.DataFrame({"mean": groups.mean(), "share": share}).reset_index(), on=by)
    return totals.assign(**{value: totals["mean"] + totals["share"] * totals["total"]})


def other_classes(frame: pd.DataFrame, value: str) -> pd.DataFrame:
    """The mean of each dataset, and of all ("all"), with intervals for other classes beside those for other episodes.

    The frame has one row per replicate, dataset and `episode`, with `classes`, a sequence of its classes' names. Where
    every episode holds all classes, `class_interval` is nan; in the mean such a dataset counts with its episodes alone.
    """
    parts = estimates(frame, ["dataset"], value).set_index("dataset")
    for name, dataset in frame.groupby("dataset", sort=False, observed=True):
        episodes = dataset.groupby("episode").agg({value: "mean", "classes": "first"})
        variance, n_classes = class_variance(episodes[value].to_numpy(), list(episodes["classes"]))
        parts.loc[name, ["of_classes", "class_freedom", "n_classes"]] = variance, n_classes - 1, n_classes
    mean = estimates(frame.assign(all="all"), ["all"], value).set_index("all")
    mean[["of_classes", "class_freedom"]] = np.nan
    if parts["of_classes"].notna().any():
        variances = parts["of_classes"].fillna(parts["of_episodes"])
        squares = variances**2 / parts["class_freedom"].where(parts["of_classes"].notna(), parts["n_episodes"] - 1)
        mean["of_classes"] = variances.sum(skipna=False) / len(parts) ** 2
        mean["class_freedom"] = (variances / squares.sum()).sum() * variances.sum()  # Satterthwaite
    mean["n_classes"] = parts["n_classes"].sum()
    table = pd.concat([parts, mean]).rename_axis("dataset").reset_index()
    table["class_interval"] = crossed_half_width(of_classes(table))
    columns = ["dataset", value, "class_interval", "interval", "n_classes", "n_episodes", "n_replicates"]
    columns += ["of_trainings", "of_classes", "class_freedom", "of_episodes"]
    return table[columns].astype({"n_classes": int})


def of_classes(table: pd.DataFrame | pd.Series) -> dict:
    """The parts of an interval for other classes, as `crossed_half_width` and `p_value` take them."""
    names = {"of_trainings": "of_trainings", "of_episodes": "of_classes", "freedom": "class_freedom"}
    return {part: table[name] for part, name in names.items()} | {"n_replicates": table["n_replicates"]}


def needed(variance_of_one: float, half_width: float) -> int:
    """How many random trainings, classes or episodes give this half-width, where one has this variance."""
    counts = range(2, 1_000_000)
    return counts[bisect_left(counts[:-1], -half_width, key=lambda n: -student(n) * (variance_of_one / n) ** 0.5)]


def class_variance(values: Float[np.ndarray, "n_episodes"], classes: Sequence[Sequence[str]]) -> tuple[float, int]:
    """The variance of the mean of `values` over other classes and episodes, and the number of classes seen.

    It is σ_a² Σ_c z̄_c² + σ² / E, with z̄_c the mean share of class c in the E episodes, both variances by restricted
    maximum likelihood (docs/glossary.md). A small σ_a² may be luck: a quarter of its standard error is added.
    """
    codes, names = pd.factorize(np.array([name for each in classes for name in each], dtype=object))
    ways = np.array([len(each) for each in classes])
    shares = np.zeros((len(ways), len(names)))
    shares[np.arange(len(ways)).repeat(ways), codes] = 1 / ways.repeat(ways)
    n, deviations = len(values), values - values.mean()
    centred = shares - shares.mean(0)
    spectrum, axes = np.linalg.eigh(centred.T @ centred)
    if not (told_apart := spectrum > 1e-9).any():
        return np.nan, len(names)
    spectrum = spectrum[told_apart]
    squares = (axes[:, told_apart].T @ centred.T @ deviations) ** 2 / spectrum  # variances σ² + σ_a² spectrum
    rest = max(deviations @ deviations - squares.sum(), 0)
    ratios = np.concatenate([[0], np.geomspace(1e-3, 1e3, 400)]) / spectrum.mean()  # of σ_a² to σ²
    scales = 1 + ratios[:, None] * spectrum
    noise = ((squares / scales).sum(1) + rest) / (n - 1)  # the best σ² for each ratio
    best = (np.log(scales).sum(1) + (n - 1) * np.log(np.maximum(noise, 1e-300))).argmin()
    of_episodes, of_classes = noise[best], ratios[best] * noise[best]
    error = np.sqrt(2 / (spectrum**2 / (of_episodes + of_classes * spectrum) ** 2).sum()) if of_episodes else 0.0
    return (of_classes + error / 4) * (shares.mean(0) ** 2).sum() + of_episodes / n, len(names)
