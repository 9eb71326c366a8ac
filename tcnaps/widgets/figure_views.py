"""Views of class recall, of refinement steps and of the number of queries: the figures, with choices to make."""

import re
from collections.abc import Sequence

from ipywidgets import Checkbox, Dropdown, IntRangeSlider, IntSlider, Layout

from tcnaps.config import Study
from tcnaps.evaluation.result_files import rows_file
from tcnaps.figures import results as figures
from tcnaps.figures.style import DOMAIN_NAMES
from tcnaps.method.variants import VARIANTS
from tcnaps.widgets import view_data as viewing
from tcnaps.widgets.base_view import View
from tcnaps.widgets.choices import Choices
from tcnaps.widgets.widget_base import WIDE, kept, study_key

MAIN = ("Simple", "Transductive")  # what the class-recall figure compares
CELL = re.compile(r"minimum (\d+), maximum (\d+)")  # the name of a heatmap's cell
DOMAINS = [(DOMAIN_NAMES[key], key) for key in ("all", "in", "out")]


class RecallView(View):
    """Class recall against shot."""

    kind, height = "class-recall", 2.9

    def controls(self):
        study, evaluations = self.study, list(self.study.evaluations)
        names = viewing.variants_of(study, evaluations[0])
        datasets, first = study.evaluations[evaluations[0]].datasets, viewing.first_choice(names, MAIN)
        return {
            "evaluation": _dropdown("Evaluation:", evaluations, "265px"),
            "value": _dropdown("Show:", self._values(first), "225px"),
            "shots": IntRangeSlider(
                value=(1, 1),
                min=1,
                max=1,
                description="Shots:",
                continuous_update=False,
                style=WIDE,
                layout=Layout(width="300px"),
            ),
            "variants": Choices("Variants", names, first),
            "datasets": Choices("Datasets", datasets, datasets, _domain_marks(study)),
            "domains": Choices("Panels", list(DOMAIN_NAMES), _panels(study), DOMAIN_NAMES, width="auto"),
            "apart": Checkbox(
                False, description="every shot by itself, not in bins", indent=False, layout=Layout(width="auto")
            ),
        }

    @staticmethod
    def _values(variants: Sequence[str]) -> list[tuple[str, str]]:
        """What can be shown: recall, and where there are several variants, the gain over each."""
        return [("recall", ""), *((f"gain over {name}", name) for name in variants if len(variants) > 1)]

    def follow(self, name):
        chosen = self.chosen
        if name == "evaluation":
            names = viewing.variants_of(self.study, chosen["evaluation"].value)
            chosen["variants"].offer(names, viewing.first_choice(names, chosen["variants"].value))
            datasets = self.study.evaluations[chosen["evaluation"].value].datasets
            chosen["datasets"].offer(datasets, datasets)
        if name in ("evaluation", "variants"):
            options, before = self._values(chosen["variants"].value), chosen["value"].value
            chosen["value"].options = options
            chosen["value"].value = before if before in dict(options).values() else ""

    def missing(self):
        evaluation = self.chosen["evaluation"].value
        return any((evaluation, name) not in self.known for name in self.chosen["variants"].value)

    def load(self):
        evaluation, variants = self.chosen["evaluation"].value, self.chosen["variants"].value
        return viewing.load_recalls(self.study, evaluation, variants, self.known)

    def see(self):
        chosen = {name: control.value for name, control in self.chosen.items()}
        recalls = [self.known[chosen["evaluation"], name] for name in chosen["variants"]]
        if recalls:
            self._quietly(lambda: self._stretch(int(recalls[0]["shot"].max())))
        return viewing.recall_seen(
            recalls,
            chosen["datasets"],
            chosen["domains"],
            self.chosen["shots"].value,
            chosen["value"] or None,
            chosen["apart"],
        )

    def _stretch(self, highest: int) -> None:
        """The slider reaches the highest shot there is; a handle at its end stays at the end."""
        slider = self.chosen["shots"]
        if slider.max != highest:
            low, high = slider.value
            whole = high == slider.max
            slider.max = highest
            slider.value = (min(low, highest), highest if whole else min(high, highest))

    def panels(self, figure, seen, marked):
        domains = [domain for domain in DOMAIN_NAMES if domain in self.chosen["domains"].value]
        axes = figure.subplots(1, len(domains), sharey=True, squeeze=False)[0]
        figures.class_recall(axes, seen.frame, domains, "difference" if "difference" in seen.frame else "recall")


class RefinementView(View):
    """Accuracy for every minimum and maximum number of refinement steps."""

    kind, height, marking = "refinement-steps", 3.3, ("minimum", "maximum")

    def controls(self):
        study, rule = self.study, self.study.refinement
        recorded = rule.recorded_steps
        names = list(study.evaluations)
        datasets = study.evaluations[names[0]].datasets
        most = min(viewing.LARGEST_MINIMUM, recorded)
        wide = Layout(width="290px")
        return {
            "evaluation": _dropdown("Evaluation:", names, "255px"),
            "training": _dropdown("Variant:", self._trainings(names[0]), "205px"),
            "domain": _dropdown("Domain:", DOMAINS, "200px"),
            "value": _dropdown("Show:", ["gain", "accuracy"], "135px"),
            "minimum": IntSlider(
                value=max(1, min(rule.minimum_steps, most)),
                min=1,
                max=most,
                description="Minimum:",
                style=WIDE,
                layout=wide,
                continuous_update=False,
            ),
            "maximum": IntSlider(
                value=max(1, rule.maximum_steps),
                min=1,
                max=recorded,
                description="Maximum:",
                style=WIDE,
                layout=wide,
                continuous_update=False,
            ),
            "datasets": Choices("Datasets", datasets, datasets, _domain_marks(study)),
        }

    def _trainings(self, evaluation: str) -> list[tuple[str, str]]:
        """What refines at test time, by its variant's name; Transductive first."""
        names = [name for name in viewing.variants_of(self.study, evaluation) if VARIANTS[name].refinement_at_test]
        names.sort(key=lambda name: name != "Transductive")
        return [(name, VARIANTS[name].training) for name in names]

    def follow(self, name):
        chosen = self.chosen
        if name == "evaluation":
            options = self._trainings(chosen["evaluation"].value)
            before = chosen["training"].value
            chosen["training"].options = options
            chosen["training"].value = before if before in dict(options).values() else options[0][1]
            datasets = self.study.evaluations[chosen["evaluation"].value].datasets
            chosen["datasets"].offer(datasets, datasets)
        low, high = chosen["minimum"], chosen["maximum"]
        if name == "minimum" and low.value > high.value:
            high.value = low.value
        if name == "maximum" and low.value > high.value:
            low.value = high.value
        if name in ("minimum", "maximum") and self._cell() in self.points.options:
            self.points.value = self._cell()

    def _cell(self) -> str:
        return f"minimum {self.chosen['minimum'].value}, maximum {self.chosen['maximum'].value}"

    def preferred(self, names):
        return super().preferred(names) or self._cell()

    def _point_changed(self):
        cell = CELL.fullmatch(self.points.value)
        if cell and not self._held:
            low, high = map(int, cell.groups())

            def move():
                self.chosen["minimum"].value, self.chosen["maximum"].value = low, high

            self._quietly(move)
        super()._point_changed()

    def missing(self):
        return (self.chosen["evaluation"].value, self.chosen["training"].value) not in self.known

    def load(self):
        chosen = self.chosen
        return viewing.load_refinement(self.study, chosen["evaluation"].value, chosen["training"].value, self.known)

    def keep(self, found):
        self.known = found or self.known  # one table at a time: those of large studies fill the memory

    def see(self):
        chosen = {name: control.value for name, control in self.chosen.items()}
        rows = self.known[chosen["evaluation"], chosen["training"]]
        return viewing.refinement_seen(
            rows, chosen["training"], self.study.refinement.recorded_steps, chosen["datasets"], chosen["domain"]
        )

    def panels(self, figure, seen, marked):
        axes = figure.subplots(1, 2, width_ratios=[2.1, 1])
        cell = CELL.fullmatch(self.point or "") if marked else None
        mark = tuple(map(int, cell.groups())) if cell else (0, 0)  # (0, 0) is no cell of the heatmap
        figures.refinement_heatmap(axes[0], seen.frame, self.chosen["value"].value, mark)
        figures.accuracy_by_step(axes[1], seen.steps, value="gain")


class QueryCountView(View):
    """Accuracy against the number of queries per class."""

    kind, height = "number-of-queries", 3.0

    def controls(self):
        names = viewing.query_count_variants(self.study)
        return {
            "variants": Choices("Variants", names, viewing.first_choice(names, ("FEOT", "Transductive"))),
            "domain": _dropdown("Domain:", DOMAINS, "220px"),
            "settings": Choices("Ways and shots", (), ()),
            "datasets": Choices("Datasets", (), (), _domain_marks(self.study)),
        }

    def missing(self):
        return tuple(self.chosen["variants"].value) not in self.known

    def load(self):
        return viewing.load_query_episodes(self.study, self.chosen["variants"].value, self.known)

    def see(self):
        episodes = self.known[tuple(self.chosen["variants"].value)]
        self._quietly(
            lambda: [
                self.chosen[control].offer_more(list(episodes[column].unique()))
                for control, column in (("settings", "evaluation"), ("datasets", "dataset"))
            ]
        )
        return viewing.query_count_seen(
            episodes, self.chosen["datasets"].value, self.chosen["domain"].value, self.chosen["settings"].value
        )

    def panels(self, figure, seen, marked):
        axes = figure.subplots(1, seen.frame["evaluation"].nunique(), squeeze=False)[0]
        figures.number_of_queries(axes, seen.frame)


def recall_view(study: Study) -> RecallView:
    """Class recall against shot: choose variants, datasets, domains and shots."""
    return _made(RecallView, study)


def refinement_view(study: Study) -> RefinementView:
    """The heatmap of minimum and maximum steps, and the gain step by step."""
    return _made(RefinementView, study)


def query_count_view(study: Study) -> QueryCountView:
    """Accuracy against the number of queries per class."""
    return _made(QueryCountView, study)


def _made(view: type[View], study: Study) -> View:
    """The view of this study as it was left, unless results have changed since; a run cell shows it again."""
    files = (
        rows_file(study, training, name, dataset)
        for name, evaluation in study.evaluations.items()
        for training in evaluation.trainings
        for dataset in evaluation.datasets
    )
    times = tuple(file.stat().st_mtime_ns if file.is_file() else 0 for file in files)
    return kept(view.__name__, (study_key(study), times), lambda: view(study))


def _dropdown(description: str, options: Sequence, width: str) -> Dropdown:
    return Dropdown(options=options, description=description, style=WIDE, layout=Layout(width=width))


def _panels(study: Study) -> list[str]:
    """A panel for each domain and for all; of a study of one domain, that alone."""
    own = {dataset.domain for dataset in study.datasets.values()}
    return list(DOMAIN_NAMES) if len(own) > 1 else list(own)


def _domain_marks(study: Study) -> dict[str, str]:
    return {name: f"{name} ({dataset.domain})" for name, dataset in study.datasets.items()}
