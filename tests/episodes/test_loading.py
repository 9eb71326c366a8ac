"""Loading: the same episodes with any number of workers, and no worker that hangs, is left over or dies unnoticed."""

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from hypothesis import given, strategies as st
from small_study import blobs, small_study

import tcnaps
from tcnaps.config import fingerprint
from tcnaps.config.dependencies import WITHOUT_RESULT
from tcnaps.config.fingerprint import code_fingerprint
from tcnaps.episodes import reading
from tcnaps.episodes.loading import Loader, LoadingError, Part, Request
from tcnaps.episodes.sampling import draw_episode
from tcnaps.method.episode import load_episode

PROTOCOL = small_study().evaluations["variable"].protocol
FIELDS = ("support_images", "support_labels", "query_images", "query_labels")


def mapped(folder: Path, name: str, **shape: int):
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
    children = psutil.Process(process_id).children(recursive=True)
    alive = [child for child in children if child.status() != psutil.STATUS_ZOMBIE]
    return [child for child in alive if reading.__file__ in child.cmdline()]


def bytes_of(images):
    """Scaled images as they were before."""
    return ((images.permute(0, 2, 3, 1) + 1) * 127.5).round().to(torch.uint8).numpy()


def gone(process_ids: list[int], seconds: float = 10) -> bool:
    """Whether none of them runs, or soon none does."""
    end = time.monotonic() + seconds
    while any(map(psutil.pid_exists, process_ids)) and time.monotonic() < end:
        time.sleep(0.01)
    return not any(map(psutil.pid_exists, process_ids))


@pytest.fixture(autouse=True)
def nothing_left_over():
    yield
    assert not workers_of()


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_episodes_are_the_same_with_any_number_of_workers(source, tmp_path, workers):
    sources = [source, mapped(tmp_path, "larger", n_classes=12, n_images=40)]
    tasks = [(s, draw_episode(s, PROTOCOL, 0, index)) for index in range(6) for s in sources]
    with Loader(workers) as loader:
        assert len(workers_of()) == workers
        episodes = list(loader.episodes(tasks))
    assert len(episodes) == len(tasks)
    for episode, (s, draw) in zip(episodes, tasks):
        wanted = load_episode(s, draw)
        assert episode.draw is draw and episode.way == wanted.way
        for name in FIELDS:
            ours, theirs = getattr(episode, name), getattr(wanted, name)
            assert torch.equal(ours, theirs) and ours.dtype == theirs.dtype and ours.stride() == theirs.stride()


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """The images of three sources of different length."""
    folder = tmp_path_factory.mktemp("several")
    return [mapped(folder, f"source-{n}", n_classes=2, n_images=n).images for n in (1, 3, 20)]


@given(st.lists(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 39)), min_size=1), min_size=1, max_size=5))
def test_images_of_several_files_go_to_their_places(several, wanted):
    requests, expected = [], []
    for k, chosen in enumerate(wanted):
        which, numbers = np.array([(s, number % len(several[s])) for s, number in chosen]).T
        parts = [Part(several[s], numbers[which == s], np.flatnonzero(which == s)) for s in np.unique(which)]
        requests.append(Request(f"request {k}", tuple(parts)))
        expected.append(np.stack([several[s][number] for s, number in zip(which, numbers)]))
    with Loader(1) as loader:
        for ours, theirs in zip(loader.read(requests), expected, strict=True):
            np.testing.assert_array_equal(bytes_of(ours), theirs)


@pytest.mark.parametrize("workers", [0, 1])
def test_images_in_memory_and_parts_of_mapped_ones_are_read_too(source, workers):
    kinds = [np.array(source.images), source.images[7:], source.images[::-1], np.asfortranarray(source.images)]
    requests = [Request("some", (Part(images, np.array([5, 0]), np.array([1, 0])),)) for images in kinds]
    with Loader(workers) as loader:
        for images, ours in zip(kinds, loader.read(requests)):
            np.testing.assert_array_equal(bytes_of(ours), images[[0, 5]])


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_little_is_read_ahead(source, workers):
    taken = []

    def tasks():
        for task in tasks_of(source, 12):
            taken.append(task)
            yield task

    with Loader(workers) as loader:
        for n_had, _ in enumerate(loader.episodes(tasks()), start=1):
            assert len(taken) == (min(12, n_had + workers + 1) if workers else n_had)


def test_iterators_take_turns_and_an_abandoned_one_leaves_nothing_behind(source):
    wanted = [load_episode(*task).query_images for task in tasks_of(source, 6)]
    with Loader(2) as loader:
        one, two = loader.episodes(tasks_of(source, 6)), loader.episodes(tasks_of(source, 6))
        pairs = [(next(one), next(two)) for _ in range(6)]
        assert all(torch.equal(e.query_images, images) for pair, images in zip(pairs, wanted) for e in pair)
        n_open = psutil.Process().num_fds()
        for _ in range(20):
            abandoned = loader.episodes(tasks_of(source, 6))
            assert torch.equal(next(abandoned).query_images, wanted[0])
            abandoned.close()
        assert psutil.Process().num_fds() == n_open  # of the memory shared with the workers


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_of_a_task_waits_for_its_turn(source, workers):
    def tasks():
        yield from tasks_of(source, 2)
        raise ValueError("the third has too few classes")

    had = []
    with Loader(workers) as loader, pytest.raises(ValueError, match="the third has too few classes"):
        had.extend(loader.episodes(tasks()))
    with Loader(workers) as loader, pytest.raises(ValueError, match="the third"):
        for episode in loader.episodes(tasks()):
            had.append(episode)
    assert [episode.draw.index for episode in had[-2:]] == [0, 1]


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_a_file_that_can_not_be_read_is_named_with_the_episode(source, tmp_path, workers):
    path = tmp_path / "blobs.npy"
    with Loader(workers) as loader:
        whole = path.stat().st_size
        os.truncate(path, whole // 2)
        episodes = loader.episodes(tasks_of(source, 4))
        message = r"^episode 0 of dataset 'blobs', split 'test': EOFError: .*blobs.npy ends before image \d+ does"
        with pytest.raises(LoadingError, match=message):
            next(episodes)
    path.unlink()
    with Loader(workers) as loader:
        with pytest.raises(LoadingError, match="^episode 0 of .*: FileNotFoundError: .*No such file.*blobs.npy"):
            next(loader.episodes(tasks_of(source, 4)))
        np.save(path, blobs("blobs", "test").images)  # the workers have outlived the error
        assert torch.equal(
            next(loader.episodes(tasks_of(source, 1))).query_images,
            load_episode(*next(tasks_of(blobs("blobs", "test"), 1))).query_images,
        )


def test_a_worker_that_is_killed_at_work_is_an_error_that_names_its_episodes(source):
    with Loader(2) as loader:
        second = loader._workers[1].process
        second.send_signal(signal.SIGSTOP)  # lest it be done before it dies
        episodes = loader.episodes(tasks_of(source, 9))
        assert next(episodes).draw.index == 0
        killer = threading.Timer(0.3, second.kill)  # by then it is waited for
        killer.start()
        with pytest.raises(LoadingError, match=r"died \(signal SIGKILL\) while it was on episode 1 of .*; episode 3 "):
            next(episodes)
        killer.join()
        with pytest.raises(LoadingError, match="SIGKILL"):
            list(loader.episodes(tasks_of(source, 9)))


def test_a_worker_that_is_killed_at_rest_is_an_error_once_it_is_asked(source):
    with Loader(1) as loader:
        assert len(list(loader.episodes(tasks_of(source, 2)))) == 2
        workers_of()[0].kill()
        with pytest.raises(LoadingError, match=r"signal SIGKILL\) while it was on episode 0 of dataset 'blobs'"):
            list(loader.episodes(tasks_of(source, 2)))


def test_a_worker_that_can_not_start_is_an_error(source, monkeypatch):
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    with Loader(1) as loader, pytest.raises(LoadingError, match=r"died \(exit code 1\)"):
        list(loader.episodes(tasks_of(source, 2)))


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_interrupt_or_error_leaves_no_process(source, error):
    with suppress(error), Loader(2) as loader:
        for episode in loader.episodes(tasks_of(source, 9)):
            if episode.draw.index == 3:
                raise error
    assert not workers_of() and episode.draw.index == 3


def test_a_loader_that_nobody_closes_leaves_no_process(source):
    loader = Loader(2)
    episodes = loader.episodes(tasks_of(source, 9))
    next(episodes)
    assert len(workers_of()) == 2
    del loader, episodes
    assert not workers_of()


PROGRAM = """
import signal
import sys
import numpy as np
from tcnaps.episodes.loading import Loader, Part, Request

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs are started with it ignored
images = np.load(sys.argv[1], mmap_mode="r")
with Loader(2) as loader:
    print(*(worker.process.pid for worker in loader._workers), flush=True)
    for _ in loader.read(Request("all", (Part(images, np.arange(9), np.arange(9)),)) for _ in iter(int, 1)):
        pass
"""  # as a script: nothing keeps the main module from being run again


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_the_program_however_it_ends(source, tmp_path, how):
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, tmp_path / "program.py", source.images.filename]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
    environment = os.environ | {"PYTHONPATH": str(Path(tcnaps.__file__).parents[1])}
    with subprocess.Popen(command, env=environment, **options) as program:
        try:
            workers = [int(number) for number in program.stdout.readline().split()]
            assert len(workers) == 2 and len(workers_of(program.pid)) == 2
            os.killpg(program.pid, how)  # as Ctrl-C in a terminal does
            _, told = program.communicate(timeout=30)
        finally:
            program.kill()
    assert gone(workers)
    assert told.count("Traceback") == (how == signal.SIGINT), told  # of the program alone


def test_what_can_not_be_meant_is_refused(source):
    with pytest.raises(ValueError, match="workers is -1; it must be 0"):
        Loader(-1)
    with Loader(1) as loader:
        episodes = loader.episodes(tasks_of(source, 9))
        next(episodes)
    for iterator in (episodes, loader.episodes(tasks_of(source, 1))):
        with pytest.raises(ValueError, match="this loader is closed"):
            next(iterator)


@pytest.mark.parametrize("result", ["training/pretraining", "training/meta_training", "evaluation/evaluate"])
def test_code_that_only_reads_makes_no_result_stale(tmp_path, monkeypatch, result):
    package = tmp_path / "tcnaps"
    shutil.copytree(Path(tcnaps.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(fingerprint, "PACKAGE", package)
    before = code_fingerprint([package / f"{result}.py"], WITHOUT_RESULT)

    def changed(name):
        path = package / f"{name}.py"
        path.write_text(path.read_text() + "\nnew = 1\n")
        fingerprint._code.cache_clear()
        return code_fingerprint([package / f"{result}.py"], WITHOUT_RESULT)

    for name in (
        "episodes/loading",
        "episodes/reading",
        "episodes/reading_workers",
        "datasets/__init__",
        "datasets/source",
        "datasets/decoding",
    ):
        assert changed(name) == before, name
    for name in ("method/episode", "episodes/sampling", "datasets/image_source", result):
        before, after = changed(name), before
        assert before != after, name


class FakeStream:
    """Notes what happens on it, in order, as a CUDA stream would have to do it."""

    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("copy")
        return self

    def __exit__(self, *_):
        pass

    def record_event(self):
        return len(self.log)

    def wait_event(self, event):
        self.log.append("wait")


def test_the_next_images_are_copied_while_the_device_computes(source, monkeypatch):
    """The order of things alone, for want of a device: each copy begins before the images before it are used."""
    log = []
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: FakeStream(log))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: FakeStream(log))
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: stream)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda images, stream: None)
    batches = [torch.full((1,), float(i)) for i in range(3)]
    with Loader() as loader:
        for number, images in enumerate(loader._ahead(iter(batches))):
            assert torch.equal(images, batches[number])
            log.append(f"use {number}")
    assert log == ["copy", "copy", "wait", "use 0", "copy", "wait", "use 1", "copy", "wait", "use 2"]
