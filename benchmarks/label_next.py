"""Labels for ten images that `tcnaps label` asks for, against labels for random images, on simulated folders.

    python benchmarks/label_next.py birds.npz textures.npz --out results/bench

Files and folders are those of trust.py, without images of other classes. Images labelled by hand count as right.
"""

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from tqdm.auto import tqdm
from trust import simulated_folder, sources_and_options

from tcnaps.evaluation.result_files import write_csv
from tcnaps_suite.labelling.classify import new_estimator, points_of
from tcnaps_suite.labelling.label_next import label_next

RANDOM = (10, 20, 30, 40)  # random images that are labelled for comparison


def compared(features: Float[np.ndarray, "n d"], given: Int[np.ndarray, "n"], true: Int[np.ndarray, "n"]) -> dict:
    """Accuracy on a folder's unlabelled images as it is, and after some more of them were labelled by hand."""
    unlabelled, generator = np.flatnonzero(given < 0), np.random.default_rng(len(given))

    def distributions(by_hand: Int[np.ndarray, "m"]) -> Float[np.ndarray, "n_unlabelled way"]:
        labels = given.copy()
        labels[unlabelled[by_hand]] = true[unlabelled[by_hand]]
        return new_estimator().fit(points_of(features, labels), labels).label_distributions_[unlabelled]

    def accuracy(by_hand: Int[np.ndarray, "m"]) -> float:
        return (distributions(by_hand).argmax(1) == true[unlabelled]).mean()

    none = np.array([], int)
    asked = label_next(points_of(features, given)[unlabelled], distributions(none))
    order = generator.permutation(len(unlabelled))
    after = {f"random_{number}": accuracy(order[:number]) for number in RANDOM}
    return {"before": accuracy(none), "asked_for": accuracy(asked), **after}


def main() -> None:
    sources, options = sources_and_options(__doc__)
    rows = []
    for source, index in tqdm([(s, i) for s in sources for i in range(options.folders)], desc="folders"):
        features, given, true = simulated_folder(source, source, index)
        own = true >= 0
        rows.append({"dataset": source.dataset, "folder": index} | compared(features[own], given[own], true[own]))
    table = pd.DataFrame(rows)
    means = table.drop(columns="folder").groupby("dataset", sort=False).mean()
    means = pd.concat([means, means.mean().to_frame("all").T]).rename_axis("dataset").reset_index()
    means["folders"] = [*table.groupby("dataset", sort=False).size(), len(table)]
    write_csv(means, options.out / "label-next.csv")
    print(means.round(3).to_string(index=False))


if __name__ == "__main__":
    main()
