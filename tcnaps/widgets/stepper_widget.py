"""The soft k-means stepper: one episode, one refinement step at a time. It draws what `tcnaps.widgets.stepper_data` computes."""

import base64
import html
from dataclasses import dataclass, replace
from io import BytesIO

import numpy as np
from ipywidgets import HTML, HBox, Layout, VBox
from PIL import Image

from tcnaps.config import Study
from tcnaps.figures.style import BLUE, VERMILLION
from tcnaps.widgets import stepper_data as stepping, stepper_figures as stepping_figures, widget_base as parts
from tcnaps.widgets.episode_features import EpisodeFeatures, FeatureCache, check_names, variants_of
from tcnaps.widgets.episode_figures import letter, shortened
from tcnaps.widgets.keyboard import keys
from tcnaps.widgets.stepper_controls import Choice, Controls

PLANE = (456, 400)  # pixels on the page: side by side on one 1280 wide, with the file browser open
CURVES = (345, 205)
MOST_ROWS = 60  # of the table
CELL = "padding:1px 7px 1px 0;text-align:left;vertical-align:top"
SIGNS = {
    "became right": ("✓", BLUE),
    "became wrong": ("✗", VERMILLION),
    "still wrong": ("✗", VERMILLION),
    "wrong": ("✗", VERMILLION),
    "right": ("✓", BLUE),
}


def stepper(
    study: Study,
    variant: str = "Transductive",
    evaluation: str | None = None,
    dataset: str | None = None,
    episode: int = 0,
) -> "Stepper":
    """A widget to refine one episode step by step: any variant of the study, any episode, under any head.

    Run again with the same arguments, it shows what it showed.

    Args:
        evaluation: whose protocol draws the episode; None takes the study's first.
        dataset: None takes the evaluation's first.

    Raises:
        ValueError: there is no such variant, evaluation, dataset or episode; the message names what there is.
    """
    evaluation = next(iter(study.evaluations)) if evaluation is None else evaluation
    if dataset is None:
        dataset = study.evaluations[evaluation].datasets[0] if evaluation in study.evaluations else ""
    check_names(study, variant, evaluation, dataset, episode)
    key = parts.study_key(study), variant, evaluation, dataset, episode
    return Stepper(
        study,
        parts.kept(
            "stepper", key, lambda: _State(FeatureCache(study), Choice.of(study, variant, evaluation, dataset, episode))
        ),
    )


@dataclass
class _State:
    """What outlives a cell: what was chosen last, and what was loaded for it."""

    store: FeatureCache
    choice: Choice


class Stepper(VBox):
    """See `stepper`.

    Attributes:
        material: the episode that is shown, or None if it could not be loaded.
        trajectory: what refinement found in it.
        choice: what is chosen in the controls.
    """

    def __init__(self, study: Study, state: _State):
        self.study, self._state, self.choice = study, state, state.choice
        self.material: EpisodeFeatures | None = None
        self.trajectory: stepping.Trajectory | None = None
        self.notice, self._quiet = parts.Notice(), False
        self.work = parts.Work(self.notice)
        self.controls = Controls(study, variants_of(study), state.choice)
        self._status = _place("tcnaps-status")
        self._about = _place("tcnaps-about")
        self._verdict = _place("tcnaps-verdict")
        self._changes = _place("tcnaps-changes")
        self._plane = parts.image("tcnaps-plane")
        self._legend = parts.image("tcnaps-legend")
        self._curves = parts.image("tcnaps-curves")
        narrow = Layout(width=f"{CURVES[0] + 8}px", margin="0 0 0 8px", overflow="visible")
        below = VBox([self._plane, self._legend], layout=Layout(width=f"{PLANE[0] + 4}px", overflow="visible"))
        beside = VBox([self._curves, self._verdict, self.controls.which, self._changes], layout=narrow)
        self._body = HBox([below, beside], layout=Layout(flex_flow="row wrap", overflow="visible", display="none"))
        super().__init__(
            [
                self.controls.episode_box,
                self.work,
                self.notice,
                self.controls.head_box,
                self._about,
                self.controls.steps,
                self._status,
                self._body,
                keys(),
            ]
        )
        self.add_class("tcnaps-stepper")
        self._listen()
        self._load(threaded=False)

    def show_episode(self, variant: str, evaluation: str, dataset: str, episode: int) -> None:
        """Goes to another episode, at step 0, as choosing it in the controls does.

        Raises:
            ValueError: there is no such variant, evaluation, dataset or episode; the message names what there is.
        """
        check_names(self.study, variant, evaluation, dataset, episode)
        with parts.guarded(self.notice):
            self._set(replace(self.choice, variant=variant, evaluation=evaluation, dataset=dataset, episode=episode))
            self._load()

    def go_to(self, step: int) -> None:
        """Shows another step."""
        with parts.guarded(self.notice):
            self._go_to(step)

    def _listen(self):
        controls = self.controls
        for control in controls.of_episode:
            control.observe(self._episode_chosen, "value")
        for control in controls.of_head:
            control.observe(self._head_chosen, "value")
        for control in controls.of_drawing:
            control.observe(self._drawing_chosen, "value")
        controls.slider.observe(lambda change: None if self._quiet else self.go_to(change["new"]), "value")
        moves = {
            controls.first: lambda: 0,
            controls.back: lambda: self.choice.step - 1,
            controls.step: lambda: self.choice.step + 1,
            controls.converge: lambda: stepping.convergence(self.trajectory).step,
            controls.stop: lambda: self._answer(),
        }
        for button, target in moves.items():
            button.on_click(lambda _, target=target: self._move(target))

    def _move(self, target):
        with parts.guarded(self.notice):
            if self.trajectory is not None:
                self._go_to(target())

    def _go_to(self, step):
        if self.trajectory is None:
            return
        self._set(replace(self.choice, step=min(max(step, 0), self.trajectory.last)))
        self._draw()

    def _episode_chosen(self, change):
        if not self._quiet:
            with parts.guarded(self.notice):
                self._set(self.controls.read(self.choice))  # another evaluation may have other datasets
                self._load()

    def _head_chosen(self, change):
        if not self._quiet:
            with parts.guarded(self.notice):
                self._set(self.controls.read(self.choice))
                self._recompute()

    def _drawing_chosen(self, change):
        if not self._quiet:
            with parts.guarded(self.notice):
                self._set(self.controls.read(self.choice))
                self._draw(legend=True)

    def _set(self, choice):
        """Notes a choice and makes the controls show it, without their calling back."""
        self.choice = self._state.choice = choice  # the last view's is what a new view starts with
        self._quiet = True
        try:
            self.controls.write(choice)
        finally:
            self._quiet = False

    def _load(self, threaded=True):
        asked = self.choice
        place = asked.variant, asked.evaluation, asked.dataset, asked.episode
        self.work.start(lambda: self._state.store.material(*place), self._loaded, self._as_it_is_shown, threaded)
        if self.material is None and not self.work.busy:
            self._status.value = _line("Nothing to show yet: see above what went wrong, or choose another episode.")

    def _loaded(self, material):
        before, self.material = self.material, material
        self._body.layout.display = ""
        choice = self.choice
        if before is not None and _place_of(before) != _place_of(material):
            choice = replace(choice, step=0)
        if choice.trained_for != material.variant.training:  # another training: its own head and identity_weight
            choice = replace(
                choice,
                trained_for=material.variant.training,
                head=stepping.head_name(material.head) or choice.head,
                identity_weight=float(material.head.identity_weight),
            )
        self._set(choice)
        self._recompute(legend=True)

    def _as_it_is_shown(self):
        """After a cancellation or an error: the controls name again what is shown."""
        if self.material is not None:
            own = self.material
            self._set(
                replace(
                    self.choice,
                    variant=own.variant.name,
                    evaluation=own.evaluation,
                    dataset=own.dataset,
                    episode=own.episode,
                )
            )

    def _recompute(self, legend=False):
        if self.material is None:
            return
        choice = self.choice
        head = stepping.with_head(self.material.head, choice.head, choice.identity_weight)
        steps = self.study.refinement.recorded_steps
        self.trajectory = stepping.run(self.material, head, steps, choice.plane)
        self._draw(legend)

    def _answer(self):
        return stepping.answer_step(self.material, self.trajectory, self.choice.minimum, self.choice.maximum)

    def _draw(self, legend=False):
        if self.material is None:
            return
        material, found, choice = self.material, self.trajectory, self.choice
        pictures = np.concatenate([material.support_images, material.query_images]) if choice.pictures else None
        with parts.drawing():
            figure = parts.new_figure(*PLANE)
            figure.set_layout_engine("none")  # measuring texts takes longer than drawing them
            ax = figure.add_axes((0.002, 0.002, 0.996, 0.996))
            stepping_figures.plane_step(
                ax,
                found.view,
                choice.step,
                found.labels[choice.step],
                found.right[choice.step],
                found.changed[choice.step],
                pictures,
            )
            parts.put(self._plane, figure)
            figure = parts.new_figure(*CURVES)
            figure.set_layout_engine("none")
            ax = figure.add_axes((0.125, 0.245, 0.86, 0.65))
            stepping_figures.step_curves(
                ax, stepping.curves(found), choice.step, self._answer(), choice.minimum, choice.maximum
            )
            parts.put(self._curves, figure)
            if legend:
                figure = parts.new_figure(PLANE[0], stepping_figures.legend_height(material.class_names))
                figure.set_layout_engine("none")
                stepping_figures.plane_legend(
                    figure,
                    material.class_names,
                    stepping_figures.drawn_as_pictures(len(found.view.points), choice.pictures),
                )
                parts.put(self._legend, figure)
        rule = stepping.verdict(found, choice.minimum, choice.maximum)
        self._verdict.value = _line(f"{rule.words} {stepping.convergence(found).words}")
        self._about.value = _line(f"{stepping.described(material)} {stepping.about(material.variant)}")
        self._changes.value = changes_table(material, found, choice.step, choice.which)
        self._status.value = (
            '<div role="status" aria-live="polite" style="font-size:115%;font-weight:bold;line-height:1.5">'
            f"{html.escape(stepping.status(found, choice.step))}</div>"
        )


def changes_table(material: EpisodeFeatures, trajectory: stepping.Trajectory, step: int, which: str) -> str:
    """The queries that changed (or are wrong, or all), with picture, classes, confidence and outcome, as HTML."""
    frame = stepping.changes(material, trajectory, step, which)
    if frame.empty:
        none = {"changed": "No label changed at this step.", "wrong": "No query is wrong after this step."}
        first = step == 0 and which == "changed"
        return _line("Step 0 is the first: nothing has changed yet." if first else none.get(which, "No query."))
    rows = []
    for row in frame.head(MOST_ROWS).itertuples():
        sign, colour = SIGNS[row.outcome]
        before = "–" if row.before < 0 else f"{_class(material, row.before)}<br>{row.confidence_before:.2f}"
        cells = (
            f'<img alt="query image {row.query}" src="{_thumbnail(material, row.query)}" '
            f'style="width:30px;height:30px;max-width:none"><br>{row.query}',
            _class(material, row.true),
            before,
            f"{_class(material, row.after)}<br>{row.confidence_after:.2f}",
            f'<span style="color:{colour};font-weight:bold">{sign}&nbsp;{row.outcome}</span>',
        )
        rows.append("<tr>" + "".join(f'<td style="{CELL}">{cell}</td>' for cell in cells) + "</tr>")
    more = f"<p>… and {len(frame) - MOST_ROWS} more</p>" if len(frame) > MOST_ROWS else ""
    names = ("Query", "True", "Before", "After", "Outcome")
    heads = "".join(f'<th scope="col" style="{CELL}">{name}</th>' for name in names)
    return (
        '<div tabindex="0" role="region" aria-label="Queries" style="max-height:290px;overflow:auto;line-height:1.25">'
        f'<table style="font-size:90%;border-spacing:0 3px;border-collapse:separate"><thead><tr>{heads}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table>{more}</div>"
    )


def _class(material, label):
    name = material.class_names[label]
    return f'<span title="{html.escape(name)}">{letter(int(label))}:&nbsp;{html.escape(shortened(name, 16))}</span>'


def _thumbnail(material, query):
    buffer = BytesIO()
    image = Image.fromarray(material.query_images[query])
    image.thumbnail((60, 60))
    image.save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def _place(css_class):
    place = HTML(layout=Layout(overflow="visible"))
    place.add_class(css_class)
    return place


def _line(text):
    return f'<div style="line-height:1.4">{html.escape(text)}</div>'


def _place_of(material):
    return material.evaluation, material.dataset, material.episode
