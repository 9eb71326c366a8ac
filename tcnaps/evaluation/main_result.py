"""A study's main result in one sentence: the paired gain of one variant over another, with its interval."""

import json
from pathlib import Path

import pandas as pd

from tcnaps.config import Study
from tcnaps.config.storage import write_text
from tcnaps.evaluation.intervals import estimates
from tcnaps.evaluation.statistics import paired_episodes


def main_result(episodes: pd.DataFrame, better: str, than: str, evaluation: str) -> dict[str, str | float]:
    """How much more accurate one variant is than another: the paired difference, as the mean over datasets.

    Args:
        episodes: from `episode_accuracies`.

    Returns:
        sentence, difference (in [-1, 1]) and interval (its 95% half-width).

    Raises:
        ValueError: the two variants' episodes differ.
    """
    episodes = episodes[episodes["evaluation"] == evaluation]
    gain = paired_episodes(episodes[episodes["variant"] == better], episodes[episodes["variant"] == than])
    mean = estimates(gain, ["evaluation"], "difference").iloc[0]
    scope = f"mean of {mean.n_datasets} datasets" if mean.n_datasets > 1 else gain["dataset"].iloc[0]
    scope += f" and {mean.n_replicates} trainings" if mean.n_replicates > 1 else ""
    points = f"{100 * mean.difference:+.1f} ± {100 * mean.interval:.1f} points".replace("-", "−")
    sentence = f"{better} minus {than}, {evaluation}, paired, {scope}: {points}"
    return {"sentence": sentence, "difference": float(mean.difference), "interval": float(mean.interval)}


def write_main_result(study: Study, result: dict[str, str | float]) -> Path:
    """Writes results/<study>/headline.json, which `make figures` prints at its end."""
    path = study.results_folder / "headline.json"
    write_text(path, json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    return path
