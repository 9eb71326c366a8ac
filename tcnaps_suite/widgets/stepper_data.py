"""One episode under refinement, step by step: what the soft k-means stepper shows.

`features_of` computes an episode's features, `run` refines them under any head, and `verdict` says where the stopping
rule ends. What a step did to the queries is told by `episode_table`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from tcnaps.config import Study
from tcnaps.data import open_split
from tcnaps.episodes.loading import load_episode
from tcnaps.episodes.sampling import draw_episode
from tcnaps.evaluation.stopped_rows import recorded_predictions
from tcnaps.figures.tables import points
from tcnaps.method import clustering
from tcnaps.method.head import Head
from tcnaps.method.stopping import stopping_step
from tcnaps.method.variants import VARIANTS, Variant
from tcnaps.training.checkpoints import backbone_file, checkpoint_folder, head_of, load_model
from tcnaps_suite.experiments import comparison
from tcnaps_suite.widgets.demonstration import recorded
from tcnaps_suite.widgets.episode_table import counted, refined, shots_in_words, steps_of
from tcnaps_suite.widgets.projection import PlaneView, discriminative_plane, principal_plane, project
from tcnaps_suite.widgets.widget_base import kept, stamp_of

_MAHALANOBIS = {"metric": "mahalanobis", "log_determinant": False, "scale": 1.0, "update": "means and covariances"}
# What the stepper's menu changes of a head; the rest, the identity_weight among it, stays the training's.
HEADS = {
    "Mahalanobis": _MAHALANOBIS,
    "log-determinant": _MAHALANOBIS | {"log_determinant": True, "scale": 0.5},
    "Euclidean": _MAHALANOBIS | {"metric": "euclidean"},
    "means only": _MAHALANOBIS | {"update": "means"},
    "as in the study": {},
}
PLANES = ("classes after the last step", "classes after step 0", "true classes", "principal components")


@dataclass(frozen=True)
class ShownEpisode:
    """An episode's features and what is needed to show them. Class k is `class_names[k]`.

    Attributes:
        place: evaluation, dataset and number of the episode. The same place always gives the same images.
        support_images, query_images: RGB.
        head: the training's, with the study's settings.
    """

    variant: Variant
    place: tuple[str, str, int]
    class_names: tuple[str, ...]
    support_features: Float[Tensor, "n_support d"]
    support_labels: Int[Tensor, "n_support"]
    query_features: Float[Tensor, "n_query d"]
    query_labels: Int[Tensor, "n_query"]
    support_images: UInt8[np.ndarray, "n_support height width 3"]
    query_images: UInt8[np.ndarray, "n_query height width 3"]
    head: Head


def features_of(study: Study, variant: str, evaluation: str, dataset: str, episode: int) -> ShownEpisode:
    """An episode's features under a variant's networks. Networks that have been trained again are loaded again.

    Raises:
        CheckpointError: the variant's network is not trained yet, or was trained on another backbone.
        UserError: the study is the demonstration, which lacks this episode.
    """
    training, place = VARIANTS[variant].training, (evaluation, dataset, episode)
    if found := recorded(study, *place):
        return _of_record(found, VARIANTS[variant], place, head_of(training, study.clustering))
    network = training, stamp_of([backbone_file(study), checkpoint_folder(study) / f"{training}.safetensors"])
    model = kept("network", study, network, lambda: load_model(study, training))
    features = kept("features", study, (network, place), lambda: _computed(study, model, VARIANTS[variant], place))
    return replace(features, variant=VARIANTS[variant])


def _computed(study, model, variant, place):
    evaluation, dataset, episode = place
    source = open_split(study, dataset, "test")
    draw = draw_episode(source, study.evaluations[evaluation].protocol, study.seed, episode)
    with torch.no_grad():
        support, labels, query, _ = model.features(loaded := load_episode(source, draw))
    return ShownEpisode(
        variant=variant,
        place=place,
        class_names=tuple(source.class_names[k] for k in draw.classes),
        support_features=support,
        support_labels=labels,
        query_features=query,
        query_labels=loaded.query_labels,
        support_images=source.images[draw.support_images],
        query_images=source.images[draw.query_images],
        head=model.head,
    )


def _of_record(found, variant, place, head):
    support, query = torch.from_numpy(found.features[variant.training]).tensor_split([len(found.support_labels)])
    return ShownEpisode(
        variant=variant,
        place=place,
        class_names=found.class_names,
        support_features=support,
        support_labels=torch.from_numpy(found.support_labels),
        query_features=query,
        query_labels=torch.from_numpy(found.query_labels),
        support_images=found.support_images,
        query_images=found.query_images,
        head=head,
    )


def first_episodes(
    study: Study, variant: str, evaluation: str, datasets: Sequence[str], episodes: int
) -> Iterator[comparison.ShownEpisode]:
    """An evaluation's first episodes of each dataset, as `comparison.compare_heads` takes them.

    Args:
        episodes: how many of each dataset; no more than the evaluation has.
    """
    for dataset in datasets:
        for number in range(min(episodes, study.evaluations[evaluation].episodes)):
            own = features_of(study, variant, evaluation, dataset, number)
            sets = own.support_features, own.support_labels, own.query_features, own.query_labels
            yield comparison.ShownEpisode(dataset, study.datasets[dataset].domain, number, *sets)


class Trajectory(NamedTuple):
    """What refinement steps 0, …, T found in one episode.

    Attributes:
        rows: one row per query, as an evaluation records them: `query`, `label`, `class_name`, `prediction_0` … and
            `confidence_0` ….
        view: the same in a plane.
        steps: of `episode_table.steps_of`.
    """

    rows: pd.DataFrame
    view: PlaneView
    steps: pd.DataFrame


def head_name(head: Head) -> str:
    """The name in `HEADS` of a head's settings."""
    return next(name for name, changes in HEADS.items() if replace(head, **changes) == head)


def with_head(head: Head, name: str, identity_weight: float | int, scale: float | None = None) -> Head:
    """A training's head with the settings of another.

    Args:
        name: of `HEADS`.
        scale: default: that of the settings.

    Raises:
        ValueError: the identity_weight or the scale is not above 0.
    """
    own = {} if scale is None else {"scale": float(scale)}
    return replace(head, **HEADS[name] | own, identity_weight=float(identity_weight))


def run(features: ShownEpisode, head: Head | None = None, steps: int = 10, plane: str = PLANES[0]) -> Trajectory:
    """Refines one episode.

    Args:
        head: default: that of the training.
        plane: of `PLANES`: the two directions that best tell these classes apart, or those of the largest spread.
    """
    head = head or features.head
    sets = features.support_features, features.support_labels, features.query_features
    responsibilities = clustering.trajectory(*sets, head=head, steps=steps).softmax(2)
    confidences, predictions = (found.numpy() for found in responsibilities.max(2))
    labels = features.query_labels.numpy()
    rows = {"query": np.arange(len(labels)), "label": labels, "class_name": [features.class_names[k] for k in labels]}
    rows |= {f"prediction_{t}": found for t, found in enumerate(predictions)}
    rows = pd.DataFrame(rows | {f"confidence_{t}": found for t, found in enumerate(confidences)})
    view = project(*sets, responsibilities, head, _directions(features, responsibilities, plane))
    return Trajectory(rows, view, steps_of(rows))


def verdict(trajectory: Trajectory, minimum: int, maximum: int) -> tuple[int, str]:
    """The step at which the stopping rule ends the episode's refinement, and why, in words.

    Raises:
        ValueError: a limit is negative or exceeds the steps of the trajectory.
    """
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


def convergence(trajectory: Trajectory) -> int:
    """The first step at which no label changes; the last one if labels change at every step."""
    still = trajectory.steps["changed"][1:] == 0
    return int(still.idxmax()) if still.any() else len(still)


def answer_step(features: ShownEpisode, trajectory: Trajectory, minimum: int, maximum: int) -> int:
    """The step at which the variant answers: where the rule ends, or 0 where the variant does not refine."""
    return verdict(trajectory, minimum, maximum)[0] if features.variant.refinement_at_test else 0


def status(trajectory: Trajectory, step: int) -> str:
    """A step in one line."""
    found = trajectory.steps.loc[step]
    done = f"{counted(int(found['changed']), 'label')} changed" if step else "classes of the support set"
    return (
        f"Step {step} of {len(trajectory.steps) - 1} · {done} · accuracy {100 * found['accuracy']:.1f}% · "
        f"mean confidence {100 * found['mean_confidence']:.1f}%"
    )


def curves_in_words(steps: pd.DataFrame) -> str:
    """Accuracy and mean confidence after every step.

    Args:
        steps: of `episode_table.steps_of`.
    """
    values = [f"{100 * row.accuracy:.0f}% and {100 * row.mean_confidence:.0f}%" for row in steps.itertuples()]
    return f"Accuracy and mean confidence after the steps 0 to {len(steps) - 1}: {', '.join(values)}"


def described(features: ShownEpisode) -> str:
    """Which episode it is, how large, and what the variant makes of the steps."""
    (evaluation, dataset, number), variant = features.place, features.variant
    size = f"{len(features.class_names)}-way, {shots_in_words(features.support_labels.bincount().tolist())}"
    episode = f"{dataset}, {evaluation}, episode {number}: {size}, {len(features.query_labels)} queries."
    if variant.refinement_at_test:
        return f"{episode} {variant.name} answers where the stopping rule ends."
    return (
        f"{episode} {variant.name} does not refine: its answer is step 0. The further steps show what refinement would "
        f"do: {refined(variant.name)}, with the same networks."
    )


def _directions(features: ShownEpisode, responsibilities: Tensor, plane: str) -> Tensor:
    points = torch.cat([features.support_features, features.query_features])
    if plane == "principal components":
        return principal_plane(points)
    way = len(features.class_names)
    queries = {
        "classes after the last step": responsibilities[-1],
        "classes after step 0": responsibilities[0],
        "true classes": clustering.one_hot(features.query_labels, way, points),
    }[plane]
    return discriminative_plane(points, torch.cat([clustering.one_hot(features.support_labels, way, points), queries]))
