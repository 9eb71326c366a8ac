"""Which scale is best during meta-training: whether training makes distances fit the paper's scale of 1."""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

import pandas as pd
import torch
from tqdm.auto import tqdm

from tcnaps.config import FixedProtocol, Study, UserError
from tcnaps.config.dependencies import job_key
from tcnaps.config.storage import file_digest
from tcnaps.data import open_split
from tcnaps.data.image_source import ImageSource
from tcnaps.episodes.loading import read_episodes
from tcnaps.training.checkpoints import backbone_file, checkpoint_folder, new_model
from tcnaps.training.meta_training import meta_training_steps, new_optimiser, training_tasks
from tcnaps.training.resuming import Resumable
from tcnaps_suite.experiments.comparison import compare_heads, episode_features


def scale_in_training(
    study: Study,
    training: str,
    parts: Sequence[float | int],
    scales: Sequence[float | str],
    sources: Sequence[ImageSource],
    protocol: FixedProtocol,
    episodes: int,
    device: torch.device | str = "cpu",
) -> pd.DataFrame:
    """Meta-trains anew, as `meta_train` does, and stops on the way to classify test episodes with a head of each scale.

    An interrupted call goes on from its last stop. The training's own checkpoint stays as it is.

    Args:
        parts: shares of the study's training episodes, in [0, 1], after which to classify; rounded to whole steps.
        scales: numbers, or "auto".

    Returns:
        The rows of `compare_heads`, whose head is the scale, with a column trained_episodes.

    Raises:
        UserError: a part is not in [0, 1].
        Diverged: the loss is not finite.
    """
    settings = study.meta_training
    n_steps = math.ceil(settings.episodes / settings.episodes_per_step)
    if not all(0 <= part <= 1 for part in parts):
        raise UserError(f"parts {list(parts)} must be between 0 and 1.")
    stops = sorted({round(part * n_steps) for part in parts})  # in steps
    train = [open_split(study, name, "train") for name in settings.datasets]
    model = new_model(study, training).to(device)
    learned = {"task_encoder": model.task_encoder, "film_generator": model.film_generator}
    learned["exponents"], learned["optimiser"] = model.exponents, (optimiser := new_optimiser(model, study))
    digests = [*(source.digest for source in [*train, *sources]), file_digest(backbone_file(study))]
    key = f"{job_key(digests, study, 'meta_training', training=training)} {scales} {protocol} {episodes} {stops}"
    progress = {"done": -1, "rows": []}  # steps at the last stop
    with Resumable(checkpoint_folder(study) / "scale-in-training", key, learned, progress) as state:
        first = max(0, progress["done"])
        drawn = read_episodes(training_tasks(train, study, first), device=device)
        steps = meta_training_steps(model, study, drawn, optimiser)
        for stop in tqdm([stop for stop in stops if stop > progress["done"]], desc="stops", unit="stop"):
            model.train()
            ahead = stop - max(0, progress["done"])
            deque(tqdm(islice(steps, ahead), total=ahead, desc=f"to step {stop}", unit="step", leave=False), 0)
            model.eval()
            heads = {scale: replace(model.head, scale=scale) for scale in scales}
            features = episode_features(study, sources, protocol, episodes, model)
            rows = compare_heads(features, heads, study.refinement)
            rows = rows.assign(trained_episodes=stop * settings.episodes_per_step)
            progress["rows"] += rows.to_dict("records")
            progress["done"] = stop
            state.save()
    return pd.DataFrame(progress["rows"])
