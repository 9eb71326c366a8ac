"""Loading: every episode and batch holds the images of its numbers, in their order."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from small_study import mapped_blobs, small_study

from tcnaps.episodes.loading import load_episode, read_images
from tcnaps.episodes.sampling import draw_episode


def bytes_of(images):
    """Scaled images as they were before."""
    return ((images.permute(0, 2, 3, 1) + 1) * 127.5).round().to(torch.uint8).numpy()


@pytest.mark.parametrize("index", range(4))
def test_an_episode_holds_the_images_and_labels_of_its_draw(tmp_path, index):
    source, before = mapped_blobs(tmp_path, "blobs", "test"), torch.get_rng_state()
    draw = draw_episode(source, small_study().evaluations["variable"].protocol, 0, index)
    episode = load_episode(source, draw)
    assert torch.equal(torch.get_rng_state(), before)
    assert episode.draw is draw and episode.way == len(draw.classes)
    for images, numbers in ((episode.support_images, draw.support_images), (episode.query_images, draw.query_images)):
        wanted = source.images[numbers].astype(np.float32) / np.float32(127.5) - 1
        assert np.array_equal(images.permute(0, 2, 3, 1), wanted) and images.dtype == torch.float32
        assert images.is_contiguous(memory_format=torch.channels_last)
    assert np.array_equal(episode.support_labels, draw.support_labels)
    assert np.array_equal(episode.query_labels, draw.query_labels)


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """Three sources of different length."""
    folder = tmp_path_factory.mktemp("several")
    return [mapped_blobs(folder, f"source-{n}", "test", n_classes=2, n_images=n) for n in (1, 3, 20)]


@given(st.lists(st.integers(0, 47), min_size=1).map(np.array))
def test_a_batch_holds_the_images_of_its_numbers_in_their_order(several, numbers):
    every = np.concatenate([source.images for source in several])
    np.testing.assert_array_equal(bytes_of(read_images(several, numbers)), every[numbers])


def test_images_in_memory_and_parts_of_mapped_ones_are_read_too(tmp_path):
    source = mapped_blobs(tmp_path, "blobs", "test")
    for images in (np.array(source.images), source.images[7:], source.images[::-1], np.asfortranarray(source.images)):
        ours = read_images([dataclasses.replace(source, images=images)], np.array([5, 0]))
        np.testing.assert_array_equal(bytes_of(ours), images[[5, 0]])
