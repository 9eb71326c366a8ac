"""Query sets out of balance: their sizes, their shares, and that nothing else of an episode changes."""

import numpy as np
import pytest
from small_study import blobs

from tcnaps.config import FixedProtocol
from tcnaps.episodes.sampling import draw_episode
from tcnaps_suite.experiments.balance import dirichlet_counts, sparse_counts, unbalanced

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
        assert len(np.unique(uneven.query_labels)) == share.get("present", 5) or "concentration" in share


def test_dirichlet_proportions_have_the_moments_of_their_distribution():
    generator = np.random.default_rng(0)
    shares = np.array([dirichlet_counts(generator, 4, 1000, 2.0) for _ in range(4000)]) / 1000
    np.testing.assert_allclose(shares.mean(0), 0.25, atol=0.01)
    np.testing.assert_allclose(shares.var(0), 0.25 * 0.75 / 9 + 0.25 * 0.75 / 1000, rtol=0.1)  # α₀ + 1 = 9


def test_classes_that_are_present_share_the_queries_evenly():
    generator = np.random.default_rng(0)
    for present in range(1, 6):
        counts = sparse_counts(generator, 5, 13, present)
        kept = counts[counts > 0]
        assert counts.sum() == 13 and len(kept) == present and np.ptp(kept) <= 1
