"""Views of an episode in a plane."""

from dataclasses import replace

import numpy as np
import pytest
import stepper_study
import torch
from clusters import clusters

from tcnaps.method.class_statistics import class_statistics, one_hot
from tcnaps.method.clustering import trajectory
from tcnaps.method.head import Head
from tcnaps_suite.widgets.projection import discriminative_plane, view_in_plane


def planted():
    """Three classes that differ in the first two of ten dimensions only; the others are noisier."""
    first = torch.arange(10) < 2
    return clusters([4] * 3, [30] * 3, 10, 8.0 * first, torch.where(first, 0.7, 3.0))


def test_the_plane_is_orthonormal_and_shows_what_tells_classes_apart():
    *_, query, truth = planted()
    plane = discriminative_plane(query, one_hot(truth, 3, query))
    torch.testing.assert_close(plane.T @ plane, torch.eye(2, dtype=torch.float64))
    assert plane[:2].square().sum() > 1.7  # of 2: the two planted directions


def test_a_view_repeats_what_the_clustering_does():
    support, labels, query, _ = planted()
    logits = trajectory(support, labels, query, steps=3)
    view = view_in_plane(support, labels, query, logits.softmax(2))
    np.testing.assert_allclose(view.responsibilities[:, 12:], logits.softmax(2), atol=1e-9)
    assert (view.responsibilities[:, :12] == torch.nn.functional.one_hot(labels, 3).numpy()).all()
    assert view.is_support.sum() == 12 and view.points.shape == (102, 2)
    assert (np.linalg.eigvalsh(view.covariances) >= 1 - 1e-9).all()  # identity_weight is 1


@pytest.mark.parametrize(
    "head",
    [
        Head(),
        Head(update="means"),
        Head(metric="euclidean"),
        Head(class_covariance_divisor="n-1"),
        Head(class_covariance_divisor="n-1", task_covariance_divisor="n-1"),
    ],
)
@pytest.mark.parametrize("shot", [1, 3])
def test_drawn_statistics_are_projections_of_those_in_all_dimensions(head, shot):
    episode = stepper_study.planted(shot=shot)
    support, labels, query = episode.support_features.double(), episode.support_labels, episode.query_features.double()
    features = torch.cat([support, query])
    responsibilities = trajectory(support, labels, query, head=head, steps=3).softmax(2)
    view = view_in_plane(support, labels, query, responsibilities, head)
    fixed = one_hot(labels, 3, features)
    statistics = [class_statistics(support, fixed, head)]
    for step in range(3):
        weights = torch.cat([fixed, torch.from_numpy(view.responsibilities[step, len(fixed) :])])
        own = class_statistics(features, weights, replace(head, class_covariance_divisor="n"))
        if head.update == "means":
            own = replace(own, covariances=statistics[0].covariances)
        statistics.append(own)
    centred = features - features.mean(0)
    plane = torch.linalg.lstsq(centred, torch.from_numpy(view.points), driver="gelsd").solution  # centred @ plane
    for step, own in enumerate(statistics):
        np.testing.assert_allclose(view.means[step], (own.means - features.mean(0)) @ plane, atol=1e-8)
        np.testing.assert_allclose(view.covariances[step], plane.T @ own.covariances @ plane, atol=1e-8)
