"""Episodes through a model: one row per query image, with what was predicted after every refinement step.

Nothing aggregated is stored. The stopping rule, the variants without refinement, every table and figure come from
these rows.
"""

import warnings
from collections.abc import Iterable, Iterator
from itertools import chain, islice, tee
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from tcnaps.config import Study
from tcnaps.config.dependencies import job_key
from tcnaps.config.storage import file_digest
from tcnaps.data import open_split
from tcnaps.data.image_source import ImageSource
from tcnaps.episodes.loading import read_episodes
from tcnaps.episodes.sampling import Draw, draw_episode
from tcnaps.evaluation.result_files import RowsError, read_rows, rows_file, write_manifest, write_rows
from tcnaps.method.clustering import LowVarianceWarning, trajectory
from tcnaps.method.episode import Episode
from tcnaps.method.model import TransductiveCNAPS
from tcnaps.training.checkpoints import backbone_file, checkpoint_folder, load_model, new_model
from tcnaps.training.determinism import deterministic
from tcnaps.training.processes import ALONE, Team, run_together


@deterministic
def evaluate(
    study: Study,
    training: str,
    device: torch.device | str = "cpu",
    workers: int = 0,
    processes: int = 1,
    team: Team = ALONE,
) -> Path:
    """Runs every evaluation of the study that names this training; returns the manifest of the files written.

    A file for each evaluation and dataset is written as soon as it is complete; what is there already and was made
    from the same episodes, weights and settings is kept, so that an interrupted call goes on where it was.

    Args:
        workers: processes that read images ahead; see `tcnaps.episodes.loading`. They change nothing else.
        processes: that share the episodes; see `tcnaps.training.processes`. The rows are the same with any number of
            processes that have as many threads each.
        team: set by `run_together`, which calls this function in every process.

    Raises:
        CheckpointError: the training's weights can't be read.
        ProcessError: one of several processes has ended early.
        UserError: there are fewer GPUs than processes.
    """
    if processes != 1:
        return run_together(processes, evaluate, study, training, device=device, workers=workers)
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
    for name, dataset in (bar := team.bar(f"evaluating {training}", jobs, unit="file")):
        bar.set_postfix_str(f"{name}, {dataset}", refresh=False)
        source = open_split(study, dataset, "test")
        path, named = rows_file(study, training, name, dataset), {"training": training, "evaluation": name}
        untrained = study.evaluations[name].before_training
        used = weights[: 1 if untrained else 2]
        key = job_key([source.digest, *used], study, "evaluation", dataset=dataset, **named)
        if not _is_current(path, key):
            model = models[untrained]
            rows = evaluate_dataset(model, source, study, training, name, device, workers, team=team)
            if team.leads:
                write_rows(path, rows, key)
        files.append(path)
    return write_manifest(study, training, files) if team.leads else Path()


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
    team: Team = ALONE,
) -> pd.DataFrame:
    """The rows of one evaluation on one dataset; for `workers` and `team` see `evaluate`.

    Args:
        together: whether episodes share batches of up to the study's `images_at_once`, which changes rounding only.
            Default: on devices other than a CPU.
    """
    evaluation = study.evaluations[name]
    numbers = range(evaluation.episodes)
    tasks = ((source, draw_episode(source, evaluation.protocol, study.seed, index)) for index in numbers)
    at_once = study.images_at_once if together or (together is None and torch.device(device).type != "cpu") else 0
    frames = []
    here, there = tee(team.share(in_batches(tasks, at_once)))
    read = read_episodes(chain.from_iterable(there), workers, device)
    unwarned = warnings.catch_warnings(action="ignore", category=LowVarianceWarning)
    with unwarned, team.bar(f"{name}, {source.dataset}", total=len(numbers), leave=False, unit="episode") as bar:
        for batch in here:  # the same batches with any number of processes, so that all is rounded alike
            episodes, found = list(islice(read, len(batch))), []
            features = map(model.features, episodes)
            for episode, of_episode in zip(episodes, features):
                logits = trajectory(*of_episode, model.head, study.refinement.recorded_steps)
                found.append(_rows_of(episode, logits, source, study, training, name))
            frames.append(found)
            bar.update(min(len(batch) * team.size, len(numbers) - bar.n))
    return pd.concat(chain.from_iterable(team.gather(frames)), ignore_index=True)


def in_batches(
    tasks: Iterable[tuple[ImageSource, Draw]], images_at_once: int
) -> Iterator[list[tuple[ImageSource, Draw]]]:
    """Episodes to be read, in their order, as many together as have so many images; at least one."""
    batch, n_images = [], 0
    for task in tasks:
        own = len(task[1].support_images) + len(task[1].query_images)
        if batch and n_images + own > images_at_once:
            yield batch
            batch, n_images = [], 0
        batch.append(task)
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
