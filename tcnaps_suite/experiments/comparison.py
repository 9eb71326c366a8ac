"""Heads and other classifiers on the same features: what the clustering changes, with everything else equal."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor
from tqdm.auto import tqdm

from tcnaps.config import FixedProtocol, Study, UserError, VariableProtocol
from tcnaps.config.errors import nearest
from tcnaps.data.image_source import ImageSource
from tcnaps.episodes.loading import load_episode
from tcnaps.episodes.sampling import Draw, draw_episode
from tcnaps.method.model import TransductiveCNAPS
from tcnaps.method.variants import VARIANTS
from tcnaps.training.checkpoints import load_model
from tcnaps_suite.experiments.rivals import Classifier


class EpisodeFeatures(NamedTuple):
    """The features of an episode, and the columns that identify it: dataset, domain, images and episode."""

    facts: dict[str, str | int]
    support: Float[Tensor, "n_support d"]
    support_labels: Int[Tensor, "n_support"]
    query: Float[Tensor, "n_query d"]
    query_labels: Int[Tensor, "n_query"]


Drawn = tuple[dict[str, str | int], ImageSource, Draw]  # the first: the columns of `EpisodeFeatures.facts`


def episode_features(drawn: Iterable[Drawn], model: TransductiveCNAPS) -> Iterator[EpisodeFeatures]:
    """Drawn episodes with their features under a trained network."""
    for facts, source, draw in drawn:
        with torch.no_grad():
            support, labels, query, _ = model.features(load_episode(source, draw))
        yield EpisodeFeatures(facts, support, labels, query, torch.from_numpy(draw.query_labels).to(labels.device))


def draws(
    study: Study, sources: Sequence[ImageSource], protocol: FixedProtocol | VariableProtocol, episodes: int
) -> Iterator[Drawn]:
    """The first episodes of every source, before they are loaded."""
    for source in sources:
        settings = study.datasets[source.dataset]
        facts = {"dataset": source.dataset, "domain": settings.domain, "images": settings.images}
        for index in tqdm(range(episodes), desc=source.dataset, unit="episode", leave=False):
            yield facts | {"episode": index}, source, draw_episode(source, protocol, study.seed, index)


class LoadedVariant(NamedTuple):
    """A trained model, and the minimum and maximum of its refinement steps; (0, 0) is none."""

    model: TransductiveCNAPS
    limits: tuple[int, int]


def load_variants(study: Study, names: Sequence[str]) -> dict[str, LoadedVariant]:
    """The trained models of some of `VARIANTS`. Errors are those of `load_model`."""
    if unknown := [name for name in names if name not in VARIANTS]:
        raise UserError(f"There is no variant '{unknown[0]}'{nearest(unknown[0], VARIANTS)}")
    limits, rows = {True: study.refinement.limits, False: (0, 0)}, {name: VARIANTS[name] for name in names}
    return {n: LoadedVariant(load_model(study, v.training), limits[v.refinement_at_test]) for n, v in rows.items()}


def difference_from(rows: pd.DataFrame, column: str, base: float | str) -> pd.DataFrame:
    """Adds `difference`: accuracy minus that of the row with `base` in `column` and equal other keys, time aside."""
    keys = [name for name in rows if name not in (column, "accuracy", "difference", "seconds")]
    bases = rows[rows[column] == base].set_index(keys)["accuracy"]
    return rows.assign(difference=rows["accuracy"] - bases.reindex(pd.MultiIndex.from_frame(rows[keys])).to_numpy())


def compare_classifiers(
    episodes: Iterable[EpisodeFeatures], classifiers: Mapping[float | str, Classifier], baseline: float | str
) -> pd.DataFrame:
    """The accuracy of every classifier, and its gain over one of them.

    A row per episode and classifier has `EpisodeFeatures.facts`, classifier, accuracy, difference (from the baseline's
    accuracy on that episode) and seconds.
    """
    rows = []
    for episode in episodes:
        for name, classify in classifiers.items():
            start = time.perf_counter()
            labels = classify(episode.support, episode.support_labels, episode.query)
            seconds = time.perf_counter() - start
            accuracy = (labels == episode.query_labels).double().mean().item()
            rows.append(episode.facts | {"classifier": name, "accuracy": accuracy, "seconds": seconds})
    return difference_from(pd.DataFrame(rows), "classifier", baseline)
