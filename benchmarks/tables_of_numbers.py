"""What refinement adds on tables of numbers: scikit-learn's, with columns of unit variance, and planted ones.

python benchmarks/tables_of_numbers.py --out results/bench
"""

import argparse
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd
from scipy import stats
from sklearn import datasets
from sklearn.preprocessing import scale

from tcnaps import TransductiveMahalanobisClassifier
from tcnaps.evaluation.result_files import write_csv

TABLES = ("breast_cancer", "wine", "iris", "digits")
LABELS = 5  # of each class
LOSS = 0.03  # of accuracy, from which on a draw counts as lost
ROWS = 1000  # of a planted table, without a label

Table = tuple[np.ndarray, np.ndarray, np.ndarray]  # X, the truth, and y with −1 for no label


def known(table: str, seed: int) -> Table:
    """One of scikit-learn's tables, with a draw of the labels."""
    X, truth = getattr(datasets, f"load_{table}")(return_X_y=True)
    order, y = np.random.default_rng(seed).permutation(len(X)), np.full(len(X), -1)
    for k in np.unique(truth):
        y[order[truth[order] == k][:LABELS]] = k
    return scale(X), truth, y


def planted(seed: int) -> Table:
    """2 to 20 classes that may be hard to tell apart, rare or heavy-tailed, in 3 to 200 columns of unequal variance."""
    rng = np.random.default_rng(seed)
    choices = [2, 3, 5, 10, 20], [3, 5, 10, 20, 50, 200], [2, 3, 5, 8]
    way, d, labels = (int(rng.choice(numbers)) for numbers in choices)
    shares = rng.dirichlet(np.full(way, rng.choice([1, 3, 1e6])))
    truth = np.concatenate([np.repeat(np.arange(way), labels), rng.choice(way, ROWS, p=shares)])
    noise = rng.standard_t(rng.choice([3, 1e6]), (len(truth), d)) * np.exp(rng.uniform(0, 1.5) * rng.normal(size=d))
    centres = rng.uniform(1, 5) * d ** rng.uniform(-0.5, -0.25) * rng.normal(size=(way, d))
    return centres[truth] + noise, truth, np.where(np.arange(len(truth)) < way * labels, truth, -1)


def gain(X: np.ndarray, truth: np.ndarray, y: np.ndarray) -> float:
    """Accuracy of the estimator minus that of step 0 on the rows without a label."""
    first, refined = (TransductiveMahalanobisClassifier(maximum_steps=steps).fit_predict(X, y) for steps in (0, "auto"))
    return (refined == truth)[y == -1].mean() - (first == truth)[y == -1].mean()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the folder for the table")
    parser.add_argument("--draws", type=int, default=20, help="of the labels")
    parser.add_argument("--planted", type=int, default=200, help="number of planted tables")
    options = parser.parse_args()
    gains = {table: [gain(*known(table, seed)) for seed in range(options.draws)] for table in TABLES}
    gains["planted"] = [gain(*planted(seed)) for seed in range(options.planted)]
    with patch("tcnaps.estimator.class_shares.STAYING", 0.0):
        gains["planted, never back to step 0"] = [gain(*planted(seed)) for seed in range(options.planted)]
    table = pd.DataFrame({"table": list(gains), "difference": list(map(np.mean, gains.values()))})
    table["interval"] = [stats.t.ppf(0.975, len(found) - 1) * stats.sem(found) for found in gains.values()]
    table["lost"] = [np.mean(np.array(found) < -LOSS) for found in gains.values()]
    table["draws"] = [len(found) for found in gains.values()]
    print(pd.read_csv(write_csv(table, options.out / "tables-of-numbers.csv")).to_string(index=False))


if __name__ == "__main__":
    main()
