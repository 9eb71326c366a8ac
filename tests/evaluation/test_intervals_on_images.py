"""Intervals for other classes on real images: 242 handwritten characters, of which a sample has 20."""

import io
import os
import tarfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from tcnaps.evaluation.intervals import other_classes

N_QUERY, WAY, EPISODES, SAMPLES = 10, 5, 200, 60


@pytest.fixture(scope="module")
def characters():
    """Omniglot's images as 8 × 8 pixels: (64,) per image, 20 images per character."""
    folder = Path(os.environ.get("TCNAPS_IMAGES") or Path(__file__).parents[3] / "shared" / "data")
    if not (file := folder / "omniglot.tar").is_file():
        pytest.skip(f"{file} is not there; set TCNAPS_IMAGES to the folder of omniglot.tar")
    images = {}
    with tarfile.open(file) as archive:
        for member in archive:
            if member.name.endswith(".png"):
                image = Image.open(io.BytesIO(archive.extractfile(member).read())).convert("L")
                small = image.resize((8, 8), Image.Resampling.BOX)
                images.setdefault(member.name.rpartition("/")[0], []).append(np.asarray(small).ravel() / 255)
    return np.array(list(images.values()))  # (n_classes, 20, 64)


def gains(characters, chosen, random):
    """What one step of soft k-means gains over the nearest support image, per episode of `chosen` (n, WAY) classes."""
    kept = np.argsort(random.random((*chosen.shape, characters.shape[1])))[:, :, : 1 + N_QUERY]
    images = np.take_along_axis(characters[chosen], kept[..., None], 2)  # (n, WAY, 1 + N_QUERY, 64)
    means, query = images[:, :, 0], images[:, :, 1:].reshape(len(chosen), WAY * N_QUERY, -1)
    truth = np.arange(WAY * N_QUERY) // N_QUERY
    distances = squared_distances(query, means)
    nearest = np.sort(distances, 2)
    scale = 2 / np.median(nearest[:, :, 1] - nearest[:, :, 0], axis=1)
    weights = np.exp(-scale[:, None, None] * (distances - nearest[:, :, :1]))
    weights /= weights.sum(2, keepdims=True)
    refined = (means + weights.swapaxes(1, 2) @ query) / (1 + weights.sum(1))[:, :, None]
    labels = [d.argmin(2) == truth for d in (squared_distances(query, refined), distances)]
    return labels[0].mean(1) - labels[1].mean(1)


def squared_distances(query, means):
    return (query**2).sum(2)[:, :, None] - 2 * query @ means.swapaxes(1, 2) + (means**2).sum(2)[:, None]


def test_an_interval_for_other_classes_covers_characters_that_it_has_not_seen(characters):
    random = np.random.default_rng(0)

    def drawn(pool, n):
        return np.array([random.choice(pool, WAY, replace=False) for _ in range(n)])

    over_all = np.concatenate([gains(characters, drawn(len(characters), 2000), random) for _ in range(5)]).mean()
    samples = []
    for number in range(SAMPLES):
        chosen = drawn(random.choice(len(characters), 20, replace=False), EPISODES)
        facts = {"dataset": str(number), "episode": range(EPISODES), "classes": chosen.astype(str).tolist()}
        samples.append(pd.DataFrame(facts | {"gain": gains(characters, chosen, random)}))
    rows = other_classes(pd.concat(samples), "gain").set_index("dataset").drop("all")
    errors = (rows["gain"] - over_all).abs()
    for_classes, for_episodes = ((errors <= rows[name]).mean() for name in ("class_interval", "interval"))
    assert 0.9 <= for_classes <= 0.99 and for_episodes < 0.75
