"""One episode under refinement, step by step: what the soft k-means stepper shows."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from tcnaps.evaluation.stopped_rows import recorded_predictions, stopping_step
from tcnaps.figures.clustering import PlaneView
from tcnaps.figures.tables import points
from tcnaps.method import clustering
from tcnaps.method.head import Head
from tcnaps_suite.experiments.study_episodes import ShownEpisode
from tcnaps_suite.widgets.episode_table import counted, refined, shots_in_words, steps_of
from tcnaps_suite.widgets.projection import view_in_plane

_MAHALANOBIS = {"metric": "mahalanobis", "log_determinant": False, "scale": 1.0, "update": "means and covariances"}
# The settings of a head that the stepper's menu changes. All others, such as identity_weight, stay the training's.
HEADS = {
    "Mahalanobis": _MAHALANOBIS,
    "log-determinant": _MAHALANOBIS | {"log_determinant": True, "scale": 0.5},
    "Euclidean": _MAHALANOBIS | {"metric": "euclidean"},
    "means only": _MAHALANOBIS | {"update": "means"},
    "as in the study": {},
}


class Trajectory(NamedTuple):
    """Refinement steps 0, …, T of one episode: rows as an evaluation records them, the plane, and `steps_of`."""

    rows: pd.DataFrame
    view: PlaneView
    steps: pd.DataFrame


def head_name(head: Head) -> str:
    return next(name for name, changes in HEADS.items() if replace(head, **changes) == head)


def with_head(head: Head, name: str, identity_weight: float | int, scale: float | None = None) -> Head:
    """A training's head with the settings `HEADS[name]`. Without a `scale`, that of the settings or head stays."""
    changes = HEADS[name] | ({} if scale is None else {"scale": float(scale)})
    return replace(head, **changes, identity_weight=float(identity_weight))


def run(features: ShownEpisode, head: Head | None = None, steps: int = 10) -> Trajectory:
    """Refines an episode with a head, by default its training's, and projects it to a plane."""
    head = head or features.head
    sets = features.support_features, features.support_labels, features.query_features
    responsibilities = clustering.trajectory(*sets, head=head, steps=steps).softmax(2)  # (steps + 1, n_query, way)
    confidences, predictions = (values.numpy() for values in responsibilities.max(2))
    labels = features.query_labels.numpy()
    rows = {"query": np.arange(len(labels)), "label": labels, "class_name": [features.class_names[k] for k in labels]}
    rows |= {f"prediction_{step}": values for step, values in enumerate(predictions)}
    rows |= {f"confidence_{step}": values for step, values in enumerate(confidences)}
    rows = pd.DataFrame(rows)
    return Trajectory(rows, view_in_plane(*sets, responsibilities, head), steps_of(rows))


def verdict(trajectory: Trajectory, minimum: int, maximum: int) -> tuple[int, str]:
    """The step at which the stopping rule ends the episode's refinement, and the reason."""
    step = stopping_step(recorded_predictions(trajectory.rows).T, minimum, maximum)
    changed, accuracy = int(trajectory.steps["changed"][step]), 100 * trajectory.steps["accuracy"]
    if step == 0:
        reason = "it does not refine at all"
    elif changed:
        reason = f"the maximum, though {counted(changed, 'label')} still changed there"
    else:
        reason = "no label changed there"
    return step, (
        f"With minimum {minimum} and maximum {maximum} the rule stops at step {step}: {reason}. Accuracy there: "
        f"{accuracy[step]:.1f}% ({points((accuracy[step] - accuracy[0]) / 100)} points from step 0)."
    )


def status(trajectory: Trajectory, step: int) -> str:
    facts = trajectory.steps.loc[step]
    event = f"{counted(int(facts['changed']), 'label')} changed" if step else "classes of the support set"
    return (
        f"Step {step} of {len(trajectory.steps) - 1} · {event} · accuracy {100 * facts['accuracy']:.1f}% · "
        f"mean confidence {100 * facts['mean_confidence']:.1f}%"
    )


def described(features: ShownEpisode) -> str:
    (evaluation, dataset, number), variant = features.place, features.variant
    size = f"{len(features.class_names)}-way, {shots_in_words(features.support_labels.bincount().tolist())}"
    episode = f"{dataset}, {evaluation}, episode {number}: {size}, {len(features.query_labels)} queries."
    if variant.refinement_at_test:
        return f"{episode} {variant.name} answers where the stopping rule ends."
    return (
        f"{episode} {variant.name} does not refine: its answer is step 0. The further steps show what refinement would "
        f"do: {refined(variant.name)}, with the same networks."
    )
