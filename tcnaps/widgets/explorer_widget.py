"""The episode explorer: an evaluation's episodes by gain or loss, and what happened in the one that is chosen."""

import html

import ipywidgets
import pandas as pd

from tcnaps.config import Study
from tcnaps.datasets.image_source import DatasetError
from tcnaps.evaluation.result_files import needed_trainings
from tcnaps.widgets import episode_table, explorer_controls, explorer_data, explorer_html
from tcnaps.widgets.controls import keys, row, text
from tcnaps.widgets.replay import Replayed, StaleRowsError, replay
from tcnaps.widgets.widget_base import StudyWidget, Work, shown_again, study_key

SETTINGS = ("evaluation", "better", "than", "limits")  # the controls that choose what is compared


def explorer(
    study: Study, evaluation: str | None = None, better: str = "Transductive", than: str = "Simple"
) -> "Explorer":
    """A widget to look at the episodes in which one variant gains most over another, or loses most.

    Run again with the same arguments and results, it is the same explorer with whatever was chosen in it.

    Args:
        evaluation: one that serves both variants; None takes the first.

    Raises:
        ValueError: there is no such variant or evaluation, or none that serves both; the message names what there is.
    """
    possible = explorer_data.evaluations_of(study, [better, than])
    evaluation = possible[0] if evaluation is None else evaluation
    explorer_data.variants_of(study, evaluation)  # an unknown evaluation is an error that names the known ones
    if evaluation not in possible:
        raise ValueError(
            f"Evaluation '{evaluation}' does not serve {better} and {than}; these do: {', '.join(possible)}."
        )
    _check_different(better, than)
    key = study_key(study), explorer_data.results_stamp(study), evaluation, better, than
    return shown_again("explorer", key, lambda: Explorer(study, evaluation, better, than))


class Explorer(StudyWidget):
    """See `explorer`. A new one shows nothing before `load`.

    Attributes:
        rows: of the evaluation, or None where they can't be read.
        table: of `explorer_data.episodes`; `listed` is what the filters leave of it, in the order shown.
        own: variant → the rows of the episode that is shown; `row` is its row of the table.
        images: of that episode, or None where it can't be drawn again; `problem` says why.
    """

    kind = "explorer"

    def __init__(self, study: Study, evaluation: str, better: str, than: str):
        super().__init__(study)
        self.opening = Work(self.notice)
        self.rows: pd.DataFrame | None = None
        self.table = self.listed = pd.DataFrame()
        self.own: dict[str, pd.DataFrame] = {}
        self.row: pd.Series | None = None
        self.images: Replayed | None = None
        self.problem: Exception | None = None
        self._settings: tuple | None = None  # of the table
        self._at: tuple | None = None  # settings and episode that are shown, or on their way
        self._threaded = True
        self.add(explorer_controls.make_controls(study, evaluation, better, than), explorer_controls.TOOLTIPS)
        self._arrange()
        self._listen()

    @property
    def variants(self) -> tuple[str, str]:
        """The two variants that the table compares."""
        _, better, than, _ = self._settings or self._wanted()
        return better, than

    def load(self, threaded: bool = True) -> None:
        """Reads and compares what the controls name; the list and the episode follow."""
        settings = evaluation, better, than, limits = self._wanted()
        if better == than:
            self.undo()
        _check_different(better, than)
        known = settings == self._settings
        key = evaluation, tuple(needed_trainings([better, than]))
        there = self.rows if self.rows is not None and key == self._rows_of else None

        def work():
            if known:
                return settings, key, self.rows, self.table
            yield 0.1, f"Reading the rows of {evaluation}"
            rows = explorer_data.read(self.study, evaluation, [better, than]) if there is None else there
            yield 0.9, f"Comparing {better} with {than}"
            return settings, key, rows, explorer_data.episodes(rows, better, than, limits)

        if self.work.busy:
            self._at = None  # an episode on its way gives place, and has to be fetched again
        self._threaded = threaded
        self.work.start(work, self._loaded, self.undo, threaded and not known)
        self._threaded = True

    def undo(self) -> None:
        """Puts the controls back to what is shown, and fetches the chosen episode if it was on its way."""
        super().undo()
        self._choose()

    def _wanted(self) -> tuple:
        values = self.values()
        return tuple(values[name] for name in SETTINGS)

    def _arrange(self) -> None:
        c = self.controls
        self._style_sheet = ipywidgets.HTML(layout={"height": "0px", "margin": "0px"})
        self._header = ipywidgets.HTML()
        self._count, self._status = text("tcnaps-count"), text("tcnaps-status")
        self._sheet, self._confusion = c["tabs"].children
        for page in c["tabs"].children:  # wide tables scroll in themselves
            page.layout.width = "100%"
        self._below = ipywidgets.VBox([])
        self._details = ipywidgets.VBox(
            [
                row(self._status),
                row(c["variant"], c["step"], c["stop"], c["open"]),
                self.opening,
                c["tabs"],
                self._below,
            ],
            layout={"display": "none"},
        )
        self._css_class = f"tcnaps-explorer-{self.model_id}"  # several may be on one page, each with its images
        self.add_class(self._css_class)
        self._style_sheet.value = explorer_html.style_sheet(self._css_class, None, 56)
        self.children = [
            self._style_sheet,
            keys(),
            row(c["evaluation"], c["better"], c["than"]),
            row(c["limits"], c["sort"]),
            row(c["dataset"], c["ways"], c["shots"]),
            self.notice,
            row(self._count, self.work, height="46px"),  # room for the bar, so that nothing moves when it appears
            self._header,
            c["episodes"],
            self._details,
        ]

    def _listen(self) -> None:
        self.on("evaluation", self._change_evaluation)
        for name in ("better", "than", "limits"):
            self.on(name, self.load)
        for name in ("sort", "dataset", "ways", "shots"):
            self.on(name, self._filter)
        self.on("episodes", self._choose)
        for name in ("variant", "stop"):
            self.on(name, self._to_stop)
        for name in ("step", "tabs"):
            self.on(name, self._draw)
        self.on("open", self._open)
        self.on("close", self._close)

    def _change_evaluation(self) -> None:
        with self.quietly():
            variants = explorer_data.variants_of(self.study, self.controls["evaluation"].value)
            explorer_controls.offer_variants(self.controls, variants)
        self.load()

    def _loaded(self, result) -> None:
        self._settings, self._rows_of, self.rows, self.table = result
        self.remember(SETTINGS)
        with self.quietly():
            explorer_controls.offer_filters(self.controls, self.table)
        self._filter()

    def _filter(self) -> None:
        if self._settings is None:
            return
        (_, better, than, _), chosen = self._settings, self.values()
        datasets = explorer_controls.datasets_of(chosen["dataset"], self.table)
        self.listed = explorer_data.chosen(self.table, datasets, chosen["ways"], chosen["shots"], chosen["sort"])
        heading, options = explorer_controls.lines(self.listed, better, than)
        self._header.value = f'<div class="xheader">{heading}</div>'
        values = [value for _, value in options]
        before = self._at[1] if self._at else None
        with self.quietly():
            self.controls["episodes"].options = options
            if values:
                self.controls["episodes"].value = before if before in values else values[0]
        words = explorer_data.in_words(self.listed, better, than)
        if len(self.listed) > len(options):
            words += f" The list holds the first {len(options)} of them."
        self._count.value = explorer_html.words(words)
        if options:
            self._choose()
        else:
            if self._wanted() == self._settings:
                self.work.cancel()
            self._at, self.own = None, {}
            self._details.layout.display = "none"

    def _choose(self) -> None:
        """Fetches the episode that is chosen in the list, unless it is shown already."""
        place = self.controls["episodes"].value
        at = self._settings, place
        if place is None or at == self._at or self._wanted() != self._settings:  # what is being loaded chooses again
            return
        _, better, than, _ = self._settings
        rows, table = self.rows, self.table
        found = table[(table["dataset"] == place[0]) & (table["episode"] == place[1])].iloc[0]

        def work():
            yield 0.1, f"Reading episode {place[1]} of {place[0]}"
            own = {variant: episode_table.rows_of_episode(rows, variant, *place) for variant in (better, than)}
            yield 0.3, "Fetching its images"
            images = thumbnails = problem = None
            try:
                images = replay(self.study, own[better])
                thumbnails = explorer_html.thumbnails(images)
            except (StaleRowsError, DatasetError, OSError) as error:  # the numbers can be shown all the same
                problem = error
            return found, own, images, thumbnails, problem

        self._at = at
        self.work.start(work, self._fetched, self._forget, self._threaded)

    def _forget(self) -> None:
        self._at = None

    def _fetched(self, result) -> None:
        self.row, self.own, self.images, thumbnails, self.problem = result
        better, than = self.own
        self._drawer = explorer_html.Drawer(episode_table.class_names(self.own[better]), thumbnails)
        size = 56 if self.row["way"] <= 10 else 44
        self._style_sheet.value = explorer_html.style_sheet(self._css_class, thumbnails, size)
        with self.quietly():
            variant = self.controls["variant"]
            before = variant.index
            variant.options = [better, than]
            variant.index = before or 0
            self.controls["step"].max = episode_table.recorded_steps(self.own[better])
        self._details.layout.display = ""
        self._to_stop()
        if self.problem is not None:
            raise self.problem

    def _stops(self) -> dict[str, int]:
        better, than = self.own
        return {better: int(self.row["step"]), than: int(self.row["step_than"])}

    def _to_stop(self) -> None:
        if self.own:
            with self.quietly():
                self.controls["step"].value = self._stops()[self.controls["variant"].value]
            self._draw()

    def _draw(self) -> None:
        """Shows the status line and the page that is open."""
        if not self.own:
            return
        variant, step = self.controls["variant"].value, self.controls["step"].value
        own, stop = self.own[variant], self._stops()[variant]
        self._status.value = explorer_html.words(episode_table.status(self.row, variant, own, step, stop))
        if self.controls["tabs"].selected_index == explorer_controls.IMAGES:
            missing = "" if self.problem is None else f"✕ The images can't be shown: {self.problem}"
            found, recalls = episode_table.at_step(own, step), episode_table.recall_by_class(own, step)
            self._sheet.value = explorer_html.words(missing) + self._drawer.sheet(found, recalls)
        else:
            counts, mistakes = episode_table.confusion(own, step), episode_table.mistakes(own, step)
            self._confusion.value = self._drawer.confusion(counts, mistakes)

    def _open(self) -> None:
        if not self.own:
            return
        place = self.controls["variant"].value, self.row["evaluation"], self.row["dataset"], int(self.row["episode"])

        def work():
            yield 0.1, "Loading the network and computing the episode's features"
            from tcnaps.widgets.stepper_widget import Stepper  # needs PyTorch, which looking at results does not

            stepper = Stepper(self.study, *place)
            stepper.load(threaded=False)
            return stepper

        def then(stepper):
            title = ipywidgets.HTML(f"<b>Stepper: {html.escape('{}, {}, {}, episode {}'.format(*place))}</b>")
            self._below.children = [row(title, self.controls["close"]), stepper]

        self.opening.start(work, then)

    def _close(self) -> None:
        self._below.children = []


def _check_different(better: str, than: str) -> None:
    if better == than:
        raise ValueError(f"{better} can't be compared with itself: choose two variants.")
