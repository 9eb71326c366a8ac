"""Views of class recall, of refinement steps and of the number of queries: the figures, with choices to make.

Each consists of controls, a picture, one chosen point of it, and a way to save it.
"""

import html
import os
import re
import tempfile
from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path

import ipywidgets
import pandas as pd
from ipywidgets import Checkbox, Layout
from matplotlib.figure import Figure

from tcnaps.config import Study, UserError
from tcnaps.config.settings import Evaluation
from tcnaps.evaluation.result_files import load_rows
from tcnaps.figures import results, style
from tcnaps.figures.style import DOMAIN_NAMES
from tcnaps.method.variants import VARIANTS
from tcnaps.widgets import READ_ONLY, view_data, widget_base as ui
from tcnaps.widgets.explorer_data import results_stamp, variants_of
from tcnaps.widgets.pictures import WIDTH, HoverPicture, data_address

NO_POINT = "none: hover over the picture, or choose here"
CELL = re.compile(r"minimum (\d+), maximum (\d+)")  # the name of a heatmap's cell
DOMAINS = [(DOMAIN_NAMES[key], key) for key in ("all", "in", "out")]


def recall_view(study: Study) -> "RecallView":
    """Class recall against shot: choose variants, datasets, domains and shots."""
    return ui.shown_again(RecallView, study, stamp=results_stamp(study))


def refinement_view(study: Study) -> "RefinementView":
    """The heatmap of minimum and maximum steps, and the gain step by step."""
    return ui.shown_again(RefinementView, study, stamp=results_stamp(study))


def query_count_view(study: Study) -> "QueryCountView":
    """Accuracy against the number of queries per class."""
    return ui.shown_again(QueryCountView, study, stamp=results_stamp(study))


def _dataset_choices(study: Study, names: Sequence[str]) -> ui.Choices:
    texts = {name: f"{name} ({dataset.domain})" for name, dataset in study.datasets.items()}
    return ui.Choices("Datasets", names, names, texts)


class View(ui.StudyWidget):
    """Controls, a picture, and one chosen point of it. A new one shows nothing before `load`.

    A subclass says what its filters are (`make_filters`, by name), reads data of a study (`fetch`, which `read` calls
    and remembers), computes what is shown (`see`, which gives a `Seen`) and draws it (`panels`: the figure's first axes
    are those of the points; only a chosen cell needs to be marked).

    Attributes:
        filters: the names of the controls that choose what is shown.
        seen: what is shown, or None.
    """

    height = 3.0  # inches
    remembered = 16  # results of `fetch` that are kept

    def __init__(self, study: Study):
        super().__init__(study)
        self.seen: view_data.Seen | None = None
        self.read = lru_cache(self.remembered)(partial(self.fetch, study))
        self.picture = HoverPicture()
        self._status, self._readout, self._saved = map(ui.text, ("tcnaps-status", "tcnaps-readout", "tcnaps-saved"))
        filters = self.make_filters()
        self.filters = tuple(filters)
        points = ui.menu("Point:", None, [NO_POINT])
        save_name = ui.styled(ipywidgets.Text(self.kind, continuous_update=False), "Save as:", 280)
        save = ui.button("Save PNG and PDF", 170, "save")
        self.add(filters | {"points": points, "save_name": save_name, "save": save}, {})
        all_filters = ui.row(*filters.values())
        all_filters.layout.max_width = points.layout.max_width = f"{WIDTH}px"
        shown = self._status, self.picture, points, self._readout, ui.row(save_name, save), self._saved
        self.children = [all_filters, self.busy, self.notice, *shown, ui.keys_and_look()]
        self.layout = Layout(width="100%", overflow="visible")
        for name in self.filters:
            self.on([name], lambda name=name: self.change(name))
        self.on(["points"], self.mark)
        self.on(["save"], self._save)

    def change(self, name: str) -> None:
        """A filter was changed: others may have to follow, then everything is shown anew."""
        with self.quietly():
            if name == "evaluation":
                self.controls["datasets"].offer(datasets := self._evaluation().datasets, datasets)
            self.follow(name)
        self.load()

    def follow(self, name: str) -> None:
        """Changes the filters that depend on another."""

    def first_point(self) -> str:
        """Which point to choose unless one was chosen before."""
        return NO_POINT

    def _evaluation(self) -> Evaluation:
        chosen = self.controls.get("evaluation")
        return self.study.evaluations[chosen.value if chosen else next(iter(self.study.evaluations))]

    @property
    def point(self) -> str | None:
        """The name of the chosen point."""
        name = self.controls["points"].value
        return None if name == NO_POINT else name

    def answer(self) -> str:
        """What is shown, in words; or why nothing is."""
        return f"Nothing is shown: {self.notice.error}" if self.seen is None else self.seen.answer()

    def load(self) -> None:
        """Shows what the filters ask for, after reading it where necessary."""
        with self.loading("Reading and drawing"):
            self.seen = self.see()
            names = list(self.seen.points["name"])
            wanted = self.point if self.point in names else self.first_point()
            with self.quietly():
                self.controls["points"].options = [NO_POINT, *names]
                self.controls["points"].value = wanted
            self.picture.put(self.figure(marked=False), self.seen.points, self.seen.title)
            self._status.value = html.escape(self.seen.title)
            self.mark()

    def hide(self) -> None:
        """Fades the picture, as it does not show what the filters ask for."""
        self.seen = None
        self.picture.fade()
        self._status.value = "Nothing is shown for these choices."
        self._readout.value = self._saved.value = ""

    def figure(self, marked: bool = True) -> Figure:
        """A new figure of what is shown, as wide as a paper's text.

        Args:
            marked: whether the chosen point is marked in it. On the page, the picture's spots do that.
        """
        with style.style():
            figure = Figure((style.TEXT_WIDTH, self.height))
            self.panels(figure, self.seen, marked)
            if marked and self.point is not None and not (point := self._chosen())["cell"]:
                results.ring(figure.axes[point["panel"]], point["x"], point["y"], point["interval"])
        return figure

    def _chosen(self) -> pd.Series:
        return self.seen.points.set_index("name").loc[self.point]

    def mark(self) -> None:
        """Marks the chosen point in the picture, and writes it out."""
        if self.seen is None:
            return
        self.picture.choose(self.point)
        self._readout.value = self._saved.value = ""
        if self.point is not None:
            self._readout.value = f'<span role="status"><b>Chosen:</b> {html.escape(self._chosen()["text"])}</span>'

    def _save(self) -> None:
        if self.seen is None:
            raise UserError("Nothing is shown that could be saved: change the choices first.")
        name = self.controls["save_name"].value.strip()
        if not re.fullmatch(r"[\w][\w .-]*", name):
            raise UserError(f"'{name}' is no name of a file: use letters, digits, '-', '_' and '.'.")
        with tempfile.TemporaryDirectory() as temporary:
            served = os.environ.get(READ_ONLY) == "1"
            folder = Path(temporary) if served else self.study.figures_folder / "views"
            files = style.save(self.figure(), folder / name)
            links = [
                f'<a download="{html.escape(file.name)}" style="text-decoration:underline" '
                f'href="{data_address(file.read_bytes(), kind)}">{file.suffix[1:].upper()}</a>'
                for file, kind in zip(files, ("image/png", "application/pdf"), strict=True)
            ]
        where = "" if served else f"Saved in figures/{self.study.name}/views. "
        self._saved.value = f"{where}Download: {' '.join(links)}"


class RecallView(View):
    """Class recall against shot."""

    kind, height, fetch = "class-recall", 2.9, staticmethod(view_data.recalls_of)

    def make_filters(self):
        study, names = self.study, variants_of(self._evaluation().trainings)
        first = view_data.first_choice(names, ("Simple", "Transductive"))
        own = {dataset.domain for dataset in study.datasets.values()}
        panels = list(DOMAIN_NAMES) if len(own) > 1 else list(own)
        every = Checkbox(False, description="every shot by itself, not in bins", indent=False, layout={"width": "auto"})
        return {
            "evaluation": ui.menu("Evaluation:", 265, list(study.evaluations)),
            "value": ui.menu("Show:", 225, self._values(first)),
            "shots": ui.range_slider("Shots:", 300, 1, 2, (1, 2)),
            "variants": ui.Choices("Variants", names, first),
            "datasets": _dataset_choices(study, self._evaluation().datasets),
            "domains": ui.Choices("Panels", list(DOMAIN_NAMES), panels, DOMAIN_NAMES),
            "apart": every,
        }

    @staticmethod
    def _values(variants: Sequence[str]) -> list[tuple[str, str]]:
        """What can be shown: recall and, where there are several variants, the gain over each."""
        return [("recall", ""), *((f"gain over {name}", name) for name in variants if len(variants) > 1)]

    def follow(self, name):
        c = self.controls
        if name == "evaluation":
            names = variants_of(self._evaluation().trainings)
            c["variants"].offer(names, view_data.first_choice(names, c["variants"].value))
        if name in ("evaluation", "variants"):
            ui.offer(c["value"], self._values(c["variants"].value))

    def see(self):
        chosen = self.values()
        recalls = [self.read(chosen["evaluation"], variant) for variant in chosen["variants"]]
        if recalls:
            with self.quietly():
                ui.refit(self.controls["shots"], 1, int(recalls[0]["shot"].max()))
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
        recorded = rule.recorded_steps
        highest = min(view_data.LARGEST_MINIMUM, recorded)
        return {
            "evaluation": ui.menu("Evaluation:", 255, list(study.evaluations)),
            "training": ui.menu("Variant:", 205, self._trainings()),
            "domain": ui.menu("Domain:", 200, DOMAINS),
            "value": ui.menu("Show:", 135, ["gain", "accuracy"]),
            "minimum": ui.slider("Minimum:", 290, 1, highest, max(1, min(rule.minimum_steps, highest))),
            "maximum": ui.slider("Maximum:", 290, 1, recorded, max(1, rule.maximum_steps)),
            "datasets": _dataset_choices(study, self._evaluation().datasets),
        }

    def _trainings(self) -> list[tuple[str, str]]:
        """The trainings with a variant that refines at test time, by its name; Transductive first."""
        served = variants_of(self._evaluation().trainings)
        names = [name for name in served if VARIANTS[name].refinement_at_test]
        names.sort(key=lambda name: name != "Transductive")
        return [(name, VARIANTS[name].training) for name in names]

    def change(self, name):
        c = self.controls
        if name in ("minimum", "maximum") and self.seen is not None:  # these choose a point of the same picture
            with self.quietly():
                if c["minimum"].value > c["maximum"].value:
                    c["maximum" if name == "minimum" else "minimum"].value = c[name].value
                c["points"].value = self.first_point()
            self.mark()
        else:
            super().change(name)

    def follow(self, name):
        if name == "evaluation":
            ui.offer(self.controls["training"], self._trainings())

    def first_point(self):
        return f"minimum {self.controls['minimum'].value}, maximum {self.controls['maximum'].value}"

    def mark(self):
        cell = CELL.fullmatch(self.controls["points"].value)
        if cell:
            with self.quietly():
                self.controls["minimum"].value, self.controls["maximum"].value = map(int, cell.groups())
        super().mark()

    @staticmethod
    def fetch(study, evaluation, training):
        return load_rows(study, evaluation, [training], [study.replicate])

    def see(self):
        chosen = self.values()
        rows, refinement = self.read(chosen["evaluation"], chosen["training"]), self.study.refinement
        kept = chosen["training"], refinement.recorded_steps, chosen["datasets"], chosen["domain"]
        return view_data.refinement_seen(rows, *kept, refinement.limits)

    def panels(self, figure, seen, marked):
        axes = figure.subplots(1, 2, width_ratios=[2.1, 1])
        cell = CELL.fullmatch(self.point or "") if marked else None
        mark = tuple(map(int, cell.groups())) if cell else (0, 0)  # (0, 0) is no cell of the heatmap
        results.refinement_heatmap(axes[0], seen.frame, self.controls["value"].value, mark)
        results.accuracy_by_step(axes[1], seen.steps, value="gain")


class QueryCountView(View):
    """Accuracy against the number of queries per class."""

    kind, fetch = "number-of-queries", staticmethod(view_data.query_episodes)

    def make_filters(self):
        names = view_data.query_count_variants(self.study)
        return {
            "variants": ui.Choices("Variants", names, view_data.first_choice(names, ("FEOT", "Transductive"))),
            "domain": ui.menu("Domain:", 220, DOMAINS),
            "settings": ui.Choices("Ways and shots", (), ()),
            "datasets": _dataset_choices(self.study, ()),
        }

    def see(self):
        episodes = self.read(self.controls["variants"].value)
        with self.quietly():
            for name, column in (("settings", "evaluation"), ("datasets", "dataset")):
                self.controls[name].offer(list(episodes[column].unique()))
        chosen = self.values()
        return view_data.query_count_seen(episodes, chosen["datasets"], chosen["domain"], chosen["settings"])

    def panels(self, figure, seen, marked):
        axes = figure.subplots(1, seen.frame["evaluation"].nunique(), squeeze=False)[0]
        results.number_of_queries(axes, seen.frame)
