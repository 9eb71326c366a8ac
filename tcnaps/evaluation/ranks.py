"""Which methods are best: average ranks over datasets, and what a table sets in bold."""

import pandas as pd

from tcnaps.evaluation.statistics import accuracy_summary, averaged_together, paired_episodes


def average_ranks(summary: pd.DataFrame) -> pd.DataFrame:
    """The average rank of each variant over each group of `averaged_together`; 1 is best.

    A variant's rank is 1 + the number of variants whose interval lies wholly above its own, or touches it. This gives
    the ranks that the paper prints for its own method. `summary` is of one evaluation; a variant may lack datasets.
    """
    _check_unique(summary)
    ranks = []
    for _, cell in summary.groupby("dataset", sort=False, observed=True):
        accuracy, interval = cell["accuracy"].to_numpy(), cell["interval"].to_numpy()
        apart = (accuracy - interval)[None, :] >= (accuracy + interval)[:, None] - 1e-9  # may touch, as in the paper
        above = accuracy[None, :] > accuracy[:, None]
        ranks.append(pd.Series(1 + (apart & above).sum(axis=1), cell.index))
    ranked = summary.assign(rank=pd.concat(ranks).reindex(summary.index))
    frames = []
    for domain, members in averaged_together(ranked).items():
        ranks = members.groupby("variant", sort=False, observed=True)["rank"]
        frames.append(ranks.agg(rank="mean", n_datasets="size").reset_index().assign(domain=domain))
    return pd.concat(frames, ignore_index=True)[["variant", "domain", "rank", "n_datasets"]]


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
