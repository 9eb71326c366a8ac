"""The soft k-means stepper: one episode, one refinement step at a time. It shows what `stepper_data` computes."""

import html
import math

from ipywidgets import BoundedIntText, FloatLogSlider, HBox, Layout, Play, VBox, jslink
from matplotlib.figure import Figure

from tcnaps.config import Study, UserError
from tcnaps.figures.style import style
from tcnaps_suite.widgets import stepper_data, stepper_figures, widget_base as ui
from tcnaps_suite.widgets.episode_table import at_step, liveliest
from tcnaps_suite.widgets.explorer_data import one_of, variants_of
from tcnaps_suite.widgets.pictures import PIXELS_PER_INCH, Picture, copied, image_address, saved

HIGHEST_EPISODE = 10**6  # episodes are drawn when they are asked for, so there is no last one
PLANE, CURVES = (580, 508), (345, 205)  # pixels of the figures
CARD = 144  # of an image on a card, twice as many as it has there
PLAYING = 1000  # milliseconds between two steps
EPISODE = ("variant", "evaluation", "dataset", "episode")  # the controls that choose what has to be loaded
QUERIES = [("changed at this step", "changed"), ("wrong after this step", "wrong"), ("all", "all")]


def stepper(
    study: Study,
    variant: str = "Transductive",
    evaluation: str | None = None,
    dataset: str | None = None,
    episode: int | None = None,
) -> "Stepper":
    """A widget to refine one episode step by step: any variant of the study, any episode, under any head.

    Run again with the same arguments, it is the same stepper with whatever was chosen in it.

    Args:
        evaluation: the one whose protocol draws the episode; None takes the study's first.
        dataset: None takes the evaluation's first.
        episode: None takes the one in which refinement changes the largest share of labels, as far as rows tell.

    Raises:
        UserError: there is no such variant, evaluation, dataset or episode.
    """
    evaluation = next(iter(study.evaluations)) if evaluation is None else evaluation
    one_of("variant", variant, variants_of(study.trainings))
    one_of("evaluation", evaluation, study.evaluations)
    datasets = study.evaluations[evaluation].datasets
    dataset = datasets[0] if dataset is None else dataset
    one_of("dataset", dataset, datasets)
    episode = liveliest(study, variant, evaluation, dataset) if episode is None else episode
    if not 0 <= episode <= HIGHEST_EPISODE:
        raise UserError(f"There is no episode {episode}: episodes are counted from 0 to {HIGHEST_EPISODE}.")
    return ui.shown_again(Stepper, study, variant, evaluation, dataset, episode)


class Stepper(ui.StudyWidget):
    """See `stepper`. A new one shows nothing before `load`.

    Attributes:
        features: of the episode that is shown, or None if it could not be loaded.
        trajectory: what refinement found in it.
    """

    kind, needs, arguments = "stepper", "checkpoints", EPISODE
    tooltips = {
        "episode": "The same number always gives the same images",
        "head": "How distances become responsibilities; 'means only' keeps the covariances of step 0",
        "identity_weight": "The weight of the identity in every covariance, the paper's beta",
        "scale": "A factor on squared distances in the softmax: the smaller, the softer; each head brings its own",
        "plane": "Two directions: those that best tell these classes apart, or those of the largest spread",
    }

    def __init__(self, study: Study, variant: str, evaluation: str, dataset: str, episode: int):
        super().__init__(study)
        self.features: stepper_data.ShownEpisode | None = None
        self.trajectory: stepper_data.Trajectory | None = None
        self._place = self._training = None  # what the step and the head were last set for
        self._arrange(variant, evaluation, dataset, episode)
        self.on(EPISODE, self.load)
        self.on(["head"], self._change_head)
        self.on(["identity_weight", "scale", "plane"], self._recompute)
        self.on(["save"], self._save)
        self.on(["copy"], self._copy)
        self.on(["minimum", "maximum", "step"], self._draw)
        self.on(["which", "mark"], self._list)
        targets = {
            "first": lambda: 0,
            "back": lambda: self.choice.step - 1,
            "forward": lambda: self.choice.step + 1,
            "converge": lambda: stepper_data.convergence(self.trajectory),
            "answer": self._answer_step,
        }
        for name, target in targets.items():
            self.on([name], lambda target=target: self._go_to(target))

    def shown(self) -> tuple[stepper_data.ShownEpisode, stepper_data.Trajectory]:
        """The episode's features and its trajectory.

        Raises:
            Exception: they could not be loaded; it is the error that the widget shows.
        """
        if self.features is None:
            raise self.error or UserError("No episode is shown: choose another one.")
        return self.features, self.trajectory

    def load(self) -> None:
        """Shows the episode that the controls name, after computing its features where necessary."""
        place = [self.controls[name].value for name in EPISODE]
        with self.loading(f"Computing the features of {place[2]}, episode {place[3]}"):
            found = self.features = stepper_data.features_of(self.study, *place)
        if self._place not in (None, found.place):
            self.put(step=0, mark=None)
        if self._training != found.variant.training:  # each training has its own head and identity_weight
            weight = float(found.head.identity_weight)
            self.put(head=stepper_data.head_name(found.head), identity_weight=weight)
            self._set_scale()
        self._place, self._training = found.place, found.variant.training
        self._legend.value = stepper_figures.legend(found.class_names)
        self._plane.images = [image_address(own, CARD) for own in (*found.support_images, *found.query_images)]
        self._about.value = html.escape(stepper_data.described(found))
        self._recompute()
        self._body.layout.display = ""

    def hide(self) -> None:
        """Shows nothing, as the episode could not be loaded."""
        self.features = self.trajectory = None
        self._body.layout.display = "none"
        self._about.value = ""
        self._status.value = html.escape("Nothing to show: see above what went wrong, or choose another episode.")

    def _arrange(self, variant, evaluation, dataset, episode):
        study, rule = self.study, self.study.refinement
        last, weight = rule.recorded_steps, math.log10(study.clustering.identity_weight)
        ends = {"min": min(-2.0, weight - 1), "max": max(2.0, weight + 1)}
        weights = FloatLogSlider(step=0.1, readout_format=".3g", continuous_update=False, **ends)
        tested = {name for own in study.evaluations.values() for name in own.datasets}
        datasets = [name for name in study.datasets if name in tested]
        place = self.add(
            variant=ui.menu("Variant", 205, variants_of(study.trainings), variant),
            evaluation=ui.menu("Evaluation", 245, list(study.evaluations), evaluation),
            dataset=ui.menu("Dataset", 185, datasets, dataset),
            episode=ui.styled(BoundedIntText(episode, 0, HIGHEST_EPISODE), "Episode", 130),
        )
        scales = FloatLogSlider(base=2, min=-8, max=4, step=0.5, readout_format=".3g", continuous_update=False)
        head = self.add(
            head=ui.menu("Head", 190, list(stepper_data.HEADS)),
            identity_weight=ui.styled(weights, "identity_weight", 300),
            scale=ui.styled(scales, "scale", 230),
        )
        rule = self.add(
            minimum=ui.slider("Minimum", 230, 0, last, rule.minimum_steps),
            maximum=ui.slider("Maximum", 230, 0, last, rule.maximum_steps),
            plane=ui.menu("Plane", 270, stepper_data.PLANES),
        )
        self._status, self._about, self._verdict, self._changes, self._legend, self._saved = (
            ui.text(f"tcnaps-{name}") for name in ("status", "about", "verdict", "changes", "legend", "saved")
        )
        above = place, head, ui.row(*rule.children, self.busy), self.notice, self._about, self._steps(last)
        self._body = self._pictures()
        keeping = self.add(**ui.saving("stepper"), copy=ui.button("Copy code", 110, "copy"))
        self.arrange(*above, self._status, self._body, keeping, self._saved)

    def _steps(self, last):
        buttons = self.add(
            first=ui.button("First", 72, "step-backward"),
            back=ui.button("Back", 72, "chevron-left"),
            forward=ui.button("Step", 72, "chevron-right"),
            converge=ui.button("To convergence", 140, "fast-forward"),
            answer=ui.button("To the answer", 130, "flag-checkered"),
        )
        slider = self.add(step=ui.slider("Step", 225, 0, last, 0, live=True))
        look = {"tooltip": "Play or pause; stop", "layout": {"width": "auto"}}
        play = Play(max=last, interval=PLAYING, show_repeat=False, **look)
        play.add_class("tcnaps-play")
        jslink((self.controls["step"], "value"), (play, "value"))
        return ui.row(*buttons.children, play, *slider.children)

    def _pictures(self):
        self._plane = Picture("tcnaps-plane-picture", *PLANE, (0.002, 0.002, 0.996, 0.996))
        self._curves = Picture("tcnaps-curves", *CURVES, (0.125, 0.245, 0.86, 0.65))
        which = self.add(which=ui.menu("Queries", 260, QUERIES))
        self.add(mark=self._plane)
        left = VBox([self._plane, self._legend], layout=_column("456px", "720px"))
        right = VBox([self._curves, self._verdict, which, self._changes], layout=_column("350px", "440px"))
        look = {"flex_flow": "row wrap", "grid_gap": "8px", "overflow": "visible", "display": "none"}
        return HBox([left, right], layout=Layout(**look))

    def _go_to(self, target):
        if self.trajectory is not None:
            self.controls["step"].value = min(max(target(), 0), self.controls["step"].max)

    def _answer_step(self) -> int:
        choice = self.choice
        return stepper_data.answer_step(self.features, self.trajectory, choice.minimum, choice.maximum)

    def _change_head(self):
        if self.features is not None:
            self._set_scale()
            self._recompute()

    def _set_scale(self):
        """The scale of the head that is chosen; one that is found without labels can't be moved."""
        scale, control = (
            stepper_data.HEADS[self.choice.head].get("scale", self.features.head.scale),
            self.controls["scale"],
        )
        control.disabled = scale == "auto"
        if scale != "auto":
            control.min, control.max = min(control.min, math.log2(scale)), max(control.max, math.log2(scale))
            self.put(scale=float(scale))

    def _recompute(self):
        if self.features is None:
            return
        choice = self.choice
        scale = None if self.controls["scale"].disabled else choice.scale
        head = stepper_data.with_head(self.features.head, choice.head, choice.identity_weight, scale)
        steps = self.study.refinement.recorded_steps
        self.trajectory = stepper_data.run(self.features, head, steps, choice.plane)
        self._draw()

    def _draw(self):
        if self.trajectory is None:
            return
        rows, view, steps = self.trajectory
        choice = self.choice
        step, limits = choice.step, (choice.minimum, choice.maximum)
        found, status = at_step(rows, step), stepper_data.status(self.trajectory, step)
        alt, cards = f"The episode's images and classes in a plane. {status}", stepper_figures.cards
        with self._plane.drawn(alt, view.points, cards(self.features, view, step, found)) as ax:
            stepper_figures.plane_step(ax, view, step, found)
        with self._curves.drawn(stepper_data.curves_in_words(steps)) as ax:
            stepper_figures.step_curves(ax, steps, step, self._answer_step(), *limits)
        self._verdict.value = html.escape(stepper_data.verdict(self.trajectory, *limits)[1])
        self._status.value = (
            '<div role="status" aria-live="polite" style="font-size:115%;font-weight:bold;line-height:1.5">'
            f"{html.escape(status)}</div>"
        )
        self._saved.value = ""
        self._list()

    def _list(self):
        if self.trajectory is None:
            return
        choice, support = self.choice, len(self.features.support_labels)
        marked = None if choice.mark is None or choice.mark < support else choice.mark - support
        found = at_step(self.trajectory.rows, choice.step)
        self._changes.value = stepper_figures.changes_table(self.features, found, choice.step, choice.which, marked)

    def figure(self) -> Figure:
        """Both pictures side by side, as on the page.

        Raises:
            UserError: nothing is shown.
        """
        if self.trajectory is None:
            raise UserError("Nothing is shown that could be saved: choose another episode first.")
        choice, width = self.choice, PLANE[0] + CURVES[0]
        (rows, view, steps), step = self.trajectory, choice.step
        with style():
            figure = Figure((width / PIXELS_PER_INCH, PLANE[1] / PIXELS_PER_INCH))
            figure.set_layout_engine("none")
            plane, curves = (
                figure.add_axes((start + left * share, low + bottom * high, wide * share, tall * high))
                for (left, bottom, wide, tall), start, share, low, high in (
                    (self._plane.place, 0, PLANE[0] / width, 0, 1),
                    (self._curves.place, PLANE[0] / width, CURVES[0] / width, 0.25, CURVES[1] / PLANE[1]),
                )
            )
            stepper_figures.plane_step(plane, view, step, at_step(rows, step))
            stepper_figures.step_curves(curves, steps, step, self._answer_step(), choice.minimum, choice.maximum)
        return figure

    def _save(self):
        self._saved.value = saved(self.figure(), self.study, self.choice.save_name)

    def _copy(self):
        self._saved.value = copied(self.code())


def _column(width: str, most: str) -> Layout:
    """Of the page: both fit side by side in a window of 1280 with the file browser open, and grow in a larger one."""
    return Layout(flex=f"1 1 {width}", max_width=most, min_width="0", overflow="visible")
