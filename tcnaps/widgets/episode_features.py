"""An episode's features under a study's networks, with all that is needed to show them: computed once, then kept."""

from collections.abc import Generator
from dataclasses import dataclass, field, replace

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

CHUNK = 32  # images that go through the backbone at once; work can be cancelled between chunks
KEPT = 8  # episodes whose features are kept


@dataclass(frozen=True)
class EpisodeFeatures:
    """An episode's features and what is needed to show them. Class k is `class_names[k]`.

    Attributes:
        evaluation: its name in the study.
        episode: its number. The same number always gives the same images.
        head: the training's, with the study's settings.
        support_images, query_images: RGB.
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
    support_images: UInt8[np.ndarray, "n_support height width 3"]
    query_images: UInt8[np.ndarray, "n_query height width 3"]
    head: Head

    @property
    def way(self) -> int:
        """The number of classes."""
        return len(self.class_names)

    @property
    def place(self) -> tuple[str, str, int]:
        """Which episode it is: evaluation, dataset and number."""
        return self.evaluation, self.dataset, self.episode


@dataclass
class FeatureCache:
    """A study's networks and the features of its last episodes, so that none is loaded or computed twice.

    A network that has been trained again is loaded again.
    """

    study: Study
    _models: dict = field(default_factory=dict, repr=False)
    _features: dict = field(default_factory=dict, repr=False)

    def features(
        self, variant: str, evaluation: str, dataset: str, episode: int
    ) -> Generator[tuple[float, str], None, EpisodeFeatures]:
        """An episode's features under a variant's networks; a generator of progress that returns them.

        Raises:
            ValueError: there is no such variant, evaluation, dataset or episode; the message names what there is.
            CheckpointError: the variant's network is not trained yet, or was trained on another backbone.
        """
        check_names(self.study, variant, evaluation, dataset, episode)
        training = VARIANTS[variant].training
        stamp = self._stamp(training)
        key = training, evaluation, dataset, episode, stamp
        if key not in self._features:
            self._features[key] = yield from self._make(VARIANTS[variant], evaluation, dataset, episode, stamp)
        found = self._features[key] = self._features.pop(key)  # now the one used last
        for oldest in list(self._features)[:-KEPT]:
            self._features.pop(oldest, None)
        return replace(found, variant=VARIANTS[variant])

    def _make(self, variant, evaluation, dataset, episode, stamp):
        yield 0.0, f"Opening {dataset}"
        source = open_split(self.study, dataset, "test")
        draw = draw_episode(source, self.study.evaluations[evaluation].protocol, self.study.seed, episode)
        yield 0.05, f"Loading the networks of training {variant.training}"
        model = self._model(variant.training, stamp)
        loaded = load_episode(source, draw)
        support, query = yield from self._extract(model, loaded)
        return EpisodeFeatures(
            variant=variant,
            evaluation=evaluation,
            dataset=dataset,
            episode=episode,
            class_names=tuple(source.class_names[k] for k in draw.classes),
            support_features=support,
            support_labels=loaded.support_labels,
            query_features=query,
            query_labels=loaded.query_labels,
            support_images=source.images[draw.support_images],
            query_images=source.images[draw.query_images],
            head=model.head,
        )

    @staticmethod
    def _extract(model, loaded):
        images, features = torch.cat([loaded.support_images, loaded.query_images]), []
        yield 0.1, f"Adapting the backbone to {len(images)} images"
        with torch.no_grad():
            film = model.adapt(loaded)
        for part in images.split(CHUNK):
            done = sum(map(len, features))
            yield 0.2 + 0.8 * done / len(images), f"Features of {len(images)} images"
            with torch.no_grad():
                features.append(model.extract(part, film).to(model.settings.clustering_dtype))
        return torch.cat(features).split([len(loaded.support_images), len(loaded.query_images)])

    def _model(self, training, stamp):
        known, model = self._models.get(training, (None, None))
        if known != stamp or stamp is None:
            model = load_model(self.study, training)
            self._models[training] = stamp, model
        return model

    def _stamp(self, training):
        """Changes when a checkpoint does; None where one is missing, which loading will report."""
        files = [checkpoint_folder(self.study) / f"{name}.safetensors" for name in ("backbone", training)]
        if not all(file.is_file() for file in files):
            return None
        return tuple((file.stat().st_mtime_ns, file.stat().st_size) for file in files)


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
