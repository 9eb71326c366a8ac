"""The episode explorer: an evaluation's episodes by gain or loss, and what happened in the one that is chosen."""

import html
from functools import lru_cache

import ipywidgets
import pandas as pd
from ipywidgets import HTML, VBox
from matplotlib.figure import Figure

from tcnaps.config import Study, UserError
from tcnaps.evaluation.result_files import load_rows, needed_trainings
from tcnaps.evaluation.stopped_rows import recorded_predictions
from tcnaps.figures.images import episode_images
from tcnaps.figures.style import TEXT_WIDTH, style
from tcnaps_suite.widgets import episode_table, explorer_data, explorer_html, widget_base as ui
from tcnaps_suite.widgets.episode_table import shortened
from tcnaps_suite.widgets.pictures import copied, saved

MOST_LISTED = 500  # episodes in the list; the filters reach the others
IMAGES, CONFUSION = "Images", "Confusion"
# A style sheet that is put on the page runs what its onload says: the page moves to the stepper.
SCROLL = """<style onload="this.parentElement.scrollIntoView({behavior:'smooth'})"></style>"""


def explorer(
    study: Study, evaluation: str | None = None, better: str = "Transductive", than: str = "FEOT"
) -> "Explorer":
    """A widget to look at the episodes in which one variant gains most over another, or loses most.

    Run again with the same arguments and results, it is the same explorer with whatever was chosen in it.

    Args:
        evaluation: one that serves both variants; None takes the first.

    Raises:
        UserError: there is no such variant or evaluation, or none that serves both.
    """
    possible = explorer_data.evaluations_of(study, [better, than])
    evaluation = possible[0] if evaluation is None else evaluation
    explorer_data.one_of(f"evaluation of {better} and {than} named", evaluation, possible)
    return ui.shown_again(Explorer, study, evaluation, better, than)


class Explorer(ui.StudyWidget):
    """See `explorer`. A new one shows nothing before `load`.

    Attributes:
        table: of `explorer_data.episodes`; `listed` is what the filters leave of it, in the order shown.
        own: variant → the rows of the episode that is shown; `row` is its row of the table.
        problem: why its images can't be shown, or None.
    """

    kind, arguments = "explorer", ("evaluation", "better", "than")
    tooltips = {
        "limits": "Fewest and most refinement steps; refinement stops when no label changes",
        "shots": "Lists episodes in which some class has so many support images",
        "open": "Shows this episode's clustering step by step, below; loads the network",
    }

    def __init__(self, study: Study, evaluation: str, better: str, than: str):
        super().__init__(study)
        self.table = self.listed = pd.DataFrame()
        self.own: dict[str, pd.DataFrame] = {}
        self.row: pd.Series | None = None
        self.problem: Exception | None = None
        self._read = lru_cache(1)(lambda name, trainings: load_rows(study, name, trainings, [study.replicate]))
        self._shown: tuple | None = None  # what was compared in which episode
        self._arrange(evaluation, better, than)
        self.on(["evaluation"], self._change_evaluation)
        self.on(["better", "than", "limits"], self.load)
        self.on(["sort", "dataset", "ways", "shots"], self._filter)
        self.on(["episodes"], self._choose)
        self.on(["variant", "stop"], self._to_stop)
        self.on(["step", "page"], self._draw)
        self.on(["open"], self._open)
        self.on(["close"], self._close)
        self.on(["save"], self._save)
        self.on(["copy"], self._copy)

    @property
    def variants(self) -> tuple[str, str]:
        """The two variants that are compared."""
        return self.choice.better, self.choice.than

    def load(self) -> None:
        """Reads and compares what the controls name; the list and the episode follow."""
        choice = self.choice
        with self.loading(f"Reading the rows of {choice.evaluation}"):
            self._rows = self._read(choice.evaluation, tuple(needed_trainings(self.variants)))
            table = self.table = explorer_data.episodes(self._rows, *self.variants, choice.limits)
        with self.quietly():
            for name, values in (("ways", table["way"]), ("shots", table["shots"].explode())):
                ui.refit(self.controls[name], int(values.min()), int(values.max()))
        self._filter()

    def hide(self) -> None:
        """Lists nothing, as the episodes could not be compared."""
        self.table = self.listed = pd.DataFrame()
        self._count.value = self._header.value = ""
        with self.quietly():
            self.controls["episodes"].options = ()
        self._hide_episode()

    def _hide_episode(self) -> None:
        self._shown, self.own = None, {}
        self._details.layout.display = "none"

    def _arrange(self, evaluation, better, than) -> None:
        study, rule = self.study, self.study.refinement
        variants = explorer_data.evaluated_variants(study)
        limits = min(rule.limits), rule.maximum_steps  # a minimum above the maximum acts as the maximum
        compared = self.add(
            evaluation=ui.menu("Evaluation", 330, list(study.evaluations), evaluation),
            better=ui.menu("Gain of", 190, variants, better),
            than=ui.menu("over", 170, variants, than),
        )
        ordered = self.add(
            limits=ui.slider("Stopping rule: minimum, maximum", 460, 0, rule.recorded_steps, limits),
            sort=ui.menu("Sort", 300, list(explorer_data.SORTS)),
        )
        filters = self.add(
            dataset=ui.menu("Dataset", 260, explorer_data.dataset_filters(study)),
            ways=ui.slider("Way", 240, 0, 1, (0, 1)),
            shots=ui.slider("A class with shot", 320, 0, 1, (0, 1)),
        )
        episodes = self.add(episodes=ui.styled(ipywidgets.Select(options=(), rows=9), "", None))
        look_at = self.add(
            variant=ui.menu("Predictions of", 215, [better, than]),
            step=ui.slider("Refinement step", 305, 0, 1, 0, live=True),
            stop=ui.button("Where it stops", 120),
            open=ui.button("Open in the stepper", 155),
        )
        page = self.add(page=ipywidgets.ToggleButtons(options=[IMAGES, CONFUSION], style={"button_width": "120px"}))
        self.add(close=ui.button("Close", 100))
        self._style_sheet, self._header, self._below = HTML(layout={"height": "0px", "margin": "0px"}), HTML(), VBox()
        keeping = self.add(**ui.saving("explorer"), copy=ui.button("Copy code", 110, "copy"))
        self._count, self._status, self._opened, self._sheet, self._saved = (
            ui.text(f"tcnaps-{name}") for name in ("count", "status", "opened", "sheet", "saved")
        )
        self._sheet.layout.width = "100%"  # wide tables scroll in themselves
        look_at.children += (self._opened,)
        shown = [self._status, look_at, page, self._sheet, keeping, self._saved, self._below]
        self._details = VBox(shown, layout={"display": "none"})
        self._css_class = f"tcnaps-explorer-{self.model_id}"  # several may be on one page, each with its images
        self.add_class(self._css_class)
        above = self._style_sheet, compared, ordered, filters, self.notice, self.busy
        self.arrange(*above, self._count, self._header, episodes, self._details)

    def _change_evaluation(self) -> None:
        with self.quietly():
            self.controls["episodes"].options = ()  # the new list is shown from its top
        self.load()

    def _filter(self) -> None:
        if self.table.empty:
            return
        choice, episodes = self.choice, self.controls["episodes"]
        self.listed = explorer_data.chosen(self.table, choice.dataset, choice.ways, choice.shots, choice.sort)
        heading, options = explorer_data.lines(self.listed.head(MOST_LISTED), *self.variants)
        self._header.value = f'<div class="xheader">{heading}</div>'
        values, before = [value for _, value in options], episodes.value
        with self.quietly():
            episodes.options = options
            if values:
                episodes.value = before if before in values else values[0]
        found = explorer_data.in_words(self.listed, *self.variants)
        if len(self.listed) > len(options):
            found += f" The list holds the first {len(options)} of them."
        self._count.value = html.escape(found)
        if options:
            self._choose()
        else:
            self._hide_episode()

    def _choose(self) -> None:
        """Shows the episode that is chosen in the list, unless it is shown already."""
        choice, (better, than) = self.choice, self.variants
        place, shown = choice.episodes, (choice.evaluation, better, than, choice.limits, choice.episodes)
        if place is None or (self._shown == shown and self.problem is None):
            return
        self.row = self.table.set_index(["dataset", "episode"], drop=False).loc[place]
        self.own = {name: episode_table.rows_of_episode(self._rows, name, *place) for name in (better, than)}
        images = self.problem = None
        try:
            images = episode_table.replay(self.study, self.own[better])
        except (UserError, OSError) as error:  # the numbers can be shown all the same
            self.problem = error
        self._drawer = explorer_html.Drawer(episode_table.class_names(self.own[better]), images)
        self._style_sheet.value = self._drawer.style_sheet(self._css_class, 56 if self.row["way"] <= 10 else 44)
        variant = self.controls["variant"]
        with self.quietly():
            position, variant.options = variant.index, [better, than]
            variant.index = position
            self.controls["step"].max = recorded_predictions(self.own[better]).shape[1] - 1
        self._shown = shown
        self._details.layout.display = ""
        self._to_stop()
        if self.problem is not None:
            raise self.problem

    def _stop(self) -> int:
        """The step at which the variant whose predictions are shown stops."""
        return int(self.row["step" if self.controls["variant"].index == 0 else "step_than"])

    def _to_stop(self) -> None:
        if self.own:
            self.put(step=self._stop())
            self._draw()

    def _draw(self) -> None:
        """Shows the status line, and the images or the confusion matrix."""
        if not self.own:
            return
        choice, self._saved.value = self.choice, ""
        own = self.own[choice.variant]
        status = explorer_data.status(self.row, choice.variant, own, choice.step, self._stop())
        self._status.value, found = html.escape(status), episode_table.at_step(own, choice.step)
        if choice.page == IMAGES:
            missing = "" if self.problem is None else f"✕ The images can't be shown: {self.problem}"
            self._sheet.value = html.escape(missing) + self._drawer.sheet(found)
        else:
            self._sheet.value = self._drawer.confusion(found)

    def figure(self) -> Figure:
        """The episode's images with the predictions that are shown, at most ten of a class.

        Raises:
            UserError: there are no images.
        """
        images = self._drawer.images if self.own else None
        if images is None:
            raise UserError("No images are shown that could be saved: choose another episode first.")
        names = [shortened(name) for name in self._drawer.names]
        support = {name: images.support_images[images.support_labels == k] for k, name in enumerate(names)}
        found = episode_table.at_step(self.own[self.choice.variant], self.choice.step)
        with style():
            figure = Figure((TEXT_WIDTH, 0.4 + 0.36 * len(names)))
            ax = figure.subplots()
            labels = found["prediction"].to_numpy(), found["label"].to_numpy()
            episode_images(ax, support, images.query_images, *labels, columns=10)
        return figure

    def _save(self) -> None:
        self._saved.value = saved(self.figure(), self.study, self.choice.save_name)

    def _copy(self) -> None:
        self._saved.value = copied(self.code())

    def _open(self) -> None:
        if not self.own:
            return
        self._close()
        self._opened.value = "Loading the network and computing the episode's features …"
        place = self.choice.variant, self.row["evaluation"], self.row["dataset"], int(self.row["episode"])
        from tcnaps_suite.widgets.stepper_widget import Stepper  # needs PyTorch, which looking at results does not

        stepper, (minimum, maximum) = Stepper(self.study, *place), self.choice.limits
        stepper.put(minimum=minimum, maximum=maximum)
        with stepper.guarded():
            stepper.load()
        title = HTML(f"{SCROLL}<b>Stepper: {html.escape('{}, {}, {}, episode {}'.format(*place))}</b>")
        self._below.children = [ui.row(title, self.controls["close"]), stepper]
        self._opened.value = f"Episode {place[-1]} is open in the stepper, below."

    def _close(self) -> None:
        self._below.children, self._opened.value = [], ""
