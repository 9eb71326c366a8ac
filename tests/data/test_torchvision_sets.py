"""MNIST and CIFAR as torchvision stores them, written here but tiny: every test image is found, in its class."""

import shutil
import struct
from types import SimpleNamespace

import numpy as np
import pytest
import torchvision
from PIL import Image

from tcnaps.config import settings
from tcnaps.data import DatasetError, preparation
from tcnaps.data.preparing import ensure_prepared


def prepared(tmp_path, name, size, **keys):
    section = settings.Torchvision(source="torchvision", domain="out", path=str(tmp_path / "data"), name=name, **keys)
    return ensure_prepared(preparation("it", section, size), tmp_path / "prepared").splits["test"]


def test_mnist_is_prepared_as_in_the_released_code(tmp_path):
    folder = tmp_path / "data" / "MNIST" / "raw"
    folder.mkdir(parents=True)
    pixels = np.random.default_rng(0).integers(0, 256, (20, 28, 28), dtype=np.uint8)
    labels = np.array([*range(10), *reversed(range(10))], dtype=np.uint8)
    for part in ("t10k", "train"):
        (folder / f"{part}-images-idx3-ubyte").write_bytes(struct.pack(">4i", 0x803, 20, 28, 28) + pixels.tobytes())
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">2i", 0x801, 20) + labels.tobytes())
    source = prepared(tmp_path, "MNIST", 84)
    assert source.class_names[:3] == ("0 - zero", "1 - one", "2 - two") and source.class_sizes.tolist() == [2] * 10
    for image, drawn in zip(source.images, pixels[np.argsort(labels, kind="stable")]):
        assert np.array_equal(image, Image.fromarray(drawn).convert("RGB").resize((84, 84), Image.Resampling.LANCZOS))


def test_cifar_is_downloaded_only_if_asked_for_and_needed_no_more_once_prepared(tmp_path, monkeypatch):
    pixels = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3), dtype=np.uint8)
    asked = []

    def kind(root, train, download):
        asked.append(download)
        if fails:
            raise OSError("Name or service not known")
        (root / "cifar-10-batches-py").mkdir(parents=True, exist_ok=True)
        return SimpleNamespace(classes=["cat", "bird"], targets=[1, 0, 1], data=pixels)

    fails = False
    monkeypatch.setattr(torchvision.datasets, "CIFAR10", kind)
    with pytest.raises(DatasetError, match="there is no .*cifar-10-batches-py.*download: true"):
        prepared(tmp_path, "CIFAR10", 32)
    assert not asked
    source = prepared(tmp_path, "CIFAR10", 32, download=True)
    assert source.class_names == ("bird", "cat") and asked[0]
    np.testing.assert_array_equal(source.images, pixels[[0, 2, 1]])
    shutil.rmtree(tmp_path / "data")
    fails = True
    assert len(prepared(tmp_path, "CIFAR10", 32, download=True).images) == 3
    monkeypatch.setattr(torchvision.datasets, "CIFAR100", kind)
    with pytest.raises(DatasetError, match="'it': torchvision can't read or download CIFAR100 .*service not known"):
        prepared(tmp_path, "CIFAR100", 32, download=True)
