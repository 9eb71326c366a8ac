"""The episode explorer: an evaluation's episodes by gain or loss, and what happened in the one that is chosen."""

import html
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import ipywidgets
import pandas as pd

from tcnaps.config import Study
from tcnaps.datasets.image_source import DatasetError
from tcnaps.evaluation.result_files import needed_trainings
from tcnaps.widgets import (
    episode_table as episode_rows,
    explorer_controls as controls,
    explorer_data as exploring,
    explorer_html as pages,
    widget_base as parts,
)
from tcnaps.widgets.replay import Reopened, StaleRowsError, reopen


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
    possible = exploring.evaluations_of(study, [better, than])
    evaluation = possible[0] if evaluation is None else evaluation
    exploring.variants_of(study, evaluation)  # names those there are where it is unknown
    if evaluation not in possible:
        raise ValueError(
            f"Evaluation '{evaluation}' does not serve {better} and {than}; these do: {', '.join(possible)}."
        )
    if better == than:
        raise ValueError(f"{better} can't be compared with itself: choose two variants.")
    key = (parts.study_key(study), exploring.stamp(study), evaluation, better, than)
    shown = parts.kept("explorer", key, lambda: Explorer(study, evaluation, better, than))
    if shown.rows is None:  # also when it failed before: that may be mended by now
        shown.load(threaded=False)
    return shown


class Explorer(ipywidgets.VBox):
    """See `explorer`.

    Attributes:
        rows: of the evaluation, or None where they can't be read.
        table: of `exploring.episodes`; `listed` is what the filters leave of it, in the order shown.
        own: variant → the rows of the episode that is shown; `row` is its row of the table.
        images: of that episode, or None where it can't be rebuilt; `problem` says why.
    """

    def __init__(self, study: Study, evaluation: str, better: str, than: str):
        super().__init__()
        self.study, self.notice = study, parts.Notice()
        self.loading, self.fetching, self.averaging, self.opening = (parts.Work(self.notice) for _ in range(4))
        self.rows: pd.DataFrame | None = None
        self.table = self.listed = pd.DataFrame()
        self.own: dict[str, pd.DataFrame] = {}
        self.row: pd.Series | None = None
        self.images: Reopened | None = None
        self.problem: Exception | None = None
        self._settings: tuple | None = None  # of the table
        self._at: tuple | None = None  # settings and episode that are shown, or on their way
        self._quiet = self._threaded = False
        self._drawn: dict[str, tuple] = {}  # what each picture was drawn for
        self.c = controls.Controls(study, evaluation, better, than)
        self.children = self.c.arranged(self.notice, self.loading, self.fetching, self.averaging, self.opening)
        self.name = f"tcnaps-explorer-{self.model_id}"  # several may be on one page, each with its images
        self.add_class("tcnaps-explorer")
        self.add_class(self.name)
        self.c.style_sheet.value = pages.style_sheet(self.name, None, 56)
        self.c.details.layout.display = "none"
        c = self.c
        for control, reaction in {
            c.evaluation: self._change_evaluation,
            c.better: self.load,
            c.than: self.load,
            c.limits: self.load,
            c.dataset: self._filter,
            c.ways: self._filter,
            c.shots: self._filter,
            c.sort: self._filter,
            c.episodes: self._choose,
            c.variant: self._to_stop,
            c.step: self._draw,
            c.which: self._draw,
        }.items():
            control.observe(self._reacting(reaction), "value")
        c.tabs.observe(self._reacting(self._draw), "selected_index")
        for button, reaction in {c.stop: self._to_stop, c.open: self._open, c.close: self._close}.items():
            button.on_click(self._reacting(reaction))

    @property
    def variants(self) -> tuple[str, str]:
        """The two that the table compares."""
        _, better, than, _ = self._settings or self.c.settings()
        return better, than

    def load(self, threaded: bool = True) -> None:
        """Reads and compares what the controls say; the list and the episode follow."""
        settings = evaluation, better, than, limits = self.c.settings()
        if better == than:
            self._restore()
            raise ValueError(f"{better} can't be compared with itself: choose two variants.")
        if settings == self._settings:  # changed and changed back
            self.loading.cancel()
            return
        key = evaluation, tuple(needed_trainings([better, than]))
        there = self.rows if self.rows is not None and key == self._key else None

        def work():
            rows = (yield from exploring.reading(self.study, evaluation, [better, than])) if there is None else there
            yield 0.9, f"Comparing {better} with {than}"
            return settings, key, rows, exploring.episodes(rows, better, than, limits)

        self._threaded = threaded
        self.loading.start(work, self._loaded, self._restore, threaded)
        if not threaded and self.rows is not None:
            self._choose()
            self._threaded = True

    def _loaded(self, result) -> None:
        self._settings, self._key, self.rows, self.table = result
        with self._silently():
            self.c.offer(self.table)
        self._filter()

    def _restore(self) -> None:
        """After a failure or Cancel: the controls say again what is shown."""
        if self._settings is not None:
            with self._silently():
                evaluation, better, than, _ = self._settings
                self.c.restore(self._settings)
                self.c.offer_variants(exploring.variants_of(self.study, evaluation), better, than)

    def _change_evaluation(self) -> None:
        with self._silently():
            offered = exploring.variants_of(self.study, self.c.evaluation.value)
            self.c.offer_variants(offered, self.c.better.value, self.c.than.value)
        self.load()

    def _filter(self) -> None:
        if self._settings is None:
            return
        (_, better, than, _), c = self._settings, self.c
        self.listed = exploring.chosen(self.table, c.datasets(self.table), c.ways.value, c.shots.value, c.sort.value)
        with self._silently():
            c.list_episodes(self.listed, better, than, self._at[1] if self._at else None)
        c.count.value = pages.words(
            exploring.in_words(self.listed, better, than)
            + (
                f" The list holds the first {controls.MOST_LISTED} of them."
                if len(self.listed) > controls.MOST_LISTED
                else ""
            )
        )
        if self.listed.empty:
            self._at, self.own = None, {}
            self.fetching.cancel()
            c.details.layout.display = "none"
        elif self._threaded and not self._choose():
            self._draw()

    def _choose(self) -> bool:
        """Fetches the episode that is chosen in the list; whether it is another than before."""
        chosen = self.c.episodes.value
        at = self._settings, chosen
        if chosen is None or at == self._at or self.loading.busy:  # what is being loaded chooses again
            return False
        _, better, than, _ = self._settings
        rows, row = (
            self.rows,
            self.table[(self.table["dataset"] == chosen[0]) & (self.table["episode"] == chosen[1])].iloc[0],
        )

        def work():
            yield 0.1, f"Reading episode {chosen[1]} of {chosen[0]}"
            own = {variant: episode_rows.rows_of_episode(rows, variant, *chosen) for variant in (better, than)}
            yield 0.3, f"Opening {chosen[0]}"
            images = thumbnails = problem = None
            try:
                images = reopen(self.study, own[better])
                yield 0.7, "Fetching its images"
                thumbnails = pages.thumbnails(images)
            except (StaleRowsError, DatasetError, OSError) as error:  # the numbers can be shown all the same
                problem = error
            return row, own, images, thumbnails, problem

        self._at = at
        self.fetching.start(work, self._fetched, self._forget, self._threaded)
        return True

    def _forget(self, picture: str | None = None) -> None:
        """What failed or was cancelled is not there: the episode, or a picture."""
        if picture is None:
            self._at = None
        else:
            self._drawn.pop(picture, None)

    def _fetched(self, result) -> None:
        self.row, self.own, self.images, thumbnails, self.problem = result
        better, than = self.own
        self._drawer = pages.Drawer(episode_rows.class_names(self.own[better]), thumbnails)
        size = 56 if self.row["way"] <= 10 else 44
        self.c.style_sheet.value = pages.style_sheet(self.name, thumbnails, size)
        with self._silently():
            before = self.c.variant.index
            self.c.variant.options = [better, than]
            self.c.variant.index = before or 0
            self.c.step.max = episode_rows.recorded_steps(self.own[better])
        self.c.details.layout.display = ""
        self._to_stop()
        if self.problem is not None:
            raise self.problem

    def _stops(self) -> dict[str, int]:
        better, than = self.own
        return {better: int(self.row["step"]), than: int(self.row["step_than"])}

    def _to_stop(self) -> None:
        if self.own:
            with self._silently():
                self.c.step.value = self._stops()[self.c.variant.value]
            self._draw()

    def _draw(self) -> None:
        """The status line and the page that is open."""
        if not self.own:
            return
        variant, step, page = self.c.variant.value, self.c.step.value, self.c.tabs.selected_index
        own, stop = self.own[variant], self._stops()[variant]
        self.c.status.value = pages.words(episode_rows.status(self.row, variant, own, step, stop))
        if page == controls.IMAGES:
            missing = "" if self.problem is None else pages.words(f"✕ The images can't be shown: {self.problem}")
            self.c.sheet.value = missing + self._drawer.sheet(
                episode_rows.at_step(own, step), episode_rows.recall_by_class(own, step)
            )
        elif page == controls.STEPS:
            found = episode_rows.some_queries(own, self.c.which.value, step)
            self.c.by_step.value = self._drawer.steps(found, step, stop)
        elif page == controls.CONFUSION:
            counts, mistakes = episode_rows.confusion(own, step), episode_rows.mistakes(own, step)
            self.c.matrix.value = self._drawer.confusion(counts, mistakes)
        elif page == controls.CLASSES:
            key = self.row["evaluation"], self.row["dataset"], self.row["episode"], tuple(self._stops().items())
            self._once("classes", key, self._draw_classes)
        elif page == controls.SHOTS:
            self._once("shots", (self._settings, tuple(self.listed.index)), self._draw_shots)

    def _draw_classes(self) -> None:
        recalls = {
            variant: episode_rows.recall_by_class(self.own[variant], stop)
            for variant, stop in reversed(self._stops().items())
        }
        self.c.show_classes(recalls)

    def _draw_shots(self) -> None:
        _, better, than, limits = self._settings
        rows, listed = self.rows, self.listed

        def work():
            yield 0.2, f"Class recall in {len(listed)} episodes"
            return exploring.recall_by_shot(rows, listed, [than, better], limits)

        self.averaging.start(work, lambda found: self.c.show_shots(found, len(listed)), lambda: self._forget("shots"))

    def _once(self, name: str, key: tuple, draw: Callable[[], None]) -> None:
        """Draws a picture unless it shows the same already, or is about to."""
        if self._drawn.get(name) != key:
            self._drawn[name] = key
            try:
                draw()
            except Exception:
                self._forget(name)
                raise

    def _open(self) -> None:
        if not self.own:
            return
        variant, evaluation, dataset = self.c.variant.value, self.row["evaluation"], self.row["dataset"]
        episode = int(self.row["episode"])

        def work():
            yield 0.1, "Loading the network and computing the episode's features"
            from tcnaps.widgets import stepper  # needs PyTorch, which looking at results does not

            return stepper(self.study, variant=variant, evaluation=evaluation, dataset=dataset, episode=episode)

        def then(widget):
            title = f"<b>Stepper: {html.escape(f'{variant}, {evaluation}, {dataset}, episode {episode}')}</b>"
            bar = ipywidgets.HBox([ipywidgets.HTML(title), self.c.close])
            self.c.below.children = [bar, widget]

        self.opening.start(work, then)

    def _close(self) -> None:
        self.c.below.children = []

    def _reacting(self, reaction: Callable[[], object]) -> Callable[..., None]:
        """A callback that shows its errors, and ignores what the explorer does to its own controls."""

        def callback(_) -> None:
            with parts.LOCK:
                if not self._quiet:
                    with parts.guarded(self.notice):
                        reaction()

        return callback

    @contextmanager
    def _silently(self) -> Iterator[None]:
        before, self._quiet = self._quiet, True
        try:
            yield
        finally:
            self._quiet = before
