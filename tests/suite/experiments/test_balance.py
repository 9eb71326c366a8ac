"""Query sets out of balance: their sizes, their shares, and that nothing else of an episode changes."""

from dataclasses import replace

import numpy as np
import pytest
from small_study import blobs, sized

from tcnaps.config import FixedProtocol
from tcnaps.episodes.sampling import draw_episode
from tcnaps_suite.experiments.balance import unbalanced

SOURCE = blobs("blobs", "test")
PROTOCOL = FixedProtocol(way=5, shot=2, queries_per_class=12)


@pytest.mark.parametrize("share", [{}, {"concentration": 1}, {"present": 2}, {"present": 1}])
def test_an_episode_keeps_its_support_set_and_as_many_queries_as_a_class_had(share):
    for index in range(5):
        draw = draw_episode(SOURCE, PROTOCOL, 0, index)
        uneven, again = (unbalanced(draw, 0, **share) for _ in range(2))
        assert (uneven.support_images == draw.support_images).all() and len(uneven.query_images) == 12
        pairs = set(zip(uneven.query_images.tolist(), uneven.query_labels.tolist()))
        assert pairs <= set(zip(draw.query_images.tolist(), draw.query_labels.tolist())) and len(pairs) == 12
        assert (uneven.query_images == again.query_images).all()
        sizes = np.unique(uneven.query_labels, return_counts=True)[1]
        assert "concentration" in share or (len(sizes) == share.get("present", 5) and np.ptp(sizes) <= 1)


def test_dirichlet_proportions_have_the_moments_of_their_distribution():
    draw = draw_episode(sized(*[500] * 4), FixedProtocol(way=4, shot=1, queries_per_class=400), 0, 0)
    draws = [unbalanced(replace(draw, index=index), 0, concentration=2) for index in range(4000)]
    shares = np.array([np.bincount(uneven.query_labels, minlength=4) for uneven in draws]) / 400
    np.testing.assert_allclose(shares.mean(0), 0.25, atol=0.01)
    np.testing.assert_allclose(shares.var(0), 0.25 * 0.75 / 9 + 0.25 * 0.75 / 400, rtol=0.1)  # α₀ + 1 = 9
