"""The rows of an evaluation → its episodes by gain: what the explorer lists. No PyTorch and no ipywidgets.

Every number comes from `stopping`, `statistics` and `recall`. This module selects, sorts and names them.
"""

from collections.abc import Collection, Sequence

import pandas as pd

from tcnaps.config import Study
from tcnaps.evaluation.result_files import load_rows, needed_trainings, rows_file
from tcnaps.evaluation.statistics import EPISODE, accuracy_summary, domain_averages, episode_accuracies, paired_episodes
from tcnaps.evaluation.stopped_rows import rows_of_training, variant_predictions
from tcnaps.method.variants import VARIANTS
from tcnaps.widgets.replay import remedy

Limits = tuple[int, int]  # minimum and maximum number of refinement steps
Range = tuple[int, int]  # lowest and highest value, both included
# Name → column and whether it rises. Episodes with equal values stay in the order of datasets and numbers.
SORTS = {
    "Largest gain first": ("gain", False),
    "Largest loss first": ("gain", True),
    "Lowest accuracy first": ("accuracy", True),
    "Most refinement steps first": ("step", False),
    "Dataset and episode": ("episode", True),
}


def one_of(kind: str, name: str, known: Collection[str], what: str) -> None:
    """
    Raises:
        ValueError: the name is not among the known ones; the message lists them after `what`.
    """
    if name not in known:
        raise ValueError(f"There is no {kind} '{name}'. {what}: {', '.join(known)}.")


def variants_of(study: Study, evaluation: str) -> list[str]:
    """The variants that an evaluation's trainings serve, in the paper's order.

    Raises:
        ValueError: the study has no such evaluation.
    """
    one_of("evaluation", evaluation, study.evaluations, f"Study '{study.name}' has")
    return [name for name, variant in VARIANTS.items() if variant.training in study.evaluations[evaluation].trainings]


def evaluations_of(study: Study, variants: Sequence[str]) -> list[str]:
    """The evaluations whose trainings serve all these variants.

    Raises:
        ValueError: there is no such variant, or no such evaluation.
    """
    needed = set(needed_trainings(variants))
    names = [name for name, evaluation in study.evaluations.items() if needed <= set(evaluation.trainings)]
    if not names:
        raise ValueError(
            f"No evaluation of study '{study.name}' serves {' and '.join(variants)}: their trainings are "
            f"{', '.join(sorted(needed))}. Add them to the trainings of an evaluation in its YAML, "
            "or choose other variants."
        )
    return names


def read(study: Study, evaluation: str, variants: Sequence[str]) -> pd.DataFrame:
    """The rows of some variants.

    Raises:
        FileNotFoundError: the evaluation has not been run; the message names the command that runs it.
        ValueError: the evaluation does not serve the variants.
    """
    try:
        return load_rows(study, evaluation, needed_trainings(variants))
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{error} To run all of it: {remedy(study)}.") from error


def results_stamp(study: Study) -> tuple[tuple[str, int], ...]:
    """The files with rows and when each was written: it changes when an evaluation has been run again."""
    files = [
        rows_file(study, training, name, dataset)
        for name, evaluation in study.evaluations.items()
        for training in evaluation.trainings
        for dataset in evaluation.datasets
    ]
    return tuple((str(file), file.stat().st_mtime_ns) for file in files if file.is_file())


def episodes(rows: pd.DataFrame, better: str, than: str, limits: Limits) -> pd.DataFrame:
    """What one variant gains over another on the same images: one row per episode.

    Args:
        rows: one row per query, of one evaluation.
        limits: the stopping rule. Variants without refinement predict at step 0.

    Returns:
        The episode's key, `way`, `n_support` and `n_query`; `accuracy` and stopping `step` of `better`;
        `accuracy_than` and `step_than` of `than`; the `gain` of the first over the second; `shots` (a tuple, by
        label), `lowest_shot` and `highest_shot`.

    Raises:
        ValueError: there is no such variant, its rows are missing, or the two were evaluated on different episodes.
    """
    a = episode_accuracies(variant_predictions(rows, better, *limits))
    b = episode_accuracies(variant_predictions(rows, than, *limits))
    pairs = paired_episodes(a, b).rename(columns={"difference": "gain"})
    pairs = pairs.merge(b[[*EPISODE, "accuracy", "step"]], on=EPISODE, suffixes=("", "_than"), validate="1:1")
    own = rows_of_training(rows, VARIANTS[better].training)
    classes = own.drop_duplicates([*EPISODE, "label"]).sort_values("label")
    shots = classes.groupby(EPISODE, sort=False, observed=True)["shot"].agg(
        [("shots", tuple), ("lowest_shot", "min"), ("highest_shot", "max")]
    )
    table = pairs.merge(shots.reset_index(), on=EPISODE, validate="1:1")
    return table.drop(columns="variant")


def chosen(
    table: pd.DataFrame,
    datasets: Sequence[str] | None = None,
    ways: Range | None = None,
    shots: Range | None = None,
    sort: str = "Largest gain first",
) -> pd.DataFrame:
    """The episodes of some datasets, ways and shots, sorted; possibly none.

    Args:
        table: of `episodes`.
        shots: keeps the episodes in which *some* class has such a shot, as the shots of an episode vary.
        sort: a name of `SORTS`.

    Raises:
        ValueError: there is no such dataset or order.
    """
    one_of("order", sort, SORTS, "Orders are")
    keep = pd.Series(True, index=table.index)
    if datasets is not None:
        for name in datasets:
            one_of("dataset", name, table["dataset"].unique(), "The rows hold")
        keep &= table["dataset"].isin(list(datasets))
    if ways is not None:
        keep &= table["way"].between(*ways)
    if shots is not None:
        low, high = shots
        keep &= table["shots"].map(lambda own: any(low <= shot <= high for shot in own)).astype(bool)
    column, rising = SORTS[sort]
    if column == "episode":
        return table[keep].sort_index(kind="stable")
    values = table.loc[keep, column].round(9)  # gains that are equal as fractions of queries differ in the last digit
    return table.loc[values.sort_values(ascending=rising, kind="stable").index]


def average(table: pd.DataFrame, value: str = "gain") -> pd.Series:
    """Mean over the episodes of some datasets, each dataset counting once.

    Returns:
        `value`, `interval` (nan where a dataset has one episode) and `n_datasets`.
    """
    means = domain_averages(accuracy_summary(table, ["evaluation"], value), ["evaluation"], value)
    return means[means["domain"] == "all"].iloc[0]


def in_words(table: pd.DataFrame, better: str, than: str) -> str:
    """How many episodes there are, what is gained in them on average, and the largest gain and loss.

    Args:
        table: of `chosen` or `episodes`.

    Raises:
        ValueError: it is the table of an explorer that could not read its rows.
    """
    if "gain" not in table.columns:
        raise ValueError("No episodes have been compared: the explorer says what is missing and what to do.")
    if table.empty:
        return "No episode passes the filters: widen them."
    mean = average(table)
    best, worst = (chosen(table, sort=sort).iloc[0] for sort in ("Largest gain first", "Largest loss first"))
    interval = "" if pd.isna(mean["interval"]) else f" ± {100 * mean['interval']:.1f}"  # nan from one episode
    several = "s, each counting once" if mean["n_datasets"] > 1 else ""
    return (
        f"{len(table)} episode{'s' * (len(table) > 1)} of {mean['n_datasets']} dataset{several}. Gain of {better} "
        f"over {than}: {points(mean['gain'])}{interval} points on average, from "
        f"{points(worst['gain'])} ({worst['dataset']}, episode {worst['episode']}) to {points(best['gain'])} "
        f"({best['dataset']}, episode {best['episode']})."
    )


def points(gain: float) -> str:
    """A gain in percentage points, with a sign unless it rounds to zero."""
    return "0.0" if abs(100 * gain) < 0.05 else f"{100 * gain:+.1f}"
