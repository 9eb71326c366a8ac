"""Episodes through a model: one row per query image, with what was predicted after every refinement step.

Nothing aggregated is stored. The stopping rule, the variants without refinement, every table and figure come from
these rows.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from tqdm.auto import tqdm

from tcnaps.config import Study
from tcnaps.config.dependencies import job_key
from tcnaps.config.storage import file_digest
from tcnaps.datasets import open_split
from tcnaps.datasets.image_source import ImageSource
from tcnaps.episodes.loading import read_episodes
from tcnaps.episodes.sampling import draw_episode
from tcnaps.evaluation.result_files import RowsError, read_rows, rows_file, write_manifest, write_rows
from tcnaps.method.clustering import trajectory
from tcnaps.method.episode import Episode
from tcnaps.method.model import TransductiveCNAPS
from tcnaps.training.checkpoints import backbone_file, checkpoint_folder, load_model, new_model
from tcnaps.training.determinism import as_pinned


@as_pinned
def evaluate(study: Study, training: str, device: torch.device | str = "cpu", workers: int = 0) -> Path:
    """Runs every evaluation of the study that names this training; returns the manifest of the files written.

    A file for each evaluation and dataset is written as soon as it is complete; what is there already and was made
    from the same episodes, weights and settings is kept, so that an interrupted call goes on where it was.

    Args:
        workers: processes that read images ahead; see `tcnaps.episodes.loading`. They change nothing else.
    """
    models = {False: load_model(study, training, device), True: new_model(study, training).eval().to(device)}
    weights = [
        file_digest(file) for file in (backbone_file(study), checkpoint_folder(study) / f"{training}.safetensors")
    ]
    jobs = [
        (name, dataset)
        for name, evaluation in study.evaluations.items()
        if training in evaluation.trainings
        for dataset in evaluation.datasets
    ]
    files = []
    for name, dataset in (bar := tqdm(jobs, desc=f"evaluating {training}", unit="file")):
        bar.set_postfix_str(f"{name}, {dataset}", refresh=False)
        source = open_split(study, dataset, "test")
        path, named = rows_file(study, training, name, dataset), {"training": training, "evaluation": name}
        untrained = study.evaluations[name].before_training
        used = weights[: 1 if untrained else 2]
        key = job_key([source.digest, *used], study, "evaluation", dataset=dataset, **named)
        if not _is_current(path, key):
            model = models[untrained]
            write_rows(path, evaluate_dataset(model, source, study, training, name, device, workers), key)
        files.append(path)
    return write_manifest(study, training, files)


@torch.no_grad()
def evaluate_dataset(
    model: TransductiveCNAPS,
    source: ImageSource,
    study: Study,
    training: str,
    name: str,
    device: torch.device | str = "cpu",
    workers: int = 0,
    together: bool | None = None,
) -> pd.DataFrame:
    """The rows of one evaluation on one dataset; for `workers` see `evaluate`.

    Args:
        together: whether episodes share batches of up to the study's `images_at_once`, which changes rounding only.
            Default: on devices other than a CPU.
    """
    evaluation = study.evaluations[name]
    numbers = range(evaluation.episodes)
    tasks = ((source, draw_episode(source, evaluation.protocol, study.seed, index)) for index in numbers)
    at_once = study.images_at_once if together or (together is None and torch.device(device).type != "cpu") else 0
    frames = []
    read = read_episodes(tasks, workers, device)
    bar = tqdm(read, f"{name}, {source.dataset}", len(numbers), leave=False, unit="episode")
    for episodes in in_batches(iter(bar), at_once):
        features = model.features_together(episodes)
        for episode, of_episode in zip(episodes, features):
            logits = trajectory(*of_episode, model.head, study.refinement.recorded_steps)
            frames.append(_rows_of(episode, logits, source, study, training, name))
    return pd.concat(frames, ignore_index=True)


def in_batches(episodes: Iterator[Episode], images_at_once: int) -> Iterator[list[Episode]]:
    """Episodes in their order, as many together as have so many images; at least one."""
    batch, n_images = [], 0
    for episode in episodes:
        own = len(episode.support_images) + len(episode.query_images)
        if batch and n_images + own > images_at_once:
            yield batch
            batch, n_images = [], 0
        batch.append(episode)
        n_images += own
    if batch:
        yield batch


def _rows_of(
    episode: Episode, logits: Tensor, source: ImageSource, study: Study, training: str, name: str
) -> pd.DataFrame:
    confidences, predictions = logits.softmax(2).max(2)
    draw, shots = episode.draw, episode.shots.cpu().numpy()
    n_query = len(draw.query_labels)
    frame = {
        "training": training,
        "replicate": study.replicate,
        "evaluation": name,
        "dataset": source.dataset,
        "domain": study.datasets[source.dataset].domain,
        "split": source.split,
        "episode": draw.index,
        "way": episode.way,
        "n_support": len(draw.support_labels),
        "queries_per_class": n_query // episode.way,
        "query": np.arange(n_query),
        "label": draw.query_labels,
        "class_name": [source.class_names[draw.classes[label]] for label in draw.query_labels],
        "shot": shots[draw.query_labels],
        "image": draw.query_images,
    }
    frame |= {f"prediction_{t}": p for t, p in enumerate(predictions.to(torch.int16).cpu().numpy())}
    frame |= {f"confidence_{t}": c for t, c in enumerate(confidences.float().cpu().numpy())}
    return pd.DataFrame(frame)


def _is_current(path: Path, key: str) -> bool:
    try:
        return read_rows(path)[1] == key
    except RowsError:  # a missing or damaged file is made again
        return False
