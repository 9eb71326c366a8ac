"""Views of class recall, of refinement steps and of the number of queries: the figures, with choices to make.

The numbers are those of `tcnaps.evaluation`. A view chooses the rows that they are computed from.
"""

import html
from collections import Counter
from collections.abc import Collection, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

import pandas as pd
from ipywidgets import Checkbox, SelectMultiple
from matplotlib.figure import Figure

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
from tcnaps.figures.style import DOMAIN_NAMES, TEXT_WIDTH, style
from tcnaps.figures.tables import cell
from tcnaps.method.variants import VARIANTS
from tcnaps_suite.widgets import widget_base as ui
from tcnaps_suite.widgets.demonstration import is_recorded
from tcnaps_suite.widgets.episode_table import counted
from tcnaps_suite.widgets.explorer_data import evaluated_variants, variants_of
from tcnaps_suite.widgets.pictures import on_page, saved

WIDTH = 828  # pixels of a picture; fits beside JupyterLab's file browser in a window of 1280
LARGEST_MINIMUM = 4  # steps of the heatmap, as in the paper's sweep
DOMAIN_MENU = [(DOMAIN_NAMES[key], key) for key in ("all", "in", "out")]


def recall_view(study: Study) -> "RecallView":
    """Class recall against shot: choose variants, datasets, domains and shots."""
    return RecallView(study).loaded()


def refinement_view(study: Study) -> "RefinementView":
    """The heatmap of minimum and maximum steps, and the gain step by step."""
    return RefinementView(study).loaded()


def query_count_view(study: Study) -> "QueryCountView":
    """Accuracy against the number of queries per class."""
    return QueryCountView(study).loaded()


class Seen(NamedTuple):
    """What a view shows.

    Attributes:
        frame: what is drawn, one row per point.
        value: the column of the frame by which points are compared.
        title: one line that says what was chosen.
    """

    frame: pd.DataFrame
    value: str
    title: str


class View(ui.StudyWidget):
    """Controls, a picture, and its numbers. A new view shows nothing before `load`.

    A subclass makes the controls (`make_filters`), reads the data of a study (`fetch`; `read` calls and remembers it),
    computes what is shown (`see`) and draws it (`draw`).

    Attributes:
        seen: what is shown, or None.
    """

    height = 3.0  # inches
    named_by: tuple[str, ...] = ()  # the columns of the frame that name a point
    remembered = 16  # results of `fetch` that are kept

    def __init__(self, study: Study):
        super().__init__(study)
        self.seen: Seen | None = None
        self.read = lru_cache(self.remembered)(partial(self.fetch, study))
        filters = self.add(**self.make_filters())
        filters.layout.max_width = f"{WIDTH}px"
        names = tuple(self.controls)
        self._status, self._numbers, self._saved = map(ui.text, ("tcnaps-status", "tcnaps-numbers", "tcnaps-saved"))
        self._picture = ui.text("tcnaps-picture", "100%")
        self._picture.layout.max_width = f"{WIDTH}px"
        saving = self.add(**ui.saving(self.kind))
        shown = self._status, self._picture, self._numbers, saving, self._saved
        self.arrange(filters, self.busy, self.notice, *shown)
        self.on(names, self.load)
        self.on(["save"], self._save)

    def dataset_choices(self) -> SelectMultiple:
        """The study's datasets, all of them chosen."""
        options = [(f"{name} ({dataset.domain})", name) for name, dataset in self.study.datasets.items()]
        return ui.choices("Datasets:", options, tuple(self.study.datasets))

    def variant_choices(self, names: Sequence[str], chosen: Sequence[str]) -> SelectMultiple:
        """Variants, of which those that there are among `chosen` are chosen."""
        return ui.choices("Variants:", names, [name for name in chosen if name in names])

    def answer(self) -> str:
        """What is shown, and its points with the highest and the lowest value; or why nothing is shown."""
        if self.seen is None:
            return f"Nothing is shown: {self.error}"
        frame, value = self.seen.frame, self.seen.value
        interval = "gain_interval" if value == "gain" else "interval"
        signed = value in ("gain", "difference")
        unit = " points" if signed else "%"
        lines = [self.seen.title]
        for name, position in (("highest", frame[value].argmax()), ("lowest", frame[value].argmin())):
            point = frame.iloc[position]
            place = ", ".join(f"{key.replace('_', ' ')} {point[key]}" for key in self.named_by)
            lines.append(f"  {name}: {place}: {value} {cell(point[value], point[interval], signed=signed)}{unit}")
        return "\n".join(lines)

    def load(self) -> None:
        """Shows what the controls choose, after reading it where necessary."""
        with self.loading("Reading and drawing"):
            self.seen = self.see()
            self._picture.value = on_page(self.figure(), self.seen.title)
            table = self.seen.frame.round(4).to_html(index=False, border=0, classes="xtable")
            self._numbers.value = f"<details><summary>The numbers in this picture</summary>{table}</details>"
            self._status.value, self._saved.value = html.escape(self.seen.title), ""

    def hide(self) -> None:
        """Shows no picture."""
        self.seen = None
        self._status.value = "Nothing is shown for these choices."
        self._picture.value = self._numbers.value = self._saved.value = ""

    def figure(self) -> Figure:
        """A new figure of what is shown, as wide as a paper's text."""
        with style():
            figure = Figure((TEXT_WIDTH, self.height))
            self.draw(figure, self.seen.frame)
        return figure

    def _save(self) -> None:
        if self.seen is None:
            raise UserError("Nothing is shown that could be saved: change the choices first.")
        self._saved.value = saved(self.figure(), self.study, self.choice.save_name)


class RecallView(View):
    """Class recall against shot."""

    kind, height = "class-recall", 2.9
    named_by = ("variant", "domain", "shot_low", "shot_high")

    def make_filters(self):
        names = evaluated_variants(self.study)
        domains = {dataset.domain for dataset in self.study.datasets.values()}
        panels = [key for key in DOMAIN_NAMES if len(domains) > 1 or key in domains]
        gains = [("recall", ""), *((f"gain over {name}", name) for name in names)]
        single = Checkbox(
            False, description="every shot by itself, not in bins", indent=False, layout={"width": "auto"}
        )
        return {
            "evaluation": ui.menu("Evaluation:", 265, list(self.study.evaluations)),
            "over": ui.menu("Show:", 225, gains),
            "shots": ui.slider("Shots:", 300, 1, 2, (1, 2)),
            "variants": self.variant_choices(names, ("Simple", "Transductive")),
            "datasets": self.dataset_choices(),
            "domains": ui.choices("Panels:", [(text, key) for key, text in DOMAIN_NAMES.items()], panels),
            "single": single,
        }

    @staticmethod
    def fetch(study, evaluation, variant):
        rows = load_rows(study, evaluation, [VARIANTS[variant].training], [study.replicate])
        return class_recall(variant_predictions(rows, variant, *study.refinement.limits))

    def see(self):
        recalls, chosen = self._recalls(), self.choice
        low, high = chosen.shots
        domains = [domain for panel in chosen.domains for domain in DOMAINS[panel]]
        recalls = {
            name: _only(frame[frame["shot"].between(low, high)], chosen.datasets, domains)
            for name, frame in recalls.items()
        }
        value, words = "recall", "Class recall"
        if chosen.over:
            value, words, base = "difference", f"Gain in class recall over {chosen.over}", recalls.pop(chosen.over)
            recalls = {name: paired_episodes(frame, base, "recall", ["label"]) for name, frame in recalls.items()}
        classes = pd.concat(recalls.values(), ignore_index=True)
        frame = recall_by_shot(classes, GROUP, value, None if chosen.single else SHOT_EDGES)
        frame = frame[frame["domain"].isin(chosen.domains)]
        order = list(recalls).index
        frame = frame.sort_values("variant", key=lambda names: names.map(order), kind="stable", ignore_index=True)
        datasets = counted(classes["dataset"].nunique(), "dataset")
        return Seen(frame, value, f"{words}: {', '.join(recalls)} · {datasets} · shots {low} to {high}")

    def _recalls(self) -> dict[str, pd.DataFrame]:
        """The recalls of the chosen variants that the evaluation serves, and of the variant that a gain is over."""
        chosen, over = self.choice, self.choice.over
        _require_choice(variant=chosen.variants, panel=chosen.domains)
        served = variants_of(self.study.evaluations[chosen.evaluation].trainings)
        names = [name for name in served if name in (*chosen.variants, over)]
        if not set(names) - {over} or over not in ("", *names):
            raise UserError(
                f"Evaluation '{chosen.evaluation}' serves {', '.join(served)}: choose some of them, and show recall or "
                "the gain over another of them."
            )
        recalls = {name: self.read(chosen.evaluation, name) for name in names}
        with self.quietly():
            ui.set_range(self.controls["shots"], 1, max(int(frame["shot"].max()) for frame in recalls.values()))
        return recalls

    def draw(self, figure, frame):
        domains = self.choice.domains
        axes = figure.subplots(1, len(domains), sharey=True, squeeze=False)[0]
        results.class_recall(axes, frame, domains, self.seen.value)


class RefinementView(View):
    """Accuracy and gain for every minimum ≤ maximum number of refinement steps, and after exactly 0, 1, 2, … steps."""

    kind, height = "refinement-steps", 3.3
    named_by = ("minimum", "maximum")
    remembered = 1  # tables of large studies fill the memory

    def make_filters(self):
        rule = self.study.refinement
        limits = max(1, min(rule.limits)), max(1, rule.maximum_steps)
        refining = [name for name in evaluated_variants(self.study) if VARIANTS[name].refinement_at_test]
        trainings = [(name, VARIANTS[name].training) for name in reversed(refining)]  # Transductive first
        return {
            "evaluation": ui.menu("Evaluation:", 255, list(self.study.evaluations)),
            "training": ui.menu("Variant:", 205, trainings),
            "domain": ui.menu("Domain:", 200, DOMAIN_MENU),
            "value": ui.menu("Show:", 135, ["gain", "accuracy"]),
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
        chosen, rule = self.choice, self.study.refinement
        rows = _only(self.read(chosen.evaluation, chosen.training), chosen.datasets, DOMAINS[chosen.domain])
        steps = range(rule.recorded_steps + 1)
        minima = steps[1 : LARGEST_MINIMUM + 1]
        grid = refinement_grid(rows, chosen.training, minima, steps[1:], chosen.domain, rule.limits)
        self.steps = accuracy_by_step(rows, chosen.training, steps, chosen.domain)
        minimum, maximum = self.rule()
        row = grid[(grid["minimum"] == minimum) & (grid["maximum"] == maximum)].iloc[0]
        accuracy = cell(row["accuracy"], row["interval"])
        gain = cell(row["gain"], row["gain_interval"], signed=True, digits=2)
        datasets = counted(rows["dataset"].nunique(), "dataset")
        episodes = counted(len(rows.drop_duplicates(["dataset", "episode"])), "episode")
        title = (
            f"{DOMAIN_NAMES[chosen.domain]}: {datasets} · {episodes} · minimum {minimum}, maximum {maximum}: "
            f"accuracy {accuracy}%, gain over no refinement {gain} points"
        )
        return Seen(grid, chosen.value, title)

    def draw(self, figure, frame):
        axes = figure.subplots(1, 2, width_ratios=[2.1, 1])
        results.refinement_heatmap(axes[0], frame, self.choice.value, self.rule())
        results.accuracy_by_step(axes[1], self.steps, value="gain")


class QueryCountView(View):
    """Accuracy against the number of queries per class."""

    kind = "number-of-queries"
    named_by = ("variant", "evaluation", "queries_per_class")

    def make_filters(self):
        evaluations = self.study.evaluations.values()
        fixed = [e for e in evaluations if e.protocol.kind == "fixed" and not e.before_training]
        pairs = Counter((f"{e.protocol.way}-way {e.protocol.shot}-shot", t) for e in fixed for t in e.trainings)
        several = [pair for pair, evaluations in pairs.items() if evaluations > 1]  # with several numbers of queries
        names = variants_of({training for _, training in several})
        settings = list(dict.fromkeys(setting for setting, _ in several))
        return {
            "variants": self.variant_choices(names, ("FEOT", "Transductive")),
            "domain": ui.menu("Domain:", 220, DOMAIN_MENU),
            "settings": ui.choices("Ways and shots:", settings, settings),
            "datasets": self.dataset_choices(),
        }

    @staticmethod
    def fetch(study, variants):
        if is_recorded(study):
            raise UserError("The demonstration has one number of queries only. `make figures` evaluates others.")
        rows = load_query_counts(study, needed_trainings(variants), [study.replicate])
        return episode_accuracies(variant_predictions(rows, variants, *study.refinement.limits))

    def see(self):
        chosen = self.choice
        if self.controls["variants"].options:  # otherwise reading says what the study lacks
            _require_choice(**{"variant": chosen.variants, "way and shot": chosen.settings})
        episodes = self.read(chosen.variants)
        episodes = episodes[episodes["evaluation"].isin(chosen.settings)]
        episodes = _only(episodes, chosen.datasets, DOMAINS[chosen.domain])
        by = ["variant", "evaluation", "queries_per_class"]
        counts = episodes.groupby(by, observed=True).size().reset_index(name="n_episodes")
        frame = accuracy_by_query_count(episodes).merge(counts, on=by)
        datasets = counted(episodes["dataset"].nunique(), "dataset")
        return Seen(frame, "accuracy", f"{', '.join(frame['variant'].unique())} · {datasets}")

    def draw(self, figure, frame):
        results.number_of_queries(figure.subplots(1, frame["evaluation"].nunique(), squeeze=False)[0], frame)


def _require_choice(**choices: Collection) -> None:
    for kind, names in choices.items():
        if not names:
            raise UserError(f"No {kind} is chosen: choose at least one.")


def _only(frame: pd.DataFrame, datasets: Sequence[str], domains: Sequence[str]) -> pd.DataFrame:
    """The rows of the chosen datasets and domains. There must be some."""
    _require_choice(dataset=datasets)
    rows = frame[frame["dataset"].isin(datasets) & frame["domain"].isin(domains)]
    if rows.empty:
        raise UserError(f"No results of {', '.join(datasets)} fit these choices: widen them, or choose more datasets.")
    return rows
