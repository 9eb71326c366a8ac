"""Views of class recall, of refinement steps and of the number of queries: the figures, with choices to make.

The numbers are those of `tcnaps.evaluation`. A view chooses the rows that go in, and says in words what came out.
"""

from collections import Counter
from collections.abc import Collection, Sequence

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
from tcnaps.method.variants import VARIANTS
from tcnaps_suite.widgets import widget_base as ui
from tcnaps_suite.widgets.base_view import Seen, View, points_of
from tcnaps_suite.widgets.demonstration import is_recorded
from tcnaps_suite.widgets.episode_table import counted
from tcnaps_suite.widgets.explorer_data import evaluated_variants, variants_of

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
        names, domains = evaluated_variants(self.study), {own.domain for own in self.study.datasets.values()}
        panels = DOMAIN_NAMES if len(domains) > 1 else domains
        gains = [("recall", ""), *((f"gain over {name}", name) for name in names)]
        every = Checkbox(False, description="every shot by itself, not in bins", indent=False, layout={"width": "auto"})
        return {
            "evaluation": ui.menu("Evaluation:", 265, list(self.study.evaluations)),
            "value": ui.menu("Show:", 225, gains),
            "shots": ui.slider("Shots:", 300, 1, 2, (1, 2)),
            "variants": ui.Choices("Variants", names, ("Simple", "Transductive")),
            "datasets": self.dataset_choices(),
            "domains": ui.Choices("Panels", DOMAIN_NAMES, panels, DOMAIN_NAMES),
            "apart": every,
        }

    @staticmethod
    def fetch(study, evaluation, variant):
        rows = load_rows(study, evaluation, [VARIANTS[variant].training], [study.replicate])
        return class_recall(variant_predictions(rows, variant, *study.refinement.limits))

    def see(self):
        chosen = self.choice
        own = self._recalls(chosen)
        low, high = self.choice.shots
        domains = [domain for panel in chosen.domains for domain in DOMAINS[panel]]
        own = {
            name: _kept(frame[frame["shot"].between(low, high)], chosen.datasets, domains)
            for name, frame in own.items()
        }
        value, what, over = "recall", "Class recall", chosen.value
        if over:
            value, what, base = "difference", f"Gain in class recall over {over}", own.pop(over)
            own = {name: paired_episodes(frame, base, "recall", ["label"]) for name, frame in own.items()}
        classes = pd.concat(own.values(), ignore_index=True)
        frame = recall_by_shot(classes, GROUP, value, None if chosen.apart else SHOT_EDGES)
        frame = frame[frame["domain"].isin(chosen.domains)]
        order = list(own).index
        frame = frame.sort_values("variant", key=lambda names: names.map(order), kind="stable", ignore_index=True)
        shots = [
            f"{r.shot_low:.0f}" + f" to {r.shot_high:.0f}" * (r.shot_high > r.shot_low) for r in frame.itertuples()
        ]
        names = frame["variant"] + ", " + frame["domain"].map(DOMAIN_NAMES).str.lower() + ", shot " + shots
        panel = frame["domain"].map(chosen.domains.index)
        points = points_of(frame.assign(over=over), value, name=names, panel=panel, x=frame["shot"])
        datasets = counted(classes["dataset"].nunique(), "dataset")
        counts = f"{datasets} · shots {low} to {high} · {counted(len(points), 'point')}"
        return Seen(frame, points, f"{what}: {', '.join(own)} · {counts}")

    def _recalls(self, chosen) -> dict[str, pd.DataFrame]:
        """Variant → its recalls: of the ticked ones that the evaluation serves, and of the one that a gain is over."""
        _ticked(variant=chosen.variants, panel=chosen.domains)
        served, over = variants_of(self.study.evaluations[chosen.evaluation].trainings), chosen.value
        names = [name for name in served if name in (*chosen.variants, over)]
        if not set(names) - {over} or over not in ("", *names):
            raise UserError(
                f"Evaluation '{chosen.evaluation}' serves {', '.join(served)}: tick some of them, and show recall or "
                "the gain over another of them."
            )
        own = {name: self.read(chosen.evaluation, name) for name in names}
        with self.quietly():
            ui.refit(self.controls["shots"], 1, max(int(frame["shot"].max()) for frame in own.values()))
        return own

    def panels(self, figure, seen, mark):
        domains = self.choice.domains
        axes = figure.subplots(1, len(domains), sharey=True, squeeze=False)[0]
        results.class_recall(axes, seen.frame, domains, "difference" if "difference" in seen.frame else "recall")


class RefinementView(View):
    """Accuracy and gain for every minimum ≤ maximum number of refinement steps, and after exactly 0, 1, 2, … steps."""

    kind, height, remembered = "refinement-steps", 3.3, 1  # tables of large studies fill the memory

    def make_filters(self):
        rule, names = self.study.refinement, reversed(evaluated_variants(self.study))  # Transductive first
        limits = max(1, min(rule.limits)), max(1, rule.maximum_steps)
        trainings = [(name, VARIANTS[name].training) for name in names if VARIANTS[name].refinement_at_test]
        return {
            "evaluation": ui.menu("Evaluation:", 255, list(self.study.evaluations)),
            "training": ui.menu("Variant:", 205, trainings),
            "domain": ui.menu("Domain:", 200, DOMAIN_MENU),
            "value": ui.menu("Show:", 135, ["gain", "accuracy"]),
            "rule": ui.slider("Stopping rule: minimum, maximum", 460, 1, max(2, rule.recorded_steps), limits),
            "datasets": self.dataset_choices(),
        }

    def change(self, name):
        if name == "rule" and self.seen is not None:  # another point of the same picture
            self.put(points=self.first_point())
            self.mark()
        else:
            super().change(name)

    def first_point(self):
        high = min(self.choice.rule[1], self.study.refinement.recorded_steps)
        return f"minimum {min(self.choice.rule[0], high, LARGEST_MINIMUM)}, maximum {high}"

    def mark(self):
        if self.seen is not None and self.point is not None and self.point["cell"]:
            self.put(rule=_rule_of(self.point))
        super().mark()

    @staticmethod
    def fetch(study, evaluation, training):
        return load_rows(study, evaluation, [training], [study.replicate])

    def see(self):
        chosen, rule = self.choice, self.study.refinement
        rows = _kept(self.read(chosen.evaluation, chosen.training), chosen.datasets, DOMAINS[chosen.domain])
        steps, n_episodes = range(rule.recorded_steps + 1), len(rows.drop_duplicates(["dataset", "episode"]))
        minima = steps[1 : LARGEST_MINIMUM + 1]
        grid = refinement_grid(rows, chosen.training, minima, steps[1:], chosen.domain, rule.limits)
        self.steps = accuracy_by_step(rows, chosen.training, steps, chosen.domain)
        low, high = grid["minimum"], grid["maximum"]
        cells = {"name": [f"minimum {a}, maximum {b}" for a, b in zip(low, high)], "x": high - 0.5, "y": low - 0.5}
        dots = {"name": [f"exactly {counted(step, 'step')}" for step in steps], "x": self.steps["step"]}
        points = [
            points_of(frame.assign(n_episodes=n_episodes, over=over), "gain", panel=panel, **places)
            for panel, (frame, over, places) in enumerate(
                ((grid, "no refinement", cells), (self.steps, "step 0", dots))
            )
        ]
        counts = f"{counted(rows['dataset'].nunique(), 'dataset')} · {counted(n_episodes, 'episode')}"
        points = pd.concat(points, ignore_index=True)
        return Seen(grid, points, f"{DOMAIN_NAMES[chosen.domain]}: {counts}")

    def panels(self, figure, seen, mark):
        axes = figure.subplots(1, 2, width_ratios=[2.1, 1])
        cell = (0, 0) if mark is None or not mark["cell"] else _rule_of(mark)  # (0, 0) is no cell
        results.refinement_heatmap(axes[0], seen.frame, self.choice.value, cell)
        results.accuracy_by_step(axes[1], self.steps, value="gain")


class QueryCountView(View):
    """Accuracy against the number of queries per class."""

    kind = "number-of-queries"

    def make_filters(self):
        evaluations = self.study.evaluations.values()
        fixed = [own for own in evaluations if own.protocol.kind == "fixed" and not own.before_training]
        counts = Counter((f"{e.protocol.way}-way {e.protocol.shot}-shot", t) for e in fixed for t in e.trainings)
        several = [pair for pair, number in counts.items() if number > 1]
        names, settings = variants_of({training for _, training in several}), dict.fromkeys(way for way, _ in several)
        return {
            "variants": ui.Choices("Variants", names, ("FEOT", "Transductive")),
            "domain": ui.menu("Domain:", 220, DOMAIN_MENU),
            "settings": ui.Choices("Ways and shots", settings, settings),
            "datasets": self.dataset_choices(),
        }

    @staticmethod
    def fetch(study, variants):
        if is_recorded(study):
            raise UserError("The demonstration has one number of queries only: `make figures` evaluates others.")
        rows = load_query_counts(study, needed_trainings(variants), [study.replicate])
        return episode_accuracies(variant_predictions(rows, variants, *study.refinement.limits))

    def see(self):
        chosen = self.choice
        if self.controls["variants"].boxes:  # otherwise reading says what the study lacks
            _ticked(**{"variant": chosen.variants, "way and shot": chosen.settings})
        episodes = self.read(chosen.variants)
        episodes = episodes[episodes["evaluation"].isin(chosen.settings)]
        episodes = _kept(episodes, chosen.datasets, DOMAINS[chosen.domain])
        frame, by = accuracy_by_query_count(episodes), ["variant", "evaluation", "queries_per_class"]
        frame = frame.merge(episodes.groupby(by, observed=True).size().reset_index(name="n_episodes"), on=by)
        names = frame["variant"] + ", " + frame["evaluation"] + ", " + frame["queries_per_class"].astype(str)
        panel, x = pd.factorize(frame["evaluation"])[0], results.side_by_side(frame)
        points = points_of(frame, "accuracy", name=names + " queries per class", panel=panel, x=x)
        counts = f"{counted(episodes['dataset'].nunique(), 'dataset')} · {counted(len(points), 'point')}"
        return Seen(frame, points, f"{', '.join(frame['variant'].unique())} · {counts}")

    def panels(self, figure, seen, mark):
        results.number_of_queries(figure.subplots(1, seen.frame["evaluation"].nunique(), squeeze=False)[0], seen.frame)


def _ticked(**choices: Collection) -> None:
    for what, names in choices.items():
        if not names:
            raise UserError(f"No {what} is chosen: tick at least one.")


def _kept(frame: pd.DataFrame, datasets: Sequence[str], domains: Sequence[str]) -> pd.DataFrame:
    """The rows of the chosen datasets and domains, of which there must be some."""
    _ticked(dataset=datasets)
    kept = frame[frame["dataset"].isin(datasets) & frame["domain"].isin(domains)]
    if kept.empty:
        raise UserError(f"Nothing of {', '.join(datasets)} fits these choices: widen them, or choose more datasets.")
    return kept


def _rule_of(cell: pd.Series) -> tuple[int, int]:
    """Minimum and maximum steps of a cell of the heatmap, whose point lies in its middle."""
    return int(cell["y"] + 0.5), int(cell["x"] + 0.5)
