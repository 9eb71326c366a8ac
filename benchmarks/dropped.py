"""Settings that were tried for the estimator and dropped: what each changes, on the sets that settings were chosen on.

    python benchmarks/dropped.py birds.npz textures.npz ... --out results/bench

Files as for heads.py. Each setting takes the place of one of the estimator's own; all else is as it is.
"""

import argparse
import math
from pathlib import Path
from unittest.mock import patch

import numpy as np
from heads import SETTINGS, drawn, features_from, summary

from tcnaps.config import UserError
from tcnaps.estimator.class_shares import NEVER, REFINEMENTS
from tcnaps.estimator.normalisation import Normalisation, normalised
from tcnaps.evaluation.result_files import write_csv
from tcnaps_suite.experiments.comparison import compare_classifiers
from tcnaps_suite.experiments.rivals import Classifier, of_estimator

SHOWN = ("5-way 1-shot", "5-way 5-shot", "1-shot, α = 1", "5-shot, α = 1", "1-shot, 1 of 5 classes")
OWN = "Estimator"


def about_all_rows(X: np.ndarray, labelled: np.ndarray, codes: np.ndarray) -> tuple[np.ndarray, Normalisation]:
    """`normalised`, as if all rows were labelled ones of one class."""
    return normalised(X, np.ones(len(X), bool), np.zeros(len(X), int))


def whitened_from(labels: int) -> tuple:
    """`REFINEMENTS`, of which those for classes of somewhat unequal shares whiten from this number of labels on."""
    return tuple((limit, settings, labels if 0.9 < limit < 0.97 else own) for limit, settings, own in REFINEMENTS)


REPLACED = {  # idea: what takes whose place
    "half of the mean of all rows subtracted": ("estimator.classifier.normalised", about_all_rows),
    "all of the mean subtracted": ("estimator.normalisation.KEPT", 0.0),
    "hardly any of the mean subtracted": ("estimator.normalisation.KEPT", 1.0),
    "features to the power ½": ("estimator.normalisation.POWER", 0.5),
    "features as they are": ("estimator.normalisation.POWER", 1.0),
    "identity_weight: a third": ("estimator.classifier.IDENTITY_SHARE", 0.1),
    "identity_weight: three times": ("estimator.classifier.IDENTITY_SHARE", 0.9),
    "scale: a median gap of 1": ("method.class_statistics.MEDIAN_GAP", 1.0),
    "scale: a median gap of 4": ("method.class_statistics.MEDIAN_GAP", 4.0),
    "no bound on evenness by step 0": ("estimator.class_shares.ALLOWED", math.inf),
    "never back to step 0": ("estimator.class_shares.STAYING", 0.0),
    "whitening: half the limit": ("estimator.whitening.TYPICAL", 0.25),
    "whitening: twice the limit": ("estimator.whitening.TYPICAL", 1.0),
    "mean of all rows subtracted, but not whitened": ("estimator.whitening.TYPICAL", math.inf),
    "whitens unequal classes of any number of labels": ("estimator.class_shares.REFINEMENTS", whitened_from(1)),
    "whitens no unequal classes": ("estimator.class_shares.REFINEMENTS", whitened_from(NEVER)),
}
ALWAYS = {  # idea: the estimator's arguments
    "the paper's refinement always": {"class_prior": None},
    "pushes always": {"class_prior": "balancing"},
    "estimated shares always": {"class_prior": "estimated"},
}


def replacing(name: str, value: object) -> Classifier:
    """The estimator with another value in the place of this name in `tcnaps`."""

    def classifier(*sets):
        with patch(f"tcnaps.{name}", value):
            return of_estimator()(*sets)

    return classifier


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+", help="an .npz for each dataset")
    parser.add_argument("--out", type=Path, required=True, help="the folder for the table")
    parser.add_argument("--episodes", type=int, default=40, help="of each setting and dataset")
    options = parser.parse_args()
    ideas = {idea: replacing(*other) for idea, other in REPLACED.items()}
    ideas |= {idea: of_estimator(**arguments) for idea, arguments in ALWAYS.items()}
    try:
        sources = [features_from(file) for file in options.files]
    except UserError as error:
        parser.error(str(error))
    episodes = drawn(sources, {name: SETTINGS[name] for name in SHOWN}, options.episodes)
    rows = compare_classifiers(episodes, {OWN: of_estimator()} | ideas, OWN)
    table = summary(rows.rename(columns={"classifier": "head"})).query("dataset == 'all' and head != @OWN")
    write_csv(table.drop(columns=["dataset", "seconds"]), options.out / "dropped.csv")
    means = table.pivot(index="head", columns="setting", values="difference").loc[[*ideas], [*SHOWN]]
    print((100 * means).round(1).to_string())


if __name__ == "__main__":
    main()
