"""The rows of an evaluation → its episodes by gain: what the explorer lists. No PyTorch and no ipywidgets.

Every number comes from `tcnaps.evaluation`. This module selects, sorts and names them.
"""

from collections.abc import Collection, Sequence

import numpy as np
import pandas as pd

from tcnaps.config import Study, UserError
from tcnaps.config.errors import nearest
from tcnaps.evaluation.result_files import needed_trainings
from tcnaps.evaluation.statistics import EPISODE, domain_averages, episode_accuracies, paired_episodes
from tcnaps.evaluation.stopped_rows import recorded_predictions, rows_of_training, variant_predictions
from tcnaps.figures.tables import cell, points
from tcnaps.method.variants import VARIANTS
from tcnaps_suite.widgets.episode_table import at_step, counted, refined, shots_in_words

# Name → column and whether it rises. Episodes with equal values stay in the order of datasets and numbers.
SORTS = {
    "Largest gain first": ("gain", False),
    "Largest loss first": ("gain", True),
    "Lowest accuracy first": ("accuracy", True),
    "Most refinement steps first": ("step", False),
    "Dataset and episode": (None, True),
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


def evaluated_variants(study: Study) -> list[str]:
    """The variants that some evaluation of a study serves."""
    return variants_of({training for evaluation in study.evaluations.values() for training in evaluation.trainings})


def evaluations_of(study: Study, variants: Sequence[str]) -> list[str]:
    """The evaluations whose trainings serve all these variants.

    Raises:
        UserError: there is no such variant, or no such evaluation.
    """
    needed = set(needed_trainings(variants))
    names = [n for n, e in study.evaluations.items() if needed <= set(e.trainings) and not e.before_training]
    if not names:
        raise UserError(
            f"No evaluation of study '{study.name}' serves {' and '.join(variants)}: add {', '.join(sorted(needed))} "
            "to the trainings of one in its YAML, or choose other variants."
        )
    return names


def episodes(rows: pd.DataFrame, better: str, than: str, limits: tuple[int, int]) -> pd.DataFrame:
    """What one variant gains over another on the same images: one row per episode.

    Args:
        rows: one row per query, of one evaluation.
        limits: minimum and maximum of the stopping rule. Variants without refinement predict at step 0.

    Returns:
        The episode's key, `way`, `n_support` and `n_query`; `accuracy` and stopping `step` of `better`;
        `accuracy_than` and `step_than` of `than`; the `gain` of the first over the second; `shots`, a tuple, by label.

    Raises:
        ValueError: there is no such variant, its rows are missing, the two are the same, or they were evaluated on
            different episodes.
    """
    if better == than:
        raise UserError(f"{better} can't be compared with itself: choose two variants.")
    a, b = (episode_accuracies(variant_predictions(rows, name, *limits)) for name in (better, than))
    pairs = paired_episodes(a, b).rename(columns={"difference": "gain"})
    pairs = pairs.merge(b[[*EPISODE, "accuracy", "step"]], on=EPISODE, suffixes=("", "_than"), validate="1:1")
    own = rows_of_training(rows, VARIANTS[better].training)
    classes = own.drop_duplicates([*EPISODE, "label"]).sort_values("label")
    shots = classes.groupby(EPISODE, sort=False, observed=True)["shot"].agg(tuple).reset_index(name="shots")
    return pairs.merge(shots, on=EPISODE, validate="1:1").drop(columns="variant")


def chosen(
    table: pd.DataFrame,
    datasets: Sequence[str] | None = None,
    ways: tuple[int, int] | None = None,
    shots: tuple[int, int] | None = None,
    sort: str = "Largest gain first",
) -> pd.DataFrame:
    """The episodes of some datasets, ways and shots, sorted; possibly none.

    Args:
        table: of `episodes`.
        ways, shots: lowest and highest, both included. Shots keep the episodes in which *some* class has such a shot.
        sort: a name of `SORTS`.
    """
    if datasets is not None:
        table = table[table["dataset"].isin(datasets)]
    if ways is not None:
        table = table[table["way"].between(*ways)]
    if shots is not None:
        within = [any(shots[0] <= shot <= shots[1] for shot in own) for own in table["shots"]]
        table = table[np.array(within, dtype=bool)]
    column, rising = SORTS[sort]
    if column is None:
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
    mean = domain_averages(table, ["evaluation"], "gain").set_index("domain").loc["all"]
    once = ", each counting once" if mean["n_datasets"] > 1 else ""
    return (
        f"{counted(len(table), 'episode')} of {counted(mean['n_datasets'], 'dataset')}{once}. Gain of {better} over "
        f"{than}: {cell(mean['gain'], mean['interval'], signed=True)} points on average, from "
        f"{points(table['gain'].min())} to {points(table['gain'].max())}."
    )


def dataset_filters(study: Study) -> list[tuple[str, tuple[str, ...]]]:
    """The dataset filter's options, with their datasets as values: all, each domain if there are two, each dataset."""
    names, domains = {"in": "in-domain", "out": "out-of-domain"}, {n: own.domain for n, own in study.datasets.items()}
    both = [(f"All {names[d]}", tuple(n for n in domains if domains[n] == d)) for d in names if d in domains.values()]
    each = [(f"{name} ({names[domain]})", (name,)) for name, domain in domains.items()]
    return [("All datasets", tuple(domains)), *(both if len(both) > 1 else []), *each]


def lines(listed: pd.DataFrame, better: str, than: str) -> tuple[str, list[tuple[str, tuple[str, int]]]]:
    """The list's heading, and its options: one line per episode, with dataset and number as its value."""
    columns = {
        "dataset": listed["dataset"],
        "episode": listed["episode"],
        "way": listed["way"],
        "shots": ["–".join(map(str, sorted({min(shots), max(shots)}))) for shots in listed["shots"]],
        "queries": listed["n_query"],
        than: [f"{100 * accuracy:.1f}%" for accuracy in listed["accuracy_than"]],
        better: [f"{100 * accuracy:.1f}%" for accuracy in listed["accuracy"]],
        "gain": listed["gain"].map(points),
        "stops at": listed["step"],
    }
    cells = [[name, *map(str, values)] for name, values in columns.items()]
    padded = [[cell.rjust(max(map(len, column))) for cell in column] for column in cells]
    padded[0] = [cell.ljust(max(map(len, cells[0]))) for cell in cells[0]]
    heading, *options = ("  ".join(line).replace(" ", "\N{NO-BREAK SPACE}") for line in zip(*padded))
    return heading, list(zip(options, zip(listed["dataset"], listed["episode"].tolist())))


def status(row: pd.Series, variant: str, own: pd.DataFrame, step: int, stop: int) -> str:
    """In words: which episode it is, what the variant achieves after a step, and whether it would stop there.

    Args:
        row: of `episodes`.
        own: of `episode_table.rows_of_episode`.
        stop: the step at which the variant stops.
    """
    found, last = at_step(own, step), recorded_predictions(own).shape[1] - 1
    if VARIANTS[variant].refinement_at_test:
        place = "where it stops" if step == stop else f"it stops at {stop}"
    else:
        place = "no refinement at test time" if step == 0 else f"as {refined(variant)}; it does not refine itself"
    changed = f" · {counted(int(found['changed'].sum()), 'label')} changed in this step" if step else ""
    return (
        f"{row['dataset']}, episode {row['episode']} · {row['way']}-way, {shots_in_words(row['shots'])}, "
        f"{row['n_support']} support images · {variant}, step {step} of {last} ({place}): "
        f"{found['right'].sum()} of {len(found)} queries right, {100 * found['right'].mean():.1f}%{changed}"
    )
