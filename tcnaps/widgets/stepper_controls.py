"""The stepper's controls, and what is chosen in them."""

import math
from dataclasses import dataclass

import ipywidgets
from ipywidgets import HBox, Layout, VBox

from tcnaps.config import Study
from tcnaps.config.networks import head_of
from tcnaps.method.variants import VARIANTS
from tcnaps.widgets import stepper_data as stepping
from tcnaps.widgets.widget_base import labelled

HIGHEST_EPISODE = 10**6  # episodes are drawn when they are asked for: there is no end to them


@dataclass(frozen=True)
class Choice:
    """Everything that can be chosen.

    Attributes:
        trained_for: the training whose head the switch was last set to.
        pictures: images in place of points.
        which: of the queries are in the table; see `stepping.changes`.
    """

    variant: str
    evaluation: str
    dataset: str
    episode: int
    trained_for: str
    head: str
    identity_weight: float
    minimum: int
    maximum: int
    plane: str = stepping.PLANES[0]
    pictures: bool = False
    which: str = "changed"
    step: int = 0

    @classmethod
    def of(cls, study: Study, variant: str, evaluation: str, dataset: str, episode: int) -> "Choice":
        """An episode at step 0, with the head of the variant's training and the study's stopping rule."""
        training, rule = VARIANTS[variant].training, study.refinement
        head = head_of(training, study.clustering)
        return cls(
            variant,
            evaluation,
            dataset,
            episode,
            training,
            stepping.head_name(head),
            float(head.identity_weight),
            rule.minimum_steps,
            rule.maximum_steps,
        )


class Controls:
    """Buttons, sliders and menus. `read` and `write` turn them into a choice and back."""

    def __init__(self, study: Study, variants: list[str], choice: Choice):
        self._study, last = study, study.refinement.recorded_steps
        menu, short = ipywidgets.Dropdown, {"continuous_update": False}
        weight = math.log10(study.clustering.identity_weight)

        self.variant = labelled(
            menu(options=variants, description="Variant"),
            "tcnaps-variant",
            "Which system of the paper: its networks make the features",
            "205px",
        )
        self.evaluation = labelled(
            menu(options=list(study.evaluations), description="Evaluation"),
            "tcnaps-evaluation",
            "Whose protocol draws the episode: way, shot and queries",
            "245px",
        )
        self.dataset = labelled(
            menu(options=[choice.dataset], description="Dataset"),
            "tcnaps-dataset",
            "Whose test classes the episode has",
            "185px",
        )
        self.episode = labelled(
            ipywidgets.BoundedIntText(min=0, max=HIGHEST_EPISODE, description="Episode"),
            "tcnaps-episode",
            "The same number is always the same images",
            "130px",
        )
        self.head = labelled(
            menu(options=list(stepping.HEADS), description="Head"),
            "tcnaps-head",
            "How distances become responsibilities; 'means only' leaves the covariances as step 0 has them",
            "190px",
        )
        self.identity_weight = labelled(
            ipywidgets.FloatLogSlider(
                base=10,
                min=min(-2.0, weight - 1),
                max=max(2.0, weight + 1),
                step=0.1,
                readout_format=".3g",
                description="identity_weight",
                **short,
            ),
            "tcnaps-identity-weight",
            "The weight of the identity in every covariance, the paper's beta",
            "300px",
        )
        self.minimum = labelled(
            ipywidgets.IntSlider(min=0, max=last, description="Minimum", **short),
            "tcnaps-minimum",
            "The stopping rule tests for convergence from this step on",
            "230px",
        )
        self.maximum = labelled(
            ipywidgets.IntSlider(min=0, max=last, description="Maximum", **short),
            "tcnaps-maximum",
            "The stopping rule ends here in any case",
            "230px",
        )
        self.plane = labelled(
            menu(options=list(stepping.PLANES), description="Plane"),
            "tcnaps-plane-choice",
            "Two directions: those that tell these classes apart best, or of the largest spread",
            "270px",
        )
        self.show = labelled(
            menu(options=[("points", False), ("pictures", True)], description="Show as"),
            "tcnaps-show",
            "Points, or the images themselves",
            "165px",
        )
        self.which = labelled(
            menu(
                options=[("changed at this step", "changed"), ("wrong after this step", "wrong"), ("all", "all")],
                description="Queries",
            ),
            "tcnaps-which",
            "Which queries the table lists",
            "260px",
        )

        self.first = _button("First", "step-backward", "tcnaps-first", "To step 0, the support set alone")
        self.back = _button("Back", "chevron-left", "tcnaps-back", "One step back")
        self.step = _button("Step", "chevron-right", "tcnaps-step", "One refinement step on")
        self.converge = _button(
            "To convergence", "fast-forward", "tcnaps-converge", "To the first step at which no label changes", "140px"
        )
        self.stop = _button(
            "To the answer", "flag-checkered", "tcnaps-answer", "To the step at which this variant answers", "130px"
        )
        self.slider = labelled(
            ipywidgets.IntSlider(min=0, max=last, description="Step"),
            "tcnaps-slider",
            "Which refinement step is shown",
            "270px",
        )

        self.of_episode = (self.variant, self.evaluation, self.dataset, self.episode)
        self.of_head = (self.head, self.identity_weight, self.plane)
        self.of_drawing = (self.minimum, self.maximum, self.show, self.which)
        self.episode_box = _row(*self.of_episode)
        self.head_box = VBox(
            [_row(self.head, self.identity_weight, self.plane), _row(self.show, self.minimum, self.maximum)]
        )
        self.steps = _row(self.first, self.back, self.step, self.converge, self.stop, self.slider)
        self.write(choice)

    def read(self, before: Choice) -> Choice:
        """What the controls say; the step and the training are those of before.

        Where another evaluation lacks the dataset, its first takes the place.
        """
        datasets = self._study.evaluations[self.evaluation.value].datasets
        return Choice(
            variant=self.variant.value,
            evaluation=self.evaluation.value,
            dataset=self.dataset.value if self.dataset.value in datasets else datasets[0],
            episode=self.episode.value,
            trained_for=before.trained_for,
            head=self.head.value,
            identity_weight=self.identity_weight.value,
            minimum=self.minimum.value,
            maximum=self.maximum.value,
            plane=self.plane.value,
            pictures=self.show.value,
            which=self.which.value,
            step=before.step,
        )

    def write(self, choice: Choice) -> None:
        """Makes the controls say it."""
        self.variant.value, self.evaluation.value = choice.variant, choice.evaluation
        datasets = self._study.evaluations[choice.evaluation].datasets
        if self.dataset.options != datasets:
            self.dataset.options = datasets
        self.dataset.value, self.episode.value = choice.dataset, choice.episode
        self.head.value, self.identity_weight.value = choice.head, choice.identity_weight
        self.minimum.value, self.maximum.value = choice.minimum, choice.maximum
        self.plane.value, self.show.value, self.which.value = choice.plane, choice.pictures, choice.which
        self.slider.value = choice.step


def _button(text, icon, css_class, tooltip, width="72px"):
    return labelled(ipywidgets.Button(description=text, icon=icon), css_class, tooltip, width)


def _row(*controls):
    return HBox(controls, layout=Layout(flex_flow="row wrap", overflow="visible", grid_gap="0 10px"))
