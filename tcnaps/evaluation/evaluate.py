"""Episodes through a model: one row per query image, with what was predicted after every refinement step.

Nothing aggregated is stored: every table and every figure is computed from these rows.
"""

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from tqdm.auto import tqdm

from tcnaps.config import Study
from tcnaps.config.dependencies import job_key
from tcnaps.config.storage import file_digest
from tcnaps.data import open_split
from tcnaps.data.image_source import ImageSource
from tcnaps.episodes.loading import load_episode
from tcnaps.episodes.sampling import draw_episode
from tcnaps.evaluation.result_files import RowsError, asked_of, read_rows, rows_file, write_manifest, write_rows
from tcnaps.method.clustering import LowVarianceWarning, trajectory
from tcnaps.method.episode import Episode
from tcnaps.method.model import TransductiveCNAPS
from tcnaps.training.checkpoints import backbone_file, checkpoint_folder, load_model, new_model
from tcnaps.training.launching import run_together
from tcnaps.training.processes import gather, rank, share


def evaluate(study: Study, training: str, device: torch.device | str = "cpu", processes: int = 1) -> Path:
    """Runs every evaluation of the study that names this training; returns the manifest of the files written.

    A file made from the same episodes, weights and settings is kept, so that an interrupted call goes on where it was.
    Several `processes` share the episodes; their number changes no row if each has as many threads.
    """
    if processes != 1:
        run_together(processes, evaluate, study, device, training=training)
    trained = load_model(study, training, device)
    untrained = new_model(study, training).eval().to(device)
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
    for name, dataset in (bar := tqdm(jobs, f"evaluating {training}", unit="file", disable=rank() > 0)):
        bar.set_postfix_str(f"{name}, {dataset}", refresh=False)
        before_training = study.evaluations[name].before_training
        source, path = open_split(study, dataset, "test"), rows_file(study, training, name, dataset)
        inputs = [source.digest, *weights[: 1 if before_training else 2]]
        key = job_key(inputs, study, "evaluation", training=training, evaluation=name, dataset=dataset)
        if not _is_current(path, key):
            model = untrained if before_training else trained
            rows = evaluate_dataset(model, source, study, training, name, device)
            if rank() == 0:
                write_rows(path, rows, key, asked_of(study, name))
        files.append(path)
    return write_manifest(study, training, files) if rank() == 0 else Path()


@torch.no_grad()
def evaluate_dataset(
    model: TransductiveCNAPS,
    source: ImageSource,
    study: Study,
    training: str,
    name: str,
    device: torch.device | str = "cpu",
) -> pd.DataFrame:
    """The rows of the evaluation `name` on one dataset."""
    evaluation = study.evaluations[name]
    indices = share(tqdm(range(evaluation.episodes), f"{name}, {source.dataset}", leave=False, disable=rank() > 0))
    frames = []
    with warnings.catch_warnings(action="ignore", category=LowVarianceWarning):
        for index in indices:
            episode = load_episode(source, draw_episode(source, evaluation.protocol, study.seed, index), device)
            logits = trajectory(*model.features(episode), model.head, study.refinement.recorded_steps)
            frames.append(_rows_of(episode, logits, source, study, training, name))
    return pd.concat(gather(frames), ignore_index=True)


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
        "queries_per_class": int(np.bincount(draw.query_labels).max()),
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
