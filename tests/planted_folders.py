"""Planted classes, as features, for the tests of labelling."""

import numpy as np


def planted(seed, way=5, shot=4, others=20, noise=1.0, foreign=0):
    """Features, given and true classes of a folder of blobs; two foreign classes have −1 and −2 as true ones."""
    rng, classes, d = np.random.default_rng(seed), np.arange(way), 16
    true = np.r_[np.repeat(classes, shot), np.repeat(classes, others), np.repeat([-1, -2], foreign)]
    features = rng.standard_normal((way + 2, d))[true] + noise * rng.standard_normal((len(true), d))
    return features.astype(np.float32), np.where(np.arange(len(true)) < way * shot, true, -1), true
