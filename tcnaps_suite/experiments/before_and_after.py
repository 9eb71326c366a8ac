"""What meta-training adds to accuracy: trained networks beside those that it starts from, on the same episodes."""

from collections.abc import Sequence

import pandas as pd

from tcnaps.evaluation.statistics import accuracy_summary, domain_averages, episode_accuracies, paired_episodes
from tcnaps.evaluation.stopped_rows import variant_predictions


def gain_of_training(
    start: pd.DataFrame, trained: pd.DataFrame, variants: Sequence[str], limits: tuple[int, int]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The paired gain of each variant: per dataset, as `accuracy_summary`, and its means, as `domain_averages`.

    Frames have one row per query. `start` comes from an evaluation with `before_training`, `trained` from one with the
    same protocol after it. Only the episodes of both are compared.
    """
    start = start.assign(evaluation=trained["evaluation"].iloc[0])
    after, before = (episode_accuracies(variant_predictions(rows, variants, *limits)) for rows in (trained, start))
    keys = ["variant", "replicate", "dataset", "episode"]
    gains = paired_episodes(after.merge(before[keys], on=keys), before.merge(after[keys], on=keys), extra=["variant"])
    return accuracy_summary(gains, value="difference"), domain_averages(gains, value="difference")
