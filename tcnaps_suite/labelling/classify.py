"""Labels of a folder's images: the clustering begins with its examples and the user's corrections."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy.stats import binomtest
from sklearn.decomposition import PCA

from tcnaps.config import UserError
from tcnaps.data.listing import normal
from tcnaps.estimator import TransductiveMahalanobisClassifier
from tcnaps.estimator.normalisation import normalised
from tcnaps_suite.labelling.folder import NONE, ImageFolder
from tcnaps_suite.labelling.label_next import label_next
from tcnaps_suite.labelling.trust import Trust, calibrated, distance_to_classes, trust_of

COLUMNS = "file label probability best_guess runner_up possible none_of_these label_next corrected".split()
COMPONENTS = 256  # dimensions of the points that are clustered, at most


@dataclass(frozen=True)
class Labels:
    """What a folder's images were labelled.

    `table` has a row for every image that was corrected or is not an example. `label` is empty if the probability is
    below the limit or the image belongs to no class. `none_of_these` is "perhaps", or "yes" after a correction.
    """

    table: pd.DataFrame  # of `COLUMNS`
    examples: pd.DataFrame  # file and label of images that lie in a class folder and that no correction changes
    trust: Trust | None  # None if the examples are too few
    verdicts: pd.Series  # "right", "wrong" or "" (unknown) for every row of the table, by its best guess


def label_images(
    folder: ImageFolder, corrections: Mapping[str, str], abstain: float | int = 0, class_prior: str | None = None
) -> Labels:
    """Labels the images that have no label, from those that have one.

    `corrections`: file → class, which makes the image a further example, or `NONE`, which leaves it out. Labels are
    left empty where the probability is below `abstain`. `class_prior` is the command's option.
    """
    corrected = folder.images["file"].map(corrections.get)
    corrected = corrected.mask(corrected == folder.images["label"])  # no correction: its folder says the same
    given = folder.images["label"].where(corrected.isna(), corrected)
    if lost := sorted(set(folder.classes) - set(given)):
        raise UserError(f"By the corrections, the class {lost[0]} has no example left: add one, or take one back.")
    clustered = (given != NONE).to_numpy()
    files = folder.images["file"][clustered]
    table, trust = _clustered(files, given[clustered], folder.features[clustered], class_prior)
    table["label"] = table["label"].where(table["probability"] >= abstain, "")
    by_hand = pd.DataFrame({"file": folder.images["file"], "label": corrected})[corrected.notna()]
    none = by_hand["label"] == NONE
    by_hand["label"] = by_hand["label"].mask(none, "")
    by_hand = by_hand.assign(probability=1.0, best_guess=by_hand["label"], runner_up="", possible=by_hand["label"])
    by_hand = by_hand.assign(none_of_these=np.where(none, "yes", ""), label_next="", corrected="yes")
    table = pd.concat([table.assign(corrected=""), by_hand])[COLUMNS].sort_index().reset_index(drop=True)
    examples = folder.images[corrected.isna() & folder.images["label"].notna()]
    truth = true_labels(table["file"], folder.truth or {})
    verdicts = (truth == table["best_guess"]).map({True: "right", False: "wrong"}).where(truth.notna(), "")
    return Labels(table, examples, trust, verdicts)


def _clustered(
    files: pd.Series, labels: pd.Series, features: np.ndarray, class_prior: str | None
) -> tuple[pd.DataFrame, Trust | None]:
    """The table's rows for the images whose label is None, and how far to trust them."""
    codes, classes = pd.factorize(labels, sort=True)
    estimator, points = new_estimator(_prior(class_prior, list(classes))), points_of(features, codes)
    trust, unlabelled = trust_of(points, codes, estimator), codes < 0
    if not unlabelled.any():
        return pd.DataFrame(columns=COLUMNS[:-1]), trust
    probabilities = estimator.fit(points, codes).label_distributions_[unlabelled]
    foreign, sets, places = np.zeros(len(probabilities), bool), [""] * len(probabilities), [""] * len(probabilities)
    for place, number in enumerate(label_next(points[unlabelled], probabilities), start=1):
        places[number] = str(place)
    if trust is not None:
        foreign = distance_to_classes(points, codes, probabilities) > trust.farthest
        probabilities = calibrated(probabilities, trust.temperature)
        sets = ["; ".join(classes[row >= min(trust.rarest, row.max())]) for row in probabilities]
    order = (-probabilities).argsort(1, kind="stable")  # (n_unlabelled, way), the most probable class first
    guesses, runners_up = classes[order[:, 0]], classes[order[:, 1]]
    table = pd.DataFrame({"file": files[unlabelled], "label": guesses, "probability": probabilities.max(1).round(4)})
    table = table.assign(best_guess=guesses, runner_up=runners_up, possible=sets)
    return table.assign(none_of_these=np.where(foreign, "perhaps", ""), label_next=places), trust


def points_of(features: Float[np.ndarray, "n d"], codes: Int[np.ndarray, "n"]) -> Float[np.ndarray, "n r"]:
    """The features as the estimator would normalise them, in the r ≤ 256 axes along which they vary most.

    Clustering in more of them takes longer and changes about one label in a hundred. `codes` are −1 for no label.
    """
    labelled = codes >= 0
    points, _ = normalised(features, labelled, codes[labelled])
    solver = "covariance_eigh" if len(points) > points.shape[1] else "full"
    return PCA(min(COMPONENTS, *points.shape), svd_solver=solver).fit_transform(points)


def new_estimator(class_prior: object = "auto") -> TransductiveMahalanobisClassifier:
    """The estimator for `points_of` a folder's features."""
    return TransductiveMahalanobisClassifier(class_prior=class_prior, normalise="whitening")


def expected(trust: Trust | None) -> str:
    """The accuracy to expect, in a sentence."""
    if trust is None:
        return "Too few examples to say how many labels are right: give every class two at least, better five."
    return (
        f"Expected accuracy: {trust.accuracy:.0%} (95% interval {100 * trust.low:.0f} to {100 * trust.high:.0f}), from "
        "examples that were left out, if they are typical of your images."
    )


def accuracy(labels: Labels) -> str:
    """The share of true labels as a sentence with a 95% interval (Wilson's). Corrections don't count."""
    known = (labels.verdicts != "") & (labels.table["label"] != "") & (labels.table["corrected"] == "")
    if not known.any():
        return "No accuracy: truth.csv has no image that got a label and was not corrected."
    result = binomtest(int((labels.verdicts[known] == "right").sum()), int(known.sum()))
    low, high = result.proportion_ci(method="wilson")
    interval = f"95% interval {100 * low:.1f} to {100 * high:.1f}"
    return f"Accuracy {100 * result.statistic:.1f}% ({interval}) on the {known.sum()} labelled images in truth.csv."


def true_labels(files: pd.Series, truth: Mapping[str, str]) -> pd.Series:
    """The true label of each file, nan where it is unknown; truth.csv may leave out the folder's name."""
    return files.map(normal).map(lambda name: truth.get(name, truth.get(normal(name.partition("/")[2]))))


def _prior(text: str | None, classes: list[str]) -> str | list[float] | None:
    """`--class-prior`: "auto", "equal", "estimated", or a share for every class, such as "oak=3,elm=1"."""
    if text in (None, "auto", "equal", "estimated"):
        return {None: "auto", "equal": None}.get(text, text)
    try:  # a class may have commas and = in its name
        shares = {name: float(share) for name, share in re.findall("(.+?)=([^=,]*)(?:, *|$)|.+", text)}
        valid = len(shares) == len(classes) and all(0 < share < np.inf for share in shares.values())
        return [shares[name] / sum(shares.values()) for name in classes] if valid else [][0]
    except (ValueError, LookupError):
        wanted = ",".join(f"{name}=SHARE" for name in classes) + ", all above 0"
        raise UserError(f"--class-prior {text}: write 'auto', 'equal', 'estimated', or {wanted}.") from None
