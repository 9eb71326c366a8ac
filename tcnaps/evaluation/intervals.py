"""Means of value[replicate, dataset, episode], with 95% intervals in which episodes and trainings are random.

Each replicate is a training from another seed, tested on the same episodes: a crossed layout (Searle, Casella and
McCulloch, *Variance Components*, 1992, chapter 4). On every dataset y[r, e] = μ + T_r + E_e + ε_re, and T_r may be
common to the datasets. With M_r the mean of replicate r over its D datasets of E episodes each, the mean of all has

    variance = A + B,    A = var_r(M_r) / R,    B = Σ_d max(MS_E − MS_ε, 0) / (R · E) / D².

A holds the trainings and what is left of ε, with R − 1 degrees of freedom; B the episodes, with E − 1 per dataset. Two
quantiles are usual for such a sum: Student's t with the degrees of freedom of Satterthwaite (1946, *Biometrics* 2), and
the mean of the parts' own, weighted by A and B (Cochran 1964, *Biometrika* 51). In simulations of three replicates the
first covers down to 91.6%, as A may be small by chance, and the second up to 97.6%. Their mean is used, which covers
93.6% to 96.7% for three and more. One replicate has no A: its interval is for that training alone.
"""

from collections.abc import Mapping, Sequence

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
        interval: "student", or "released" for the released code's 1.96 · standard deviation (divisor n) / √n, which
            knows one replicate only: of several, the interval is as above.

    Returns:
        `by`, `value`, `interval` (nan from one episode), `n_datasets`, `n_episodes` and `n_replicates`; and what the
        interval is made of: `of_episodes` (B), its degrees of `freedom`, `of_trainings` (A; nan for one replicate) and
        `width`, the interval of one replicate.

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
    squares = (cells["variance"] ** 2 / (cells["n"] - 1)).groupby([cells[key] for key in by], sort=False, observed=True)
    found["freedom"] = (outer["variance"].sum() ** 2 / squares.sum()).fillna(1)  # any: there is no spread
    found["width"] = outer["width"].agg(lambda h: np.sqrt((h**2).sum(skipna=False)) / len(h))
    return found.assign(interval=crossed(found)).reset_index()


def crossed(parts: pd.DataFrame | Mapping[str, float]) -> np.ndarray:
    """Half-width of the interval from its parts, as `estimates` gives them."""
    a, b, n, freedom = (parts[name] for name in ("of_trainings", "of_episodes", "n_replicates", "freedom"))
    with np.errstate(all="ignore"):
        satterthwaite = stats.t.ppf(0.975, (a + b) ** 2 / (a**2 / (n - 1) + b**2 / freedom))
        cochran = (student(n) * a + stats.t.ppf(0.975, freedom) * b) / (a + b)
        both = (satterthwaite + cochran) / 2 * np.sqrt(a + b)
    return np.where(np.asarray(n) > 1, np.where(a + b == 0, 0, both), parts["width"])


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
