"""Features kept on disk: nothing is computed twice, nothing is mixed up, nothing is lost when a run is killed."""

import os
import signal
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms.functional import pil_to_tensor

from tcnaps.config import UserError
from tcnaps_suite.experiments.networks import Network
from tcnaps_suite.labelling import embedding, feature_cache
from tcnaps_suite.labelling.embedding import features_of

SOURCE = "torchvision:mean"
NUMBER = 10


@pytest.fixture
def folder(tmp_path):
    """Plain pictures of the greys 0, 1, …, 9, all with the same time of change."""
    for grey in range(NUMBER):
        file = tmp_path / f"{grey}" / "picture.bmp"
        file.parent.mkdir()
        Image.new("RGB", (8, 8), (grey,) * 3).save(file)
        os.utime(file, ns=(0, 0))
    return tmp_path


@pytest.fixture
def seen(monkeypatch):
    """What the network was given: the greys of all images, in order. Its features are the grey and 1."""
    greys = []

    def features(batch):
        greys.extend(batch[:, 0, 0, 0].int().tolist())
        return torch.stack([batch[:, 0, 0, 0].float(), torch.ones(len(batch))], 1)

    monkeypatch.setattr(embedding, "open_network", lambda name, device: Network(pil_to_tensor, features))
    monkeypatch.setattr(embedding, "AT_ONCE", 3)
    return greys


def greys_of(folder):
    files = sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*.bmp"))
    table, unreadable = features_of(folder, files, np.zeros(len(files), int), SOURCE)
    return dict(zip(files, table[:, 0].tolist())), [files[number] for number in unreadable]


def test_nothing_is_computed_twice_but_what_has_changed(folder, seen):
    expected = {f"{grey}/picture.bmp": grey for grey in range(NUMBER)}
    assert greys_of(folder) == (expected, []) and seen == list(range(NUMBER))
    assert greys_of(folder) == (expected, []) and len(seen) == NUMBER
    Image.new("RGB", (8, 8), (99,) * 3).save(folder / "0/picture.bmp")
    Image.new("RGB", (8, 8), (98,) * 3).save(folder / "0/new.bmp")
    (folder / "1/broken.bmp").write_bytes(b"BM")
    found, unreadable = greys_of(folder)
    assert seen[NUMBER:] == [98, 99] and unreadable == ["1/broken.bmp"] and np.isnan(found.pop("1/broken.bmp"))
    assert found == expected | {"0/picture.bmp": 99, "0/new.bmp": 98}


def test_a_file_of_known_size_and_time_is_not_read_again(folder, seen, monkeypatch):
    expected = greys_of(folder)
    with monkeypatch.context() as context:
        context.setattr(feature_cache, "open_regular", None)
        assert greys_of(folder) == expected
    (folder / ".features" / feature_cache.DIGESTS).write_text("{")
    assert greys_of(folder) == expected and len(seen) == NUMBER


def test_a_moved_image_is_known_by_its_content_and_not_by_its_name_size_and_time(folder, seen):
    greys_of(folder)
    (folder / "0/picture.bmp").rename(folder / "spare.bmp")
    (folder / "1/picture.bmp").rename(folder / "0/picture.bmp")  # of the same name, size and time
    (folder / "spare.bmp").rename(folder / "1/moved.bmp")
    os.utime(folder / "0/picture.bmp", ns=(1, 1))
    found, _ = greys_of(folder)
    assert (found["0/picture.bmp"], found["1/moved.bmp"]) == (1, 0) and len(seen) == NUMBER


def test_a_killed_run_goes_on_from_what_was_saved(folder, seen):
    network = embedding.open_network(SOURCE, "cpu")

    def killed(batch):
        if batch[0, 0, 0, 0] == 6:
            os.kill(os.getpid(), signal.SIGKILL)
        return network.features(batch)

    if (child := os.fork()) == 0:
        embedding.open_network = lambda name, device: replace(network, features=killed)
        greys_of(folder)
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL and not seen
    found, _ = greys_of(folder)
    assert seen == [6, 7, 8, 9] and list(found.values()) == list(range(NUMBER))


@pytest.mark.parametrize("damage", [lambda content: content[:200], lambda content: content[:-300] + bytes(300)])
def test_a_damaged_file_is_named_and_its_features_are_computed_again(folder, seen, damage, capsys):
    expected = greys_of(folder)
    file = min(folder.glob(".features/*/*.npz"))  # of the first three
    file.write_bytes(damage(file.read_bytes()))
    (folder / ".features" / "digests.json").write_text('{"0/picture.bmp": 3}')
    file.with_name(".partial.0.1.npz").touch()  # which another process is writing
    assert greys_of(folder) == expected and seen[NUMBER:] == [0, 1, 2]
    assert file.name in capsys.readouterr().err and not file.exists()
    assert file.with_name(".partial.0.1.npz").exists()


def test_features_of_another_version_are_kept_apart(folder, seen, monkeypatch):
    greys_of(folder)
    monkeypatch.setattr(embedding, "version", lambda package: "next")
    greys_of(folder)
    assert len(seen) == 2 * NUMBER


def test_a_full_disk_is_named(folder, seen, monkeypatch):
    monkeypatch.setattr(feature_cache.np, "savez", Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(UserError, match="No space left"):
        greys_of(folder)
