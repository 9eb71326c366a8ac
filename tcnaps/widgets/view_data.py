"""What the views of class recall, refinement steps and numbers of queries show: choices → frames and points.

No ipywidgets and no drawing. The numbers are those of `recall` and `statistics`. This module chooses the rows that go
in, and says in words what came out.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from tcnaps.config import Study
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


def _limits(study: Study) -> tuple[int, int]:
    return study.refinement.minimum_steps, study.refinement.maximum_steps


def _chosen(what: str, names: Sequence) -> None:
    if not names:
        raise ValueError(f"No {what} is chosen: tick at least one.")


def _kept(frame: pd.DataFrame, datasets: Sequence[str], domain: str = "all") -> pd.DataFrame:
    """The rows of the chosen datasets in a domain."""
    _chosen("dataset", datasets)
    kept = frame[frame["dataset"].isin(datasets) & frame["domain"].isin(DOMAINS[domain])]
    if kept.empty:
        raise ValueError(
            f"None of the chosen datasets ({', '.join(datasets)}) is {DOMAIN_NAMES[domain].lower()}: "
            "choose another domain or more datasets."
        )
    return kept


def _percent(value: float, interval: float) -> str:
    """A fraction and its interval, such as "58.8 ± 1.1%"."""
    return f"{100 * value:.1f}{'' if pd.isna(interval) else f' ± {100 * interval:.1f}'}%"


def _points(value: float, interval: float) -> str:
    """A difference of fractions and its interval, such as "+0.45 ± 0.20 points"."""
    return f"{100 * value:+.2f}{'' if pd.isna(interval) else f' ± {100 * interval:.2f}'} points"


def _accuracy_and_gain(row, over: str) -> str:
    return f"accuracy {_percent(row.accuracy, row.interval)}, gain {over} {_points(row.gain, row.gain_interval)}"


def _point(panel, x, value, interval, name, says, y=None, cell=False) -> dict:
    """A row of `Seen.points`; `value` and `interval` are fractions, drawn in percent unless `y` says otherwise."""
    place = {"panel": panel, "x": x, "y": 100 * value if y is None else y, "interval": 100 * interval, "cell": cell}
    return place | {"name": name, "text": f"{name}: {says}", "value": value}


# ---- class recall against shot


def recalls_of(study: Study, evaluation: str, variant: str) -> pd.DataFrame:
    """The class recalls of a variant in an evaluation.

    Raises:
        ValueError, FileNotFoundError: of `load_rows`.
    """
    rows = load_rows(study, evaluation, [VARIANTS[variant].training], [study.replicate])
    return class_recall(variant_predictions(rows, variant, *_limits(study)))


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
        ValueError: nothing is chosen, or no class has these shots.
    """
    for what, names in (("variant", recalls), ("dataset", datasets), ("domain", domains)):
        _chosen(what, names)
    own = [frame[frame["dataset"].isin(datasets) & frame["shot"].between(*shots)] for frame in recalls]
    if not any(own[0]["domain"].isin(DOMAINS[domain]).any() for domain in domains):
        raise ValueError(
            f"No class of the chosen datasets and domains has {shots[0]} to {shots[1]} support images: "
            "widen the range of shots, or choose more datasets or domains."
        )
    names = [frame["variant"].iloc[0] for frame in own]
    value = "recall" if against is None else "difference"
    if against is not None:
        if against not in names or len(names) < 2:
            raise ValueError(f"A gain over {against} needs {against} and another variant among the chosen.")
        base = own[names.index(against)]
        own = [paired_episodes(frame, base, "recall", ["label"]) for frame, name in zip(own, names) if name != against]
    frame = recall_by_shot(pd.concat(own, ignore_index=True), GROUP, value, None if every_shot else SHOT_EDGES)
    frame = frame[frame["domain"].isin(domains)]
    frame = frame.sort_values("variant", key=lambda column: column.map(names.index), kind="stable", ignore_index=True)
    points = [_recall_point(row, list(domains), value, against) for row in frame.itertuples()]
    span = f"shots {shots[0]} to {shots[1]}" if shots[0] < shots[1] else f"shot {shots[0]}"
    what = "Class recall" if against is None else f"Gain in class recall over {against}"
    listed = ", ".join(name for name in names if name != against)
    title = f"{what}: {listed} · {counted(len(datasets), 'dataset')} · {span} · {counted(len(points), 'point')}"
    return Seen(frame, pd.DataFrame(points), title)


def _recall_point(row, domains: list[str], value: str, against: str | None) -> dict:
    mean = getattr(row, value)
    shot = f"shot {row.shot_low:.0f}"
    if row.shot_high > row.shot_low:
        shot += f" to {row.shot_high:.0f}"
    name = f"{row.variant}, {DOMAIN_NAMES[row.domain].lower()}, {shot}"
    number = (
        f"recall {_percent(mean, row.interval)}"
        if against is None
        else f"gain over {against} {_points(mean, row.interval)}"
    )
    n = f"n = {counted(row.n_classes, 'class')} of {counted(row.n_episodes, 'episode')}"
    return _point(domains.index(row.domain), row.shot, mean, row.interval, name, f"{number}, {n}")


# ---- refinement steps


def refinement_seen(rows: pd.DataFrame, training: str, recorded: int, datasets: Sequence[str], domain: str) -> Seen:
    """Accuracy and gain for every minimum ≤ maximum number of steps; a point is a cell.

    Args:
        rows: of one evaluation and training.
        recorded: steps on record.

    Raises:
        ValueError: no dataset is left.
    """
    kept = _kept(rows, datasets, domain)
    minima = range(1, min(LARGEST_MINIMUM, recorded) + 1)
    grid = refinement_grid(kept, training, minima, range(1, recorded + 1), domain)
    steps = accuracy_by_step(kept, training, range(recorded + 1), domain)
    episodes = len(kept.drop_duplicates(["dataset", "episode"]))
    n = f"n = {counted(episodes, 'episode')} of {counted(kept['dataset'].nunique(), 'dataset')}"
    points = []
    for row in grid.itertuples():
        name = f"minimum {row.minimum}, maximum {row.maximum}"
        says = _accuracy_and_gain(row, "over no refinement")
        x, y = row.maximum - 0.5, row.minimum - 0.5  # the middle of the heatmap's cell
        points.append(_point(0, x, row.gain, 0.0, name, f"{says}, {n}", y, cell=True))
    for row in steps.itertuples():
        says = _accuracy_and_gain(row, "over step 0")
        name = f"exactly {counted(row.step, 'step')}"
        points.append(_point(1, row.step, row.gain, row.gain_interval, name, f"{says}, {n}"))
    title = f"{DOMAIN_NAMES[domain]}: {counted(kept['dataset'].nunique(), 'dataset')} · {counted(episodes, 'episode')}"
    return Seen(grid, pd.DataFrame(points), title, steps)


# ---- number of queries


def query_count_variants(study: Study) -> list[str]:
    """The variants for which the study has fixed evaluations that differ only in their number of queries."""
    fixed = [evaluation for evaluation in study.evaluations.values() if evaluation.protocol.kind == "fixed"]
    counts = Counter((training, e.protocol.way, e.protocol.shot) for e in fixed for training in e.trainings)
    several = {training for (training, *_), number in counts.items() if number > 1}
    return [name for name, variant in VARIANTS.items() if variant.training in several]


def query_episodes(study: Study, variants: Sequence[str]) -> pd.DataFrame:
    """The accuracies per episode of the evaluations that differ only in their number of queries.

    Raises:
        ValueError: the study has no such evaluations, or no variant is chosen.
        FileNotFoundError: of `load_query_counts`.
    """
    if not query_count_variants(study):
        raise ValueError(
            f"Study '{study.name}' has no two fixed evaluations that differ only in queries_per_class: "
            "add some to its YAML, as configs/miniature.yaml has them, and run `make figures`."
        )
    _chosen("variant", variants)
    rows = load_query_counts(study, list(dict.fromkeys(VARIANTS[name].training for name in variants)))
    return episode_accuracies(variant_predictions(rows, variants, *_limits(study)))


def query_count_seen(episodes: pd.DataFrame, datasets: Sequence[str], domain: str, settings: Sequence[str]) -> Seen:
    """Accuracy against the number of queries per class.

    Args:
        episodes: of `query_episodes`.
        settings: ways and shots, as "5-way 1-shot".

    Raises:
        ValueError: nothing is chosen, or no dataset is left.
    """
    _chosen("way and shot", settings)
    kept = _kept(episodes, datasets, domain)
    kept = kept[kept["evaluation"].isin(settings)]
    if kept.empty:
        raise ValueError(f"The chosen datasets have no episodes of {', '.join(settings)}: choose more datasets.")
    frame = accuracy_by_query_count(kept)
    panels = list(frame["evaluation"].unique())
    n_episodes = kept.groupby(["variant", "evaluation", "queries_per_class"]).size()
    points = []
    for row in frame.assign(x=side_by_side(frame)).itertuples():
        name = f"{row.variant}, {row.evaluation}, {row.queries_per_class} queries per class"
        n = n_episodes[row.variant, row.evaluation, row.queries_per_class]
        says = (
            f"accuracy {_percent(row.accuracy, row.interval)}, n = {counted(int(n), 'episode')} of "
            f"{counted(row.n_datasets, 'dataset')}"
        )
        points.append(_point(panels.index(row.evaluation), row.x, row.accuracy, row.interval, name, says))
    title = (
        f"{', '.join(frame['variant'].unique())} · {counted(kept['dataset'].nunique(), 'dataset')} · "
        f"{counted(len(points), 'point')}"
    )
    return Seen(frame, pd.DataFrame(points), title)
