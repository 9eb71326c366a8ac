"""Views of class recall, of refinement steps and of the number of queries: the figures, with choices to make."""

import re
from collections.abc import Sequence

from ipywidgets import Checkbox

from tcnaps.config import Study
from tcnaps.evaluation.result_files import load_rows
from tcnaps.figures import results
from tcnaps.figures.style import DOMAIN_NAMES
from tcnaps.method.variants import VARIANTS
from tcnaps.widgets import view_data
from tcnaps.widgets.base_view import View
from tcnaps.widgets.controls import Choices, menu, offer, range_slider, refit, slider
from tcnaps.widgets.explorer_data import results_stamp, variants_of
from tcnaps.widgets.widget_base import shown_again, study_key

MAIN = ("Simple", "Transductive")  # what the figure of class recall compares
CELL = re.compile(r"minimum (\d+), maximum (\d+)")  # the name of a heatmap's cell
DOMAINS = [(DOMAIN_NAMES[key], key) for key in ("all", "in", "out")]


def recall_view(study: Study) -> "RecallView":
    """Class recall against shot: choose variants, datasets, domains and shots."""
    return _shown(RecallView, study)


def refinement_view(study: Study) -> "RefinementView":
    """The heatmap of minimum and maximum steps, and the gain step by step."""
    return _shown(RefinementView, study)


def query_count_view(study: Study) -> "QueryCountView":
    """Accuracy against the number of queries per class."""
    return _shown(QueryCountView, study)


def _shown(view: type[View], study: Study) -> View:
    return shown_again(view.kind, (study_key(study), results_stamp(study)), lambda: view(study))


def _dataset_choices(study: Study, names: Sequence[str]) -> Choices:
    texts = {name: f"{name} ({dataset.domain})" for name, dataset in study.datasets.items()}
    return Choices("Datasets", names, names, texts)


class RecallView(View):
    """Class recall against shot."""

    kind, height = "class-recall", 2.9

    def make_filters(self):
        study, evaluations = self.study, list(self.study.evaluations)
        names = variants_of(study, evaluations[0])
        first = view_data.first_choice(names, MAIN)
        own = {dataset.domain for dataset in study.datasets.values()}
        panels = list(DOMAIN_NAMES) if len(own) > 1 else list(own)
        every = Checkbox(False, description="every shot by itself, not in bins", indent=False, layout={"width": "auto"})
        return {
            "evaluation": menu("Evaluation:", 265, evaluations),
            "value": menu("Show:", 225, self._values(first)),
            "shots": range_slider("Shots:", 300, 1, 1, (1, 1)),
            "variants": Choices("Variants", names, first),
            "datasets": _dataset_choices(study, study.evaluations[evaluations[0]].datasets),
            "domains": Choices("Panels", list(DOMAIN_NAMES), panels, DOMAIN_NAMES),
            "apart": every,
        }

    @staticmethod
    def _values(variants: Sequence[str]) -> list[tuple[str, str]]:
        """What can be shown: recall and, where there are several variants, the gain over each."""
        return [("recall", ""), *((f"gain over {name}", name) for name in variants if len(variants) > 1)]

    def change(self, name):
        c = self.controls
        with self.quietly():
            if name == "evaluation":
                names = variants_of(self.study, c["evaluation"].value)
                c["variants"].offer(names, view_data.first_choice(names, c["variants"].value))
                datasets = self.study.evaluations[c["evaluation"].value].datasets
                c["datasets"].offer(datasets, datasets)
            if name in ("evaluation", "variants"):
                offer(c["value"], self._values(c["variants"].value))
        self.load()

    def fetch(self, evaluation, variant):
        return view_data.recalls_of(self.study, evaluation, variant)

    def see(self):
        chosen = self.values()
        recalls = [self.read(chosen["evaluation"], variant) for variant in chosen["variants"]]
        if recalls:
            with self.quietly():
                refit(self.controls["shots"], 1, int(recalls[0]["shot"].max()))
        shots, against = self.controls["shots"].value, chosen["value"] or None
        return view_data.recall_seen(recalls, chosen["datasets"], chosen["domains"], shots, against, chosen["apart"])

    def panels(self, figure, seen, marked):
        domains = [domain for domain in DOMAIN_NAMES if domain in self.controls["domains"].value]
        axes = figure.subplots(1, len(domains), sharey=True, squeeze=False)[0]
        results.class_recall(axes, seen.frame, domains, "difference" if "difference" in seen.frame else "recall")


class RefinementView(View):
    """Accuracy for every minimum and maximum number of refinement steps."""

    kind, height, remembered = "refinement-steps", 3.3, 1  # tables of large studies fill the memory

    def make_filters(self):
        study, rule = self.study, self.study.refinement
        recorded, names = rule.recorded_steps, list(study.evaluations)
        highest = min(view_data.LARGEST_MINIMUM, recorded)
        return {
            "evaluation": menu("Evaluation:", 255, names),
            "training": menu("Variant:", 205, self._trainings(names[0])),
            "domain": menu("Domain:", 200, DOMAINS),
            "value": menu("Show:", 135, ["gain", "accuracy"]),
            "minimum": slider("Minimum:", 290, 1, highest, max(1, min(rule.minimum_steps, highest))),
            "maximum": slider("Maximum:", 290, 1, recorded, max(1, rule.maximum_steps)),
            "datasets": _dataset_choices(study, study.evaluations[names[0]].datasets),
        }

    def _trainings(self, evaluation: str) -> list[tuple[str, str]]:
        """The trainings with a variant that refines at test time, by its name; Transductive first."""
        names = [name for name in variants_of(self.study, evaluation) if VARIANTS[name].refinement_at_test]
        names.sort(key=lambda name: name != "Transductive")
        return [(name, VARIANTS[name].training) for name in names]

    def change(self, name):
        c = self.controls
        if name in ("minimum", "maximum") and self.seen is not None:  # these choose a point of the same picture
            with self.quietly():
                if c["minimum"].value > c["maximum"].value:
                    c["maximum" if name == "minimum" else "minimum"].value = c[name].value
                c["points"].value = self._cell()
            return super().mark()
        with self.quietly():
            if name == "evaluation":
                offer(c["training"], self._trainings(c["evaluation"].value))
                datasets = self.study.evaluations[c["evaluation"].value].datasets
                c["datasets"].offer(datasets, datasets)
        self.load()

    def _cell(self) -> str:
        return f"minimum {self.controls['minimum'].value}, maximum {self.controls['maximum'].value}"

    def preferred(self, names):
        return super().preferred(names) or self._cell()

    def mark(self):
        cell = CELL.fullmatch(self.controls["points"].value)
        if cell:
            with self.quietly():
                self.controls["minimum"].value, self.controls["maximum"].value = map(int, cell.groups())
        super().mark()

    def fetch(self, evaluation, training):
        return load_rows(self.study, evaluation, [training], [self.study.replicate])

    def see(self):
        chosen = self.values()
        rows, steps = self.read(chosen["evaluation"], chosen["training"]), self.study.refinement.recorded_steps
        return view_data.refinement_seen(rows, chosen["training"], steps, chosen["datasets"], chosen["domain"])

    def panels(self, figure, seen, marked):
        axes = figure.subplots(1, 2, width_ratios=[2.1, 1])
        cell = CELL.fullmatch(self.point or "") if marked else None
        mark = tuple(map(int, cell.groups())) if cell else (0, 0)  # (0, 0) is no cell of the heatmap
        results.refinement_heatmap(axes[0], seen.frame, self.controls["value"].value, mark)
        results.accuracy_by_step(axes[1], seen.steps, value="gain")


class QueryCountView(View):
    """Accuracy against the number of queries per class."""

    kind = "number-of-queries"

    def make_filters(self):
        names = view_data.query_count_variants(self.study)
        return {
            "variants": Choices("Variants", names, view_data.first_choice(names, ("FEOT", "Transductive"))),
            "domain": menu("Domain:", 220, DOMAINS),
            "settings": Choices("Ways and shots", (), ()),
            "datasets": _dataset_choices(self.study, ()),
        }

    def fetch(self, variants):
        return view_data.query_episodes(self.study, variants)

    def see(self):
        episodes = self.read(self.controls["variants"].value)
        with self.quietly():
            for name, column in (("settings", "evaluation"), ("datasets", "dataset")):
                self.controls[name].offer_more(list(episodes[column].unique()))
        chosen = self.values()
        return view_data.query_count_seen(episodes, chosen["datasets"], chosen["domain"], chosen["settings"])

    def panels(self, figure, seen, marked):
        axes = figure.subplots(1, seen.frame["evaluation"].nunique(), squeeze=False)[0]
        results.number_of_queries(axes, seen.frame)
