"""A folder as an episode for the stepper: its examples are the support set, some of the other images the query set."""

from pathlib import Path

import numpy as np
import pandas as pd
import torch
from jaxtyping import UInt8

from tcnaps.config import UserError
from tcnaps.data.decoding import square
from tcnaps.estimator import TransductiveMahalanobisClassifier
from tcnaps.estimator.normalisation import normalised
from tcnaps.method.head import Head
from tcnaps.method.variants import VARIANTS
from tcnaps_suite.experiments.study_episodes import ShownEpisode
from tcnaps_suite.labelling.classify import Labels, true_labels
from tcnaps_suite.labelling.embedding import read_image
from tcnaps_suite.labelling.folder import ImageFolder

QUERIES = 60  # at most; evenly spread over the images without a label
SIDE = 84  # pixels of the pictures


def folder_episode(folder: ImageFolder, labels: Labels) -> ShownEpisode:
    """The episode. A query's class is the one in truth.csv; without such a table it is the label in `labels`.

    The head is the paper's, with identity_weight and scale as the estimator chooses them from the normalised rows. It
    does not whiten.
    """
    table = labels.table[labels.table["none_of_these"] != "yes"]
    by_hand = table["corrected"] == "yes"
    support = pd.concat([labels.examples, table.loc[by_hand, ["file", "label"]]])
    query = table.assign(label=table["best_guess"])[~by_hand]
    if folder.truth is not None:
        query["label"] = true_labels(query["file"], folder.truth)
    query = query[query["label"].isin(folder.classes)]
    if query.empty:
        raise UserError(f"{folder.path}: no image is left to show: all are examples, corrected, or of other classes.")
    query = query.iloc[np.unique(np.linspace(0, len(query) - 1, min(QUERIES, len(query))).astype(int))]
    codes = folder.images["file"].map(dict(zip(support["file"], support["label"]))).map(folder.classes.index, "ignore")
    labelled = codes.notna().to_numpy()
    points = torch.from_numpy(normalised(folder.features, labelled, codes[labelled].to_numpy(int))[0]).float()
    sets = []
    for images in (support, query):
        rows = pd.Index(folder.images["file"]).get_indexer(images["file"])
        sets.append((points[rows], torch.tensor([folder.classes.index(name) for name in images["label"]])))
    settings = {"class_prior": None, "normalise": False, "maximum_steps": 0}
    estimator = TransductiveMahalanobisClassifier(**settings).fit(points.numpy(), codes.fillna(-1).to_numpy(int))
    right = "an image's class is its label" if folder.truth is None else "classes of truth.csv"
    return ShownEpisode(
        VARIANTS["Transductive"],
        (right, folder.path.resolve().name, 0),
        tuple(folder.classes),
        *sets[0],
        *sets[1],
        *(np.stack([_pixels(folder.path / file) for file in images["file"]]) for images in (support, query)),
        Head(scale="auto", identity_weight=estimator.identity_weight_),
    )


def _pixels(file: Path) -> UInt8[np.ndarray, "height width 3"]:
    """A small square picture; grey where the file can't be read."""
    try:
        return square(read_image(file, SIDE), SIDE, "bilinear")
    except (UserError, OSError):
        return np.full((SIDE, SIDE, 3), 128, np.uint8)
