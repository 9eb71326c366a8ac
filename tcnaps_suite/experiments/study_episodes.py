"""A study's episodes with their features: under its trained networks, or as the demonstration recorded them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from tcnaps.config import Study
from tcnaps.episodes.loading import load_episode
from tcnaps.method.head import Head
from tcnaps.method.model import TransductiveCNAPS
from tcnaps.method.variants import VARIANTS, Variant
from tcnaps.training.checkpoints import backbone_file, checkpoint_folder, head_of, load_model
from tcnaps_suite.episodes import images_of
from tcnaps_suite.experiments.comparison import EpisodeFeatures

_NETWORK: dict[tuple, TransductiveCNAPS] = {}  # the one in memory, by what it was made of


@dataclass(frozen=True)
class ShownEpisode:
    """An episode's features and what is needed to show them. Class k is `class_names[k]`; images are RGB.

    `place` is evaluation, dataset and number. `head` is the training's, with the study's settings.
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


@torch.no_grad()
def features_of(study: Study, variant: str, evaluation: str, dataset: str, episode: int) -> ShownEpisode:
    """An episode's features under a variant's networks."""
    training, place = VARIANTS[variant].training, (evaluation, dataset, episode)
    shown = images_of(study, *place)
    labels, truth = torch.from_numpy(shown.support_labels), torch.from_numpy(shown.query_labels)
    if shown.drawn is None:
        support, query = torch.from_numpy(shown.features[training]).tensor_split([len(labels)])
        head = head_of(training, study.clustering)
    else:
        model = _network(study, training)
        support, _, query, _ = model.features(load_episode(*shown.drawn))
        head = model.head
    images = shown.support_images, shown.query_images
    return ShownEpisode(VARIANTS[variant], place, shown.class_names, support, labels, query, truth, *images, head)


def first_episodes(
    study: Study, variant: str, evaluation: str, datasets: Sequence[str], episodes: int
) -> Iterator[EpisodeFeatures]:
    """An evaluation's first episodes of each dataset, for `compare_classifiers`; at most as many as it has."""
    for dataset in datasets:
        settings = study.datasets[dataset]
        for number in range(min(episodes, study.evaluations[evaluation].episodes)):
            shown = features_of(study, variant, evaluation, dataset, number)
            facts = {"dataset": dataset, "domain": settings.domain, "images": settings.images, "episode": number}
            support, query = (shown.support_features, shown.support_labels), (shown.query_features, shown.query_labels)
            yield EpisodeFeatures(facts, *support, *query)


def _network(study: Study, training: str) -> TransductiveCNAPS:
    """The trained network; it is loaded again only when its files are new."""
    files = backbone_file(study), checkpoint_folder(study) / f"{training}.safetensors"
    written = tuple((str(file), file.stat().st_mtime_ns) for file in files if file.is_file())
    key = study.model_dump_json(), training, written
    if key not in _NETWORK:
        _NETWORK.clear()
        _NETWORK[key] = load_model(study, training)
    return _NETWORK[key]
