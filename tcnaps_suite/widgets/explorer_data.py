"""The rows of an evaluation → its episodes by gain: what the explorer lists. No PyTorch and no ipywidgets."""

from collections.abc import Collection, Sequence

import pandas as pd

from tcnaps.config import Study, UserError
from tcnaps.config.errors import nearest
from tcnaps.evaluation.result_files import needed_trainings
from tcnaps.evaluation.statistics import domain_averages, episode_accuracies, overall, paired_episodes, with_classes
from tcnaps.evaluation.stopped_rows import EPISODE, recorded_predictions, variant_predictions
from tcnaps.figures.tables import cell, points
from tcnaps.method.variants import ALL_VARIANTS, VARIANTS
from tcnaps_suite.widgets.episode_table import at_step, counted, refined, shots_in_words

SORTS = ("Largest gain first", "Largest loss first", "Dataset and episode")


def one_of(kind: str, name: str, known: Collection[str]) -> None:
    """Checks that a name is among the known ones."""
    if name not in known:
        raise UserError(f"There is no {kind} '{name}'{nearest(name, known)}")


def variants_of(trainings: Collection[str]) -> list[str]:
    """The variants that these trainings serve, in the paper's order."""
    return [name for name, variant in VARIANTS.items() if variant.training in trainings]


def evaluations_of(study: Study, variants: Sequence[str]) -> list[str]:
    """The evaluations whose trainings serve all these variants; a UserError if there is none."""
    needed = needed_trainings(variants)
    if not (names := list(study.evaluations_of(needed))):
        raise UserError(
            f"No evaluation of study '{study.name}' serves {' and '.join(variants)}: add {', '.join(sorted(needed))} "
            "to the trainings of one in its YAML, or choose other variants."
        )
    return names


def episodes(rows: pd.DataFrame, better: str, than: str, limits: tuple[int, int]) -> pd.DataFrame:
    """The gain of one variant over another on the same images, from the rows of an evaluation: one row per episode.

    `accuracy` and stopping `step` are those of `better`, `accuracy_than` and `step_than` of `than`; `shots` is a tuple.
    """
    if better == than:
        raise UserError(f"{better} can't be compared with itself: choose two variants.")
    a, b = (episode_accuracies(variant_predictions(rows, name, *limits)) for name in (better, than))
    pairs = paired_episodes(a, b).rename(columns={"difference": "gain"})
    pairs = pairs.merge(b[[*EPISODE, "accuracy", "step"]], on=EPISODE, suffixes=("", "_than"), validate="1:1")
    return with_classes(pairs, rows, "shot").rename(columns={"classes": "shots"}).drop(columns="variant")


def chosen(table: pd.DataFrame, datasets: Sequence[str] | None = None, sort: str = SORTS[0]) -> pd.DataFrame:
    """The rows of `episodes` for some datasets, in one of `SORTS`; ties are in the order of datasets and numbers."""
    if datasets is not None:
        table = table[table["dataset"].isin(datasets)]
    if sort == "Dataset and episode":
        return table
    gains = table["gain"].round(9)  # those that are equal as fractions of queries differ in the last digit
    return table.loc[gains.sort_values(ascending=sort == "Largest loss first", kind="stable").index]


def in_words(table: pd.DataFrame, better: str, than: str) -> str:
    """The number of episodes of `chosen`, their mean gain, and the largest gain and loss."""
    if table.empty:
        return "No episode is listed: widen the filters."
    kinds = {"all": "", "real": " for real images", "rendered": " for rendered images"}
    means = overall(domain_averages(table, ["evaluation"], "gain")).itertuples()
    gains = [(cell(m.gain, m.interval, signed=True).replace("±", " ± "), kinds[m.domain]) for m in means]
    gains = ", ".join(f"{gain} points on average{kind}" for gain, kind in gains)
    n = table["dataset"].nunique()
    return (
        f"{counted(len(table), 'episode')} of {counted(n, 'dataset')}{', each counting once' * (n > 1)}. Gain of "
        f"{better} over {than}: {gains}, from {points(table['gain'].min())} to {points(table['gain'].max())}."
    )


def dataset_filters(study: Study, evaluation: str) -> list[tuple[str, tuple[str, ...]]]:
    """The dataset filter's options: all datasets of an evaluation, all of each domain, each dataset."""
    domains = {name: study.datasets[name].domain for name in study.evaluations[evaluation].datasets}
    texts = {"in": "in-domain", "out": "out-of-domain"}
    of_domains = [(f"All {texts[key]}", tuple(name for name in domains if domains[name] == key)) for key in texts]
    each = [(f"{name} ({texts[domain]})", (name,)) for name, domain in domains.items()]
    return [("All datasets", tuple(domains)), *(option for option in of_domains if option[1]), *each]


def lines(listed: pd.DataFrame, better: str, than: str) -> list[tuple[str, tuple[str, int]]]:
    """The list's options: one line per episode, whose value is the dataset and the number."""
    return [
        (
            f"{row.dataset} {row.episode}: {row.way}-way, {shots_in_words(row.shots)}, {row.n_query} queries · {than} "
            f"{100 * row.accuracy_than:.1f}% → {better} {100 * row.accuracy:.1f}% ({points(row.gain)}), "
            f"stops at step {row.step}",
            (row.dataset, row.episode),
        )
        for row in listed.itertuples()
    ]


def status(row: pd.Series, variant: str, rows: pd.DataFrame, step: int, stop: int) -> str:
    """The episode, the variant's accuracy after a step, and whether it stops there (at `stop`), in words."""
    queries, last = at_step(rows, step), recorded_predictions(rows).shape[1] - 1
    if ALL_VARIANTS[variant].refinement_at_test:
        place = "where it stops" if step == stop else f"it stops at {stop}"
    else:
        place = "no refinement at test time" if step == 0 else f"as {refined(variant)}; it does not refine itself"
    changed = f" · {counted(int(queries['changed'].sum()), 'label')} changed in this step" if step else ""
    return (
        f"{row['dataset']}, episode {row['episode']} · {row['way']}-way, {shots_in_words(row['shots'])}, "
        f"{row['n_support']} support images · {variant}, step {step} of {last} ({place}): "
        f"{queries['right'].sum()} of {len(queries)} queries right, {100 * queries['right'].mean():.1f}%{changed}"
    )
