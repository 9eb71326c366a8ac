"""The soft k-means stepper: one episode, one refinement step at a time. It shows what `stepper_data` computes."""

import html
import math

from ipywidgets import BoundedIntText, FloatLogSlider, Layout, Play, VBox, jslink
from matplotlib.figure import Figure

from tcnaps.config import Study, UserError
from tcnaps.figures.style import style
from tcnaps_suite.experiments.study_episodes import ShownEpisode, features_of
from tcnaps_suite.widgets import stepper_data, stepper_figures, widget_base as ui
from tcnaps_suite.widgets.episode_table import at_step, most_improved
from tcnaps_suite.widgets.explorer_data import one_of, variants_of
from tcnaps_suite.widgets.pictures import on_page

HIGHEST_EPISODE = 10**6  # episodes are drawn on demand, so there is no last one
SIZE = 9.6, 4.5  # inches of the picture
PLANE, CURVES = (0.002, 0.002, 0.61, 0.996), (0.68, 0.17, 0.31, 0.72)  # left, bottom, width, height in the picture
PLAYING = 1000  # milliseconds between two steps
EPISODE = ("variant", "evaluation", "dataset", "episode")  # the controls that choose an episode's features
QUERIES = [("changed at this step", "changed"), ("wrong after this step", "wrong"), ("all", "all")]


def stepper(
    study: Study,
    variant: str = "Transductive",
    evaluation: str | None = None,
    dataset: str | None = None,
    episode: int | None = None,
    given: ShownEpisode | None = None,
) -> "Stepper":
    """A widget to refine one episode step by step: any variant of the study, any episode, under any head.

    By default: the evaluation of the fewest classes and shots, or else the first; its first dataset; and the episode in
    which refinement raises accuracy most, if there are rows. `given` is an episode of other images, to show alone.
    """
    if evaluation is None:
        fixed = study.evaluations_of([], "fixed")
        easiest = sorted(fixed, key=lambda name: (fixed[name].protocol.way, fixed[name].protocol.shot))
        evaluation = next(iter([*easiest, *study.evaluations]))
    one_of("variant", variant, variants_of(study.trainings))
    one_of("evaluation", evaluation, study.evaluations)
    datasets = study.evaluations[evaluation].datasets
    dataset = datasets[0] if dataset is None else dataset
    one_of("dataset", dataset, datasets)
    if episode is None:
        episode = 0 if given else most_improved(study, variant, evaluation, dataset)
    if not 0 <= episode <= HIGHEST_EPISODE:
        raise UserError(f"There is no episode {episode}: episodes are counted from 0 to {HIGHEST_EPISODE}.")
    return Stepper(study, (variant, evaluation, dataset, episode), given).loaded()


class Stepper(ui.StudyWidget):
    """See `stepper`. A new one shows nothing before `load`; `features` is None if an episode could not be loaded."""

    kind = "stepper"

    def __init__(self, study: Study, chosen: tuple[str, str, str, int], given: ShownEpisode | None = None):
        super().__init__(study)
        self._given = given
        self.features: ShownEpisode | None = None
        self.trajectory: stepper_data.Trajectory | None = None
        self._arrange(*chosen)

    @property
    def is_shown(self) -> bool:
        return self.trajectory is not None

    def shown(self) -> tuple[ShownEpisode, stepper_data.Trajectory]:
        """The episode and its refinement as they are shown; raises the error that the widget shows instead."""
        if self.error is not None:
            raise self.error
        return self.features, self.trajectory

    def load(self) -> None:
        choice, before = self.choice, self.features
        with self.loading("Loading the network and computing the episode's features"):
            features = self._given or features_of(self.study, *(getattr(choice, name) for name in EPISODE))
        self.features = features
        if before is None or before.place != features.place:
            self.put(step=0, query=None)
            with self.quietly():
                numbers = [(str(number), number) for number in range(len(features.query_labels))]
                self.controls["query"].options = [("none", None), *numbers]
        if before is None or before.variant.training != features.variant.training:
            # Each training has its own head and identity_weight.
            self.put(head=stepper_data.head_name(features.head), identity_weight=float(features.head.identity_weight))
            self._set_scale()
        self._legend.value = stepper_figures.legend(features.class_names)
        self._about.value = html.escape(stepper_data.described(features))
        self._recompute()
        self._body.layout.display = ""

    def hide(self) -> None:
        self.features = self.trajectory = None
        self._body.layout.display = "none"
        self._about.value = ""
        self._status.value = "Nothing is shown: see the error above, or choose another episode."

    def _arrange(self, variant, evaluation, dataset, episode):
        study, rule = self.study, self.study.refinement
        last, weight = rule.recorded_steps, math.log10(study.clustering.identity_weight)
        tested = {name for tests in study.evaluations.values() for name in tests.datasets}
        episodes = self.add(
            variant=(ui.menu("Variant", 205, variants_of(study.trainings), variant), self.load),
            evaluation=(ui.menu("Evaluation", 245, list(study.evaluations), evaluation), self.load),
            dataset=(ui.menu("Dataset", 185, [name for name in study.datasets if name in tested], dataset), self.load),
            episode=(ui.styled(BoundedIntText(episode, 0, HIGHEST_EPISODE), "Episode", 130), self.load),
        )
        if self._given:
            episodes.layout.display = "none"
        look = {"readout_format": ".3g", "continuous_update": False}
        weights = FloatLogSlider(step=0.1, min=min(-2.0, weight - 1), max=max(2.0, weight + 1), **look)
        scales = FloatLogSlider(base=2, min=-8, max=4, step=0.5, **look)
        head = self.add(
            head=(ui.menu("Head", 190, list(stepper_data.HEADS)), self._change_head),
            identity_weight=(ui.styled(weights, "identity_weight", 300), self._recompute),
            scale=(ui.styled(scales, "scale", 230), self._recompute),
        )
        limits = self.add(
            minimum=(ui.slider("Minimum", 230, 0, last, rule.minimum_steps), self._draw),
            maximum=(ui.slider("Maximum", 230, 0, last, rule.maximum_steps), self._draw),
        )
        steps = self._step_controls(last)
        queries = self.add(
            which=(ui.menu("Queries", 260, QUERIES), self._list),
            query=(ui.menu("Mark query", 180, [("none", None)]), self._draw),
        )
        self._status, self._about, self._verdict, self._legend = (
            ui.text(f"tcnaps-{name}") for name in ("status", "about", "verdict", "legend")
        )
        self._picture, self._table = (ui.text(f"tcnaps-{name}", "100%") for name in ("picture", "queries"))
        shown = self._picture, self._legend, self._verdict, queries, self._table
        self._body = VBox(shown, layout=Layout(display="none", overflow="visible"))
        above = episodes, head, ui.row(*limits.children, self.busy), self.notice, self._about, steps
        self.arrange(*above, self._status, self._body)

    def _step_controls(self, last):
        buttons = self.add(
            first=(ui.button("First", 72, "step-backward"), lambda: self._go_to(0)),
            back=(ui.button("Back", 72, "chevron-left"), lambda: self._go_to(self.choice.step - 1)),
            forward=(ui.button("Step", 72, "chevron-right"), lambda: self._go_to(self.choice.step + 1)),
            converge=(ui.button("To convergence", 140, "fast-forward"), lambda: self._go_to(self.trajectory.view.end)),
            answer=(ui.button("To the answer", 130, "flag-checkered"), lambda: self._go_to(self._answer_step())),
        )
        slider = self.add(step=(ui.slider("Step", 225, 0, last, 0, live=True), self._draw))
        play = Play(max=last, interval=PLAYING, show_repeat=False, tooltip="Play or pause; stop")
        play.layout.width = "auto"
        jslink((self.controls["step"], "value"), (play, "value"))
        return ui.row(*buttons.children, play.add_class("tcnaps-play"), *slider.children)

    def _go_to(self, step: int) -> None:
        slider = self.controls["step"]
        slider.value = min(max(step, 0), slider.max)

    def _answer_step(self) -> int:
        """Where the rule ends, or 0 where the variant does not refine."""
        stop, _ = stepper_data.verdict(self.trajectory, self.choice.minimum, self.choice.maximum)
        return stop if self.features.variant.refinement_at_test else 0

    def _change_head(self):
        self._set_scale()
        self._recompute()

    def _set_scale(self):
        """Shows the scale of the chosen head. One that is found without labels, or differs by step, can't be moved."""
        control = self.controls["scale"]
        scale = stepper_data.HEADS[self.choice.head].get("scale", self.features.head.scale)
        control.disabled = not isinstance(scale, float | int)
        if not control.disabled:
            control.min, control.max = min(control.min, math.log2(scale)), max(control.max, math.log2(scale))
            self.put(scale=float(scale))

    def _recompute(self):
        choice = self.choice
        scale = None if self.controls["scale"].disabled else choice.scale
        head = stepper_data.with_head(self.features.head, choice.head, choice.identity_weight, scale)
        self.trajectory = stepper_data.run(self.features, head, self.study.refinement.recorded_steps)
        self._draw()

    def _draw(self):
        choice = self.choice
        status = stepper_data.status(self.trajectory, choice.step)
        self._picture.value = on_page(self.figure(), f"The episode's images and classes in a plane. {status}")
        # After the picture that it describes.
        self._status.value = f'<div role="status" aria-live="polite">{html.escape(status)}</div>'
        self._verdict.value = html.escape(stepper_data.verdict(self.trajectory, choice.minimum, choice.maximum)[1])
        self._list()

    def _list(self):
        choice, (rows, view, _) = self.choice, self.trajectory
        queries = at_step(rows, choice.step)
        shown = self.features, view, choice.step, queries, choice.which, choice.query
        self._table.value = stepper_figures.query_table(*shown)

    def figure(self) -> Figure:
        choice, (rows, view, steps) = self.choice, self.trajectory
        with style():
            figure = Figure(SIZE)
            figure.set_layout_engine("none")  # measuring texts takes longer than drawing them
            plane, curves = figure.add_axes(PLANE), figure.add_axes(CURVES)
            stepper_figures.plane_step(plane, view, choice.step, at_step(rows, choice.step), choice.query)
            limits = choice.minimum, choice.maximum
            stepper_figures.step_curves(curves, steps, choice.step, self._answer_step(), *limits)
        return figure
