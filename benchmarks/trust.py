"""What `tcnaps label` says of its own labels, against the truth, on simulated folders.

    python benchmarks/trust.py birds.npz textures.npz --out results/bench

A file holds `features` (n, d) and `labels` (n,). A folder has 5 or up to 10 classes, 2 to 5 examples of each, 5 to 29
images to be labelled of each, 10 images of a further class, and 10 draws, with replacement, from the next file.
`own_flagged_if_shifted` is with all images to be labelled moved by `SHIFT`.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from heads import features_from
from jaxtyping import Float, Int
from sklearn.metrics import roc_auc_score
from tqdm.auto import tqdm

from tcnaps.config import UserError
from tcnaps.data.image_source import ImageSource
from tcnaps.episodes.sampling import episode_generator
from tcnaps.evaluation.result_files import write_csv
from tcnaps_suite.labelling.classify import new_estimator, points_of
from tcnaps_suite.labelling.trust import calibrated, distance_to_classes, trust_of

FOREIGN = 10  # images of a class without examples, and as many of another dataset
SHIFT = 0.6  # of the way to the next file's mean
FEWEST, MOST = 5, 30  # images to be labelled of each class


def simulated_folder(
    source: ImageSource, other: ImageSource, index: int
) -> tuple[Float[np.ndarray, "n d"], Int[np.ndarray, "n"], Int[np.ndarray, "n"]]:
    """Features of one folder, given classes (−1: none) and true ones (−1: a further class, −2: the other dataset)."""
    generator = episode_generator(0, source.dataset, "folder", index)
    way, shot = min((5, 10)[index % 2], source.n_classes - 1), 2 + index // 2 % 4
    features, given, true = [], [], []
    for k, chosen in enumerate(generator.permutation(source.n_classes)[: way + 1]):
        number = FOREIGN if k == way else shot + generator.integers(FEWEST, MOST)
        members = generator.permutation(source.images_of(int(chosen)))[:number]
        features.append(members)
        true += [-1 if k == way else k] * len(members)
        given += [k if k < way and n < shot else -1 for n in range(len(members))]
    features.append(generator.choice(other.images, FOREIGN))
    return np.concatenate(features), np.array(given + [-1] * FOREIGN), np.array(true + [-2] * FOREIGN)


def judged(features: Float[np.ndarray, "n d"], given: Int[np.ndarray, "n"], true: Int[np.ndarray, "n"]) -> dict:
    """What is said of a folder's labels, and what is true of them."""
    estimator, points, unlabelled = new_estimator(), points_of(features, given), given < 0
    trust = trust_of(points, given, estimator)
    raw = estimator.fit(points, given).label_distributions_[unlabelled]
    probabilities, own, truth = calibrated(raw, trust.temperature), true[unlabelled] >= 0, true[unlabelled]
    accuracy = (probabilities.argmax(1) == truth)[own].mean()
    possible = probabilities >= np.minimum(trust.rarest, probabilities.max(1, keepdims=True))
    distances = distance_to_classes(points, given, raw)
    farther = distances > trust.farthest
    return {
        "accuracy": accuracy,
        "expected": trust.accuracy,
        "in_interval": trust.low <= accuracy <= trust.high,
        "interval_width": trust.high - trust.low,
        "in_set": possible[own, truth[own]].mean(),
        "set_size": possible[own].sum(1).mean(),
        "confidence": raw[own].max(1).mean(),
        "calibrated_confidence": probabilities[own].max(1).mean(),
        "own_flagged": farther[own].mean(),
        "further_class_flagged": farther[truth == -1].mean(),
        "further_class_auroc": roc_auc_score(~own[truth > -2], distances[truth > -2]),
        "other_data_flagged": farther[truth == -2].mean(),
        "other_data_auroc": roc_auc_score(~own[truth != -1], distances[truth != -1]),
    }


def sources_and_options(description: str) -> tuple[list[ImageSource], argparse.Namespace]:
    """The datasets that a command names, and its options `out` and `folders`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+", help="an .npz for each dataset")
    parser.add_argument("--out", type=Path, required=True, help="the folder for what is written")
    parser.add_argument("--folders", type=int, default=24, help="of each dataset")
    options = parser.parse_args()
    try:
        return [features_from(file) for file in options.files], options
    except UserError as error:
        parser.error(str(error))


def main() -> None:
    sources, options = sources_and_options(__doc__)
    if len(sources) < 2:
        raise SystemExit("Name a second file: images of the next dataset belong to no class of a folder.")
    rows, pairs = [], list(zip(sources, sources[1:] + sources[:1]))
    for (source, other), index in tqdm([(p, i) for p in pairs for i in range(options.folders)], desc="folders"):
        features, given, true = simulated_folder(source, other, index)
        facts = {"dataset": source.dataset, "folder": index, "shot": np.bincount(given[given >= 0]).min()}
        shift = SHIFT * (other.images.mean(0) - source.images.mean(0)) * (given < 0)[:, None]
        shifted = judged(features + shift, given, true)["own_flagged"]
        rows.append(facts | judged(features, given, true) | {"own_flagged_if_shifted": shifted})
    table = pd.DataFrame(rows)
    write_csv(table, options.out / "trust-folders.csv")
    means = table.drop(columns=["dataset", "folder"]).groupby("shot").mean()
    means = pd.concat([means, table[means.columns].mean().to_frame("all").T]).rename_axis("shot").reset_index()
    write_csv(means.assign(folders=[*table.groupby("shot").size(), len(table)]), options.out / "trust.csv")
    print(means.round(3).to_string(index=False))


if __name__ == "__main__":
    main()
