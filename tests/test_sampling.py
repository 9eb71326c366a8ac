"""The episode protocols: what they promise, number by number, and that episodes repeat."""

import numpy as np
import pytest
from small_study import blobs

from tcnaps.config import FixedProtocol, VariableProtocol
from tcnaps.datasets.source import ImageSource
from tcnaps.sampling import (
    draw_episode,
    queries_per_class,
    sample_classes,
    sample_shots,
    sample_support_size,
    sample_way,
)


def uneven(sizes, superclasses=None) -> ImageSource:
    starts = np.concatenate([[0], np.cumsum(sizes)])
    return ImageSource(
        "uneven",
        "test",
        np.zeros((starts[-1], 1, 1, 3), np.uint8),
        tuple(f"class {k}" for k in range(len(sizes))),
        starts,
        superclasses,
    )


@pytest.mark.parametrize("protocol", [FixedProtocol(way=4, shot=3, queries_per_class=5), VariableProtocol()])
def test_an_episode_repeats_and_its_images_are_apart(protocol):
    source = uneven([30, 12, 50, 9, 80, 21, 40])
    draws = [draw_episode(source, protocol, seed=3, index=i) for i in (7, 8, 7)]
    assert all(
        np.array_equal(getattr(draws[0], f), getattr(draws[2], f))
        for f in ("classes", "support_images", "query_images")
    )
    assert not np.array_equal(draws[0].support_images, draws[1].support_images)
    assert not np.array_equal(draws[0].support_images, draw_episode(source, protocol, seed=4, index=7).support_images)
    for i in range(50):
        draw = draw_episode(source, protocol, seed=0, index=i)
        images = np.concatenate([draw.support_images, draw.query_images])
        assert len(np.unique(images)) == len(images)
        labels = np.concatenate([draw.support_labels, draw.query_labels])
        of_class = np.searchsorted(source.class_starts, images, side="right") - 1
        assert np.array_equal(draw.classes[labels], of_class)
        assert set(draw.support_labels) == set(draw.query_labels) == set(range(len(draw.classes)))


def test_more_queries_leave_the_support_set_and_the_first_queries():
    source = blobs("blobs", "test", n_images=30)
    few, many = (
        draw_episode(source, FixedProtocol(way=5, shot=2, queries_per_class=q), seed=0, index=1) for q in (4, 20)
    )
    assert np.array_equal(few.support_images, many.support_images)
    assert np.array_equal(few.query_images.reshape(5, 4), many.query_images.reshape(5, 20)[:, :4])


def test_way_is_uniform_up_to_the_classes_there_are():
    generator = np.random.default_rng(0)
    ways = [sample_way(generator, 12, 5, 50) for _ in range(4000)]
    counts = np.bincount(ways, minlength=13)[5:]
    assert len(counts) == 8 and counts.min() > 400 and set(ways) == set(range(5, 13))
    assert sample_way(generator, 100, 5, 5) == 5
    with pytest.raises(ValueError, match="4 classes are fewer than minimum_way 5"):
        sample_way(generator, 4, 5, 50)


def test_classes_of_one_superclass():
    generator = np.random.default_rng(0)
    scripts = ("Greek",) * 6 + ("Latin",) * 9 + ("Runic",) * 4
    seen = set()
    for _ in range(200):
        classes = sample_classes(generator, 19, scripts, 5, 50)
        names = {scripts[k] for k in classes}
        assert len(names) == 1 and len(np.unique(classes)) == len(classes) >= 5
        seen |= names
    assert seen == {"Greek", "Latin"}  # Runic has too few characters
    with pytest.raises(ValueError, match="no superclass has the 10 classes"):
        sample_classes(generator, 19, scripts, 10, 50)


def test_queries_are_at_most_half_of_the_smallest_class():
    assert queries_per_class(np.array([100, 40]), 10) == 10
    assert queries_per_class(np.array([100, 7]), 10) == 3
    with pytest.raises(ValueError, match="fewer than 2 images"):
        queries_per_class(np.array([5, 1]), 10)


def test_support_size_is_between_the_way_and_its_limits():
    generator, sizes = np.random.default_rng(0), np.array([200, 30, 60])
    drawn = [sample_support_size(generator, sizes, 10, 500, 100) for _ in range(3000)]
    assert min(drawn) >= 3 and max(drawn) <= 100 + 20 + 50
    assert abs(np.mean(drawn) - (170 / 2 + 1.5)) < 3  # u is uniform; rounding up adds half an image a class
    assert max(sample_support_size(generator, sizes, 10, 40, 100) for _ in range(100)) == 40


def test_shots_follow_image_counts_and_never_exceed_what_is_left():
    generator, sizes = np.random.default_rng(0), np.array([400, 100, 12])
    shots = np.array([sample_shots(generator, sizes, 5, 60) for _ in range(3000)])
    assert shots.min() >= 1 and (shots <= sizes - 5).all() and (shots.sum(1) <= 60).all()
    assert 2.5 < shots[:, 0].mean() / shots[:, 1].mean() < 4.5
    assert np.array_equal(sample_shots(generator, sizes, 5, 3), [1, 1, 1])
    with pytest.raises(ValueError, match="can't hold one of each of 3 classes"):
        sample_shots(generator, sizes, 5, 2)


def test_what_cannot_be_drawn_is_said_with_dataset_split_and_class():
    with pytest.raises(ValueError, match="dataset 'uneven', split 'test' has 3 classes, fewer than way 5"):
        draw_episode(uneven([9, 9, 9]), FixedProtocol(way=5, shot=1), 0, 0)
    with pytest.raises(ValueError, match="class 'class 1' has 9 images, fewer than 5 support \\+ 10 query images"):
        draw_episode(uneven([20, 9]), FixedProtocol(way=2, shot=5), 0, 0)
    with pytest.raises(ValueError, match="dataset 'uneven', split 'test': 3 classes are fewer than minimum_way 5"):
        draw_episode(uneven([9, 9, 9]), VariableProtocol(), 0, 0)
