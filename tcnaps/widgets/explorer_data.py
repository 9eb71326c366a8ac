"""An evaluation's rows → its episodes by gain, and whatever there is to see of one of them; what the explorer shows.

Every number comes from `stopping`, `statistics` and `recall`; here they are chosen, sorted and named. No torch and no
widgets, so that a table is there at once and everything can be tested without a browser.
"""

from collections.abc import Iterator, Sequence

import pandas as pd

from tcnaps.config import Study
from tcnaps.evaluation import recall
from tcnaps.evaluation.result_files import load_rows, needed_trainings, rows_file
from tcnaps.evaluation.statistics import EPISODE, accuracy_summary, domain_averages, episode_accuracies, paired_episodes
from tcnaps.evaluation.stopped_rows import require_columns, rows_of_training, variant_predictions
from tcnaps.method.variants import VARIANTS
from tcnaps.widgets.replay import remedy

Limits = tuple[int, int]  # minimum and maximum number of refinement steps
Range = tuple[int, int]  # lowest and highest value, both included
# Name → column and whether it rises; equal ones stay in the order of datasets and episodes.
SORTS = {
    "Largest gain first": ("gain", False),
    "Largest loss first": ("gain", True),
    "Lowest accuracy first": ("accuracy", True),
    "Most refinement steps first": ("step", False),
    "Dataset and episode": ("episode", True),
}


def variants_of(study: Study, evaluation: str) -> list[str]:
    """The variants that an evaluation's trainings serve, in the paper's order.

    Raises:
        ValueError: the study has no such evaluation.
    """
    if evaluation not in study.evaluations:
        raise ValueError(
            f"Study '{study.name}' has no evaluation '{evaluation}'; it has {', '.join(study.evaluations)}."
        )
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
            f"{', '.join(sorted(needed))}; add them to the trainings of an evaluation in its YAML, "
            "or choose other variants."
        )
    return names


def reading(study: Study, evaluation: str, variants: Sequence[str]) -> Iterator[tuple[float, str]]:
    """Reads the rows of some variants, one training at a time; the generator's value is the table.

    Yields:
        What share is read before each training, and words for it.

    Raises:
        FileNotFoundError: the evaluation has not been run; the message names the command that does.
        ValueError: the evaluation does not serve the variants.
    """
    frames, trainings = [], needed_trainings(variants)
    for done, training in enumerate(trainings):
        yield done / len(trainings), f"Reading the rows of {training}, {evaluation}"
        try:
            frames.append(load_rows(study, evaluation, [training]))
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{error} In one go: {remedy(study)}.") from error
    return pd.concat(frames, ignore_index=True)


def read(study: Study, evaluation: str, variants: Sequence[str]) -> pd.DataFrame:
    """The rows of some variants; see `reading`."""
    steps = reading(study, evaluation, variants)
    while True:
        try:
            next(steps)
        except StopIteration as finished:
            return finished.value


def stamp(study: Study) -> tuple[tuple[str, int], ...]:
    """The files with rows and when each was written: it changes when an evaluation has been run again."""
    files = [
        rows_file(study, training, name, dataset)
        for name, evaluation in study.evaluations.items()
        for training in evaluation.trainings
        for dataset in evaluation.datasets
    ]
    return tuple((str(file), file.stat().st_mtime_ns) for file in files if file.is_file())


def episodes(rows: pd.DataFrame, better: str, than: str, limits: Limits) -> pd.DataFrame:
    """One row per episode: what one variant gains over another on the same images.

    Args:
        rows: one row per query, of one evaluation.
        limits: the stopping rule; variants without refinement predict at step 0.

    Returns:
        The episode's key, `way`, `n_support`, `n_query`; of `better` the `accuracy` and the `step` at which it stops,
        of `than` the same as `accuracy_than` and `step_than`; `gain` of the first over the second; `shots` (one a
        class, by label), `lowest_shot` and `highest_shot`.

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
        shots: keeps the episodes with *a class* of such a shot, the shots of a variable episode being many.
        sort: a name of `SORTS`.

    Raises:
        ValueError: there is no such dataset or order.
    """
    keep = pd.Series(True, index=table.index)
    if datasets is not None:
        unknown = [name for name in datasets if name not in set(table["dataset"])]
        if unknown:
            raise ValueError(
                f"The rows hold no dataset '{unknown[0]}'; they hold: {', '.join(table['dataset'].unique())}."
            )
        keep &= table["dataset"].isin(list(datasets))
    if ways is not None:
        keep &= table["way"].between(*ways)
    if shots is not None:
        low, high = shots
        keep &= table["shots"].map(lambda own: any(low <= shot <= high for shot in own)).astype(bool)
    return in_order(table[keep], sort)


def in_order(table: pd.DataFrame, sort: str) -> pd.DataFrame:
    """The table by one of `SORTS`.

    Raises:
        ValueError: there is no such order.
    """
    if sort not in SORTS:
        raise ValueError(f"There is no order '{sort}'; choose among {', '.join(SORTS)}.")
    column, rising = SORTS[sort]
    if column == "episode":
        return table.sort_index(kind="stable")
    # Gains that are equal as fractions of queries differ in the last digit.
    values = table[column].round(9)
    return table.loc[values.sort_values(ascending=rising, kind="stable").index]


def average(table: pd.DataFrame, value: str = "gain") -> pd.Series | None:
    """Mean over the episodes of some datasets, each dataset counting once; None where the table is empty.

    Returns:
        `value`, `interval` (nan where a dataset has one episode) and `n_datasets`.
    """
    if table.empty:
        return None
    means = domain_averages(accuracy_summary(table, ["evaluation"], value), ["evaluation"], value)
    return means[means["domain"] == "all"].iloc[0]


def recall_by_shot(rows: pd.DataFrame, table: pd.DataFrame, variants: Sequence[str], limits: Limits) -> pd.DataFrame:
    """Class recall against shot over the episodes of a table, as `recall.recall_by_shot`.

    Args:
        table: of `chosen`.

    Raises:
        ValueError: the table is empty.
    """
    require_columns(table, EPISODE)
    kept = rows.merge(table[EPISODE], on=EPISODE)
    return recall.recall_by_shot(recall.class_recall(variant_predictions(kept, list(variants), *limits)))


def in_words(table: pd.DataFrame, better: str, than: str) -> str:
    """How many episodes there are, what is gained in them on average, and in which most.

    Args:
        table: of `chosen`, or what `episodes` gives.

    Raises:
        ValueError: it is the table of an explorer that could not read its rows.
    """
    if "gain" not in table.columns:
        raise ValueError("No episodes have been compared: the explorer says what is missing and what to do.")
    if table.empty:
        return "No episode passes the filters: widen them."
    mean, best, worst = (
        average(table),
        in_order(table, "Largest gain first").iloc[0],
        in_order(table, "Largest loss first").iloc[0],
    )
    interval = "" if pd.isna(mean["interval"]) else f" ± {100 * mean['interval']:.1f}"  # nan from one episode
    several = "s, each counting once" if mean["n_datasets"] > 1 else ""
    return (
        f"{len(table)} episode{'s' * (len(table) > 1)} of {mean['n_datasets']} dataset{several}. Gain of {better} "
        f"over {than}: {points(mean['gain'])}{interval} points on average, from "
        f"{points(worst['gain'])} ({worst['dataset']}, episode {worst['episode']}) to {points(best['gain'])} "
        f"({best['dataset']}, episode {best['episode']})."
    )


def points(gain: float) -> str:
    """In percentage points, with a sign unless it is none."""
    return "0.0" if abs(100 * gain) < 0.05 else f"{100 * gain:+.1f}"
