"""A study's main result in one sentence: the paired gain of one variant over another, with its intervals."""

import pandas as pd

from tcnaps.evaluation.claims import in_points
from tcnaps.evaluation.intervals import other_classes
from tcnaps.evaluation.statistics import averaged_together


def main_result(gain: pd.DataFrame, title: str) -> dict[str, str | list[dict]]:
    """How much more accurate one variant is than another: the mean over datasets, real and rendered ones apart.

    `gain` is from `paired_episodes`, of one evaluation, with a column `classes`. `gains` has for each kind of images
    the `difference` in [-1, 1], its `interval` for other episodes and its `class_interval` for other classes, too.
    """
    kinds = {name: pairs for name, pairs in averaged_together(gain).items() if name not in ("in", "out")}
    gains, parts = [], []
    for name, pairs in kinds.items():
        mean = other_classes(pairs, "difference").set_index("dataset").loc["all"]
        n_datasets = pairs["dataset"].nunique()
        scope = f"mean of {n_datasets} datasets" if n_datasets > 1 else pairs["dataset"].iloc[0]
        scope = scope if name == "all" else f"{name} images, {scope}"
        other = f" (for other classes: ± {100 * mean.class_interval:.1f})" if pd.notna(mean.class_interval) else ""
        parts.append(f"{scope}: {in_points(mean.difference, mean.interval)} points{other}")
        numbers = mean[["difference", "interval", "class_interval"]].dropna().astype(float)
        gains.append({"images": name, **numbers})
    random = "other episodes and trainings" if mean["n_replicates"] > 1 else "other episodes, of this one training"
    return {"sentence": f"{title}: {'; '.join(parts)}. ± is for {random}", "gains": gains}
