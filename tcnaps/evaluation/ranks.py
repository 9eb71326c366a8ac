"""Which methods are best: average ranks over datasets, and what a table sets in bold."""

import pandas as pd

from tcnaps.evaluation.statistics import accuracy_summary, averaged_together, paired_episodes


def average_ranks(summary: pd.DataFrame) -> pd.DataFrame:
    """The average rank of each variant over each group of `averaged_together`; 1 is best.

    A variant's rank is 1 + the number of variants whose interval lies wholly above its own, or touches it. This gives
    the ranks that the paper prints for its own method. `summary` is of one evaluation; a variant may lack datasets.
    """
    _check_unique(summary)
    datasets = summary.groupby("dataset", sort=False, observed=True)
    rank = pd.concat([_beaten_by(cell).sum(axis=1) + 1 for _, cell in datasets])
    ranked = summary.assign(rank=rank.reindex(summary.index))
    frames = []
    for domain, members in averaged_together(ranked).items():
        ranks = members.groupby("variant", sort=False, observed=True)["rank"]
        frames.append(ranks.agg(rank="mean", n_datasets="size").reset_index().assign(domain=domain))
    return pd.concat(frames, ignore_index=True)[["variant", "domain", "rank", "n_datasets"]]


def best(summary: pd.DataFrame, episodes: pd.DataFrame | None = None) -> pd.Series:
    """Which variants are not significantly worse than the best of their dataset; a table sets them in bold.

    With `episodes`, from `episode_accuracies`, the test is paired, which detects smaller differences. Without them,
    variants whose intervals overlap count as equal, as in the paper.
    """
    _check_unique(summary)
    if episodes is not None and episodes["evaluation"].nunique() > 1:
        raise ValueError(f"The episodes mix the evaluations {', '.join(episodes['evaluation'].unique())}: pick one.")
    bold = pd.Series(False, index=summary.index)
    for dataset, cell in summary.groupby("dataset", sort=False, observed=True):
        top = cell["accuracy"].idxmax()
        if episodes is None:
            bold[cell.index] = ~_beaten_by(cell)[top]
            continue
        by_method = dict(list(episodes[episodes["dataset"] == dataset].groupby("variant", observed=True)))
        for row, name in cell["variant"].items():
            pairs = paired_episodes(by_method[cell.at[top, "variant"]], by_method[name])
            lead = accuracy_summary(pairs, ["evaluation"], "difference")
            bold[row] = row == top or not lead["difference"].item() > lead["interval"].item()
    return bold


def _check_unique(summary: pd.DataFrame) -> None:
    if summary.duplicated(["variant", "dataset"]).any():
        raise ValueError("The summary holds a variant and dataset more than once: pick one evaluation first.")


def _beaten_by(cell: pd.DataFrame) -> pd.DataFrame:
    """Square frame: whether the column's interval lies above the row's. They may touch, as in the paper."""
    accuracy, interval = cell["accuracy"].to_numpy(), cell["interval"].to_numpy()
    apart = (accuracy - interval)[None, :] >= (accuracy + interval)[:, None] - 1e-9
    above = accuracy[None, :] > accuracy[:, None]
    return pd.DataFrame(apart & above, index=cell.index, columns=cell.index)
