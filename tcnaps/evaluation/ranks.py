"""Which methods are best: average ranks over datasets, and what a table sets in bold."""

from collections.abc import Mapping

import pandas as pd

from tcnaps.evaluation.statistics import DOMAINS, paired_difference
from tcnaps.evaluation.stopped_rows import require_columns


def average_ranks(summary: pd.DataFrame, rule: str = "significant", method: str = "variant") -> pd.DataFrame:
    """Average rank of each method over the datasets in-domain, out-of-domain and all, 1 being best.

    Args:
        summary: `method`, `dataset`, `domain`, `accuracy`, `interval`, of one evaluation; a method may lack
        datasets.
        rule: "significant" counts 1 + the methods whose interval lies wholly above (or touches); it gives the
            ranks that the paper prints for its own method. "plain" ranks the accuracies, ties sharing their
            mean rank.

    Returns:
        `method`, `domain`, `rank` and `n_datasets`.
    """
    require_columns(summary, [method, "dataset", "domain", "accuracy", "interval"])
    _one_row_per_cell(summary, method)
    if rule not in ("significant", "plain"):
        raise ValueError(f"There is no rule '{rule}'; choose 'significant' or 'plain'.")
    grouped = summary.groupby("dataset", sort=False, observed=True)
    if rule == "plain":
        rank = grouped["accuracy"].rank(ascending=False)
    else:
        rank = pd.concat([_beaten(cell).sum(axis=1) + 1 for _, cell in grouped])
    ranked = summary.assign(rank=rank.reindex(summary.index))
    frames = []
    for domain, members in DOMAINS.items():
        cells = ranked[ranked["domain"].isin(members)].groupby(method, sort=False, observed=True)["rank"]
        frames.append(cells.agg(rank="mean", n_datasets="size").reset_index().assign(domain=domain))
    return pd.concat(frames, ignore_index=True)[[method, "domain", "rank", "n_datasets"]]


def best(summary: pd.DataFrame, episodes: pd.DataFrame | None = None, method: str = "variant") -> pd.Series:
    """Which methods are not significantly worse than the best of their dataset: those a table sets in bold.

    Args:
        summary: of one evaluation, as for `average_ranks`.
        episodes: of `episode_accuracies`. With them the test is paired, which sees smaller differences;
            without, it asks whether the intervals overlap, as the paper does.

    Returns:
        True or False per row of `summary`, on its index.
    """
    require_columns(summary, [method, "dataset", "accuracy", "interval"])
    _one_row_per_cell(summary, method)
    bold = pd.Series(False, index=summary.index)
    for dataset, cell in summary.groupby("dataset", sort=False, observed=True):
        top = cell["accuracy"].idxmax()
        if episodes is None:
            bold[cell.index] = ~_beaten(cell)[top]
        else:
            of = dict(list(episodes[episodes["dataset"] == dataset].groupby(method, observed=True)))
            for row, name in cell[method].items():
                bold[row] = row == top or not _leads(of, cell.at[top, method], name, dataset)
    return bold


def _leads(of: Mapping[str, pd.DataFrame], leader: str, name: str, dataset: str) -> bool:
    """Whether the paired difference between two methods on one dataset is significant."""
    for needed in (leader, name):
        if needed not in of:
            raise ValueError(
                f"The episodes hold none of '{needed}' on {dataset}: give the episodes that the "
                "summary was made of, or leave them out."
            )
    lead = paired_difference(of[leader], of[name])
    if len(lead) > 1:
        raise ValueError(f"The episodes mix the evaluations {', '.join(lead['evaluation'])}: pick one.")
    return bool(lead["difference"].iloc[0] > lead["interval"].iloc[0])


def _one_row_per_cell(summary: pd.DataFrame, method: str) -> None:
    if summary.duplicated([method, "dataset"]).any():
        raise ValueError(f"The summary holds a {method} and dataset more than once: pick one evaluation first.")


def _beaten(cell: pd.DataFrame) -> pd.DataFrame:
    """Square frame: does the column's interval lie above the row's. Ends may touch, as in the paper."""
    accuracy, interval = cell["accuracy"].to_numpy(), cell["interval"].to_numpy()
    apart = (accuracy - interval)[None] >= (accuracy + interval)[:, None] - 1e-9
    return pd.DataFrame(apart & (accuracy[None] > accuracy[:, None]), index=cell.index, columns=cell.index)
