"""An episode's features under a study's networks, with all that is needed to show them: computed once, then kept."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from tcnaps.config import Study
from tcnaps.datasets import open_split
from tcnaps.episodes.loading import load_episode
from tcnaps.episodes.sampling import draw_episode
from tcnaps.method.head import Head
from tcnaps.method.variants import VARIANTS, Variant
from tcnaps.training.checkpoints import checkpoint_folder, load_model
from tcnaps.widgets.explorer_data import one_of
from tcnaps.widgets.widget_base import kept, study_key


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
        ValueError: there is no such variant, evaluation, dataset or episode; the message names what there is.
        CheckpointError: the variant's network is not trained yet, or was trained on another backbone.
    """
    check_names(study, variant, evaluation, dataset, episode)
    training, folder = VARIANTS[variant].training, checkpoint_folder(study)
    files = [folder / f"{name}.safetensors" for name in ("backbone", training)]
    stamp = tuple(file.stat().st_mtime_ns if file.is_file() else None for file in files)
    network = study_key(study), training, stamp
    model = kept("network", network, lambda: load_model(study, training))
    made = kept(
        "features",
        (*network, evaluation, dataset, episode),
        lambda: _computed(study, model, VARIANTS[variant], evaluation, dataset, episode),
    )
    return replace(made, variant=VARIANTS[variant])


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


def check_names(study: Study, variant: str, evaluation: str, dataset: str, episode: int) -> None:
    """
    Raises:
        ValueError: there is no such variant, evaluation, dataset or episode; the message names what there is.
    """
    one_of("variant", variant, variants_of(study), f"Study '{study.name}' trains for")
    one_of("evaluation", evaluation, study.evaluations, f"Study '{study.name}' has")
    one_of("dataset", dataset, study.evaluations[evaluation].datasets, f"Evaluation '{evaluation}' has")
    if episode < 0:
        raise ValueError(f"There is no episode {episode}: episodes are counted from 0.")


def variants_of(study: Study) -> list[str]:
    """The variants that the study's trainings serve, in the order of the paper's table."""
    return [name for name, variant in VARIANTS.items() if variant.training in study.trainings]
