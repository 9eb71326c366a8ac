"""The rows of an evaluation → its episodes by gain: what the explorer lists. No PyTorch and no ipywidgets.

Every number comes from `tcnaps.evaluation`. This module selects, sorts and names them.
"""

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import pandas as pd

from tcnaps.config import Study, UserError
from tcnaps.config.errors import nearest
from tcnaps.evaluation.result_files import needed_trainings, rows_folder
from tcnaps.evaluation.statistics import EPISODE, domain_averages, episode_accuracies, paired_episodes
from tcnaps.evaluation.stopped_rows import rows_of_training, variant_predictions
from tcnaps.method.variants import VARIANTS
from tcnaps.widgets.episode_table import counted

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


def one_of(kind: str, name: str, known: Collection[str]) -> None:
    """
    Raises:
        UserError: the name is not among the known ones.
    """
    if name not in known:
        raise UserError(f"There is no {kind} '{name}'{nearest(name, known)}")


def variants_of(trainings: Collection[str]) -> list[str]:
    """The variants that trainings serve, in the paper's order."""
    return [name for name, variant in VARIANTS.items() if variant.training in trainings]


def evaluations_of(study: Study, variants: Sequence[str]) -> list[str]:
    """The evaluations whose trainings serve all these variants.

    Raises:
        UserError: there is no such variant, or no such evaluation.
    """
    needed = set(needed_trainings(variants))
    served = {name: evaluation for name, evaluation in study.evaluations.items() if not evaluation.before_training}
    names = [name for name, evaluation in served.items() if needed <= set(evaluation.trainings)]
    if not names:
        raise UserError(
            f"No evaluation of study '{study.name}' serves {' and '.join(variants)}: add {', '.join(sorted(needed))} "
            "to the trainings of one in its YAML, or choose other variants."
        )
    return names


def stamp_of(files: Iterable[Path]) -> tuple[tuple[str, int], ...]:
    """Which of these files exist, and when each was written."""
    return tuple((str(file), file.stat().st_mtime_ns) for file in files if file.is_file())


def results_stamp(study: Study) -> tuple[tuple[str, int], ...]:
    """It changes when an evaluation has been run again."""
    return stamp_of(sorted(rows_folder(study).rglob("*.parquet")))


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
    return pairs.merge(shots.reset_index(), on=EPISODE, validate="1:1").drop(columns="variant")


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
    """
    if datasets is not None:
        table = table[table["dataset"].isin(datasets)]
    if ways is not None:
        table = table[table["way"].between(*ways)]
    if shots is not None:
        within = [any(shots[0] <= shot <= shots[1] for shot in own) for own in table["shots"]]
        table = table[pd.Series(within, table.index, dtype=bool)]
    column, rising = SORTS[sort]
    if column == "episode":
        return table
    values = table[column].round(9)  # gains that are equal as fractions of queries differ in the last digit
    return table.loc[values.sort_values(ascending=rising, kind="stable").index]


def in_words(table: pd.DataFrame, better: str, than: str) -> str:
    """How many episodes there are, what is gained in them on average, and the largest gain and loss.

    Args:
        table: of `chosen` or `episodes`.
    """
    if table.empty:
        return "No episode is listed: widen the filters, or see in the explorer what is missing."
    means = domain_averages(table, ["evaluation"], "gain")
    mean = means[means["domain"] == "all"].iloc[0]
    interval = "" if pd.isna(mean["interval"]) else f" ± {100 * mean['interval']:.1f}"  # nan from one episode
    once = ", each counting once" if mean["n_datasets"] > 1 else ""
    return (
        f"{counted(len(table), 'episode')} of {counted(mean['n_datasets'], 'dataset')}{once}. Gain of {better} over "
        f"{than}: {points(mean['gain'])}{interval} points on average, from {points(table['gain'].min())} to "
        f"{points(table['gain'].max())}."
    )


def points(gain: float) -> str:
    """A gain in percentage points, with a sign unless it rounds to zero."""
    return "0.0" if abs(100 * gain) < 0.05 else f"{100 * gain:+.1f}"


def dataset_filters(table: pd.DataFrame) -> list[tuple[str, tuple[str, ...]]]:
    """The dataset filter's options, with their datasets as values: all, each domain if there are two, each dataset."""
    names, domains = {"in": "in-domain", "out": "out-of-domain"}, dict(zip(table["dataset"], table["domain"]))
    both = [(f"All {names[d]}", tuple(n for n in domains if domains[n] == d)) for d in names if d in domains.values()]
    each = [(f"{name} ({names[domain]})", (name,)) for name, domain in domains.items()]
    return [("All datasets", tuple(domains)), *(both if len(both) > 1 else []), *each]


def lines(listed: pd.DataFrame, better: str, than: str) -> tuple[str, list[tuple[str, tuple[str, int]]]]:
    """The list's heading, and its options: one line per episode, with dataset and number as its value."""
    shots = zip(listed["lowest_shot"], listed["highest_shot"])
    columns = {
        "dataset": listed["dataset"],
        "episode": listed["episode"],
        "way": listed["way"],
        "shots": [str(low) if low == high else f"{low}–{high}" for low, high in shots],
        "queries": listed["n_query"],
        than: [f"{100 * accuracy:.1f}%" for accuracy in listed["accuracy_than"]],
        better: [f"{100 * accuracy:.1f}%" for accuracy in listed["accuracy"]],
        "gain": listed["gain"].map(points),
        "stops at": listed["step"],
    }
    cells = [list(columns), *([str(cell) for cell in line] for line in zip(*columns.values()))]
    widths = [max(map(len, column)) for column in zip(*cells)]
    heading, *texts = (
        "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]).replace(" ", "\N{NO-BREAK SPACE}")
        for line in cells
    )
    return heading, list(zip(texts, zip(listed["dataset"], listed["episode"].tolist())))
