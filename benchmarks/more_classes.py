"""What a backbone of more classes adds, where a study's rows are gone and accuracies per episode are kept.

    python benchmarks/more_classes.py results/reference/mini-imagenet-short/rivals-episodes.csv \\
        --study configs/mini-imagenet-half.yaml --out results/bench

The file is one that notebook 19 writes. Its network is that of Transductive CNAPS, so its "Simple CNAPS" is FEOT: this
network at step 0. Both are compared with the study's own, on the episodes that the file has.
"""

import argparse
from pathlib import Path

import pandas as pd

from tcnaps.config import load_study
from tcnaps.evaluation.claims import in_points
from tcnaps.evaluation.intervals import other_classes
from tcnaps.evaluation.result_files import load_rows, write_csv
from tcnaps.evaluation.statistics import episode_accuracies, with_classes
from tcnaps.evaluation.stopped_rows import variant_predictions

EPISODE = ["dataset", "shot", "episode"]
NAMES = {"Transductive CNAPS": "Transductive", "Simple CNAPS": "FEOT"}


def paired(kept: pd.DataFrame, rows: pd.DataFrame, limits: tuple[int, int]) -> pd.DataFrame:
    """`accuracy_half` of every episode in the rows, and beside it the kept `accuracy_all`, where there is one."""
    own = variant_predictions(rows, [*NAMES.values(), "Simple"], *limits)
    own = with_classes(episode_accuracies(own), rows)
    own = own.assign(shot=own["evaluation"].map(rows.groupby("evaluation")["shot"].first()))
    kept = kept.assign(variant=kept["classifier"].map(NAMES))[[*EPISODE, "variant", "accuracy"]]
    pairs = own.merge(kept, "left", [*EPISODE, "variant"], suffixes=("_half", "_all"))
    return pairs[[*EPISODE, "variant", "accuracy_half", "accuracy_all", "classes"]]


def more_classes(pairs: pd.DataFrame) -> pd.DataFrame:
    """By dataset: kept accuracies minus those of half the classes, and each side's gain of Transductive over FEOT."""
    pairs, frames = pairs.dropna(subset="accuracy_all"), []
    sides = pairs.set_index([*EPISODE, "variant"])[["accuracy_all", "accuracy_half"]].unstack()
    more, half = sides["accuracy_all"], sides["accuracy_half"]
    contrasts = {f"{name}, all classes minus half": more[name] - half[name] for name in NAMES.values()}
    gains = {"all classes": more["Transductive"] - more["FEOT"], "half of them": half["Transductive"] - half["FEOT"]}
    gains["all minus half"] = gains["all classes"] - gains["half of them"]
    contrasts |= {f"Transductive minus FEOT, {name}": gain for name, gain in gains.items()}
    classes = pairs.drop_duplicates(EPISODE).set_index(EPISODE)["classes"]
    for contrast, differences in contrasts.items():
        frame = pd.DataFrame({"difference": differences, "classes": classes}).reset_index()
        for shot, of_shot in frame.groupby("shot"):
            frames.append(other_classes(of_shot, "difference").iloc[:-1].assign(contrast=contrast, shot=shot))
    columns = ["contrast", "shot", "dataset", "difference", "class_interval", "interval", "n_classes", "n_episodes"]
    return pd.concat(frames)[columns]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="accuracies per episode, as notebook 19 writes them")
    parser.add_argument("--study", required=True, help="the YAML of the study to compare with")
    parser.add_argument("--out", type=Path, required=True, help="the folder for what is written")
    options = parser.parse_args()
    study = load_study(options.study)
    rows = load_rows(study, list(study.evaluations))
    pairs = paired(pd.read_csv(options.file), rows, study.refinement.limits)
    table = more_classes(pairs)
    write_csv(pairs.assign(classes=pairs["classes"].map(" | ".join)), options.out / "more-classes-episodes.csv")
    write_csv(table, options.out / "more-classes.csv")
    for row in table.itertuples():
        print(f"{row.contrast}, {row.shot}-shot, {row.dataset}: {in_points(row.difference, row.class_interval)} points")


if __name__ == "__main__":
    main()
