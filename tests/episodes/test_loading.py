"""Loading: the same episodes with any number of workers, and no worker that is left over or dies unnoticed."""

import dataclasses
import os
import subprocess
import sys
import time
from itertools import islice

import numpy as np
import psutil
import pytest
import torch
from hypothesis import given, strategies as st
from small_study import blobs, small_study

from tcnaps.episodes import loading
from tcnaps.episodes.loading import LoadingError, load_episode, read_batches, read_episodes
from tcnaps.episodes.sampling import draw_episode

PROTOCOL = small_study().evaluations["variable"].protocol


def mapped(folder, name, **shape):
    """Blobs in a file, as prepared datasets are."""
    source = blobs(name, "test", **shape)
    np.save(folder / f"{name}.npy", source.images)
    return dataclasses.replace(source, images=np.load(folder / f"{name}.npy", mmap_mode="r"))


@pytest.fixture
def source(tmp_path):
    return mapped(tmp_path, "blobs")


def tasks_of(source, n_episodes):
    return ((source, draw_episode(source, PROTOCOL, 0, index)) for index in range(n_episodes))


def workers_of(process_id: int | None = None) -> list[psutil.Process]:
    """Children of the process that starts workers."""
    children = psutil.Process(process_id).children(recursive=True)
    servers = [child for child in children if "forkserver" in " ".join(child.cmdline())]
    return [child for child in servers if child.ppid() in {server.pid for server in servers}]


def soon(condition, seconds=20) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


def bytes_of(images):
    """Scaled images as they were before."""
    return ((images.permute(0, 2, 3, 1) + 1) * 127.5).round().to(torch.uint8).numpy()


@pytest.mark.parametrize("workers", [0, 2])
def test_episodes_are_the_same_with_any_number_of_workers(source, tmp_path, workers):
    sources = [source, mapped(tmp_path, "larger", n_classes=12, n_images=40)]
    tasks = [(s, draw_episode(s, PROTOCOL, 0, index)) for index in range(6) for s in sources]
    before = torch.get_rng_state()
    episodes = list(read_episodes(tasks, workers))
    assert torch.equal(torch.get_rng_state(), before)
    assert len(episodes) == len(tasks)
    for episode, (s, draw) in zip(episodes, tasks):
        assert episode.draw is draw and episode.way == len(draw.classes)
        for images, numbers in (
            (episode.support_images, draw.support_images),
            (episode.query_images, draw.query_images),
        ):
            wanted = s.images[numbers].astype(np.float32) / np.float32(127.5) - 1
            assert np.array_equal(images.permute(0, 2, 3, 1), wanted) and images.dtype == torch.float32
            assert images.is_contiguous(memory_format=torch.channels_last)
        assert np.array_equal(episode.support_labels, draw.support_labels)
        assert np.array_equal(episode.query_labels, draw.query_labels)
    alone = load_episode(*tasks[-1])
    assert torch.equal(alone.query_images, episodes[-1].query_images) and alone.draw is tasks[-1][1]


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """Three sources of different length."""
    folder = tmp_path_factory.mktemp("several")
    return [mapped(folder, f"source-{n}", n_classes=2, n_images=n) for n in (1, 3, 20)]


@given(st.lists(st.lists(st.integers(0, 47), min_size=1).map(np.array), min_size=1, max_size=5))
def test_batches_hold_the_images_of_their_numbers_in_their_order(several, batches):
    check_batches(several, batches, 0)


def test_batches_are_the_same_with_workers(several):
    check_batches(several, [np.random.default_rng(i).permutation(48)[:20] for i in range(7)], 2)


def check_batches(sources, batches, workers):
    every = np.concatenate([source.images for source in sources])
    for numbers, images in zip(batches, read_batches(sources, iter(batches), workers), strict=True):
        np.testing.assert_array_equal(bytes_of(images), every[numbers])


def test_images_in_memory_and_parts_of_mapped_ones_are_read_too(source):
    for images in (np.array(source.images), source.images[7:], source.images[::-1], np.asfortranarray(source.images)):
        (ours,) = read_batches([dataclasses.replace(source, images=images)], [np.array([5, 0])])
        np.testing.assert_array_equal(bytes_of(ours), images[[5, 0]])


@pytest.mark.parametrize("workers", [0, 2])
def test_little_is_read_ahead(source, workers):
    taken = []

    def tasks():
        for task in tasks_of(source, 12):
            taken.append(task)
            yield task

    for n_had, _ in enumerate(read_episodes(tasks(), workers), start=1):
        assert len(taken) <= n_had + 2 * workers


@pytest.mark.parametrize("workers", [0, 1])
def test_a_file_that_can_not_be_read_is_named_with_the_episode(source, tmp_path, workers):
    path = tmp_path / "blobs.npy"
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(LoadingError, match="^episode 0 of dataset 'blobs', split 'test': .*blobs.npy"):
        next(read_episodes(tasks_of(source, 4), workers))
    path.unlink()
    with pytest.raises(LoadingError, match="^3 images of blobs: .*blobs.npy"):
        next(read_batches([source], [np.arange(3)], workers))


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_of_a_task_is_raised_as_it_is(source, workers):
    def tasks():
        yield from tasks_of(source, 2)
        raise RuntimeError("the third has too few classes")

    with pytest.raises(RuntimeError, match="^the third has too few classes"):
        list(read_episodes(tasks(), workers))
    with pytest.raises(ValueError):
        next(read_episodes(tasks_of(source, 1), -1))


@pytest.mark.slow
def test_an_abandoned_iterator_leaves_no_process_and_a_worker_that_is_killed_is_an_error(source):
    episodes = read_episodes(tasks_of(source, 9), 2)
    next(episodes)
    assert len(workers_of()) == 2
    del episodes
    assert soon(lambda: not workers_of())
    episodes = read_episodes(tasks_of(source, 99), 1)
    next(episodes)
    (worker,) = workers_of()
    worker.kill()
    with pytest.raises((RuntimeError, OSError, EOFError)):
        list(episodes)


PROGRAM = """
import sys
import numpy as np
from tcnaps.data.image_source import ImageSource
from tcnaps.episodes.loading import read_batches

if __name__ == "__main__":
    images = np.load(sys.argv[1], mmap_mode="r")
    source = ImageSource("some", "test", images, ("one",), np.array([0, len(images)]))
    for number, _ in enumerate(read_batches([source], (np.arange(9) for _ in iter(int, 1)), 2)):
        print(number, flush=True)
"""


@pytest.mark.slow
def test_workers_end_with_the_program_even_if_it_is_killed(source, tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, tmp_path / "program.py", source.images.filename]
    root = os.path.dirname(os.path.dirname(os.path.dirname(loading.__file__)))
    environment = os.environ | {"PYTHONPATH": root}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as program:
        lines = list(islice(program.stdout, 3))
        workers = [worker.pid for worker in workers_of(program.pid)]
        program.kill()
    assert len(lines) == 3 and len(workers) == 2
    assert soon(lambda: not any(map(psutil.pid_exists, workers)))
