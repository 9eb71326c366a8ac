"""The episode protocols: what they promise, number by number, and that episodes repeat."""

import zlib

import numpy as np
import pytest
from scipy import stats
from small_study import blobs, sized

from tcnaps.config import FixedProtocol, VariableProtocol
from tcnaps.episodes import sampling
from tcnaps.episodes.sampling import draw_episode, sample_classes, sample_shots

FIXED = FixedProtocol(way=4, shot=3, queries_per_class=5)
LIMITED = VariableProtocol(maximum_way=7, maximum_support_size=60)
SCRIPTS = ("Greek",) * 6 + ("Latin",) * 9 + ("Runic",) * 4
SOME, MANY = sized(30, 12, 50, 9, 80, 21, 40), sized(*(20 + 7 * k for k in range(19)), superclasses=SCRIPTS)


@pytest.mark.parametrize("protocol", [FIXED, VariableProtocol(), VariableProtocol(shots="uniform")])
def test_an_episode_repeats(protocol):
    draws = [draw_episode(SOME, protocol, seed=3, index=i) for i in (7, 8, 7)]
    for name in ("classes", "support_images", "query_images"):
        assert np.array_equal(getattr(draws[0], name), getattr(draws[2], name))
    assert not np.array_equal(draws[0].support_images, draws[1].support_images)
    assert not np.array_equal(draws[0].support_images, draw_episode(SOME, protocol, seed=4, index=7).support_images)


def test_more_queries_leave_the_support_set_and_the_first_queries():
    source = blobs("blobs", "test", n_images=30)
    few, many = (draw_episode(source, FixedProtocol(way=5, shot=2, queries_per_class=q), 0, 1) for q in (4, 20))
    assert np.array_equal(few.support_images, many.support_images)
    assert np.array_equal(few.query_images.reshape(5, 4), many.query_images.reshape(5, 20)[:, :4])


@pytest.mark.parametrize("kind", [FIXED, VariableProtocol()])
def test_a_concentration_leaves_the_largest_class_its_queries_and_takes_them_from_others(kind):
    equal, flat, uneven = (kind.model_copy(update={"query_concentration": a}) for a in (None, 1e6, 1.0))
    smallest = []
    for index in range(30):
        draw, same, thinned = (draw_episode(SOME, protocol, 0, index) for protocol in (equal, flat, uneven))
        assert np.array_equal(draw.support_images, thinned.support_images)
        assert np.isin(thinned.query_images, draw.query_images).all()
        counts = np.bincount(thinned.query_labels, minlength=len(draw.classes))
        assert counts.max() == np.bincount(draw.query_labels).max() and counts.min() >= 1
        assert np.array_equal(same.query_images, draw.query_images)
        smallest.append(counts.min() / counts.max())
    assert np.mean(smallest) < 0.5


def test_without_replacement_no_image_is_in_two_episodes():
    source = sized(30, 12, 50, 9, 80, 21, 40, 5)  # the last class has too few images for any episode
    protocol = FixedProtocol(way=3, shot=2, queries_per_class=4, replacement=False)
    draws = []
    with pytest.raises(ValueError, match="'uneven'.* episodes without replacement"):
        for index in range(1000):
            draws.append(draw_episode(source, protocol, seed=1, index=index))
    images = np.concatenate([np.concatenate([draw.support_images, draw.query_images]) for draw in draws])
    assert len(np.unique(images)) == len(images) == 18 * len(draws)
    left = source.class_sizes - np.bincount(np.searchsorted(source.class_starts, images, side="right") - 1, minlength=8)
    assert (left >= 6).sum() < 3  # it ended because no further episode can be drawn
    again, other = (draw_episode(source, protocol, seed=seed, index=5) for seed in (1, 2))
    assert np.array_equal(again.query_images, draws[5].query_images)
    assert not np.array_equal(other.query_images, draws[5].query_images)
    for draw in draws:
        of_class = np.searchsorted(source.class_starts, draw.query_images, side="right") - 1
        assert np.array_equal(draw.classes[draw.query_labels], of_class)


def test_way_is_uniform_up_to_the_classes_there_are():
    generator = np.random.default_rng(0)
    ways = [len(sample_classes(generator, sized(*[9] * 12), VariableProtocol())) for _ in range(4000)]
    counts = np.bincount(ways, minlength=13)[5:]
    assert len(counts) == 8 and counts.min() > 400 and set(ways) == set(range(5, 13))
    assert len(sample_classes(generator, sized(*[9] * 100), VariableProtocol(maximum_way=5))) == 5


def test_classes_of_one_superclass():
    generator, source = np.random.default_rng(0), sized(*[9] * 19, superclasses=SCRIPTS)
    seen = set()
    for _ in range(200):
        classes = sample_classes(generator, source, VariableProtocol())
        names = {SCRIPTS[k] for k in classes}
        assert len(names) == 1 and len(np.unique(classes)) == len(classes) >= 5
        seen |= names
    assert seen == {"Greek", "Latin"}  # Runic has too few characters
    with pytest.raises(ValueError, match="no superclass has the 10 classes"):
        sample_classes(generator, source, VariableProtocol(minimum_way=10))


def test_classes_below_one_node_of_a_hierarchy():
    generator, spans = np.random.default_rng(0), tuple(map(np.arange, (2, 5, 5, 8, 20, 30)))
    source, protocol = sized(*[9] * 30, spans=spans), VariableProtocol(maximum_way=10, maximum_span=20)
    drawn = [sample_classes(generator, source, protocol) for _ in range(4000)]
    assert all(len(np.unique(classes)) == len(classes) for classes in drawn)
    # 2 is too few and 30 too many; both nodes of 5 count; 10 of the 20 are drawn, and of the others all.
    assert stats.chisquare([sum(len(c) == way for c in drawn) for way in (5, 8, 10)], [2000, 1000, 1000]).pvalue > 0.01
    for classes in drawn:
        assert len(classes) == 10 or np.array_equal(classes, np.arange(len(classes)))
    assert stats.chisquare(np.bincount(np.concatenate([c for c in drawn if len(c) == 10]), minlength=20)).pvalue > 0.01


def test_episodes_follow_the_hierarchy_of_their_source_under_the_variable_protocol_only():
    source = sized(*[30] * 20, spans=(np.arange(3, 9), np.arange(12, 19)))
    for i in range(20):
        classes = draw_episode(source, VariableProtocol(), 0, i).classes
        assert classes.tolist() in (list(range(3, 9)), list(range(12, 19)))
    ours, plain = ([draw_episode(s, FIXED, 0, i).query_images for i in range(9)] for s in (source, sized(*[30] * 20)))
    assert np.array_equal(ours, plain)
    assert {len(draw_episode(source, VariableProtocol(maximum_span=6), 0, i).classes) for i in range(20)} == {6}


def test_support_size_is_between_the_way_and_its_limits():
    generator, remaining = np.random.default_rng(0), np.array([190, 20, 50])
    drawn = [sampling.sample_support_size(generator, remaining, 500, 100) for _ in range(3000)]
    assert min(drawn) >= 3 and max(drawn) <= 100 + 20 + 50
    assert abs(np.mean(drawn) - (170 / 2 + 1.5)) < 3  # u is uniform; rounding up adds half an image a class
    assert max(sampling.sample_support_size(generator, remaining, 40, 100) for _ in range(100)) == 40


def test_shots_follow_image_counts_and_never_exceed_what_is_left(monkeypatch):
    generator, sizes = np.random.default_rng(0), np.array([400, 100, 12])
    shots = np.array([sample_shots(generator, sizes, sizes - 5, 60) for _ in range(3000)])
    assert shots.min() >= 1 and (shots <= sizes - 5).all() and (shots.sum(1) <= 60).all()
    assert 2.5 < shots[:, 0].mean() / shots[:, 1].mean() < 4.5
    assert np.array_equal(sample_shots(generator, sizes, sizes - 5, 3), [1, 1, 1])
    sizes = np.array([50, 30, 20])
    # As Meta-Dataset's function of the same arguments, which doesn't refuse more than there are either.
    assert np.array_equal(sample_shots(generator, sizes, sizes - 5, 1000), sizes - 5)
    monkeypatch.setattr(sampling, "LOG_WEIGHTS", (0, 0))  # then sizes are the shares
    assert np.array_equal(sample_shots(generator, sizes, sizes - 10, 13), [6, 4, 3])


def test_uniform_shots_are_uniform():
    generator = np.random.default_rng(0)
    shots = np.array([sampling.sample_uniform_shots(generator, np.array([300, 7]), 500, 20) for _ in range(4000)])
    for column, most in zip(shots.T, (20, 7)):
        assert stats.chisquare(np.bincount(column, minlength=most + 1)[1:]).pvalue > 0.01


# Draws of the sampler that the committed results were made with. They depend on NumPy's streams, too.
@pytest.mark.parametrize(
    ("source", "protocol", "classes", "shots", "n_query", "checksum"),
    [
        (SOME, VariableProtocol(), [3, 0, 2, 6, 4, 1], [4, 26, 21, 16, 61, 7], 4, 507717783),
        (MANY, VariableProtocol(), [10, 12, 7, 9, 8, 14, 6], [1, 2, 2, 2, 2, 3, 1], 10, 1788419420),
        (SOME, FIXED, [1, 6, 4, 2], [3, 3, 3, 3], 5, 1920225134),
        (MANY, FIXED, [3, 4, 16, 9], [3, 3, 3, 3], 5, 1695793770),
        (sized(*[600, 500] * 4), LIMITED, [4, 0, 2, 3, 5, 1], [7, 18, 7, 6, 11, 8], 10, 1723575000),
    ],
    ids=["uniform", "superclasses", "fixed", "fixed, superclasses", "limited"],
)
def test_episodes_stay_what_they_were(source, protocol, classes, shots, n_query, checksum):
    draw = draw_episode(source, protocol, seed=3, index=0)
    assert draw.classes.tolist() == classes
    assert np.bincount(draw.support_labels).tolist() == shots
    assert np.bincount(draw.query_labels).tolist() == [n_query] * len(classes)
    parts = (draw.classes, draw.support_images, draw.support_labels, draw.query_images, draw.query_labels)
    assert zlib.crc32(np.concatenate(parts).astype("<i8").tobytes()) == checksum


@pytest.mark.parametrize(
    ("source", "protocol", "message"),
    [
        (sized(*[9] * 3), FixedProtocol(way=5, shot=1), "3 classes are fewer than way 5"),
        (sized(20, 9), FixedProtocol(way=2, shot=5), "class 'class 1' has 9 images, fewer than 5 support [+] 10 q"),
        (sized(*[9] * 3), VariableProtocol(), "3 classes are fewer than minimum_way 5"),
        (sized(9, 9, 9, 1, 9), VariableProtocol(), "class 'class 3' has 1 image, fewer than 1 support [+] 1 query"),
        (sized(*[9] * 8, spans=(np.arange(4),)), VariableProtocol(), "no node of the hierarchy"),
    ],
)
def test_what_cannot_be_drawn_is_said_with_dataset_split_and_class(source, protocol, message):
    with pytest.raises(ValueError, match=f"dataset 'uneven', split 'test': {message}"):
        draw_episode(source, protocol, 0, 0)
