"""Different heads on the same features: what a setting of the clustering changes, with everything else equal."""

from collections.abc import Mapping, Sequence

import pandas as pd
import torch
from tqdm.auto import tqdm

from tcnaps.config import FixedProtocol, Study, VariableProtocol
from tcnaps.datasets.image_source import ImageSource
from tcnaps.episodes.loading import load_episode
from tcnaps.episodes.sampling import draw_episode
from tcnaps.method.clustering import trajectory
from tcnaps.method.head import Head
from tcnaps.method.model import TransductiveCNAPS
from tcnaps.method.stopping import stopping_step


@torch.no_grad()
def compare_heads(
    model: TransductiveCNAPS,
    sources: Sequence[ImageSource],
    protocol: FixedProtocol | VariableProtocol,
    heads: Mapping[float | str, Head],
    study: Study,
    episodes: int,
) -> pd.DataFrame:
    """Accuracy without and with refinement of every head, on the same features of the same episodes.

    Returns:
        One row per episode and head: dataset, domain, episode, head, without and refined (accuracies in [0, 1]),
        step (where the study's stopping rule stops) and confidence (the mean responsibility of the predicted class
        at step 0).
    """
    rule = study.refinement
    rows = []
    for source in sources:
        for index in tqdm(range(episodes), desc=f"heads, {source.dataset}", unit="episode", leave=False):
            episode = load_episode(source, draw_episode(source, protocol, study.seed, index))
            features = model.features(episode)
            for name, head in heads.items():
                logits = trajectory(*features, head, rule.maximum_steps)
                labels = logits.argmax(2)
                step = stopping_step(labels.numpy(), *rule.limits)
                right = (labels == episode.query_labels).double().mean(1)
                rows.append(
                    {
                        "dataset": source.dataset,
                        "domain": study.datasets[source.dataset].domain,
                        "episode": index,
                        "head": name,
                        "without": right[0].item(),
                        "refined": right[step].item(),
                        "step": step,
                        "confidence": logits[0].softmax(1).max(1).values.mean().item(),
                    }
                )
    return pd.DataFrame(rows)
