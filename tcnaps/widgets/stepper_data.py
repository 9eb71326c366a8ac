"""One episode under refinement, step by step: what the soft k-means stepper shows.

`features_of` computes an episode's features, `run` refines them under any head, `changes` says what a step did, and
`verdict` where the stopping rule ends.
"""

from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from tcnaps.config import Study
from tcnaps.datasets import open_split
from tcnaps.episodes.loading import load_episode
from tcnaps.episodes.sampling import draw_episode
from tcnaps.evaluation.projection import PlaneView, discriminative_plane, principal_plane, project
from tcnaps.method.clustering import one_hot, refinement_steps
from tcnaps.method.head import Head
from tcnaps.method.stopping import stopping_step
from tcnaps.method.variants import VARIANTS, Variant
from tcnaps.training.checkpoints import backbone_file, checkpoint_folder, load_model
from tcnaps.widgets.episode_table import counted, refined, shots_in_words
from tcnaps.widgets.explorer_data import stamp_of
from tcnaps.widgets.widget_base import kept

_MAHALANOBIS = {"metric": "mahalanobis", "log_determinant": False, "scale": 1.0, "update": "means and covariances"}
# What the stepper's menu changes of a head; the rest, the identity_weight among it, stays the training's.
HEADS = {
    "Mahalanobis": _MAHALANOBIS,
    "log-determinant": _MAHALANOBIS | {"log_determinant": True, "scale": 0.5},
    "Euclidean": _MAHALANOBIS | {"metric": "euclidean"},
    "means only": _MAHALANOBIS | {"update": "means"},
}
OUTCOMES = ("became right", "became wrong", "still wrong", "wrong", "right")  # of a query at a step
PLANES = ("classes after the last step", "classes after step 0", "true classes", "principal components")


@dataclass(frozen=True)
class EpisodeFeatures:
    """An episode's features and what is needed to show them. Class k is `class_names[k]`.

    Attributes:
        evaluation: its name in the study.
        episode: its number. The same number always gives the same images.
        head: the training's, with the study's settings.
        query_images: RGB.
    """

    variant: Variant
    evaluation: str
    dataset: str
    episode: int
    class_names: tuple[str, ...]
    support_features: Float[Tensor, "n_support d"]
    support_labels: Int[Tensor, "n_support"]
    query_features: Float[Tensor, "n_query d"]
    query_labels: Int[Tensor, "n_query"]
    query_images: UInt8[np.ndarray, "n_query height width 3"]
    head: Head

    @property
    def place(self) -> tuple[str, str, int]:
        """Which episode it is: evaluation, dataset and number."""
        return self.evaluation, self.dataset, self.episode


def features_of(study: Study, variant: str, evaluation: str, dataset: str, episode: int) -> EpisodeFeatures:
    """An episode's features under a variant's networks. Networks that have been trained again are loaded again.

    Raises:
        CheckpointError: the variant's network is not trained yet, or was trained on another backbone.
    """
    training = VARIANTS[variant].training
    network = training, stamp_of([backbone_file(study), checkpoint_folder(study) / f"{training}.safetensors"])
    model = kept("network", study, network, lambda: load_model(study, training))
    place = evaluation, dataset, episode
    features = kept("features", study, (network, place), lambda: _computed(study, model, VARIANTS[variant], *place))
    return replace(features, variant=VARIANTS[variant])


def _computed(study, model, variant, evaluation, dataset, episode):
    source = open_split(study, dataset, "test")
    draw = draw_episode(source, study.evaluations[evaluation].protocol, study.seed, episode)
    with torch.no_grad():
        support, labels, query, _ = model.features(loaded := load_episode(source, draw))
    return EpisodeFeatures(
        variant=variant,
        evaluation=evaluation,
        dataset=dataset,
        episode=episode,
        class_names=tuple(source.class_names[k] for k in draw.classes),
        support_features=support,
        support_labels=labels,
        query_features=query,
        query_labels=loaded.query_labels,
        query_images=source.images[draw.query_images],
        head=model.head,
    )


@dataclass(frozen=True)
class Trajectory:
    """What refinement steps 0, …, T found in one episode.

    Attributes:
        view: the same in a plane.
        labels, confidences: each query's most probable class and its responsibility.
        right: whether that is the query's class.
        accuracy, mean_confidence: in [0, 1].
        changed: whether the query's label differs from the step before; never at step 0.
    """

    view: PlaneView
    responsibilities: Float[np.ndarray, "n_steps n_query way"]
    labels: Int[np.ndarray, "n_steps n_query"]
    confidences: Float[np.ndarray, "n_steps n_query"]
    right: Bool[np.ndarray, "n_steps n_query"]
    accuracy: Float[np.ndarray, "n_steps"]
    mean_confidence: Float[np.ndarray, "n_steps"]
    changed: Bool[np.ndarray, "n_steps n_query"]

    @property
    def last(self) -> int:
        """The number of the last step, T."""
        return len(self.labels) - 1


class Verdict(NamedTuple):
    """Where the stopping rule ends, and why, in words."""

    step: int
    words: str


def head_name(head: Head) -> str | None:
    """The name in `HEADS` of a head's settings; None for others."""
    return next((name for name, changes in HEADS.items() if replace(head, **changes) == head), None)


def with_head(head: Head, name: str, identity_weight: float | int) -> Head:
    """A training's head with the settings of another.

    Args:
        name: of `HEADS`.

    Raises:
        ValueError: the identity_weight is not above 0.
    """
    return replace(head, **HEADS[name], identity_weight=float(identity_weight))


def run(features: EpisodeFeatures, head: Head | None = None, steps: int = 10, plane: str = PLANES[0]) -> Trajectory:
    """Refines one episode.

    Args:
        head: default: that of the training.
        plane: of `PLANES`: the two directions that best tell these classes apart, or those of the largest spread.
    """
    head = head or features.head
    sets = features.support_features, features.support_labels, features.query_features
    found = list(islice(refinement_steps(*sets, head=head), steps + 1))
    responsibilities = torch.stack([step.responsibilities for step in found])
    labels = torch.stack([step.labels for step in found]).numpy()
    directions = _directions(features, responsibilities, plane)
    confidences = responsibilities.max(2).values.double().numpy()
    right = labels == features.query_labels.numpy()
    return Trajectory(
        view=project(*sets, responsibilities, head, directions),
        responsibilities=responsibilities.numpy(),
        labels=labels,
        confidences=confidences,
        right=right,
        accuracy=right.mean(1),
        mean_confidence=confidences.mean(1),
        changed=np.concatenate([np.zeros_like(right[:1]), labels[1:] != labels[:-1]]),
    )


def curves(trajectory: Trajectory) -> pd.DataFrame:
    """One row per step: `step`, `accuracy` and `mean_confidence` in [0, 1], `changed` (labels)."""
    return pd.DataFrame(
        {
            "step": np.arange(trajectory.last + 1),
            "accuracy": trajectory.accuracy,
            "mean_confidence": trajectory.mean_confidence,
            "changed": trajectory.changed.sum(1),
        }
    )


def changes(features: EpisodeFeatures, trajectory: Trajectory, step: int, which: str = "changed") -> pd.DataFrame:
    """What a step did to the queries; those whose answer became right or wrong come first.

    Args:
        which: `changed` at this step, `wrong` after it, or `all`.

    Returns:
        `query`, `true`, `before` and `after` (labels; −1 before step 0), `confidence_before` (NaN before
        step 0), `confidence_after` and `outcome`.
    """
    after, right, changed = trajectory.labels[step], trajectory.right[step], trajectory.changed[step]
    was_right = trajectory.right[max(step - 1, 0)]
    cases = [right & ~was_right, ~right & was_right, changed & ~right, right]
    outcome = np.select(cases, ["became right", "became wrong", "still wrong", "right"], "wrong")
    frame = pd.DataFrame(
        {
            "query": np.arange(len(after)),
            "true": features.query_labels.numpy(),
            "before": trajectory.labels[step - 1] if step else np.full_like(after, -1),
            "after": after,
            "confidence_before": trajectory.confidences[step - 1] if step else np.full(len(after), np.nan),
            "confidence_after": trajectory.confidences[step],
            "outcome": pd.Categorical(outcome, OUTCOMES, ordered=True),
        }
    )
    kept = {"changed": changed, "wrong": ~right, "all": np.ones_like(right)}[which]
    return frame[kept].sort_values(["outcome", "query"]).reset_index(drop=True)


def verdict(trajectory: Trajectory, minimum: int, maximum: int) -> Verdict:
    """Where the stopping rule ends the episode's refinement.

    Raises:
        ValueError: a limit is negative or exceeds the steps of the trajectory.
    """
    step = stopping_step(trajectory.labels, minimum, maximum)
    if step == 0:
        reason = "it does not refine at all"
    elif n_changed := int(trajectory.changed[step].sum()):
        reason = f"the maximum, though {counted(n_changed, 'label')} still changed there"
    else:
        reason = "no label changed there"
    gain = 100 * (trajectory.accuracy[step] - trajectory.accuracy[0])
    return Verdict(
        step,
        f"With minimum {minimum} and maximum {maximum} the rule stops at step {step}: {reason}. "
        f"Accuracy there: {100 * trajectory.accuracy[step]:.1f}% ({gain:+.1f} points from step 0).",
    )


def convergence(trajectory: Trajectory) -> Verdict:
    """The first step at which no label changes; the last step computed if there is none."""
    step = stopping_step(trajectory.labels, min(1, trajectory.last), trajectory.last)
    if step > 0 and not trajectory.changed[step].any():
        return Verdict(step, f"The first step at which no label changes: {step}.")
    return Verdict(step, f"Labels still change at step {step}, the last one computed.")


def status(trajectory: Trajectory, step: int) -> str:
    """A step in one line."""
    done = (
        "classes of the support set"
        if step == 0
        else f"{counted(int(trajectory.changed[step].sum()), 'label')} changed"
    )
    return (
        f"Step {step} of {trajectory.last} · {done} · accuracy {100 * trajectory.accuracy[step]:.1f}% · "
        f"mean confidence {100 * trajectory.mean_confidence[step]:.1f}%"
    )


def described(features: EpisodeFeatures) -> str:
    """Which episode it is, and how large."""
    shots = shots_in_words(features.support_labels.bincount().tolist())
    return (
        f"{features.dataset}, {features.evaluation}, episode {features.episode}: {len(features.class_names)}-way, "
        f"{shots}, {len(features.query_labels)} queries."
    )


def about(variant: Variant) -> str:
    """What the variant makes of the steps, in a sentence or two."""
    if variant.refinement_at_test:
        return f"{variant.name} answers where the stopping rule ends."
    return (
        f"{variant.name} does not refine: its answer is step 0. The further steps show what refinement would do: "
        f"{refined(variant.name)}, with the same networks."
    )


def answer_step(features: EpisodeFeatures, trajectory: Trajectory, minimum: int, maximum: int) -> int:
    """The step at which the variant answers: where the rule ends, or 0 where the variant does not refine."""
    return verdict(trajectory, minimum, maximum).step if features.variant.refinement_at_test else 0


def _directions(features: EpisodeFeatures, responsibilities: Tensor, plane: str) -> Tensor:
    points = torch.cat([features.support_features, features.query_features])
    if plane == "principal components":
        return principal_plane(points)
    fixed = one_hot(features.support_labels, len(features.class_names), points)
    queries = {
        "classes after the last step": responsibilities[-1],
        "classes after step 0": responsibilities[0],
        "true classes": one_hot(features.query_labels, len(features.class_names), points),
    }[plane]
    return discriminative_plane(points, torch.cat([fixed, queries]))
