"""Which methods are best: average ranks over datasets, and what a table sets in bold."""

import pandas as pd

from tcnaps.evaluation.statistics import DOMAINS, paired_difference


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
    _one_row_per_cell(summary, method)
    if episodes is not None and episodes["evaluation"].nunique() > 1:
        raise ValueError(f"The episodes mix the evaluations {', '.join(episodes['evaluation'].unique())}: pick one.")
    bold = pd.Series(False, index=summary.index)
    for dataset, cell in summary.groupby("dataset", sort=False, observed=True):
        top = cell["accuracy"].idxmax()
        if episodes is None:
            bold[cell.index] = ~_beaten(cell)[top]
        else:
            of = dict(list(episodes[episodes["dataset"] == dataset].groupby(method, observed=True)))
            for row, name in cell[method].items():
                lead = paired_difference(of[cell.at[top, method]], of[name])
                bold[row] = row == top or not lead["difference"].item() > lead["interval"].item()
    return bold


def _one_row_per_cell(summary: pd.DataFrame, method: str) -> None:
    if summary.duplicated([method, "dataset"]).any():
        raise ValueError(f"The summary holds a {method} and dataset more than once: pick one evaluation first.")


def _beaten(cell: pd.DataFrame) -> pd.DataFrame:
    """Square frame: does the column's interval lie above the row's. Ends may touch, as in the paper."""
    accuracy, interval = cell["accuracy"].to_numpy(), cell["interval"].to_numpy()
    apart = (accuracy - interval)[None] >= (accuracy + interval)[:, None] - 1e-9
    return pd.DataFrame(apart & (accuracy[None] > accuracy[:, None]), index=cell.index, columns=cell.index)
