"""Views of class recall, of refinement steps and of the number of queries: the figures, with choices to make.

The numbers are those of `tcnaps.evaluation`. A view chooses the rows that go in, and says in words what came out.
"""

from collections.abc import Sequence

import pandas as pd
from ipywidgets import Checkbox

from tcnaps.config import Study, UserError
from tcnaps.evaluation.recall import SHOT_EDGES, class_recall, recall_by_shot
from tcnaps.evaluation.result_files import load_query_counts, load_rows, needed_trainings
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
from tcnaps.figures import results
from tcnaps.figures.style import DOMAIN_NAMES
from tcnaps.figures.tables import points as in_points
from tcnaps.method.variants import VARIANTS
from tcnaps.widgets import widget_base as ui
from tcnaps.widgets.base_view import Seen, View
from tcnaps.widgets.episode_table import counted
from tcnaps.widgets.explorer_data import variants_of

LARGEST_MINIMUM = 6  # steps of the heatmap, as in the paper's sweep
DOMAIN_MENU = [(DOMAIN_NAMES[key], key) for key in ("all", "in", "out")]


def recall_view(study: Study) -> "RecallView":
    """Class recall against shot: choose variants, datasets, domains and shots."""
    return ui.shown_again(RecallView, study)


def refinement_view(study: Study) -> "RefinementView":
    """The heatmap of minimum and maximum steps, and the gain step by step."""
    return ui.shown_again(RefinementView, study)


def query_count_view(study: Study) -> "QueryCountView":
    """Accuracy against the number of queries per class."""
    return ui.shown_again(QueryCountView, study)


class RecallView(View):
    """Class recall against shot."""

    kind, height = "class-recall", 2.9

    def make_filters(self):
        study, names = self.study, variants_of(self.evaluation.trainings)
        first = _first_choice(names, ("Simple", "Transductive"))
        own = {dataset.domain for dataset in study.datasets.values()}
        panels = list(DOMAIN_NAMES) if len(own) > 1 else list(own)
        every = Checkbox(False, description="every shot by itself, not in bins", indent=False, layout={"width": "auto"})
        return {
            "evaluation": ui.menu("Evaluation:", 265, list(study.evaluations)),
            "value": ui.menu("Show:", 225, self._values(first)),
            "shots": ui.slider("Shots:", 300, 1, 2, (1, 2)),
            "variants": ui.Choices("Variants", names, first),
            "datasets": self.dataset_choices(self.evaluation.datasets),
            "domains": ui.Choices("Panels", list(DOMAIN_NAMES), panels, DOMAIN_NAMES),
            "apart": every,
        }

    @staticmethod
    def _values(variants: Sequence[str]) -> list[tuple[str, str]]:
        """What can be shown: recall and, where there are several variants, the gain over each."""
        return [("recall", ""), *((f"gain over {name}", name) for name in variants if len(variants) > 1)]

    def follow(self, name):
        super().follow(name)
        c = self.controls
        if name == "evaluation":
            names = variants_of(self.evaluation.trainings)
            c["variants"].offer(names, _first_choice(names, c["variants"].value))
        if name in ("evaluation", "variants"):
            ui.offer(c["value"], self._values(c["variants"].value))

    @staticmethod
    def fetch(study, evaluation, variant):
        rows = load_rows(study, evaluation, [VARIANTS[variant].training], [study.replicate])
        return class_recall(variant_predictions(rows, variant, *study.refinement.limits))

    def see(self):
        chosen = self.choice
        _ticked(variant=chosen.variants, dataset=chosen.datasets, panel=chosen.domains)
        recalls = {name: self.read(chosen.evaluation, name) for name in chosen.variants}
        with self.quietly():
            ui.refit(self.controls["shots"], 1, max(int(frame["shot"].max()) for frame in recalls.values()))
        low, high = self.choice.shots
        own = {
            name: frame[frame["dataset"].isin(chosen.datasets) & frame["shot"].between(low, high)]
            for name, frame in recalls.items()
        }
        there = {domain for frame in own.values() for domain in frame["domain"]}
        if not any(there & set(DOMAINS[domain]) for domain in chosen.domains):
            raise UserError(
                f"No class of the chosen datasets and domains has {low} to {high} support images: "
                "widen the range of shots, or choose more datasets or domains."
            )
        value, what, against = "recall", "Class recall", chosen.value
        if against:
            value, what, base = "difference", f"Gain in class recall over {against}", own.pop(against)
            own = {name: paired_episodes(frame, base, "recall", ["label"]) for name, frame in own.items()}
        edges = None if chosen.apart else SHOT_EDGES
        frame = recall_by_shot(pd.concat(own.values(), ignore_index=True), GROUP, value, edges)
        frame = frame[frame["domain"].isin(chosen.domains)]
        order = frame["variant"].map(list(own).index)
        frame = frame.loc[order.sort_values(kind="stable").index].reset_index(drop=True)
        points = [self._point(row, value) for row in frame.itertuples()]
        counts = f"{counted(len(chosen.datasets), 'dataset')} · shots {low} to {high} · {counted(len(points), 'point')}"
        return Seen(frame, pd.DataFrame(points), f"{what}: {', '.join(own)} · {counts}")

    def _point(self, row, value):
        against, mean = self.choice.value, getattr(row, value)
        shots = f"shot {row.shot_low:.0f}" + ("" if row.shot_high == row.shot_low else f" to {row.shot_high:.0f}")
        what = f"gain over {against} {_gain(mean, row.interval)}" if against else f"recall {_share(mean, row.interval)}"
        says = f"{what}, n = {counted(row.n_classes, 'class')} of {counted(row.n_episodes, 'episode')}"
        name = f"{row.variant}, {DOMAIN_NAMES[row.domain].lower()}, {shots}"
        return _point(self.choice.domains.index(row.domain), row.shot, mean, row.interval, name, says)

    def panels(self, figure, seen, mark):
        domains = self.choice.domains
        axes = figure.subplots(1, len(domains), sharey=True, squeeze=False)[0]
        results.class_recall(axes, seen.frame, domains, "difference" if "difference" in seen.frame else "recall")


class RefinementView(View):
    """Accuracy and gain for every minimum ≤ maximum number of refinement steps, and after exactly 0, 1, 2, … steps."""

    kind, height, remembered = "refinement-steps", 3.3, 1  # tables of large studies fill the memory

    def make_filters(self):
        study, rule = self.study, self.study.refinement
        recorded = rule.recorded_steps
        minimum, highest = min(rule.limits), min(LARGEST_MINIMUM, recorded)
        return {
            "evaluation": ui.menu("Evaluation:", 255, list(study.evaluations)),
            "training": ui.menu("Variant:", 205, self._trainings()),
            "domain": ui.menu("Domain:", 200, DOMAIN_MENU),
            "value": ui.menu("Show:", 135, ["gain", "accuracy"]),
            "minimum": ui.slider("Minimum:", 290, 1, highest, max(1, min(minimum, highest))),
            "maximum": ui.slider("Maximum:", 290, 1, recorded, max(1, rule.maximum_steps)),
            "datasets": self.dataset_choices(self.evaluation.datasets),
        }

    def _trainings(self) -> list[tuple[str, str]]:
        """The trainings with a variant that refines at test time, by its name; Transductive first."""
        served = variants_of(self.evaluation.trainings)
        names = [name for name in served if VARIANTS[name].refinement_at_test]
        names.sort(key=lambda name: name != "Transductive")
        return [(name, VARIANTS[name].training) for name in names]

    def follow(self, name):
        super().follow(name)
        if name == "evaluation":
            ui.offer(self.controls["training"], self._trainings())

    def change(self, name):
        if name not in ("minimum", "maximum") or self.seen is None:
            super().change(name)
            return
        if self.choice.minimum > self.choice.maximum:  # the other slider follows
            self.put(**{{"minimum": "maximum", "maximum": "minimum"}[name]: self.controls[name].value})
        self.put(points=self.first_point())  # of the same picture
        self.mark()

    def first_point(self):
        return f"minimum {self.choice.minimum}, maximum {self.choice.maximum}"

    def mark(self):
        if self.seen is not None and self.point is not None and self.point["cell"]:
            self.put(minimum=int(self.point["y"] + 0.5), maximum=int(self.point["x"] + 0.5))
        super().mark()

    @staticmethod
    def fetch(study, evaluation, training):
        return load_rows(study, evaluation, [training], [study.replicate])

    def see(self):
        chosen, rule = self.choice, self.study.refinement
        recorded = rule.recorded_steps
        kept = _kept(self.read(chosen.evaluation, chosen.training), chosen.datasets, chosen.domain)
        minima, steps = range(1, min(LARGEST_MINIMUM, recorded) + 1), range(recorded + 1)
        grid = refinement_grid(kept, chosen.training, minima, steps[1:], chosen.domain, rule.limits)
        steps = accuracy_by_step(kept, chosen.training, steps, chosen.domain)
        episodes = counted(len(kept.drop_duplicates(["dataset", "episode"])), "episode")
        datasets = counted(kept["dataset"].nunique(), "dataset")

        def point(panel, row, x, y, interval, over, name):
            gain = f"gain over {over} {_gain(row.gain, row.gain_interval)}"
            says = f"accuracy {_share(row.accuracy, row.interval)}, {gain}, n = {episodes} of {datasets}"
            return _point(panel, x, row.gain, interval, name, says, y)

        points = [  # the middles of cells, then dots
            point(0, row, high - 0.5, low - 0.5, 0.0, "no refinement", f"minimum {low}, maximum {high}")
            for row in grid.itertuples()
            for low, high in [(row.minimum, row.maximum)]
        ]
        for row in steps.itertuples():
            name = f"exactly {counted(row.step, 'step')}"
            points.append(point(1, row, row.step, None, row.gain_interval, "step 0", name))
        title = f"{DOMAIN_NAMES[chosen.domain]}: {datasets} · {episodes}"
        return Seen(grid, pd.DataFrame(points), title, steps)

    def panels(self, figure, seen, mark):
        axes = figure.subplots(1, 2, width_ratios=[2.1, 1])
        chosen = self.choice
        cell = (chosen.minimum, chosen.maximum) if mark is not None and mark["cell"] else (0, 0)  # which is none
        results.refinement_heatmap(axes[0], seen.frame, chosen.value, cell)
        results.accuracy_by_step(axes[1], seen.steps, value="gain")


class QueryCountView(View):
    """Accuracy against the number of queries per class."""

    kind = "number-of-queries"

    def make_filters(self):
        fixed = [own for own in self.study.evaluations.values() if own.protocol.kind == "fixed"]
        names = variants_of({training for own in fixed for training in own.trainings})
        return {
            "variants": ui.Choices("Variants", names, _first_choice(names, ("FEOT", "Transductive"))),
            "domain": ui.menu("Domain:", 220, DOMAIN_MENU),
            "settings": ui.Choices("Ways and shots", (), ()),
            "datasets": self.dataset_choices(),
        }

    @staticmethod
    def fetch(study, variants):
        rows = load_query_counts(study, needed_trainings(variants), [study.replicate])
        return episode_accuracies(variant_predictions(rows, variants, *study.refinement.limits))

    def see(self):
        if self.controls["variants"].options:  # otherwise reading says what the study lacks
            _ticked(variant=self.choice.variants)
        episodes = self.read(self.choice.variants)
        with self.quietly():
            for name, column in (("settings", "evaluation"), ("datasets", "dataset")):
                self.controls[name].offer(list(episodes[column].unique()))
        chosen = self.choice
        _ticked(**{"way and shot": chosen.settings})
        kept = _kept(episodes, chosen.datasets, chosen.domain)
        kept = kept[kept["evaluation"].isin(chosen.settings)]
        if kept.empty:
            raise UserError(
                f"The chosen datasets have no episodes of {', '.join(chosen.settings)}: choose more datasets."
            )
        frame = accuracy_by_query_count(kept)
        n_episodes = kept.groupby(["variant", "evaluation", "queries_per_class"]).size()
        panels, points = list(frame["evaluation"].unique()), []
        for row in frame.assign(x=results.side_by_side(frame)).itertuples():
            n = counted(n_episodes[row.variant, row.evaluation, row.queries_per_class], "episode")
            name = f"{row.variant}, {row.evaluation}, {row.queries_per_class} queries per class"
            accuracy = f"accuracy {_share(row.accuracy, row.interval)}"
            says = f"{accuracy}, n = {n} of {counted(row.n_datasets, 'dataset')}"
            points.append(_point(panels.index(row.evaluation), row.x, row.accuracy, row.interval, name, says))
        counts = f"{counted(kept['dataset'].nunique(), 'dataset')} · {counted(len(points), 'point')}"
        return Seen(frame, pd.DataFrame(points), f"{', '.join(frame['variant'].unique())} · {counts}")

    def panels(self, figure, seen, mark):
        results.number_of_queries(figure.subplots(1, seen.frame["evaluation"].nunique(), squeeze=False)[0], seen.frame)


def _first_choice(names: Sequence[str], wanted: Sequence[str]) -> tuple[str, ...]:
    """The wanted names that exist, or else the first name."""
    return tuple(name for name in wanted if name in names) or tuple(names[:1])


def _ticked(**choices: Sequence) -> None:
    for what, names in choices.items():
        if not names:
            raise UserError(f"No {what} is chosen: tick at least one.")


def _kept(frame: pd.DataFrame, datasets: Sequence[str], domain: str) -> pd.DataFrame:
    """The rows of the chosen datasets in a domain."""
    _ticked(dataset=datasets)
    kept = frame[frame["dataset"].isin(datasets) & frame["domain"].isin(DOMAINS[domain])]
    if kept.empty:
        raise UserError(
            f"None of the chosen datasets ({', '.join(datasets)}) is {DOMAIN_NAMES[domain].lower()}: "
            "choose another domain or more datasets."
        )
    return kept


def _share(value: float, interval: float) -> str:
    """A fraction and its interval, such as "58.8 ± 1.1%"."""
    return f"{100 * value:.1f}" + ("%" if pd.isna(interval) else f" ± {100 * interval:.1f}%")


def _gain(value: float, interval: float) -> str:
    """A difference of fractions and its interval, such as "+0.45 ± 0.20 points"."""
    return in_points(value, 2) + (" points" if pd.isna(interval) else f" ± {100 * interval:.2f} points")


def _point(panel, x, value, interval, name, says, y=None) -> dict:
    """A row of `Seen.points`; `value` and `interval` are fractions; a dot's y is the percentage."""
    place = {"panel": panel, "x": x, "y": 100 * value if y is None else y, "interval": 100 * interval}
    return place | {"cell": y is not None, "name": name, "text": f"{name}: {says}", "value": value}
