"""Means of value[replicate, dataset, episode], with 95% intervals in which episodes and trainings are random.

Each replicate is a training from another seed, tested on the same episodes: a crossed layout (Searle, Casella and
McCulloch, *Variance Components*, 1992, chapter 4). On every dataset y[r, e] = μ + T_r + E_e + ε_re, and T_r may be
common to the datasets. With M_r the mean of replicate r over its D datasets of E episodes each, the mean of all has

    variance = A + B,    A = var_r(M_r) / R,    B = Σ_d max(MS_E − MS_ε, 0) / (R · E) / D².

A holds the trainings and what is left of ε, with R − 1 degrees of freedom; B the episodes, with E − 1 per dataset. The
quantile is the mean of Student's two, weighted by A and B (Cochran 1964, *Biometrika* 51, for the Behrens-Fisher
problem, which this is). With three replicates, degrees of freedom after Satterthwaite (1946) cover only 92%, since A may
be small by chance; this covers 94.5% to 97.5% from 40 episodes on. One replicate has no A, and its interval is for that
training alone.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy import stats

from tcnaps.evaluation.stopped_rows import require_columns, with_replicate


def student(n: int | pd.Series) -> float | np.ndarray:
    """The 97.5% quantile of Student's t for a mean of n values; nan for one."""
    return stats.t.ppf(0.975, np.asarray(n) - 1)


def half_width(spread: float, n: int) -> float:
    """Half-width of the 95% interval of the mean of n values, whose standard deviation (divisor n − 1) is `spread`."""
    return float(student(n) * spread / np.sqrt(n))


def estimates(frame: pd.DataFrame, by: Sequence[str], value: str, interval: str = "student") -> pd.DataFrame:
    """The mean over replicates, episodes and datasets, each dataset counting once.

    Args:
        frame: one row per replicate, dataset and episode within `by`. Without a column `replicate` there is one.
        interval: "student", or "released" for the released code's 1.96 · standard deviation (divisor n) / √n in
            place of Student's t over the episodes.

    Returns:
        `by`, `value`, `interval` (nan from one episode), `n_datasets`, `n_episodes` and `n_replicates`; and what the
        interval is made of: `width` (of the episodes alone), `of_episodes` (B) and `of_trainings` (A; nan for one).

    Raises:
        ValueError: the interval's name is unknown, a column is missing, several values of one episode would be
            pooled, or the replicates hold different episodes.
    """
    if interval not in ("student", "released"):
        raise ValueError(f"There is no interval '{interval}'; choose 'student' or 'released'.")
    frame, by = with_replicate(frame), list(by)
    cell = list(dict.fromkeys([*by, "dataset"]))
    _whole(frame, cell)
    episodes, trainings = (_means(frame, [*cell, unit], value) for unit in ("episode", "replicate"))
    grouped = episodes.groupby(cell, sort=False, observed=True)[value]
    n, spread = grouped.size(), grouped.std(ddof=1 if interval == "student" else 0)
    replicates = trainings.groupby(cell, sort=False, observed=True)[value]
    r = replicates.size()
    squares = frame.groupby(cell, sort=False, observed=True)[value].var(ddof=0) * n * r
    squares = squares - r * (n - 1) * grouped.var() - n * (r - 1) * replicates.var()  # of ε alone
    noise = squares / ((r - 1) * (n - 1)).where(r > 1)
    spread = np.sqrt((spread**2 - noise / r).clip(lower=0)).where(r > 1, spread)
    width = (student(n) if interval == "student" else 1.96) * spread / np.sqrt(n)  # docs/fidelity.md, row 10
    cells = pd.DataFrame({value: grouped.mean(), "width": width, "variance": spread**2 / n, "n": n}).reset_index()
    outer = cells.groupby(by, sort=False, observed=True)
    trainings = _means(trainings, [*by, "replicate"], value).groupby(by, sort=False, observed=True)[value]
    found = pd.DataFrame({value: outer[value].mean(), "n_datasets": outer.size(), "n_episodes": outer["n"].sum()})
    found["n_replicates"], found["of_trainings"] = trainings.size(), trainings.var() / trainings.size()
    found["of_episodes"] = outer["variance"].sum() / found["n_datasets"] ** 2
    found["width"] = outer["width"].agg(lambda h: np.sqrt((h**2).sum(skipna=False)) / len(h))
    found["interval"] = crossed(*(found[part] for part in ("width", "of_episodes", "of_trainings", "n_replicates")))
    return found.reset_index()


def crossed(
    width: pd.Series | float, of_episodes: pd.Series | float, of_trainings: pd.Series | float, n: pd.Series | int
) -> np.ndarray:
    """Half-width of the interval from its parts, as `estimates` gives them; n: the number of replicates."""
    variance = np.asarray(of_episodes) + np.asarray(of_trainings)
    with np.errstate(invalid="ignore"):
        both = (student(n) * of_trainings + width * np.sqrt(of_episodes)) / np.sqrt(variance)
    return np.where(np.asarray(n) > 1, np.where(variance == 0, 0, both), width)


def clustered(frame: pd.DataFrame, by: Sequence[str], value: str) -> pd.DataFrame:
    """One row per replicate and episode, from several values of each, for `estimates` of their pooled mean.

    The row's value is m + G/N · Σ (y − m), with m the mean of all, N values in G episodes, and the sum over the
    episode's own. The mean of these is m, and their variance over G is the cluster-robust variance of m,
    G/(G − 1) · Σ (sum of an episode's residuals)² / N². An episode is a cluster, whatever its dataset.
    """
    frame, by = with_replicate(frame), list(by)
    unit = [c for c in ("evaluation", "dataset", "queries_per_class", "episode") if c in frame and c not in by]
    frame = frame.assign(episode=frame.groupby(unit, sort=False, observed=True).ngroup(), dataset="")
    grouped = frame.groupby(by, sort=True, observed=True)[value]
    residual = frame.assign(total=frame[value] - grouped.transform("mean"))
    totals = residual.groupby([*by, "dataset", "episode", "replicate"], observed=True)["total"].sum()
    totals = totals.unstack("replicate", fill_value=0.0).stack().rename("total").reset_index()
    facts = pd.DataFrame({"mean": grouped.mean(), "share": totals.groupby(by, observed=True).size() / grouped.size()})
    totals = totals.merge(facts.reset_index(), on=by)
    return totals.assign(**{value: totals["mean"] + totals["share"] * totals["total"]})


def _means(frame: pd.DataFrame, keys: Sequence[str], value: str) -> pd.DataFrame:
    return frame.groupby(list(keys), sort=False, observed=True)[value].mean().reset_index()


def _whole(frame: pd.DataFrame, cell: Sequence[str]) -> None:
    require_columns(frame, [*cell, "episode"])
    repeated = frame[frame.duplicated([*cell, "episode", "replicate"])]
    if len(repeated):
        row = repeated.iloc[0]
        raise ValueError(
            f"{row['dataset']}, episode {row['episode']} occurs more than once for one {', '.join(cell)}: name the "
            "column in which they differ (queries_per_class?) in `by`, or keep one of its values."
        )
    held = frame.groupby(list(cell), observed=True)
    ragged = held.size() != held["episode"].nunique() * held["replicate"].nunique()
    if ragged.any():
        raise ValueError(f"The replicates of {ragged.idxmax()} hold different episodes: evaluate each of them again.")
