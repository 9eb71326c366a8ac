"""In how many simulated cases a 95% interval holds the true mean, which is 0.

    python benchmarks/coverage_of_intervals.py --out results/bench

Other classes: the gain of an episode is the mean of its classes' effects, plus noise of standard deviation 1; a case
draws classes and episodes anew. Other trainings: a value is the sum of what a training adds on all datasets, what it
adds on one dataset, and noise of standard deviation 0.1; a case draws all of them anew.
"""

import argparse
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Float
from tqdm.auto import tqdm

from tcnaps.evaluation.intervals import estimates, other_classes
from tcnaps.evaluation.result_files import write_csv

WAYS = {"5": (5, 5), "5 to 10": (5, 10)}
OF_CLASSES = {"n_classes": (12, 20, 100), "way": WAYS, "n_episodes": (100, 600), "class_spread": (0, 0.25, 0.5, 1)}
OF_TRAININGS = {"trainings": (3, 5), "datasets": (1, 8), "in_common": (0, 0.3, 1), "interaction": (0, 0.1, 0.3, 1, 2)}
NOISE, EPISODES = 0.1, 2  # of other trainings


def layout(values: Float[np.ndarray, "run replicate dataset episode"]) -> pd.DataFrame:
    """A row for each value, as `estimates` takes them."""
    index = pd.MultiIndex.from_product(map(range, values.shape), names=["run", "replicate", "dataset", "episode"])
    return pd.Series(values.ravel(), index, name="value").reset_index()


def gains_of_episodes(
    n_classes: int, n_episodes: int, ways: Sequence[int], spread: float, noise: float, seed: int
) -> pd.DataFrame:
    """One case, as `other_classes` takes it: each episode draws its way between the two `ways`, then its classes."""
    random = np.random.default_rng(seed)
    effects = random.normal(0, spread, n_classes)
    chosen = [random.choice(n_classes, random.integers(*ways, endpoint=True), replace=False) for _ in range(n_episodes)]
    gains = [effects[classes].mean() + random.normal(0, noise) for classes in chosen]
    names = [tuple(f"class {k}" for k in classes) for classes in chosen]
    return pd.DataFrame({"dataset": str(seed), "episode": range(n_episodes), "classes": names, "gain": gains})


def values_of_trainings(
    n_cases: int, trainings: int, datasets: int, in_common: float, interaction: float, seed: int
) -> pd.DataFrame:
    """Cases as `estimates` takes them; the sizes are standard deviations."""
    random, shape = np.random.default_rng(seed), (n_cases, trainings, datasets, EPISODES)
    parts = [(in_common, (*shape[:2], 1, 1)), (interaction, (*shape[:3], 1)), (NOISE, shape)]
    return layout(sum(size * random.normal(size=part) for size, part in parts) + np.zeros(shape))


def coverage_of_classes(n_cases: int) -> pd.DataFrame:
    """A row for each combination of `OF_CLASSES`: the shares of cases that either interval holds."""
    rows = []
    for n_classes, way, n_episodes, spread in tqdm(list(product(*OF_CLASSES.values())), desc="other classes"):
        sizes = n_classes, n_episodes, WAYS[way], spread, 1.0
        cases = [gains_of_episodes(*sizes, seed) for seed in range(n_cases)]
        table = other_classes(pd.concat(cases), "gain").set_index("dataset").drop("all")
        held = {name: (table["gain"].abs() <= table[name]).mean() for name in ("class_interval", "interval")}
        rows.append(dict(zip(OF_CLASSES, (n_classes, way, n_episodes, spread))) | held)
    return pd.DataFrame(rows)


def coverage_of_trainings(n_cases: int) -> pd.DataFrame:
    """A row for each combination of `OF_TRAININGS`: the share of cases held, and that of the narrowest fifth."""
    rows = []
    for sizes in tqdm(list(product(*OF_TRAININGS.values())), desc="other trainings"):
        table = estimates(values_of_trainings(n_cases, *sizes, seed=2), ["run"], "value")
        held = table["value"].abs() <= table["interval"]
        narrow = table["interval"] <= table["interval"].quantile(0.2)
        rows.append(dict(zip(OF_TRAININGS, sizes)) | {"interval": held.mean(), "narrowest_fifth": held[narrow].mean()})
    return pd.DataFrame(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the folder for what is written")
    parser.add_argument("--cases", type=int, default=500, help="of each setting")
    options = parser.parse_args()
    tables = {"classes": coverage_of_classes(options.cases), "trainings": coverage_of_trainings(4 * options.cases)}
    for name, table in tables.items():
        write_csv(table.assign(cases=options.cases * (1 if name == "classes" else 4)), options.out / f"{name}.csv")
        print(table.round(3).to_string(index=False))


if __name__ == "__main__":
    main()
