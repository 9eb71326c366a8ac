"""Views of class recall, of refinement steps and of the number of queries: the figures, with choices to make."""

import html
from functools import lru_cache, partial

import pandas as pd
from ipywidgets import SelectMultiple
from matplotlib.figure import Figure

from tcnaps.config import Study, UserError
from tcnaps.evaluation.recall import class_recall, recall_by_shot
from tcnaps.evaluation.result_files import load_query_counts, load_rows, needed_trainings
from tcnaps.evaluation.statistics import (
    accuracy_by_step,
    episode_accuracies,
    gain_by_query_count,
    paired_episodes,
    refinement_grid,
)
from tcnaps.evaluation.stopped_rows import variant_predictions
from tcnaps.figures import results
from tcnaps.figures.style import TEXT_WIDTH, domains_shown, style
from tcnaps.figures.tables import cell
from tcnaps.method.variants import VARIANTS
from tcnaps_suite.widgets import widget_base as ui
from tcnaps_suite.widgets.episode_table import counted
from tcnaps_suite.widgets.explorer_data import evaluated_variants, variants_of
from tcnaps_suite.widgets.pictures import on_page

WIDTH = 828  # pixels of a picture; fits beside JupyterLab's file browser in a window of 1280
LARGEST_MINIMUM = 4  # steps of the heatmap, as in the paper's sweep


class View(ui.StudyWidget):
    """Controls, a picture, and its numbers: `frame` (one row per point; None where nothing is shown) and `title`.

    A subclass makes the controls (`filters`), reads the data of a study (`fetch`; `read` calls and remembers it),
    chooses what is shown, with a title (`see`), and draws it (`draw`).
    """

    height = 3.0  # inches
    remembered = 16  # results of `fetch` that are kept

    def __init__(self, study: Study):
        super().__init__(study)
        self.frame: pd.DataFrame | None = None
        self.title = ""
        self.read = lru_cache(self.remembered)(partial(self.fetch, study))
        filters = self.add(**self.filters())
        filters.layout.max_width = f"{WIDTH}px"
        self.on(tuple(self.controls), self.load)
        self._status, self._numbers = map(ui.text, ("tcnaps-status", "tcnaps-numbers"))
        self._picture = ui.picture(WIDTH)
        shown = self._status, self._picture, self._numbers, self.saving()
        self.arrange(filters, self.busy, self.notice, *shown)
        self.loaded()

    def dataset_choices(self) -> SelectMultiple:
        """The study's datasets, all of them chosen."""
        options = [(f"{name} ({dataset.domain})", name) for name, dataset in self.study.datasets.items()]
        return ui.choices("Datasets:", options, tuple(self.study.datasets))

    def variant_choices(self, *chosen: str) -> SelectMultiple:
        """The study's variants; those that it has among `chosen` are chosen."""
        names = evaluated_variants(self.study)
        return ui.choices("Variants:", names, [name for name in chosen if name in names])

    def of_datasets(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The rows of the chosen datasets, of which there must be some; means are over all that are chosen."""
        rows = frame[frame["dataset"].isin(self.choice.datasets)].drop(columns="images")
        if rows.empty:
            raise UserError("There are no results of the chosen datasets: choose at least one that the evaluation has.")
        return rows

    def load(self) -> None:
        """Shows what the controls choose, after reading it where necessary."""
        with self.loading("Reading and drawing"):
            self.frame, self.title = self.see()
            self._picture.value = on_page(self.figure(), self.title)
            table = self.frame.round(4).to_html(index=False, border=0, classes="xtable")
            self._numbers.value = f"<details><summary>The numbers in this picture</summary>{table}</details>"
            self._status.value, self._saved.value = html.escape(self.title), ""

    def hide(self) -> None:
        """Shows no picture."""
        self.frame, self.title = None, "Nothing is shown for these choices."
        self._status.value = self.title
        self._picture.value = self._numbers.value = self._saved.value = ""

    def figure(self) -> Figure:
        """A new figure of what is shown, as wide as a paper's text."""
        if self.frame is None:
            raise UserError("Nothing is shown that could be saved: change the choices first.")
        with style():
            figure = Figure((TEXT_WIDTH, self.height))
            self.draw(figure)
        return figure


class RecallView(View):
    """Class recall against shot."""

    kind, height = "class-recall", 2.9

    def filters(self):
        gains = [(f"gain over {name}", name) for name in evaluated_variants(self.study)]
        return {
            "evaluation": ui.menu("Evaluation:", 265, list(self.study.evaluations)),
            "over": ui.menu("Show:", 225, [("recall", ""), *gains]),
            "variants": self.variant_choices("Simple", "Transductive"),
            "datasets": self.dataset_choices(),
        }

    @staticmethod
    def fetch(study, evaluation, variant):
        rows = load_rows(study, evaluation, [VARIANTS[variant].training], [study.replicate])
        return class_recall(variant_predictions(rows, variant, *study.refinement.limits))

    def see(self):
        evaluation, over, variants = self.choice.evaluation, self.choice.over, self.choice.variants
        served = variants_of(self.study.evaluations[evaluation].trainings)
        names = [name for name in served if name in (*variants, over)]
        if not set(names) - {over} or over not in ("", *names):
            raise UserError(
                f"Evaluation '{evaluation}' serves {', '.join(served)}: choose at least one of these variants, and "
                "show recall or the gain over another of them."
            )
        recalls = {name: self.of_datasets(self.read(evaluation, name)) for name in names}
        value, words = "recall", "Class recall"
        if over:
            value, words, base = "difference", f"Gain in class recall over {over}", recalls.pop(over)
            recalls = {name: paired_episodes(frame, base, "recall", ["label"]) for name, frame in recalls.items()}
        classes = pd.concat(recalls.values(), ignore_index=True)
        frame = recall_by_shot(classes, value=value)
        order = list(recalls).index
        frame = frame.sort_values("variant", key=lambda names: names.map(order), kind="stable", ignore_index=True)
        datasets = counted(classes["dataset"].nunique(), "dataset")
        return frame, f"{words}: {', '.join(recalls)} · {datasets}"

    def draw(self, figure):
        axes = figure.subplots(1, len(domains_shown(self.frame)), sharey=True, squeeze=False)[0]
        results.class_recall(axes, self.frame, value="difference" if self.choice.over else "recall")


class RefinementView(View):
    """Accuracy and gain for every minimum ≤ maximum number of refinement steps, and after exactly 0, 1, 2, … steps."""

    kind, height = "refinement-steps", 3.3
    remembered = 1  # tables of large studies fill the memory

    def filters(self):
        rule = self.study.refinement
        limits = max(1, min(rule.limits)), max(1, rule.maximum_steps)
        refining = [name for name in evaluated_variants(self.study) if VARIANTS[name].refinement_at_test]
        trainings = [(name, VARIANTS[name].training) for name in reversed(refining)]  # Transductive first
        return {
            "evaluation": ui.menu("Evaluation:", 255, list(self.study.evaluations)),
            "training": ui.menu("Variant:", 205, trainings),
            "rule": ui.slider("Stopping rule: minimum, maximum", 460, 1, max(2, rule.recorded_steps), limits),
            "datasets": self.dataset_choices(),
        }

    @staticmethod
    def fetch(study, evaluation, training):
        return load_rows(study, evaluation, [training], [study.replicate])

    def rule(self) -> tuple[int, int]:
        """The minimum and maximum that the slider chooses, as a cell of the heatmap."""
        minimum, maximum = self.choice.rule
        maximum = min(maximum, self.study.refinement.recorded_steps)
        return min(minimum, maximum, LARGEST_MINIMUM), maximum

    def see(self):
        choice, rule = self.choice, self.study.refinement
        rows = self.of_datasets(self.read(choice.evaluation, choice.training))
        steps = range(rule.recorded_steps + 1)
        grid = refinement_grid(rows, choice.training, steps[1 : LARGEST_MINIMUM + 1], steps[1:], rule=rule.limits)
        self.steps = accuracy_by_step(rows, choice.training, steps)
        minimum, maximum = self.rule()
        row = grid[(grid["minimum"] == minimum) & (grid["maximum"] == maximum)].iloc[0]
        accuracy = cell(row["accuracy"], row["interval"])
        gain = cell(row["gain"], row["gain_interval"], signed=True, digits=2)
        datasets = counted(rows["dataset"].nunique(), "dataset")
        episodes = counted(len(rows.drop_duplicates(["dataset", "episode"])), "episode")
        return grid, (
            f"{datasets} · {episodes} · minimum {minimum}, maximum {maximum}: accuracy {accuracy}%, gain over no "
            f"refinement {gain} points"
        )

    def draw(self, figure):
        axes = figure.subplots(1, 2, width_ratios=[2.1, 1])
        results.refinement_heatmap(axes[0], self.frame, "gain", self.rule())
        results.accuracy_by_step(axes[1], self.steps, value="gain")


class QueryCountView(View):
    """The gain from more queries per class."""

    kind = "number-of-queries"

    def filters(self):
        return {"variants": self.variant_choices("FEOT", "Transductive"), "datasets": self.dataset_choices()}

    @staticmethod
    def fetch(study, variants):
        rows = load_query_counts(study, needed_trainings(variants), [study.replicate])
        return episode_accuracies(variant_predictions(rows, variants, *study.refinement.limits))

    def see(self):
        if not self.choice.variants:
            raise UserError("No variant is chosen: choose at least one.")
        episodes = self.of_datasets(self.read(self.choice.variants))
        frame = gain_by_query_count(episodes)
        datasets = counted(episodes["dataset"].nunique(), "dataset")
        return frame, f"{', '.join(frame['variant'].unique())} · {datasets}"

    def draw(self, figure):
        axes = figure.subplots(1, self.frame["evaluation"].nunique(), sharey=True, squeeze=False)[0]
        results.number_of_queries(axes, self.frame)


recall_view, refinement_view, query_count_view = RecallView, RefinementView, QueryCountView
