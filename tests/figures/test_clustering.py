"""Soft k-means in the plane, and images of episodes."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure

from tcnaps.figures import clustering


@pytest.fixture
def toy():
    random = np.random.default_rng(0)
    points = random.normal(size=(20, 2)) + np.repeat([[0, 0], [4, 1]], 10, axis=0)
    responsibilities = random.dirichlet([1, 1], size=(4, 20))
    responsibilities[3] = responsibilities[2]
    means = np.array([[[0.0, 0.0], [4.0, 1.0]]] * 4)
    covariances = np.array([[[[2.0, 0.8], [0.8, 1.0]], [[1.0, 0.0], [0.0, 3.0]]]] * 4)
    return clustering.PlaneView(points, np.isin(np.arange(20), (0, 10)), responsibilities, means, covariances)


def test_ellipses_lie_at_the_mahalanobis_distance_and_colours_mix_the_classes(toy):
    ax, means, covariances = Figure().subplots(), toy.means, toy.covariances
    clustering.clustering_step(ax, replace(toy, responsibilities=np.tile([0.75, 0.25], (4, 20, 1))), 0)
    for patch, (k, distance) in zip(ax.patches, [(0, 1), (0, 2), (1, 1), (1, 2)], strict=True):
        edge = patch.get_patch_transform().transform(np.column_stack([np.cos(t := np.linspace(0, 6, 50)), np.sin(t)]))
        centred = edge - means[0][k]
        squared = np.einsum("ni,ij,nj->n", centred, np.linalg.inv(covariances[0][k]), centred)
        np.testing.assert_allclose(squared, distance**2)
    colours = clustering.class_colours(2)
    np.testing.assert_allclose(ax.collections[0].get_facecolor()[0, :3], 0.75 * colours[0] + 0.25 * colours[1])


def test_strip_rings_the_labels_that_changed_and_names_the_end(toy):
    labels = toy.responsibilities.argmax(axis=2)
    changing = {name: getattr(toy, name)[:3] for name in ("responsibilities", "means", "covariances")}
    assert toy.end == 3 and replace(toy, **changing).end == 2
    axes = Figure().subplots(1, 4)
    clustering.steps_strip(axes, toy)
    clustering.clustering_legend(axes[0].figure)
    assert axes[0].get_title() == "Step 0" and axes[3].get_title() == "Step 3 · the end"
    for step in (1, 2):
        changed = toy.points[labels[step] != labels[step - 1]]
        assert axes[step].get_title() == f"Step {step} · {len(changed)} changed"
        assert any(np.array_equal(c.get_offsets(), changed) for c in axes[step].collections)
    assert len({(ax.get_xlim(), ax.get_ylim()) for ax in axes}) == 1


def test_episode_images_cross_the_errors_and_contact_sheets_leave_the_rest_empty():
    pixels = np.zeros((5, 8, 8, 3), dtype=np.uint8)
    one, *rest = Figure().subplots(1, 4)
    support, true, predicted = {"cat": pixels[:1], "dog": pixels[:3]}, np.array([0, 1, 0, 1]), np.array([0, 0, 0, 1])
    clustering.episode_images(one, support, pixels[:4], predicted, true)
    assert len(one.images) == 8
    assert sum(line.get_marker() == "x" for line in one.lines) == 2  # one wrong query: a cross on its white halo
    clustering.contact_sheets(rest, {"letters": [pixels, pixels[:4]], "digits": [pixels[:2]]})
    assert [ax.get_title() for ax in rest] == ["letters", "digits", ""]
    assert [ax.images[0].get_array().shape for ax in rest if ax.images] == [(16, 32, 3), (8, 16, 3)]
