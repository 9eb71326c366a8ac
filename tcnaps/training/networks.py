"""What a study says of the networks and the clustering, in the words of `tcnaps.method`."""

from dataclasses import replace

import torch

from tcnaps.config import Study
from tcnaps.config.settings import Clustering
from tcnaps.method.head import Head
from tcnaps.method.model import ModelSettings
from tcnaps.method.variants import ALL_TRAININGS


def head_of(training: str, clustering: Clustering = Clustering()) -> Head:
    """The head that a training uses, or starts from where it learns some of it, with a study's settings.

    Of Simple CNAPS alone, the released code divides the class covariances by n − 1 (docs/fidelity.md, row 2).
    """
    head = ALL_TRAININGS[training].head
    return replace(
        head,
        scale=head.scale if clustering.scale is None else clustering.scale,
        identity_weight=clustering.identity_weight,
        task_covariance_divisor=clustering.task_covariance_divisor,
        class_covariance_divisor=clustering.simple_class_covariance_divisor if training == "support" else "n",
    )


def model_settings(study: Study, training: str) -> ModelSettings:
    """How one training of a study computes."""
    return ModelSettings(
        head=head_of(training, study.clustering),
        lstm_layers=study.task_encoder.lstm_layers,
        set_encoder_statistics=study.task_encoder.statistics,
        pixel_range=study.pixel_range,
        arithmetic=study.arithmetic,
        precision=getattr(torch, study.precision),
        clustering_dtype=getattr(torch, study.clustering.dtype),
        images_at_once=study.images_at_once,
    )
