"""The episode explorer: an evaluation's episodes by gain or loss, and the images of one of them."""

import html

import ipywidgets
import pandas as pd
from ipywidgets import VBox
from matplotlib.figure import Figure

from tcnaps.config import Study
from tcnaps.evaluation.result_files import load_rows, needed_trainings
from tcnaps.evaluation.stopped_rows import recorded_predictions
from tcnaps.figures.clustering import episode_images
from tcnaps.figures.style import TEXT_WIDTH, style
from tcnaps_suite.episodes import ShownImages
from tcnaps_suite.widgets import episode_table, explorer_data, widget_base as ui
from tcnaps_suite.widgets.episode_table import shortened
from tcnaps_suite.widgets.pictures import on_page

MOST_LISTED = 500  # episodes in the list; the filters reach the others
COLUMNS = 10  # support images and queries of a class in the picture


class Explorer(ui.StudyWidget):
    """See `explorer`. A new one shows nothing before `load`.

    `table` comes from `explorer_data.episodes`; `listed` are its rows in the order shown, and `row` is the one that is
    shown, with `predictions` (variant → rows) and `images`, or the `problem` that keeps them from being shown.
    """

    kind = "explorer"

    def __init__(self, study: Study, evaluation: str, better: str, than: str):
        super().__init__(study)
        self.evaluation, self.variants = evaluation, (better, than)
        self.table = self.listed = pd.DataFrame()
        self._rows: pd.DataFrame | None = None
        self.predictions: dict[str, pd.DataFrame] = {}
        self.row: pd.Series | None = None
        self.images: ShownImages | None = None
        self.problem: Exception | None = None
        self._arrange()

    @property
    def is_shown(self) -> bool:
        return not self.table.empty

    def load(self) -> None:
        if self._rows is None:
            with self.loading(f"Reading the rows of {self.evaluation}"):
                trainings = needed_trainings(self.variants)
                self._rows = load_rows(self.study, self.evaluation, trainings, [self.study.replicate])
            self.controls["step"].max = recorded_predictions(self._rows).shape[1] - 1
        self.table = explorer_data.episodes(self._rows, *self.variants, self.choice.limits)
        self._filter()

    def _arrange(self) -> None:
        rule = self.study.refinement
        limits = min(rule.limits), rule.maximum_steps  # a minimum above the maximum acts as the maximum
        filters = self.add(
            limits=(ui.slider("Stopping rule: minimum, maximum", 460, 0, rule.recorded_steps, limits), self.load),
            dataset=(ui.menu("Dataset", 260, explorer_data.dataset_filters(self.study, self.evaluation)), self._filter),
            sort=(ui.menu("Sort", 300, explorer_data.SORTS), self._filter),
        )
        episodes = self.add(episodes=(ui.styled(ipywidgets.Select(options=(), rows=9), "", None), self._choose))
        predictions = self.add(
            variant=(ui.menu("Predictions of", 215, self.variants), self._to_stop),
            step=(ui.slider("Refinement step", 305, 0, rule.recorded_steps, 0), self._draw),
        )
        self._count, self._status = (ui.text(f"tcnaps-{name}") for name in ("count", "status"))
        self._picture = ui.text("tcnaps-picture", "100%")
        self._details = VBox((self._status, predictions, self._picture), layout={"display": "none"})
        self.arrange(filters, self.notice, self.busy, self._count, episodes, self._details)

    def _filter(self) -> None:
        choice, control = self.choice, self.controls["episodes"]
        self.listed = explorer_data.chosen(self.table, choice.dataset, choice.sort)
        options = explorer_data.lines(self.listed.head(MOST_LISTED), *self.variants)
        values, before = [value for _, value in options], control.value
        count = explorer_data.in_words(self.listed, *self.variants)
        if len(self.listed) > len(options):
            count += f" The list holds the first {len(options)} of them."
        self._count.value = html.escape(count)
        with self.quietly():
            control.options = options
            control.value = before if before in values else values[0]
        self._choose()

    def _choose(self) -> None:
        place, (better, than) = self.choice.episodes, self.variants
        self.row = self.table.set_index(["dataset", "episode"], drop=False).loc[place]
        self.predictions = {name: episode_table.rows_of_episode(self._rows, name, *place) for name in (better, than)}
        self.images = self.problem = None
        try:
            self.images = episode_table.replay(self.study, self.predictions[better])
        except (ValueError, OSError) as error:  # the numbers can be shown all the same
            self.problem = error
        self._details.layout.display = ""
        self._to_stop()
        if self.problem is not None:
            raise self.problem

    def _stop(self) -> int:
        """The step at which the variant whose predictions are shown stops."""
        return int(self.row["step" if self.controls["variant"].index == 0 else "step_than"])

    def _to_stop(self) -> None:
        self.put(step=self._stop())
        self._draw()

    def _draw(self) -> None:
        choice, rows = self.choice, self.predictions[self.choice.variant]
        status = explorer_data.status(self.row, choice.variant, rows, choice.step, self._stop())
        self._status.value = html.escape(status)
        if self.images is None:
            self._picture.value = html.escape(f"✕ The images can't be shown: {self.problem}")
        else:
            self._picture.value = on_page(self.figure(), f"The episode's images with their predictions. {status}")

    def figure(self) -> Figure:
        """The episode's images with the predictions that are shown: frames have the colours of predicted classes."""
        rows, images = self.predictions[self.choice.variant], self.images
        names = [shortened(name) for name in images.class_names]
        names = names if len(set(names)) == len(names) else images.class_names
        support = {name: images.support_images[images.support_labels == k] for k, name in enumerate(names)}
        queries = episode_table.at_step(rows, self.choice.step)
        labels = queries["prediction"].to_numpy(), queries["label"].to_numpy()
        with style():
            figure = Figure((TEXT_WIDTH, 0.4 + 0.36 * len(names)))
            episode_images(figure.subplots(), support, images.query_images, *labels, columns=COLUMNS)
        return figure


def explorer(study: Study, evaluation: str | None = None, better: str = "Transductive", than: str = "FEOT") -> Explorer:
    """A widget to look at the episodes in which one variant gains most over another, or loses most.

    `evaluation` must serve both; None takes the first that does.
    """
    possible = explorer_data.evaluations_of(study, [better, than])
    evaluation = possible[0] if evaluation is None else evaluation
    explorer_data.one_of(f"evaluation of {better} and {than} named", evaluation, possible)
    return Explorer(study, evaluation, better, than).loaded()
