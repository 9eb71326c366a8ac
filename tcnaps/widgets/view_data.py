"""What the views of class recall, refinement steps and numbers of queries show: choices → frames and points.

No ipywidgets and no drawing. The numbers are those of `recall` and `statistics`. This module chooses the rows that go
in, and says in words what came out.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from tcnaps.config import Study, UserError
from tcnaps.evaluation.recall import SHOT_EDGES, class_recall, recall_by_shot
from tcnaps.evaluation.result_files import load_query_counts, load_rows
from tcnaps.evaluation.statistics import (
    DOMAINS,
    GROUP,
    accuracy_by_query_count,
    accuracy_by_step,
    episode_accuracies,
    paired_episodes,
    refinement_grid,
)
from tcnaps.evaluation.stopped_rows import variant_predictions
from tcnaps.figures.results import side_by_side
from tcnaps.figures.style import DOMAIN_NAMES
from tcnaps.method.variants import VARIANTS
from tcnaps.widgets.episode_table import counted
from tcnaps.widgets.explorer_data import variants_of

LARGEST_MINIMUM = 6  # steps of the heatmap, as in the paper's sweep


@dataclass(frozen=True)
class Seen:
    """What a view shows.

    Attributes:
        frame: what is drawn.
        points: one row per point of the picture: its panel's number, `x`, `y` and the half-width `interval` on its
            axes, a short `name`, a `text` with n, mean and interval, and the `value` by which points are compared.
            `cell` tells a heatmap's cell, of width and height 1, from a dot.
        title: one line that says what was chosen.
        steps: of the refinement view only, accuracy after exactly 0, 1, 2, … steps.
    """

    frame: pd.DataFrame
    points: pd.DataFrame
    title: str
    steps: pd.DataFrame | None = None

    def answer(self) -> str:
        """What was chosen, and the points with the highest and the lowest value, in words."""
        points = self.points.sort_values("value", kind="stable")
        return f"{self.title}\n  highest: {points['text'].iloc[-1]}\n  lowest: {points['text'].iloc[0]}"


def first_choice(names: Sequence[str], wanted: Sequence[str]) -> tuple[str, ...]:
    """The wanted names that exist, or else the first name."""
    return tuple(name for name in wanted if name in names) or tuple(names[:1])


def _chosen(what: str, names: Sequence) -> None:
    if not names:
        raise UserError(f"No {what} is chosen: tick at least one.")


def _kept(frame: pd.DataFrame, datasets: Sequence[str], domain: str = "all") -> pd.DataFrame:
    """The rows of the chosen datasets in a domain."""
    _chosen("dataset", datasets)
    kept = frame[frame["dataset"].isin(datasets) & frame["domain"].isin(DOMAINS[domain])]
    if kept.empty:
        raise UserError(
            f"None of the chosen datasets ({', '.join(datasets)}) is {DOMAIN_NAMES[domain].lower()}: "
            "choose another domain or more datasets."
        )
    return kept


def _number(value: float, interval: float, gain: bool = False) -> str:
    """A fraction and its interval, such as "58.8 ± 1.1%"; a gain is written "+0.45 ± 0.20 points"."""
    sign, digits, unit = ("+", 2, " points") if gain else ("", 1, "%")
    spread = "" if pd.isna(interval) else f" ± {100 * interval:.{digits}f}"
    return f"{100 * value:{sign}.{digits}f}{spread}{unit}"


def _accuracy_and_gain(row, over: str) -> str:
    gain = _number(row.gain, row.gain_interval, gain=True)
    return f"accuracy {_number(row.accuracy, row.interval)}, gain {over} {gain}"


def _point(panel, x, value, interval, name, says, y=None) -> dict:
    """A row of `Seen.points`; `value` and `interval` are fractions; a dot's y is the percentage."""
    place = {"panel": panel, "x": x, "y": 100 * value if y is None else y, "interval": 100 * interval}
    return place | {"cell": y is not None, "name": name, "text": f"{name}: {says}", "value": value}


# ---- class recall against shot


def recalls_of(study: Study, evaluation: str, variant: str) -> pd.DataFrame:
    """The class recalls of a variant in an evaluation.

    Raises:
        UserError: of `load_rows`.
    """
    rows = load_rows(study, evaluation, [VARIANTS[variant].training], [study.replicate])
    return class_recall(variant_predictions(rows, variant, *study.refinement.limits))


def recall_seen(
    recalls: Sequence[pd.DataFrame],
    datasets: Sequence[str],
    domains: Sequence[str],
    shots: tuple[int, int],
    against: str | None = None,
    every_shot: bool = False,
) -> Seen:
    """Class recall against shot.

    Args:
        recalls: of `class_recall`, one frame for each variant.
        domains: the panels, of "in", "out", "all".
        shots: lowest and highest shot, both included.
        against: shows the paired gain of the others over this variant instead.
        every_shot: whether each shot stands alone instead of in the bins of `SHOT_EDGES`.

    Raises:
        UserError: nothing is chosen, or no class has these shots.
    """
    for what, names in (("variant", recalls), ("dataset", datasets), ("domain", domains)):
        _chosen(what, names)
    own = [frame[frame["dataset"].isin(datasets) & frame["shot"].between(*shots)] for frame in recalls]
    if not any(own[0]["domain"].isin(DOMAINS[domain]).any() for domain in domains):
        raise UserError(
            f"No class of the chosen datasets and domains has {shots[0]} to {shots[1]} support images: "
            "widen the range of shots, or choose more datasets or domains."
        )
    names = [frame["variant"].iloc[0] for frame in own]
    value = "recall" if against is None else "difference"
    if against is not None:
        if against not in names or len(names) < 2:
            raise UserError(f"A gain over {against} needs {against} and another variant among the chosen.")
        base = own[names.index(against)]
        own = [paired_episodes(frame, base, "recall", ["label"]) for frame, name in zip(own, names) if name != against]
    frame = recall_by_shot(pd.concat(own, ignore_index=True), GROUP, value, None if every_shot else SHOT_EDGES)
    frame = frame[frame["domain"].isin(domains)]
    frame = frame.sort_values("variant", key=lambda column: column.map(names.index), kind="stable", ignore_index=True)
    points = [_recall_point(row, list(domains), value, against) for row in frame.itertuples()]
    span = f"shots {shots[0]} to {shots[1]}"
    what = "Class recall" if against is None else f"Gain in class recall over {against}"
    listed = ", ".join(name for name in names if name != against)
    title = f"{what}: {listed} · {counted(len(datasets), 'dataset')} · {span} · {counted(len(points), 'point')}"
    return Seen(frame, pd.DataFrame(points), title)


def _recall_point(row, domains: list[str], value: str, against: str | None) -> dict:
    mean, same = getattr(row, value), row.shot_high == row.shot_low
    shots = f"shot {row.shot_low:.0f}" + ("" if same else f" to {row.shot_high:.0f}")
    name = f"{row.variant}, {DOMAIN_NAMES[row.domain].lower()}, {shots}"
    what = "recall" if against is None else f"gain over {against}"
    number = _number(mean, row.interval, gain=against is not None)
    says = f"{what} {number}, n = {counted(row.n_classes, 'class')} of {counted(row.n_episodes, 'episode')}"
    return _point(domains.index(row.domain), row.shot, mean, row.interval, name, says)


# ---- refinement steps


def refinement_seen(
    rows: pd.DataFrame,
    training: str,
    recorded: int,
    datasets: Sequence[str],
    domain: str,
    rule: tuple[int, int] = (2, 4),
) -> Seen:
    """Accuracy and gain for every minimum ≤ maximum number of steps; a point is a cell.

    Args:
        rows: of one evaluation and training.
        recorded: steps on record.
        rule: the study's own minimum and maximum, which the heatmap compares all others with.

    Raises:
        UserError: no dataset is left.
    """
    kept = _kept(rows, datasets, domain)
    minima = range(1, min(LARGEST_MINIMUM, recorded) + 1)
    grid = refinement_grid(kept, training, minima, range(1, recorded + 1), domain, rule)
    steps = accuracy_by_step(kept, training, range(recorded + 1), domain)
    episodes = counted(len(kept.drop_duplicates(["dataset", "episode"])), "episode")
    datasets_kept = counted(kept["dataset"].nunique(), "dataset")
    n, points = f"n = {episodes} of {datasets_kept}", []
    for row in grid.itertuples():
        name = f"minimum {row.minimum}, maximum {row.maximum}"
        says = f"{_accuracy_and_gain(row, 'over no refinement')}, {n}"
        points.append(_point(0, row.maximum - 0.5, row.gain, 0.0, name, says, row.minimum - 0.5))  # the cell's middle
    for row in steps.itertuples():
        says = f"{_accuracy_and_gain(row, 'over step 0')}, {n}"
        points.append(_point(1, row.step, row.gain, row.gain_interval, f"exactly {counted(row.step, 'step')}", says))
    return Seen(grid, pd.DataFrame(points), f"{DOMAIN_NAMES[domain]}: {datasets_kept} · {episodes}", steps)


# ---- number of queries


def query_count_variants(study: Study) -> list[str]:
    """The variants for which the study has fixed evaluations that differ only in their number of queries."""
    fixed = [own for own in study.evaluations.values() if own.protocol.kind == "fixed" and not own.before_training]
    counts = Counter((training, e.protocol.way, e.protocol.shot) for e in fixed for training in e.trainings)
    return variants_of({training for (training, *_), number in counts.items() if number > 1})


def query_episodes(study: Study, variants: Sequence[str]) -> pd.DataFrame:
    """The accuracies per episode of the evaluations that differ only in their number of queries.

    Raises:
        UserError: the study has no such evaluations, rows are missing, or no variant is chosen.
    """
    if not query_count_variants(study):
        raise UserError(
            f"Study '{study.name}' has no two fixed evaluations that differ only in queries_per_class: "
            "add some to its YAML, as configs/miniature.yaml has them, and run `make figures`."
        )
    _chosen("variant", variants)
    rows = load_query_counts(study, list(dict.fromkeys(VARIANTS[name].training for name in variants)))
    return episode_accuracies(variant_predictions(rows, variants, *study.refinement.limits))


def query_count_seen(episodes: pd.DataFrame, datasets: Sequence[str], domain: str, settings: Sequence[str]) -> Seen:
    """Accuracy against the number of queries per class.

    Args:
        episodes: of `query_episodes`.
        settings: ways and shots, as "5-way 1-shot".

    Raises:
        UserError: nothing is chosen, or no dataset is left.
    """
    _chosen("way and shot", settings)
    kept = _kept(episodes, datasets, domain)
    kept = kept[kept["evaluation"].isin(settings)]
    if kept.empty:
        raise UserError(f"The chosen datasets have no episodes of {', '.join(settings)}: choose more datasets.")
    frame = accuracy_by_query_count(kept)
    panels = list(frame["evaluation"].unique())
    n_episodes = kept.groupby(["variant", "evaluation", "queries_per_class"]).size()
    points = []
    for row in frame.assign(x=side_by_side(frame)).itertuples():
        name = f"{row.variant}, {row.evaluation}, {row.queries_per_class} queries per class"
        n = counted(n_episodes[row.variant, row.evaluation, row.queries_per_class], "episode")
        says = f"accuracy {_number(row.accuracy, row.interval)}, n = {n} of {counted(row.n_datasets, 'dataset')}"
        points.append(_point(panels.index(row.evaluation), row.x, row.accuracy, row.interval, name, says))
    shown = counted(kept["dataset"].nunique(), "dataset"), counted(len(points), "point")
    return Seen(frame, pd.DataFrame(points), " · ".join([", ".join(frame["variant"].unique()), *shown]))
