"""The soft k-means stepper: one episode, one refinement step at a time. It shows what `stepper_data` computes."""

import html
import math
from collections.abc import Sequence
from types import SimpleNamespace

from ipywidgets import BoundedIntText, FloatLogSlider, HBox, Layout, VBox

from tcnaps.config import Study, UserError
from tcnaps.figures.style import BLUE, VERMILLION, style
from tcnaps.widgets import stepper_data, stepper_figures, widget_base as ui
from tcnaps.widgets.episode_table import letter, liveliest, shortened
from tcnaps.widgets.explorer_data import one_of, variants_of
from tcnaps.widgets.pictures import Picture, chips, image_address, named, new_figure

HIGHEST_EPISODE = 10**6  # episodes are drawn when they are asked for, so there is no last one
PLANE = (456, 400)  # pixels on the page: both pictures fit side by side in a window of 1280, with the file browser open
CURVES = (345, 205)
MOST_ROWS, HEADS = 60, ("Query", "True", "Before", "After", "Outcome")  # of the table
EPISODE = ("variant", "evaluation", "dataset", "episode")  # the controls that choose what has to be loaded
QUERIES = [("changed at this step", "changed"), ("wrong after this step", "wrong"), ("all", "all")]
TOOLTIPS = {
    "episode": "The same number always gives the same images",
    "head": "How distances become responsibilities; 'means only' keeps the covariances of step 0",
    "identity_weight": "The weight of the identity in every covariance, the paper's beta",
    "plane": "Two directions: those that best tell these classes apart, or those of the largest spread",
}


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

    kind, needs = "stepper", "checkpoints"

    def __init__(self, study: Study, variant: str, evaluation: str, dataset: str, episode: int):
        super().__init__(study)
        self.features: stepper_data.EpisodeFeatures | None = None
        self.trajectory: stepper_data.Trajectory | None = None
        self._place = self._training = None  # what the step and the head were last set for
        self._add_controls(variant, evaluation, dataset, episode)
        self._status, self._about, self._verdict, self._changes, self._legend = (
            ui.text(f"tcnaps-{name}") for name in ("status", "about", "verdict", "changes", "legend")
        )
        self._plane, self._curves = Picture("tcnaps-plane-picture"), Picture("tcnaps-curves")
        self._arrange()
        self.on(EPISODE, self._choose_episode)
        self.on(["head", "identity_weight", "plane"], self._recompute)
        self.on(["minimum", "maximum", "which", "step"], self._draw)
        targets = {
            "first": lambda: 0,
            "back": lambda: self.choice.step - 1,
            "forward": lambda: self.choice.step + 1,
            "converge": lambda: stepper_data.convergence(self.trajectory).step,
            "answer": self._answer_step,
        }
        for name, target in targets.items():
            self.on([name], lambda target=target: None if self.trajectory is None else self.go_to(target()))

    def shown(self) -> tuple[stepper_data.EpisodeFeatures, stepper_data.Trajectory]:
        """The episode's features and its trajectory.

        Raises:
            Exception: they could not be loaded; it is the error that the widget shows.
        """
        if self.features is None:
            raise self.notice.error or UserError("No episode is shown: choose another one.")
        return self.features, self.trajectory

    @property
    def choice(self) -> SimpleNamespace:
        """What is chosen in the controls, by their names."""
        return SimpleNamespace(**self.values())

    def load(self) -> None:
        """Shows the episode that the controls name, after computing its features where necessary."""
        place = [self.controls[name].value for name in EPISODE]
        with self.loading(f"Computing the features of {place[2]}, episode {place[3]}"):
            found = self.features = stepper_data.features_of(self.study, *place)
        with self.quietly():
            if self._place not in (None, found.place):
                self.controls["step"].value = 0
            if self._training != found.variant.training:  # each training has its own head and identity_weight
                self.controls["head"].value = stepper_data.head_name(found.head) or self.controls["head"].value
                self.controls["identity_weight"].value = float(found.head.identity_weight)
        self._place, self._training = found.place, found.variant.training
        self._legend.value = legend(found.class_names)
        self._recompute()
        self._body.layout.display = ""

    def hide(self) -> None:
        """Shows nothing, as the episode could not be loaded."""
        self.features = self.trajectory = None
        self._body.layout.display = "none"
        self._about.value = ""
        self._status.value = ui.words("Nothing to show: see above what went wrong, or choose another episode.")

    def go_to(self, step: int) -> None:
        """Shows another step, the first or the last one if there is no such step."""
        self.controls["step"].value = min(max(step, 0), self.trajectory.last)

    def _answer_step(self) -> int:
        choice = self.choice
        return stepper_data.answer_step(self.features, self.trajectory, choice.minimum, choice.maximum)

    def _add_controls(self, variant, evaluation, dataset, episode):
        study, rule = self.study, self.study.refinement
        last, weight = rule.recorded_steps, math.log10(study.clustering.identity_weight)
        weights = FloatLogSlider(
            min=min(-2.0, weight - 1), max=max(2.0, weight + 1), step=0.1, readout_format=".3g", continuous_update=False
        )
        controls = {
            "variant": ui.menu("Variant", 205, variants_of(study.trainings), variant),
            "evaluation": ui.menu("Evaluation", 245, list(study.evaluations), evaluation),
            "dataset": ui.menu("Dataset", 185, study.evaluations[evaluation].datasets, dataset),
            "episode": ui.styled(BoundedIntText(episode, 0, HIGHEST_EPISODE), "Episode", 130),
            "head": ui.menu("Head", 190, list(stepper_data.HEADS)),
            "identity_weight": ui.styled(weights, "identity_weight", 300),
            "plane": ui.menu("Plane", 270, stepper_data.PLANES),
            "minimum": ui.slider("Minimum", 230, 0, last, rule.minimum_steps),
            "maximum": ui.slider("Maximum", 230, 0, last, rule.maximum_steps),
            "first": ui.button("First", 72, "step-backward"),
            "back": ui.button("Back", 72, "chevron-left"),
            "forward": ui.button("Step", 72, "chevron-right"),
            "converge": ui.button("To convergence", 140, "fast-forward"),
            "answer": ui.button("To the answer", 130, "flag-checkered"),
            "step": ui.slider("Step", 270, 0, last, 0, live=True),
            "which": ui.menu("Queries", 260, QUERIES),
        }
        self.add(controls, TOOLTIPS)

    def _arrange(self):
        c = self.controls
        narrow = Layout(width=f"{CURVES[0] + 8}px", margin="0 0 0 8px", overflow="visible")
        left = VBox([self._plane, self._legend], layout=Layout(width=f"{PLANE[0] + 4}px", overflow="visible"))
        right = VBox([self._curves, self._verdict, c["which"], self._changes], layout=narrow)
        self._body = HBox([left, right], layout=Layout(flex_flow="row wrap", overflow="visible", display="none"))
        chosen = ui.row(*(c[name] for name in EPISODE)), ui.row(c["head"], c["identity_weight"], c["plane"])
        steps = ui.row(*(c[name] for name in ("first", "back", "forward", "converge", "answer", "step")))
        above = *chosen, ui.row(c["minimum"], c["maximum"], self.busy), self.notice, self._about, steps
        self.children = [*above, self._status, self._body, ui.keys_and_look()]

    def _choose_episode(self):
        with self.quietly():
            ui.offer(self.controls["dataset"], self.study.evaluations[self.controls["evaluation"].value].datasets)
        self.load()

    def _recompute(self):
        if self.features is None:
            return
        choice = self.choice
        head = stepper_data.with_head(self.features.head, choice.head, choice.identity_weight)
        steps = self.study.refinement.recorded_steps
        self.trajectory = stepper_data.run(self.features, head, steps, choice.plane)
        self._draw()

    def _draw(self):
        if self.trajectory is None:
            return
        features, found, choice = self.features, self.trajectory, self.choice
        step, limits = choice.step, (choice.minimum, choice.maximum)
        with style():
            figure, ax = new_figure(*PLANE, (0.002, 0.002, 0.996, 0.996))
            stepper_figures.plane_step(ax, found.view, step, found.labels[step], found.right[step], found.changed[step])
            self._plane.put(figure)
            figure, ax = new_figure(*CURVES, (0.125, 0.245, 0.86, 0.65))
            stepper_figures.step_curves(ax, stepper_data.curves(found), step, self._answer_step(), *limits)
            self._curves.put(figure)
        rule = stepper_data.verdict(found, *limits)
        self._verdict.value = ui.words(f"{rule.words} {stepper_data.convergence(found).words}")
        self._about.value = ui.words(f"{stepper_data.described(features)} {stepper_data.about(features.variant)}")
        self._changes.value = changes_table(features, found, step, choice.which)
        self._status.value = (
            '<div role="status" aria-live="polite" style="font-size:115%;font-weight:bold;line-height:1.5">'
            f"{html.escape(stepper_data.status(found, step))}</div>"
        )


def legend(names: Sequence[str]) -> str:
    """As HTML: the classes' letters and names, and the meaning of the plane's symbols."""
    classes = " &nbsp; ".join(f"{chip} {html.escape(shortened(name))}" for chip, name in zip(chips(names), names))
    symbols = "● right &nbsp; ■ wrong &nbsp; ★ support &nbsp; ◯ label changed &nbsp; ✖ class mean"
    return f'<div class="xwords" style="font-size:12px">{symbols}<br>{classes}</div>'


def changes_table(
    features: stepper_data.EpisodeFeatures, trajectory: stepper_data.Trajectory, step: int, which: str
) -> str:
    """As HTML: the queries that changed (or are wrong, or all), with image, classes, confidence and outcome."""
    frame = stepper_data.changes(features, trajectory, step, which)
    if frame.empty:
        return ui.words(
            {"changed": "No label changed at this step.", "wrong": "No query is wrong after this step."}[which]
        )
    rows = [_cells(features, query) for query in frame.head(MOST_ROWS).itertuples()]
    more = ui.words(f"… and {len(frame) - MOST_ROWS} more") if len(frame) > MOST_ROWS else ""
    return ui.table(HEADS, rows, 290) + more


def _cells(features, query):
    def of_class(label):
        return f"{letter(int(label))}:&nbsp;{named(features.class_names[label], 16)}"

    address = image_address(features.query_images[query.query])
    right = query.outcome in ("became right", "right")
    return (
        f'<img alt="query image {query.query}" src="{address}" style="width:30px;height:30px;max-width:none"><br>'
        f"{query.query}",
        of_class(query.true),
        "–" if query.before < 0 else f"{of_class(query.before)}<br>{query.confidence_before:.2f}",
        f"{of_class(query.after)}<br>{query.confidence_after:.2f}",
        f'<span style="color:{BLUE if right else VERMILLION};font-weight:bold">{"✓" if right else "✗"}&nbsp;'
        f"{query.outcome}</span>",
    )
