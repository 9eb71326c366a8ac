"""Folders of planted classes, as features, for the tests of labelling."""

import numpy as np
import pandas as pd

from tcnaps_suite.labelling.folder import ImageFolder

D = 16


def image_folder(path, names, shot, others, length, noise, seed, truth=None):
    """A folder of images near the corners of a simplex; names are those of classes → of their unlabelled images."""
    rows = []
    for k, (name, file) in enumerate(names.items()):
        rows += [(f"{name}/{number}.png", name, k) for number in range(shot)]
        rows += [(f"unlabelled/{file.format(number)}.png", None, k) for number in range(others)]
    files, labels, codes = zip(*rows)
    images = pd.DataFrame({"file": files, "label": pd.Series(labels, dtype=object)}, dtype=object)
    features = length * np.eye(len(names))[list(codes)]
    features += np.random.default_rng(seed).normal(0, noise, features.shape)
    left_out = pd.DataFrame(columns=["file", "reason"])
    return ImageFolder(path, "features.npz", images, features.astype(np.float32), left_out, truth)


def planted(seed, way=5, shot=4, others=20, noise=1.0, foreign=0):
    """Features, given and true classes of a folder of blobs; two foreign classes have −1 and −2 as true ones."""
    rng = np.random.default_rng(seed)
    classes = np.arange(way)
    true = np.r_[np.repeat(classes, shot), np.repeat(classes, others), np.repeat([-1, -2], foreign)]
    features = rng.standard_normal((way + 2, D))[true] + noise * rng.standard_normal((len(true), D))
    return features.astype(np.float32), np.where(np.arange(len(true)) < way * shot, true, -1), true
