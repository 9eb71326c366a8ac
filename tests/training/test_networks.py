"""A study's settings in the words of the method."""

import pytest
import torch
from small_study import small_study

from tcnaps.method.variants import TRAININGS
from tcnaps.training.networks import head_of, model_settings


@pytest.mark.parametrize("training", TRAININGS)
def test_the_head_of_a_training(training):
    study = small_study(clustering={"identity_weight": 3.0, "simple_class_covariance_divisor": "n-1"})
    head = head_of(training, study.clustering)
    assert head.identity_weight == 3.0 and head.log_determinant == ("log_determinant" in training)
    assert head.scale == (0.5 if head.log_determinant else 1)
    # Only Simple CNAPS divides by n - 1 in the released code.
    assert head.class_covariance_divisor == ("n-1" if training == "support" else "n")


@pytest.mark.parametrize("scale", ["auto", 0.25])
def test_a_study_s_scale_goes_before_the_training_s(scale):
    study = small_study(clustering={"scale": scale})
    assert {head_of(training, study.clustering).scale for training in TRAININGS} == {scale}


def test_every_switch_of_the_networks_is_handed_over():
    study = small_study(precision="bfloat16", arithmetic="plain", pixel_range=[0, 1], images_at_once=7)
    found = model_settings(study, "support_and_query")
    assert found.precision == torch.bfloat16 and found.clustering_dtype == torch.float32
    assert (found.arithmetic, found.pixel_range, found.images_at_once) == ("plain", (0, 1), 7)
    assert found.head == head_of("support_and_query", study.clustering)
