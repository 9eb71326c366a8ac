"""A study's main result in one sentence: the paired gain of one variant over another, with its interval."""

import json
from pathlib import Path

import pandas as pd

from tcnaps.config import Study
from tcnaps.config.storage import write_text
from tcnaps.evaluation.intervals import estimates
from tcnaps.evaluation.statistics import paired_episodes


def headline(episodes: pd.DataFrame, better: str, than: str, evaluation: str) -> dict[str, str | float]:
    """How much more accurate one variant is than another, paired, as the mean over datasets.

    Args:
        episodes: of `episode_accuracies`.

    Returns:
        sentence, difference (in [-1, 1]) and interval (its 95% half-width).

    Raises:
        ValueError: the two variants' episodes differ.
    """
    own = episodes[episodes["evaluation"] == evaluation]
    gain = paired_episodes(own[own["variant"] == better], own[own["variant"] == than])
    total = estimates(gain, ["evaluation"], "difference").iloc[0]
    over = f"mean of {total.n_datasets} datasets" if total.n_datasets > 1 else gain["dataset"].iloc[0]
    over += f" and {total.n_replicates} trainings" if total.n_replicates > 1 else ""
    points = f"{100 * total.difference:+.1f} ± {100 * total.interval:.1f} points".replace("-", "−")
    sentence = f"{better} minus {than}, {evaluation}, paired, {over}: {points}"
    return {"sentence": sentence, "difference": float(total.difference), "interval": float(total.interval)}


def write_headline(study: Study, found: dict[str, str | float]) -> Path:
    """Writes results/<study>/headline.json, which `make figures` prints at its end."""
    path = study.results_folder / "headline.json"
    write_text(path, json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    return path
